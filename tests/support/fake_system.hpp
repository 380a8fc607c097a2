// A made-up system root for code that reads limits below one: files by path, gone at the end.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace ebb {

class fake_system {
public:
    fake_system() {
        std::string pattern = (std::filesystem::temp_directory_path() / "ebb-fake-system-XXXXXX").string();
        root_ = mkdtemp(pattern.data());
    }
    ~fake_system() {
        std::error_code ignored;
        std::filesystem::remove_all(root_, ignored);
    }
    fake_system(const fake_system &) = delete;
    fake_system &operator=(const fake_system &) = delete;

    // "/proc/meminfo", and what stands in it.
    void write(const std::string &path, const std::string &text) const {
        const std::filesystem::path full = root_ + path;
        std::filesystem::create_directories(full.parent_path());
        std::ofstream(full) << text;
    }
    [[nodiscard]] const std::string &root() const noexcept { return root_; }

private:
    std::string root_;
};

}  // namespace ebb
