// Rules about graphs.
#include "cuda_program.hpp"

namespace ebb::test {
namespace {

using cuda_rules = cuda_program;

TEST_F(cuda_rules, captured_work_waits_for_the_launch) {
    const cudaStream_t on = stream();
    uint64_t *there = device_memory();
    uint64_t *here = pinned_memory();
    ok(user().memset_async(there, 0, k_bytes, on));
    const cudaGraph_t graph = capture(on, [&] {
        ok(user().launch_add(on, there, k_bytes, 1));
        ok(api().memcpy_async(here, there, k_bytes, cudaMemcpyDeviceToHost, on));
    });
    const cudaGraphExec_t exec = instantiated(graph);
    ok(user().graph_destroy(graph));  // the executable one has its own
    ok(user().stream_synchronize(on));
    EXPECT_NE(here[0], 1U);
    for (uint64_t launch = 1; launch <= 5; ++launch) {
        ok(user().graph_launch(exec, on));
        ok(user().stream_synchronize(on));
        EXPECT_EQ(here[0], launch);
    }
    ok(user().graph_exec_destroy(exec));
}

// The edge that is missing is found at the end of the capture, and in the bytes of some launches.
TEST_F(cuda_rules, graph_keeps_dependencies_only) {
    const cudaStream_t on = stream();
    const cudaStream_t side = stream();
    uint64_t *there = device_memory();
    const cudaGraph_t graph = capture(on, [&] {
        order(side, on);
        ok(user().launch_fill(on, there, k_bytes, 1));
        ok(user().launch_add(side, there, k_bytes, 1));  // not behind the fill
        order(on, side);
    });
    broke(cuda_rule::shared_memory_is_ordered);
    const cudaGraphExec_t exec = instantiated(graph);
    int as_filled = 0;
    constexpr int k_launches = 40;
    for (int launch = 0; launch < k_launches; ++launch) {
        ok(user().graph_launch(exec, on));
        ok(user().stream_synchronize(on));
        as_filled += wrong_words(there, 1) == 0 ? 1 : 0;
    }
    EXPECT_GT(as_filled, 0);
    EXPECT_LT(as_filled, k_launches);
}

TEST_F(cuda_rules, graph_keeps_dependencies_only_and_keeps_those) {
    const cudaStream_t on = stream();
    const cudaStream_t side = stream();
    uint64_t *there = device_memory();
    uint64_t *other = device_memory();
    const cudaGraph_t graph = capture(on, [&] {
        ok(user().launch_fill(on, there, k_bytes, 1));
        order(side, on);
        ok(api().memcpy_async(other, there, k_bytes, cudaMemcpyDeviceToDevice, side));
        order(on, side);
        ok(user().launch_fill(on, there, k_bytes, 2));
    });
    const cudaGraphExec_t exec = instantiated(graph);
    for (int launch = 0; launch < 40; ++launch) {
        ok(user().graph_launch(exec, on));
        ok(user().stream_synchronize(on));
        ASSERT_EQ(wrong_words(other, 1), 0U);
        ASSERT_EQ(wrong_words(there, 2), 0U);
    }
}

TEST_F(cuda_rules, launch_is_in_stream_order) {
    const cudaStream_t on = stream();
    const cudaStream_t second = stream();
    uint64_t *there = device_memory();
    const cudaGraphExec_t exec = instantiated(capture(on, [&] { ok(user().launch_add(on, there, k_bytes, 1)); }));
    uint32_t *gate = stand(on);
    ok(user().launch_fill(on, there, k_bytes, 1));
    ok(user().graph_launch(exec, on));
    ok(user().graph_launch(exec, second));  // behind the launch before
    fails(user().stream_query(second), cudaErrorNotReady);
    open(gate);
    ok(user().stream_synchronize(second));
    ok(user().launch_add(second, there, k_bytes, static_cast<uint64_t>(-2)));
    ok(user().stream_synchronize(second));
    EXPECT_EQ(wrong_words(there, 1), 0U);
}

TEST_F(cuda_rules, graph_memory_is_alive) {
    const cudaStream_t on = stream();
    void *there = nullptr;
    ok(api().malloc(&there, k_bytes));
    const cudaGraphExec_t exec = instantiated(capture(on, [&] { ok(user().launch_fill(on, there, k_bytes, 1)); }));
    ok(user().graph_launch(exec, on));
    ok(user().stream_synchronize(on));
    ok(api().free(there));
    breaks(cuda_rule::graph_memory_is_alive, user().graph_launch(exec, on), cudaErrorInvalidValue);
    // Other memory at the same address is not it.
    ok(api().malloc(&there, k_bytes));
    breaks(cuda_rule::graph_memory_is_alive, user().graph_launch(exec, on), cudaErrorInvalidValue);
    ok(api().free(there));
}

// What a graph does is seen as the work of the stream that it is launched on.
TEST_F(cuda_rules, a_launch_uses_the_memory_of_its_nodes) {
    const cudaStream_t on = stream();
    void *there = nullptr;
    ok(api().malloc(&there, k_bytes));
    const cudaGraphExec_t exec = instantiated(capture(on, [&] { ok(user().launch_fill(on, there, k_bytes, 1)); }));
    ok(user().graph_launch(exec, on));
    ok(user().launch_add(stream(), there, k_bytes, 1));
    broke(cuda_rule::shared_memory_is_ordered);
    ok(api().free(there));
    broke(cuda_rule::freed_memory_is_idle);
}

}  // namespace
}  // namespace ebb::test
