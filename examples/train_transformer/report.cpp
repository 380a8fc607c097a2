#include "report.hpp"

#include <fmt/format.h>

#include "model.hpp"
#include "result_table.hpp"

namespace train {

std::string context_text(const settings &s, const text_data &text) {
    const model_shape &m = s.shape;
    return machine_text(s.offload) +
           fmt::format(
               "{} layers, width {}, {} heads, SwiGLU {}, {:.1f} M weights; {} KiB {}\n"
               "{} steps ({} timed) of {} micro batches of {} sequences of {} tokens; saved per micro batch: {:.1f} "
               "MiB\n\n",
               m.layers, m.width, m.heads, m.ffn, static_cast<double>(weight_elements(m)) * 1e-6,
               text.bytes.size() / 1024, text.source, s.steps, s.steps - s.warm_up_steps, s.accumulation, m.micro_batch,
               m.sequence, mib(saved_by(m).micro_batch_bytes));
}

std::string json_text(const settings &s, const text_data &text, const std::vector<mode_result> &results) {
    nlohmann::ordered_json all{{"context", context_json(s)}, {"modes", nlohmann::ordered_json::array()}};
    nlohmann::ordered_json &context = all["context"];
    context["text"] = text.source;
    context["text_bytes"] = text.bytes.size();
    context["weights"] = weight_elements(s.shape);
    context["saved_bytes_per_micro_batch"] = saved_by(s.shape).micro_batch_bytes;
    for (const mode_result &r : results) {
        all["modes"].push_back(result_json(r));
    }
    return all.dump(2) + "\n";
}

}  // namespace train
