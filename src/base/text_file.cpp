#include "base/text_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace ebb {

namespace {

struct file_closer {
    void operator()(std::FILE *file) const noexcept { std::fclose(file); }
};

}  // namespace

result<std::string> read_text_file(const std::string &path) {
    const auto failed = [&path](const char *what) {
        return status{code::invalid_argument, fmt::format("{} cannot be {}: {}", path, what, std::strerror(errno))};
    };
    const std::unique_ptr<std::FILE, file_closer> file(std::fopen(path.c_str(), "rbe"));
    if (!file) {
        return failed("opened");
    }
    std::string text;
    char part[1U << 16U];
    size_t got = 0;
    while ((got = std::fread(part, 1, sizeof(part), file.get())) > 0) {
        text.append(part, got);
    }
    if (std::ferror(file.get()) != 0) {
        return failed("read");
    }
    return text;
}

}  // namespace ebb
