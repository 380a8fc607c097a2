// What the program prints: the table for people, or one JSON object.
#pragma once

#include <string>
#include <vector>

#include "comparison.hpp"

namespace train {

std::string context_text(const settings &s, const text_data &text);
std::string table(const std::vector<mode_result> &results);
std::string json_text(const settings &s, const text_data &text, const std::vector<mode_result> &results);

}  // namespace train
