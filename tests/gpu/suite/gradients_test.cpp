// What is computed does not depend on what becomes of the saved tensors: gradients are the same, bit for bit.
#include <cstring>
#include <numeric>

#include "gpu_fixture.hpp"
#include "training_chain.hpp"

namespace ebb::test {
namespace {

using all_gradients = std::vector<std::vector<float>>;

// As bytes: a NaN is like itself, and 0 is not -0.
bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_same(const all_gradients &got, const all_gradients &kept, const char *mode) {
    ASSERT_EQ(got.size(), kept.size());
    for (size_t step = 0; step < kept.size(); ++step) {
        EXPECT_TRUE(same_bits(got[step], kept[step])) << mode << ": the gradients of step " << step << " differ";
    }
}

std::vector<uint64_t> seeds(size_t count, uint64_t first = 1) {
    std::vector<uint64_t> made(count);
    std::iota(made.begin(), made.end(), first);
    return made;
}

class gradients : public gpu_fixture {
protected:
    // A budget of three layers of six, beyond what is being reloaded.
    [[nodiscard]] runtime_wishes tight() {
        const uint64_t tensor_bytes = training_chain::tensor_bytes(world().shape());
        runtime_wishes wishes;
        wishes.staging_bytes = 3 * (tensor_bytes + 1024);
        wishes.device_budget_bytes = wishes.staging_bytes + 3 * tensor_bytes;
        wishes.max_activation_bytes = tensor_bytes;
        return wishes;
    }
    // In a runtime of its own, which stays open until the next.
    all_gradients trained(keeping how, const runtime_wishes &wishes, const std::vector<uint64_t> &inputs,
                          cudaStream_t stream) {
        close();
        open(wishes);
        training_chain chain(world(), runtime_, how, stream);
        return chain.train(inputs);
    }
    void close() {
        if (runtime_ != nullptr) {
            ok(ebb_runtime_close(std::exchange(runtime_, nullptr), EBB_CLOSE_DEFAULT));
        }
    }
};

TEST_F(gradients, are_the_same_kept_recomputed_and_offloaded) {
    const cudaStream_t stream = new_stream();
    const std::vector<uint64_t> inputs = seeds(8);
    const all_gradients kept = trained(keeping::keep, {}, inputs, stream);
    ASSERT_NO_FATAL_FAILURE(expect_same(trained(keeping::keep, {}, inputs, stream), kept, "keep against keep"));
    ASSERT_FALSE(same_bits(kept[0], kept[1])) << "every step gives the same: nothing would show";
    ASSERT_FALSE(same_bits(kept[0], std::vector<float>(kept[0].size()))) << "no gradient at all";

    expect_same(trained(keeping::recompute, {}, inputs, stream), kept, "recompute");
    EXPECT_GT(statistics().recompute_count, 0U);
    expect_same(trained(keeping::offload, tight(), inputs, stream), kept, "offload");
    EXPECT_GT(statistics().given_up_bytes, 0U);
    EXPECT_GT(statistics().reloads_prefetched, 0U);
    EXPECT_EQ(statistics().no_slot_count, 0U);
    expect_same(trained(keeping::automatic, tight(), inputs, stream), kept, "automatic");
}

TEST_F(gradients, are_the_same_in_verify_mode) {
    const cudaStream_t stream = new_stream();
    const std::vector<uint64_t> inputs = seeds(3);
    const all_gradients kept = trained(keeping::keep, {}, inputs, stream);
    runtime_wishes wishes = tight();
    wishes.verify = true;
    expect_same(trained(keeping::offload, wishes, inputs, stream), kept, "offload, verified");
}

TEST_F(gradients, are_the_same_on_the_streams_that_cuda_has_by_itself) {
    const std::vector<uint64_t> inputs = seeds(4);
    const all_gradients kept = trained(keeping::keep, {}, inputs, new_stream());
    expect_same(trained(keeping::offload, tight(), inputs, cudaStreamLegacy), kept, "the legacy stream");
    expect_same(trained(keeping::offload, tight(), inputs, cudaStreamPerThread), kept, "the per-thread stream");
}

TEST_F(gradients, are_the_same_when_the_host_runs_two_steps_ahead) {
    const cudaStream_t stream = new_stream();
    const std::vector<uint64_t> inputs = seeds(6);
    const all_gradients kept = trained(keeping::keep, {}, inputs, stream);
    close();
    open(tight());
    training_chain chain(world(), runtime_, keeping::offload, stream);
    uint32_t *flag = new_pinned_words(1);
    for (size_t step = 0; step < inputs.size(); step += 2) {
        // Nothing runs until both steps are enqueued.
        __atomic_store_n(flag, 0U, __ATOMIC_RELEASE);
        const bool first = step == 0;  // sizes are learned: memory is taken
        if (!first) {
            ok(cuda().launch_wait(stream, flag));
        }
        for (size_t i = step; i < step + 2; ++i) {
            ok(ebb_step(runtime_, EBB_PHASE_TRAIN));
            chain.make_input(inputs[i]);
            chain.forward_and_backward();
            if (i == step) {
                chain.descend();
            }
        }
        __atomic_store_n(flag, 1U, __ATOMIC_RELEASE);
        EXPECT_TRUE(same_bits(chain.gradients(), kept[step + 1])) << "step " << step + 1;
        chain.descend();
    }
}

TEST_F(gradients, are_the_same_in_a_graph_that_is_launched_a_hundred_times) {
    const cudaStream_t stream = new_stream();
    const std::vector<uint64_t> warm = seeds(3);
    const std::vector<uint64_t> replayed = seeds(100, 50);
    std::vector<uint64_t> both = warm;
    both.insert(both.end(), replayed.begin(), replayed.end());
    const all_gradients kept = trained(keeping::keep, {}, both, stream);

    close();
    open(tight());
    training_chain chain(world(), runtime_, keeping::offload, stream);
    expect_same(chain.train(warm), all_gradients(kept.begin(), kept.begin() + static_cast<ptrdiff_t>(warm.size())),
                "before the capture");
    ok(cuda().device_synchronize());
    ebb_graph handle = 0;
    {
        captured_graph graph(cuda());
        ASSERT_NO_FATAL_FAILURE(graph.capture(stream, [&] {
            chain.forward_and_backward();
            ok(ebb_graph_join(runtime_, number_of(stream), &handle));
        }));
        EXPECT_EQ(statistics().graphs, 1U);
        for (size_t i = 0; i < replayed.size(); ++i) {
            chain.make_input(replayed[i]);
            graph.launch(stream);
            ASSERT_TRUE(same_bits(chain.gradients(), kept[warm.size() + i])) << "launch " << i;
            chain.descend();
        }
        ok(cuda().stream_synchronize(stream));
    }
    ok(ebb_graph_release(runtime_, handle));
    EXPECT_EQ(statistics().graphs, 0U);
    // And the loop goes on without it.
    chain.train(seeds(2, 500));
}

}  // namespace
}  // namespace ebb::test
