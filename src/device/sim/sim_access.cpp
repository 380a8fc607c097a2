#include "device/sim/sim_access.hpp"

#include <fmt/core.h>

namespace ebb {
namespace {

const char *sim_action_name(sim_action action) noexcept {
    switch (action) {
        case sim_action::kernel:
            return "kernel";
        case sim_action::copy_d2h:
            return "copy to the host";
        case sim_action::copy_h2d:
            return "copy to the device";
        case sim_action::copy_d2d:
            return "copy within the device";
        case sim_action::checksum:
            return "checksum";
        case sim_action::free:
            return "free";
        case sim_action::alloc:
            return "alloc";
    }
    return "operation";
}

std::string sim_operation_text(const sim_operation &o) {
    return fmt::format("{} {} on stream {:#x}", sim_action_name(o.action), o.number, o.stream);
}

std::string sim_content_text(uint64_t tag, uint64_t position_bytes) {
    return tag == k_any_tag ? std::string("nothing that was written")
                            : fmt::format("tag {:#x} from byte {}", tag, position_bytes);
}

std::string sim_fault_text(const sim_violation &v) {
    const std::string where = fmt::format("{} bytes at {:#x}", v.size_bytes, v.address);
    switch (v.fault) {
        case sim_fault::wrong_content:
            return fmt::format("reads {} and finds {} where {} is expected", where,
                               sim_content_text(v.found_tag, v.found_position_bytes),
                               sim_content_text(v.expected_tag, v.expected_position_bytes));
        case sim_fault::reads_what_is_written:
            return fmt::format("reads {} while {} writes there", where, sim_operation_text(v.other));
        case sim_fault::writes_what_is_read:
            return fmt::format("writes {} while {} reads there", where, sim_operation_text(v.other));
        case sim_fault::writes_what_is_written:
            return fmt::format("writes {} while {} writes there", where, sim_operation_text(v.other));
        case sim_fault::touches_no_memory:
            return fmt::format("touches {}, which was freed or never was memory of this device", where);
        case sim_fault::frees_what_is_used:
            return fmt::format("frees {} while {} uses them", where, sim_operation_text(v.other));
    }
    return where;
}

}  // namespace

std::string to_string(const sim_violation &violation) {
    return fmt::format("{}, at {:.3f} us: {}", sim_operation_text(violation.who),
                       static_cast<double>(violation.time_ps) / 1e6, sim_fault_text(violation));
}

}  // namespace ebb
