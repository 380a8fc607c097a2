// A step as the sequence of its loop iterations: embedding, layers, head, layers again, optimizer; with the weights
// that each gathers and the gradients that it scatters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/layer_graph.hpp"
#include "model/model_profile.hpp"
#include "model/step_rates.hpp"
#include "model/step_settings.hpp"

namespace ebb {

enum class iteration_kind : uint8_t { embedding, layer, head, optimizer };

struct planned_iteration {
    iteration_kind kind = iteration_kind::layer;
    bool backward = false;
    uint32_t layer = 0;
    uint32_t chunk = 0;
    uint64_t micro_batch = 0;
    double gather_bytes = 0;
    double scatter_bytes = 0;
    double pipeline_wait_ns = 0;
};

// The layers of a part of the model, chunk * stages + stage of it: as even as it goes, the first ones longer.
struct layer_range {
    uint32_t begin = 0;
    uint32_t end = 0;
};
[[nodiscard]] layer_range layers_of_part(uint32_t layers, uint64_t parts, uint64_t part) noexcept;

// What the step's layers are, each kind once.
struct step_layers {
    std::vector<layer_graph> graphs;       // by group of layers in the model
    std::vector<uint32_t> graph_of_layer;  // index
};
[[nodiscard]] step_layers make_step_layers(const model_profile &model, const step_settings &settings);

// Work of what is no layer.
[[nodiscard]] std::vector<layer_work> embedding_work(const model_profile &model, const step_settings &settings,
                                                     bool backward);
[[nodiscard]] std::vector<layer_work> head_work(const model_profile &model, const step_settings &settings,
                                                bool backward);
[[nodiscard]] layer_work optimizer_work(double parameters, const step_settings &settings);

// Parameters of the stage that are on this device: its share of them.
[[nodiscard]] double parameters_held(const model_profile &model, const step_settings &settings) noexcept;
// Weights of a layer that are not spread over devices as experts.
[[nodiscard]] double gathered_parameters(const model_profile &model, const mlp_profile &mlp,
                                         const step_settings &settings) noexcept;

[[nodiscard]] std::vector<planned_iteration> plan_iterations(const model_profile &model, const step_settings &settings,
                                                             const step_layers &layers, const step_rates &rates);

}  // namespace ebb
