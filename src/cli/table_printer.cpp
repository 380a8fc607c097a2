#include "cli/table_printer.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

namespace ebb::cli {

namespace {

constexpr size_t k_table_gap = 2;

std::vector<std::string> table_head_lines(const std::string &head) {
    std::vector<std::string> lines;
    std::istringstream text(head);
    for (std::string line; std::getline(text, line);) {
        lines.push_back(line);
    }
    return lines;
}

void append_cell(std::string &line, const std::string &cell, size_t width, bool is_words) {
    const std::string fill(width - std::min(width, cell.size()), ' ');
    line += is_words ? cell + fill : fill + cell;
}

std::string without_end_blanks(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    return line + '\n';
}

}  // namespace

table_printer::table_printer(std::vector<std::string> heads) {
    for (std::string &head : heads) {
        const bool is_words = !head.empty() && head[0] == '<';
        columns_.push_back({table_head_lines(is_words ? head.substr(1) : head), is_words});
    }
}

void table_printer::add(std::vector<std::string> cells) {
    cells.resize(columns_.size());
    rows_.push_back(std::move(cells));
}

std::string table_printer::text() const {
    std::vector<size_t> widths;
    size_t head_lines = 0;
    for (size_t c = 0; c < columns_.size(); ++c) {
        size_t width = 0;
        for (const std::string &line : columns_[c].head) {
            width = std::max(width, line.size());
        }
        for (const std::vector<std::string> &row : rows_) {
            width = std::max(width, row[c].size());
        }
        widths.push_back(width);
        head_lines = std::max(head_lines, columns_[c].head.size());
    }
    std::string all;
    const auto append_row = [&](const auto &cell_of) {
        std::string line;
        for (size_t c = 0; c < columns_.size(); ++c) {
            line += c == 0 ? "" : std::string(k_table_gap, ' ');
            append_cell(line, cell_of(c), widths[c], columns_[c].is_words);
        }
        all += without_end_blanks(std::move(line));
    };
    for (size_t l = 0; l < head_lines; ++l) {
        // Heads end at the same line: that is where units stand.
        append_row([&](size_t c) {
            const std::vector<std::string> &head = columns_[c].head;
            const size_t above = head_lines - head.size();
            return l < above ? std::string() : head[l - above];
        });
    }
    for (const std::vector<std::string> &row : rows_) {
        append_row([&](size_t c) { return row[c]; });
    }
    return all;
}

}  // namespace ebb::cli
