// What the program prints beside the table: what was run, and one JSON object instead.
#pragma once

#include <string>
#include <vector>

#include "comparison.hpp"
#include "settings.hpp"
#include "text_data.hpp"

namespace train {

std::string context_text(const settings &s, const text_data &text);
std::string json_text(const settings &s, const text_data &text, const std::vector<mode_result> &results);

}  // namespace train
