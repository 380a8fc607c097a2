// Writes the events and tensors of a step_model, iteration by iteration.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/layer_graph.hpp"
#include "model/save_set.hpp"
#include "model/step_builder.hpp"
#include "model/step_iterations.hpp"

namespace ebb {

class step_writer {
public:
    step_writer(const model_profile &model, const step_settings &settings, const step_layers &layers,
                const step_rates &rates, save_set &saved, built_step &to)
        : model_(model), settings_(settings), layers_(layers), rates_(rates), saved_(saved), to_(to) {}

    void write(const std::vector<planned_iteration> &iterations);

private:
    // What an iteration's collectives do before and behind its work.
    void collectives_before(const std::vector<planned_iteration> &all, size_t at);
    void collectives_behind(const planned_iteration &it);
    void body(const planned_iteration &it);
    void layer(const planned_iteration &it);
    void layer_step_events(const layer_step &s, uint32_t base);
    // Adds the tensors of a layer's graph; returns the number of the first.
    uint32_t add_tensors(const planned_iteration &it, const layer_graph &graph);
    void set_recompute_place(uint32_t base, const layer_graph &graph);
    void exchange(const layer_step &s);

    void work(const layer_work &w);
    void wait(double time_ns);
    void collective_begin(const std::string &name, double bytes, double bytes_per_second);
    void collective_end();  // nothing where none was begun since the last
    void on_tensor(step_event_kind what, uint32_t tensor);
    [[nodiscard]] uint32_t operation(const std::string &name);
    [[nodiscard]] uint64_t key_of(const planned_iteration &it) const noexcept {
        return it.micro_batch * model_.layer_count() + it.layer;
    }

    const model_profile &model_;
    const step_settings &settings_;
    const step_layers &layers_;
    const step_rates &rates_;
    save_set &saved_;
    built_step &to_;
    std::unordered_map<std::string, uint32_t> operations_;
    std::unordered_map<uint64_t, uint32_t> first_tensor_;  // of a layer in a micro-batch
    bool collective_runs_ = false;
};

}  // namespace ebb
