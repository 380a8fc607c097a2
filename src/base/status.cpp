#include "base/status.hpp"

namespace ebb {

const char *code_name(code c) noexcept {
    switch (c) {
        case code::ok:
            return "EBB_OK";
        case code::invalid_argument:
            return "EBB_INVALID_ARGUMENT";
        case code::stale_handle:
            return "EBB_STALE_HANDLE";
        case code::wrong_state:
            return "EBB_WRONG_STATE";
        case code::no_slot:
            return "EBB_NO_SLOT";
        case code::recompute:
            return "EBB_RECOMPUTE";
        case code::out_of_device_memory:
            return "EBB_OUT_OF_DEVICE_MEMORY";
        case code::out_of_host_memory:
            return "EBB_OUT_OF_HOST_MEMORY";
        case code::busy:
            return "EBB_BUSY";
        case code::device_error:
            return "EBB_DEVICE_ERROR";
        case code::data_mismatch:
            return "EBB_DATA_MISMATCH";
        case code::unsupported:
            return "EBB_UNSUPPORTED";
        case code::internal:
            return "EBB_INTERNAL";
    }
    return "EBB_UNKNOWN_STATUS";
}

status status::recompute() noexcept {
    static const failure always{code::recompute, true, "placement is recompute: the caller computes it again"};
    status s;
    s.failure_ = &always;
    return s;
}

const std::string &status::text() const noexcept {
    static const std::string nothing;
    return ok() ? nothing : failure_->text;
}

const status::failure *status::copy() const {
    return ok() || failure_->is_static ? failure_ : new failure{*failure_};
}

void status::drop() noexcept {
    if (!failure_->is_static) {
        delete failure_;
    }
}

}  // namespace ebb
