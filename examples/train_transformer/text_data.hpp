// The training text: bytes of a file, or of this project's documentation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train {

struct text_data {
    std::string source;  // for people: which files
    std::vector<uint8_t> bytes;
};

// Throws std::runtime_error naming the file when it cannot be read or has fewer bytes than `least`.
text_data read_text(const std::string &path, int64_t least);
// All Markdown files, the licence and, where those are short, the headers below `root`.
text_data read_documentation(const std::string &root, int64_t least);

}  // namespace train
