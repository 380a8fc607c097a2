#include "model/published_peak.hpp"

#include <algorithm>
#include <map>
#include <string_view>

namespace ebb {

namespace {

bool is_layer_input(const step_tensor &tensor) {
    constexpr std::string_view k_name = "/decoder_layer_input";
    return tensor.name.size() > k_name.size() &&
           std::string_view(tensor.name).substr(tensor.name.size() - k_name.size()) == k_name;
}

}  // namespace

published_peak peak_of(const built_step &step, const xla_step &time, bool collectives_overlap) {
    uint64_t input_bytes = 0;
    uint64_t saved_bytes = 0;
    std::map<uint32_t, uint64_t> recomputed_bytes;  // by layer
    for (size_t t = 0; t < step.model.tensors.size(); ++t) {
        const step_tensor &tensor = step.model.tensors[t];
        const tensor_placement placement = step.save_set.placement[t];
        if (placement == tensor_placement::keep) {
            (is_layer_input(tensor) ? input_bytes : saved_bytes) += tensor.size_bytes;
        } else if (placement == tensor_placement::recompute && step.role[t] == tensor_role::saved) {
            // What is nearly free is computed inside its readers.
            recomputed_bytes[tensor.layer] += tensor.size_bytes;
        }
    }
    uint64_t most_recomputed_bytes = 0;
    for (const auto &entry : recomputed_bytes) {
        most_recomputed_bytes = std::max(most_recomputed_bytes, entry.second);
    }
    published_peak peak;
    const auto add = [&peak](std::string name, uint64_t size_bytes) {
        if (size_bytes != 0) {
            peak.parts.push_back({std::move(name), size_bytes});
            peak.low_bytes += static_cast<double>(size_bytes);
        }
    };
    for (const named_bytes &part : step.fixed_parts) {
        add(part.name, part.size_bytes);
    }
    add("layer inputs", input_bytes);
    add("saved on the device", saved_bytes);
    add("recomputed for one layer", most_recomputed_bytes);
    add("copy buffers", time.copy_buffer_bytes);
    peak.high_bytes = peak.low_bytes + (collectives_overlap ? step.gathered_layer_bytes : 0);
    return peak;
}

}  // namespace ebb
