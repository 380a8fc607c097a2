// Random steps, captured whole or in parts, replayed in random orders with new inputs, with eager steps between: every
// byte that is read is right, no rule of captures is broken, and when all graphs are released nothing is held.
#include <utility>
#include <vector>

#include "capture_rig.hpp"

namespace ebb::test {
namespace {

class random_captures : public capture_rig, public ::testing::WithParamInterface<int> {
protected:
    struct captured_step {
        std::vector<graph_device::graph> parts;
        std::vector<ebb_graph> handles;
    };

    uint64_t draw(uint64_t below) { return random_() % below; }

    void open_randomly() {
        random_.seed(static_cast<uint64_t>(GetParam()) * 7919 + 1);
        const uint64_t largest = 3 * k_tensor_bytes;
        const uint64_t slot = largest + 1024;
        options_.source_bytes = draw(2) == 0 ? k_none_bytes : k_automatic;
        options_.device_budget_bytes = 8 * slot + draw(8) * slot;
        if (draw(3) != 0) {
            options_.staging_bytes = slot + draw(6) * k_tensor_bytes;
            options_.max_activation_bytes = largest;
        }
        options_.prefetch_bytes = draw(3) == 0 ? k_none_bytes : k_automatic;
        options_.policy = draw(3) == 0 ? "*1=keep,*=offload" : "offload";
        options_.lanes = 1 + static_cast<uint32_t>(draw(2));
        options_.chunk_bytes = draw(2) == 0 ? 0 : 10000;
        open();
        std::vector<uint64_t> sizes(2 + draw(9));
        for (uint64_t &size : sizes) {
            size = (1 + draw(3)) * k_tensor_bytes - 8 * draw(3);
        }
        make_tensors(sizes);
        apart_.resize(tensors_.size());
        for (size_t i = 0; i < tensors_.size(); ++i) {
            EBB_ASSERT_OK(ebb_host_alloc(runtime_, tensors_[i].size_bytes, &tensors_[i].own));
            EBB_ASSERT_OK(ebb_host_alloc(runtime_, tensors_[i].size_bytes, &apart_[i]));
        }
    }

    // Parts that follow each other; a graph for each.
    captured_step capture_step() {
        const size_t count = tensors_.size();
        const uint64_t per_part = draw(3) == 0 ? 2 * count : 1 + draw(2 * count);
        captured_step made;
        for (size_t first = 0; first < 2 * count; first += per_part) {
            made.parts.push_back(captured([&] {
                for (size_t call = first; call < std::min<size_t>(first + per_part, 2 * count); ++call) {
                    if (call < count) {
                        save(tensors_[call]);
                    } else {
                        read_back(tensors_[2 * count - 1 - call], true);
                    }
                }
            }));
            made.handles.push_back(graph_);
        }
        return made;
    }
    // What graphs write at every launch is not for saves from outside that are still under way.
    void swap_memory() {
        for (size_t i = 0; i < tensors_.size(); ++i) {
            std::swap(tensors_[i].source, apart_[i]);
        }
    }
    // Claims from outside, held while graphs are launched, read what they claimed.
    void claim_around_launches(const std::vector<captured_step> &steps) {
        swap_memory();
        EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        next_input();
        forward();
        synchronize();
        std::vector<std::pair<ebb_claim, void *>> held(tensors_.size());
        for (size_t i = 0; i < held.size(); ++i) {
            ebb_reload_info back = sized<ebb_reload_info>();
            if (draw(3) != 0 && ebb_reload(runtime_, tensors_[i].activation, compute_, &back) == EBB_OK) {
                held[i] = {back.claim, back.data};
            }
        }
        const uint64_t claimed_input = input_;
        std::vector<ebb_activation> saved;
        for (const tensor &t : tensors_) {
            saved.push_back(t.activation);
        }
        for (const captured_step &step : steps) {
            replay_step(step);
        }
        const uint64_t latest = use_input(claimed_input);
        for (size_t i = 0; i < held.size(); ++i) {
            if (held[i].first != 0) {
                consume(held[i].second, tensors_[i]);
                EBB_EXPECT_OK(ebb_return(runtime_, held[i].first, compute_));
            }
            EBB_EXPECT_OK(ebb_release(runtime_, saved[i]));
        }
        static_cast<void>(use_input(latest));
        swap_memory();
    }
    void replay_step(const captured_step &step) {
        std::vector<const graph_device::graph *> parts;
        for (const graph_device::graph &part : step.parts) {
            parts.push_back(&part);
        }
        replay(parts, 4);
    }

    std::vector<void *> apart_;
};

TEST_P(random_captures, read_what_was_saved_and_leave_nothing) {
    open_randomly();
    eager_steps(2 + static_cast<int>(draw(3)));
    std::vector<captured_step> steps;
    for (int round = 0; round < 4; ++round) {
        steps.push_back(capture_step());
        for (const captured_step &step : steps) {
            replay_step(step);
        }
        if (draw(2) == 0) {
            eager_steps(1);
        }
        claim_around_launches(steps);
        if (draw(3) == 0) {
            for (const ebb_graph handle : steps.front().handles) {
                EBB_EXPECT_OK(ebb_graph_release(runtime_, handle));
            }
            steps.erase(steps.begin());
        }
        ASSERT_THAT(wrong_, ::testing::IsEmpty());
        ASSERT_THAT(device_->violations, ::testing::IsEmpty());
    }
    for (const captured_step &step : steps) {
        for (const ebb_graph handle : step.handles) {
            EBB_EXPECT_OK(ebb_graph_release(runtime_, handle));
        }
    }
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    const ebb_statistics s = stats();
    EXPECT_EQ(s.graphs, 0U);
    EXPECT_EQ(s.live_activations, 0U);
    EXPECT_EQ(s.pinned_used_bytes, 0U);
    EXPECT_EQ(s.staging_used_bytes, 0U);
    EXPECT_EQ(s.kept_bytes + s.source_bytes, 0U);
}

INSTANTIATE_TEST_SUITE_P(seeds, random_captures, ::testing::Range(0, 60));

}  // namespace
}  // namespace ebb::test
