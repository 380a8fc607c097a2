// A table of text: columns as wide as they need to be, numbers to the right, words to the left.
#pragma once

#include <string>
#include <vector>

namespace ebb::cli {

class table_printer {
public:
    // A head that begins with '<' is of a column of words. Units belong into the heads; '\n' makes them two lines.
    explicit table_printer(std::vector<std::string> heads);

    void add(std::vector<std::string> cells);
    [[nodiscard]] std::string text() const;

private:
    struct column {
        std::vector<std::string> head;  // lines
        bool is_words = false;
    };

    std::vector<column> columns_;
    std::vector<std::vector<std::string>> rows_;
};

}  // namespace ebb::cli
