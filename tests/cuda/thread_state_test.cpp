// What CUDA knows of a thread is the program's: its current device, its capture mode, its last error. Each call of Ebb
// leaves it as it was (the loop looks after every one), and finds its own way from any thread.

#include <gtest/gtest.h>

#include <thread>

#include "cuda_loop.hpp"
#include "device/cuda/process_exit.hpp"

namespace ebb::test {
namespace {

void train(cuda_loop &loop, int steps = 6) {
    for (int step = 0; step < steps; ++step) {
        loop.train(6, k_loop_bytes);
    }
    loop.ok(loop.user().device_synchronize());
}

TEST(cuda_thread_state, is_left_as_it_was) {
    for (const bool verify : {false, true}) {
        checked_cuda cuda;
        runtime_options core = loop_options();
        core.verify = verify;
        core.sample_every = 1;
        cuda_loop loop(cuda, core);
        train(loop);
        EXPECT_GT(loop.stats().d2h_bytes, 0U);
    }
}

cuda_double_options two_devices() {
    cuda_double_options options;
    options.devices = 2;
    return options;
}

TEST(cuda_thread_state, another_device_may_be_current) {
    checked_cuda cuda(two_devices());
    cuda_loop loop(cuda, loop_options(), 1);
    loop.call_from_device(0);
    train(loop);
}

TEST(cuda_thread_state, each_runtime_finds_its_own_device) {
    checked_cuda cuda(two_devices());
    cuda_loop first(cuda, loop_options(), 0);
    cuda_loop second(cuda, loop_options(), 1);
    for (int step = 0; step < 6; ++step) {
        first.train(4, k_loop_bytes);
        second.train(4, k_loop_bytes);
    }
    EXPECT_EQ(first.device().info().ordinal, 0);
    EXPECT_EQ(second.device().info().ordinal, 1);
}

// A thread that has never said which device it means has the first one, which nobody else uses.
TEST(cuda_thread_state, no_context_comes_to_life_on_a_device_that_nobody_uses) {
    checked_cuda cuda(two_devices());
    EXPECT_EQ(cuda.user().set_device(1), cudaSuccess);
    cuda_loop loop(cuda, loop_options(), 1);
    train(loop, 3);
    loop.step();
    const cuda_loop::saved s = loop.forward("layer.0", k_loop_bytes);
    std::thread([&] {
        ebb_reload_info back{};
        back.struct_size = sizeof back;
        EXPECT_EQ(ebb_reload(loop.runtime(), s.activation, loop.stream(), &back), EBB_OK) << ebb_last_error();
        EXPECT_EQ(ebb_return(loop.runtime(), back.claim, loop.stream()), EBB_OK) << ebb_last_error();
        EXPECT_EQ(ebb_release(loop.runtime(), s.activation), EBB_OK) << ebb_last_error();
        EXPECT_EQ(ebb_progress(loop.runtime()), EBB_OK) << ebb_last_error();
    }).join();
    int in_use = 1;
    EXPECT_EQ(cuda.api().device_in_use(0, &in_use), cudaSuccess);
    EXPECT_EQ(in_use, 0);
}

// No CUDA function is called once the process is on its way out, and closing works.
TEST(cuda_process_exit, closing_calls_nothing) {
    checked_cuda cuda;
    cuda_loop loop(cuda, loop_options());
    train(loop, 3);
    loop.step();
    (void)loop.forward("layer.0", k_loop_bytes);
    loop.ok(loop.user().device_synchronize());
    const uint64_t calls = cuda.calls();
    cuda.may_leave_behind();
    process_exit_flag = true;
    ebb_runtime *runtime = loop.leave_runtime();
    const ebb_status closed = ebb_runtime_close(runtime, EBB_CLOSE_FORCE);
    process_exit_flag = false;
    EXPECT_NE(closed, EBB_BUSY);
    EXPECT_EQ(cuda.calls(), calls);
}

}  // namespace
}  // namespace ebb::test
