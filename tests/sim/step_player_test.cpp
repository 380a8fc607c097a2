// The player computes again what the runtime or the plan says, inputs that are computed again too included, once each.
#include "simulate/step_player.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

namespace ebb::test {
namespace {

constexpr double k_work_ns = 1e6;
constexpr double k_again_ns = 3e5;

// Three tensors, each from the one before; backward needs the last one first.
step_model chain_of_recomputes() {
    step_model m;
    const auto add = [&m](step_event_kind what, uint32_t tensor, double time_ns = 0) {
        step_event e;
        e.what = what;
        e.tensor = tensor;
        e.time_ns = time_ns;
        m.events.push_back(e);
    };
    for (uint32_t t = 0; t < 3; ++t) {
        step_tensor tensor;
        tensor.name = "layer/t" + std::to_string(t);
        tensor.size_bytes = uint64_t{8} << 20U;
        if (t > 0) {
            tensor.can_recompute = true;
            tensor.recompute_ns = k_again_ns;
            tensor.recompute_from = {t - 1};
        }
        m.tensors.push_back(tensor);
        add(step_event_kind::work, k_no_index, k_work_ns);
        add(step_event_kind::produce, t);
    }
    for (uint32_t t = 3; t-- > 0;) {
        add(step_event_kind::use, t);
        add(step_event_kind::work, k_no_index, k_work_ns);
        add(step_event_kind::release, t);
    }
    return m;
}

double played_ns(const step_model &model, const plan *fixed, const std::string &policy) {
    play_options o;
    o.machine.host_bytes = uint64_t{1} << 30U;
    o.machine.host_call_ps = 1;
    o.mode = memory_mode::one_pool;
    o.fixed = fixed;
    o.core.policy = policy;
    o.core.min_offload_bytes = 1;
    o.core.device_budget_bytes = uint64_t{256} << 20U;
    uint64_t most_recomputed_bytes = 0;
    step_player *watched = nullptr;
    o.after_event = [&] { most_recomputed_bytes = std::max(most_recomputed_bytes, watched->recomputed_bytes()); };
    result<std::unique_ptr<step_player>> player = step_player::make(model, o);
    EXPECT_TRUE(player.ok()) << player.why().text();
    watched = player.value().get();
    double step_ns = 0;
    for (int i = 0; i < 3; ++i) {
        const result<step_player::step_result> played = player.value()->play();
        EXPECT_TRUE(played.ok()) << played.why().text();
        step_ns = played.ok() ? played.value().step_ns : 0;
    }
    EXPECT_EQ(most_recomputed_bytes, uint64_t{16} << 20U);
    EXPECT_EQ(watched->recomputed_bytes(), 0U);
    return step_ns;
}

TEST(step_player_, computes_again_what_the_plan_says_with_its_inputs_once) {
    plan p;
    p.placement = {tensor_placement::keep, tensor_placement::recompute, tensor_placement::recompute};
    const step_model model = chain_of_recomputes();
    EXPECT_NEAR(played_ns(model, &p, "offload"), 6 * k_work_ns + 2 * k_again_ns, 1e3);
}

TEST(step_player_, computes_again_what_the_runtime_says_with_its_inputs_once) {
    const step_model model = chain_of_recomputes();
    EXPECT_NEAR(played_ns(model, nullptr, "t0=device,*=remat"), 6 * k_work_ns + 2 * k_again_ns, 1e3);
}

}  // namespace
}  // namespace ebb::test
