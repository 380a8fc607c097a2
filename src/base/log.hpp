// Log lines: where they go and which are let through. There is no global logger: whoever owns a runtime owns
// its sink, and a sink is called only inside a caller's call.
#pragma once

#include <cstdint>
#include <string_view>

namespace ebb {

// The numbers are those of ebb_log_level in include/ebb/ebb.h.
enum class log_level : int32_t { error = 1, warning = 2, info = 3, debug = 4 };

[[nodiscard]] std::string_view log_level_name(log_level level) noexcept;

// One line, without a newline; the level's number. The type is that of ebb_log_sink, which a caller's function has.
using log_function = void (*)(void *context, int32_t level, const char *line);

class logger {
public:
    logger() noexcept = default;  // warnings and errors, to standard error
    // A null function stands for standard error.
    logger(log_function function, void *context, log_level level) noexcept
        : function_(function), context_(context), level_(level) {}

    void set_level(log_level level) noexcept { level_ = level; }
    [[nodiscard]] bool enabled(log_level level) const noexcept { return level <= level_; }

    // Line breaks in the text become spaces: one call is one line, whatever a device's message holds.
    void write(log_level level, std::string_view text) const;

private:
    log_function function_ = nullptr;
    void *context_ = nullptr;
    log_level level_ = log_level::warning;
};

}  // namespace ebb
