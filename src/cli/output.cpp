#include "cli/output.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli/interrupt.hpp"

namespace ebb::cli {

double to_gib(uint64_t size_bytes) noexcept {
    return static_cast<double>(size_bytes) / static_cast<double>(uint64_t{1} << 30U);
}

double to_ms(double time_ns) noexcept {
    return time_ns / 1e6;
}

std::string in_gib(uint64_t size_bytes) {
    const double gib = to_gib(size_bytes);
    return gib != 0 && gib < 0.1 ? fmt::format("{:.3f}", gib) : fmt::format("{:.1f}", gib);
}

std::string as_argument(uint64_t size_bytes) {
    constexpr uint64_t k_mib = uint64_t{1} << 20U;
    return fmt::format("{}MiB", (size_bytes + k_mib - 1) / k_mib);
}

std::string in_ms(double time_ns) {
    return fmt::format("{:.1f}", to_ms(time_ns));
}

void print_text(terminal &io, const std::string &text) {
    const no_interrupts whole;
    io.out << text << std::flush;
}

void print_json(terminal &io, const nlohmann::ordered_json &object) {
    print_text(io, object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

status write_file(const std::string &path, const std::string &text) {
    const no_interrupts whole;
    const std::string unfinished = path + ".part";
    const auto failed = [&](int error) {
        std::remove(unfinished.c_str());
        return status{code::internal, fmt::format("{} cannot be written: {}", path, std::strerror(error))};
    };
    std::FILE *file = std::fopen(unfinished.c_str(), "wbe");
    if (file == nullptr) {
        return failed(errno);
    }
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    const int write_error = errno;
    if (std::fclose(file) != 0 || !written) {
        return failed(written ? errno : write_error);
    }
    return std::rename(unfinished.c_str(), path.c_str()) == 0 ? status() : failed(errno);
}

}  // namespace ebb::cli
