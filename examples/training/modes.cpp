#include "modes.hpp"

#include <algorithm>
#include <stdexcept>

namespace train {
namespace {

// Device memory for activations in the offload modes: a quarter of what a micro batch saves, which with the
// weights is well below half of what keeping everything takes. At least a layer's worth on the way out and as
// much on the way back, and eight of the largest activation.
uint64_t offload_budget(const offload_settings &s, const saved_sizes &saved) {
    return s.device_budget_bytes != 0
               ? s.device_budget_bytes
               : std::max({saved.micro_batch_bytes / 4, 2 * saved.layer_bytes, 8 * saved.largest_bytes});
}

void keep(const offload_settings & /*s*/, const saved_sizes & /*saved*/, ebb_runtime_options &options) {
    options.policy = "keep";
}

void recompute(const offload_settings & /*s*/, const saved_sizes & /*saved*/, ebb_runtime_options &options) {
    options.policy = "decoder_layer_input=device,*=remat";
}

void offload_sync(const offload_settings &s, const saved_sizes &saved, ebb_runtime_options &options) {
    options.policy = "offload";
    options.device_budget_bytes = offload_budget(s, saved);
    options.prefetch_bytes = EBB_PREFETCH_NONE;
    options.source_bytes = EBB_SOURCES_NONE;
}

void offload_lhs(const offload_settings &s, const saved_sizes &saved, ebb_runtime_options &options) {
    options.policy = "offload";
    options.device_budget_bytes = offload_budget(s, saved);
    options.prefetch_bytes = EBB_PREFETCH_LAYER;
}

void offload_pipelined(const offload_settings &s, const saved_sizes &saved, ebb_runtime_options &options) {
    options.policy = "offload";
    options.device_budget_bytes = offload_budget(s, saved);
    options.prefetch_bytes = std::min(2 * saved.layer_bytes, offload_budget(s, saved) / 2);
    options.source_bytes = options.prefetch_bytes;
}

void offload_auto(const offload_settings &s, const saved_sizes &saved, ebb_runtime_options &options) {
    options.device_budget_bytes = offload_budget(s, saved);
}

}  // namespace

const std::vector<mode> &all_modes() {
    static const std::vector<mode> modes{
        {"keep", "every activation stays on the device", keep},
        {"recompute", "only layer inputs stay, the rest of a layer is computed again", recompute},
        {"offload-sync", "compute waits for every copy", offload_sync},
        {"offload-lhs", "copies out overlap with compute, reloads run one layer ahead", offload_lhs},
        {"offload-pipelined", "both directions overlap, two layers deep", offload_pipelined},
        {"offload-auto", "planned from what the steps before measured, within the same device budget", offload_auto},
    };
    return modes;
}

const mode &find_mode(const std::string &name) {
    for (const mode &m : all_modes()) {
        if (name == m.name) {
            return m;
        }
    }
    throw std::runtime_error("no mode is called " + name);
}

ebb_runtime_options options_of(const mode &m, const offload_settings &s, const saved_sizes &saved) {
    ebb_runtime_options options{};
    options.struct_size = sizeof(options);
    options.device = "host";
    options.host_device_bytes = s.device_bytes;
    options.host_bytes = s.host_bytes;
    options.min_offload_bytes = std::max<uint64_t>(s.floor_bytes, 1);
    options.host_d2h_bytes_per_second = s.d2h_bytes_per_second;
    options.host_h2d_bytes_per_second = s.h2d_bytes_per_second;
    options.sample_every = 1;
    options.verify = s.verify ? EBB_ON : EBB_OFF;
    m.choose(s, saved, options);
    return options;
}

}  // namespace train
