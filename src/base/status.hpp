// status and result<T>: how every layer reports failure.
//
// Success costs nothing: an ok status holds an empty string and allocates nothing. A failed one carries a
// code from the frozen list of include/ebb/ebb.h and a sentence that names what failed, how much, and what
// to do about it.
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

class [[nodiscard]] status {
public:
    status() noexcept = default;
    status(ebb::code c, std::string text) : code_(c), text_(std::move(text)) {}

    [[nodiscard]] bool ok() const noexcept { return code_ == ebb::code::ok; }
    [[nodiscard]] ebb::code code() const noexcept { return code_; }
    [[nodiscard]] const std::string &text() const noexcept { return text_; }

private:
    ebb::code code_ = ebb::code::ok;
    std::string text_;
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
