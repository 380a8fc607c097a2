#include "text_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace train {
namespace {

namespace fs = std::filesystem;

constexpr size_t k_enough_bytes = 256 * 1024;

void append_file(const std::string &path, std::vector<uint8_t> &bytes) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
        throw std::runtime_error(fmt::format("cannot read the text \"{}\": it is a directory; name a file", path));
    }
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    bytes.insert(bytes.end(), std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (!file || file.bad()) {
        const char *const why = errno != 0 ? std::strerror(errno) : "unknown error";
        throw std::runtime_error(fmt::format("cannot read the text \"{}\": {}", path, why));
    }
}

void check_length(const text_data &text, int64_t least) {
    if (static_cast<int64_t>(text.bytes.size()) < least) {
        throw std::runtime_error(
            fmt::format("the text {} has {} bytes, but a sequence and the byte after it need {}: name a longer "
                        "file with --text or lower --sequence",
                        text.source, text.bytes.size(), least));
    }
}

bool is_skipped(const fs::path &directory) {
    const std::string name = directory.filename().string();
    return name == "build" || name.starts_with('.');
}

// Sorted, so that every machine trains on the same bytes.
std::vector<fs::path> files_below(const fs::path &root) {
    std::vector<fs::path> files;
    std::error_code error;
    fs::recursive_directory_iterator it(root, fs::directory_options::skip_permission_denied, error);
    for (const fs::recursive_directory_iterator end; !error && it != end; it.increment(error)) {
        if (it->is_directory() && is_skipped(it->path())) {
            it.disable_recursion_pending();
        } else if (it->is_regular_file()) {
            files.push_back(it->path());
        }
    }
    std::sort(files.begin(), files.end());
    return files;
}

}  // namespace

text_data read_text(const std::string &path, int64_t least) {
    text_data text{fmt::format("\"{}\"", path), {}};
    append_file(path, text.bytes);
    check_length(text, least);
    return text;
}

text_data read_documentation(const std::string &root, int64_t least) {
    text_data text{"of this project's documentation", {}};
    const std::vector<fs::path> files = files_below(root);
    for (const fs::path &file : files) {
        if (file.extension() == ".md" || file.filename() == "LICENSE") {
            append_file(file.string(), text.bytes);
        }
    }
    if (text.bytes.size() < k_enough_bytes) {
        text.source += " and headers";
        for (const fs::path &file : files) {
            if (file.extension() == ".h" || file.extension() == ".hpp") {
                append_file(file.string(), text.bytes);
            }
        }
    }
    check_length(text, least);
    return text;
}

}  // namespace train
