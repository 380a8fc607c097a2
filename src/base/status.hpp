// status and result<T>: how every layer reports failure.
//
// Success costs nothing and allocates nothing. A failed status carries a code from the frozen list of
// include/ebb/ebb.h and a sentence that names what failed, how much, and what to do about it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace ebb {

// The numbers are those of ebb_status in include/ebb/ebb.h; src/capi asserts that they agree.
enum class code : int32_t {
    ok = 0,
    invalid_argument = 1,
    stale_handle = 2,
    wrong_state = 3,
    no_slot = 4,
    recompute = 5,
    out_of_device_memory = 6,
    out_of_host_memory = 7,
    busy = 8,
    device_error = 9,
    data_mismatch = 10,
    unsupported = 11,
    internal = 12,
};

[[nodiscard]] const char *code_name(code c) noexcept;

// One pointer: null is ok, so that success is a register's worth to return and to test.
class [[nodiscard]] status {
public:
    status() noexcept = default;
    status(ebb::code c, std::string text) : failure_(new failure{c, false, std::move(text)}) {}
    // A failure that is part of normal work (EBB_RECOMPUTE): its text never changes, nothing is allocated.
    [[nodiscard]] static status recompute() noexcept;

    status(status &&other) noexcept : failure_(std::exchange(other.failure_, nullptr)) {}
    status &operator=(status &&other) noexcept {
        std::swap(failure_, other.failure_);
        return *this;
    }
    status(const status &other) : failure_(other.copy()) {}
    status &operator=(const status &other) {
        status copied(other);
        std::swap(failure_, copied.failure_);
        return *this;
    }
    ~status() {
        if (failure_ != nullptr) {
            drop();
        }
    }

    [[nodiscard]] bool ok() const noexcept { return failure_ == nullptr; }
    [[nodiscard]] ebb::code code() const noexcept { return ok() ? ebb::code::ok : failure_->why; }
    [[nodiscard]] const std::string &text() const noexcept;

private:
    struct failure {
        ebb::code why;
        bool is_static;
        std::string text;
    };
    [[nodiscard]] const failure *copy() const;
    void drop() noexcept;

    const failure *failure_ = nullptr;
};

// A value or the status that explains its absence.
template <class T>
class [[nodiscard]] result {
public:
    result(T value) : value_(std::move(value)) {}            // NOLINT(google-explicit-constructor)
    result(status failure) : status_(std::move(failure)) {}  // NOLINT(google-explicit-constructor)

    [[nodiscard]] bool ok() const noexcept { return value_.has_value(); }
    [[nodiscard]] const status &why() const noexcept { return status_; }
    [[nodiscard]] T &value() & { return *value_; }
    [[nodiscard]] const T &value() const & { return *value_; }
    [[nodiscard]] T &&value() && { return std::move(*value_); }

private:
    std::optional<T> value_;
    status status_;
};

}  // namespace ebb

// Returns the status of an expression from the enclosing function when it is not ok.
#define EBB_TRY(expression)                                                      \
    do {                                                                         \
        if (::ebb::status ebb_try_status = (expression); !ebb_try_status.ok()) { \
            return ebb_try_status;                                               \
        }                                                                        \
    } while (false)
