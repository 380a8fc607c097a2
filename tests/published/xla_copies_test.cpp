// The rules of XLA's copies over random layers.
#include "model/xla_copies.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace ebb {
namespace {

// A chain of layers: each is work, a tensor, work; its backward is work, the tensor's use, work.
struct random_layer {
    double before_ns = 0;
    double after_ns = 0;
    double back_before_ns = 0;
    double back_after_ns = 0;
    uint64_t size_bytes = 0;
};

class chain_step {
public:
    explicit chain_step(const std::vector<random_layer> &layers) {
        for (uint32_t l = 0; l < layers.size(); ++l) {
            step_tensor tensor;
            tensor.name = "t";
            tensor.layer = l;
            tensor.size_bytes = layers[l].size_bytes;
            built_.model.tensors.push_back(tensor);
            begin(false, l);
            work(layers[l].before_ns);
            on(step_event_kind::produce, l);
            work(layers[l].after_ns);
            end();
        }
        for (auto l = static_cast<uint32_t>(layers.size()); l-- > 0;) {
            begin(true, l);
            work(layers[l].back_before_ns);
            on(step_event_kind::use, l);
            work(layers[l].back_after_ns);
            on(step_event_kind::release, l);
            end();
        }
        built_.save_set.placement.assign(layers.size(), tensor_placement::offload);
    }

    [[nodiscard]] const built_step &built() const { return built_; }

private:
    void begin(bool backward, uint32_t layer) {
        step_iteration it;
        it.is_layer = true;
        it.backward = backward;
        it.layer = layer;
        it.begin = static_cast<uint32_t>(built_.model.events.size());
        built_.iterations.push_back(it);
    }
    void end() { built_.iterations.back().end = static_cast<uint32_t>(built_.model.events.size()); }
    void work(double time_ns) {
        step_event e;
        e.time_ns = time_ns;
        built_.model.events.push_back(e);
    }
    void on(step_event_kind what, uint32_t tensor) {
        step_event e;
        e.what = what;
        e.tensor = tensor;
        built_.model.events.push_back(e);
    }

    built_step built_;
};

std::vector<random_layer> random_layers(std::mt19937 &random) {
    std::uniform_real_distribution<double> time(0, 100);
    std::uniform_int_distribution<uint64_t> size(1, 150);
    std::vector<random_layer> layers(std::uniform_int_distribution<size_t>(2, 12)(random));
    for (random_layer &l : layers) {
        l = {time(random), time(random), time(random), time(random), size(random)};
    }
    return layers;
}

// One byte takes a nanosecond, or two on the way back.
const plan_link k_out{1e9, 0, 0};
const plan_link k_back{0.5e9, 0, 0};

TEST(xla_copies, a_copy_confined_to_its_iteration_exposes_what_is_left_of_it_at_its_first_user) {
    std::mt19937 random(7);
    for (int round = 0; round < 1000; ++round) {
        const std::vector<random_layer> layers = random_layers(random);
        double out = 0;
        double back = 0;
        double work = 0;
        for (const random_layer &l : layers) {
            out += std::max(0.0, static_cast<double>(l.size_bytes) - l.after_ns);
            back += std::max(0.0, 2 * static_cast<double>(l.size_bytes) - l.back_before_ns);
            work += l.before_ns + l.after_ns + l.back_before_ns + l.back_after_ns;
        }
        const chain_step step(layers);
        const xla_step run = run_xla(step.built(), step.built().save_set, xla_copy_mode::own_iteration, k_out, k_back);
        EXPECT_NEAR(run.exposed_d2h_ns, out, 1e-6);
        EXPECT_NEAR(run.exposed_h2d_ns, back, 1e-6);
        EXPECT_NEAR(run.step_ns, work + out + back, 1e-6);
        EXPECT_EQ(run.copy_buffer_bytes, 0U);
    }
}

TEST(xla_copies, pipelined_copies_expose_nothing_where_they_are_shorter_than_an_iterations_compute) {
    std::mt19937 random(8);
    for (int round = 0; round < 1000; ++round) {
        std::vector<random_layer> layers = random_layers(random);
        uint64_t largest = 0;
        for (random_layer &l : layers) {
            l.back_after_ns += 2 * 150;
            l.after_ns += 150;
            largest = std::max(largest, l.size_bytes);
        }
        layers.back().size_bytes = 0;  // it would go out and come back at the turn
        const chain_step step(layers);
        const xla_step run = run_xla(step.built(), step.built().save_set, xla_copy_mode::pipelined, k_out, k_back);
        EXPECT_NEAR(run.exposed_d2h_ns + run.exposed_h2d_ns, 0, 1e-6);
        EXPECT_NEAR(run.step_ns, run.compute_ns, 1e-6);
        EXPECT_LE(run.copy_buffer_bytes, 2 * largest);
    }
}

TEST(xla_copies, pipelined_copies_longer_than_their_iteration_are_waited_for) {
    const std::vector<random_layer> layers(4, {10, 10, 10, 10, 50});
    const chain_step step(layers);
    const xla_step run = run_xla(step.built(), step.built().save_set, xla_copy_mode::pipelined, k_out, k_back);
    // Forward: three copies of 50 beside 20 of work each. The last layer's goes out and comes back in its backward:
    // 150 of which 10 are hidden, and the next reload behind it. Then two of 100 beside 20 of work.
    EXPECT_NEAR(run.exposed_d2h_ns, 3 * 30, 1e-6);
    EXPECT_NEAR(run.exposed_h2d_ns, 140 + 90 + 2 * 80, 1e-6);
    EXPECT_NEAR(run.step_ns, 8 * 20 + 90 + 390, 1e-6);
    EXPECT_EQ(run.copy_buffer_bytes, 100U);
}

TEST(xla_copies, synchronous_copies_are_all_waited_for) {
    std::mt19937 random(9);
    for (int round = 0; round < 100; ++round) {
        const std::vector<random_layer> layers = random_layers(random);
        double bytes = 0;
        for (const random_layer &l : layers) {
            bytes += static_cast<double>(l.size_bytes);
        }
        const chain_step step(layers);
        const xla_step run = run_xla(step.built(), step.built().save_set, xla_copy_mode::synchronous, k_out, k_back);
        EXPECT_NEAR(run.exposed_d2h_ns, bytes, 1e-6);
        EXPECT_NEAR(run.exposed_h2d_ns, 2 * bytes, 1e-6);
        EXPECT_NEAR(run.step_ns, run.compute_ns + 3 * bytes, 1e-6);
    }
}

TEST(xla_copies, what_is_recomputed_costs_its_time_and_reloads_what_it_is_computed_from) {
    built_step built;
    built.model.tensors.resize(2);
    built.model.tensors[0].size_bytes = 10;
    built.model.tensors[1].size_bytes = 99;
    built.model.tensors[1].can_recompute = true;
    built.model.tensors[1].recompute_ns = 7;
    built.model.tensors[1].recompute_from = {0};
    const auto add = [&](step_event_kind what, uint32_t tensor, double time_ns) {
        step_event e;
        e.what = what;
        e.tensor = tensor;
        e.time_ns = time_ns;
        built.model.events.push_back(e);
    };
    add(step_event_kind::produce, 0, 0);
    add(step_event_kind::produce, 1, 0);
    add(step_event_kind::work, 0, 5);
    add(step_event_kind::work, 0, 5);
    add(step_event_kind::use, 1, 0);
    add(step_event_kind::release, 1, 0);
    add(step_event_kind::release, 0, 0);
    built.model.tensors[1].recompute_at = 3;
    built.iterations.resize(2);
    built.iterations[0].end = 3;
    built.iterations[1].begin = 3;
    built.iterations[1].end = 7;
    plan placed;
    placed.placement = {tensor_placement::offload, tensor_placement::recompute};
    const xla_step run = run_xla(built, placed, xla_copy_mode::own_iteration, k_out, k_back);
    // 5 of work, 5 more until the copy is out; 20 for the reload, 7 for the recompute, 5 of work.
    EXPECT_NEAR(run.step_ns, 42, 1e-6);
    EXPECT_EQ(run.recompute_ns, 7);
    EXPECT_NEAR(run.exposed_d2h_ns, 5, 1e-6);
    EXPECT_NEAR(run.exposed_h2d_ns, 20, 1e-6);
}

}  // namespace
}  // namespace ebb
