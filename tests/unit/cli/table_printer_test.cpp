#include "cli/table_printer.hpp"

#include <gtest/gtest.h>

namespace ebb::cli {
namespace {

TEST(table_printer, words_to_the_left_numbers_to_the_right_heads_end_at_one_line) {
    table_printer table({"<name", "step\nms", "n"});
    table.add({"a", "1.5", "10"});
    table.add({"longer", "1234.5", "2"});
    EXPECT_EQ(table.text(),
              "          step\n"
              "name        ms   n\n"
              "a          1.5  10\n"
              "longer  1234.5   2\n");
}

TEST(table_printer, missing_cells_are_empty_and_lines_end_without_blanks) {
    table_printer table({"<a", "<b"});
    table.add({"x"});
    EXPECT_EQ(table.text(), "a  b\nx\n");
}

}  // namespace
}  // namespace ebb::cli
