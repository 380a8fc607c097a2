// The published tables beside what the models say about them: predictions, their ranges, peaks by part, and how far
// each assumption matters. Nothing here is stored; all of it is computed when it is asked for.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "model/published_tables.hpp"
#include "model/published_workload.hpp"

namespace ebb {

struct named_gib {
    std::string name;
    double gib = 0;
};

struct published_sensitivity {
    std::string name;
    std::string by_default;
    std::string flipped;
    double flipped_tflops = 0;
};

struct published_prediction {
    published_row published;
    bool out_of_memory = false;
    std::optional<double> tflops;  // none: out of memory
    double step_seconds = 0;
    double low_tflops = 0;  // over the default and each assumption flipped
    double high_tflops = 0;
    double peak_gib = 0;  // the sum of the parts
    double low_peak_gib = 0;
    double high_peak_gib = 0;
    std::vector<named_gib> peak_parts;
    double host_gib = 0;
    std::vector<named_gib> host_parts;
    std::vector<published_sensitivity> assumptions;
};

struct published_report {
    published_fit fit;
    std::vector<published_prediction> rows;
    std::vector<std::string> notes;  // what was fitted, and where the tables disagree with each other
};

[[nodiscard]] result<published_report> predict_published();

}  // namespace ebb
