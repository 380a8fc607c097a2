// Offload and reload in graphs, on kernels that write and compare words: fixed addresses, new inputs at each launch.
#include <atomic>
#include <thread>

#include "gpu_fixture.hpp"

namespace ebb::test {
namespace {

constexpr uint64_t k_tensor_bytes = 3ULL << 20U;
constexpr size_t k_tensors = 3;

class graphs : public gpu_fixture {
protected:
    struct tensor {
        std::string name;
        void *input = nullptr;   // written before each launch
        void *source = nullptr;  // what is offloaded
        void *output = nullptr;  // what came back
        ebb_activation handle = 0;
    };

    [[nodiscard]] static runtime_wishes wishes() {
        runtime_wishes made;
        made.policy = "offload";
        made.gives_up_at_once = true;
        made.max_activation_bytes = k_tensor_bytes;
        made.staging_bytes = k_tensors * (k_tensor_bytes + 1024);
        return made;
    }
    void SetUp() override {
        open(wishes());
        stream_ = new_stream();
        wrong_ = new_pinned_words(1);
        for (size_t i = 0; i < k_tensors; ++i) {
            tensors_.push_back({"tensor" + std::to_string(i), new_device_memory(k_tensor_bytes),
                                new_device_memory(k_tensor_bytes), new_device_memory(k_tensor_bytes)});
        }
    }

    void offload(tensor &t) {
        ok(cuda().memcpy_async(t.source, t.input, k_tensor_bytes, cudaMemcpyDeviceToDevice, stream_));
        const ebb_stream stream = number_of(stream_);
        ebb_offload_args args{};
        args.struct_size = sizeof args;
        args.name = t.name.c_str();
        args.data = t.source;
        args.size_bytes = k_tensor_bytes;
        args.producers = &stream;
        args.producer_count = 1;
        ebb_offload_info info{};
        info.struct_size = sizeof info;
        ok(ebb_offload(runtime_, &args, &info));
        ASSERT_EQ(info.placement, EBB_PLACE_OFFLOAD);
        t.handle = info.activation;
        // The memory is used for something else: what comes back can only come from the host.
        ok(cuda().launch_fill(stream_, t.source, k_tensor_bytes, ~uint64_t{0}));
    }
    void reload(tensor &t) {
        ebb_reload_info info{};
        info.struct_size = sizeof info;
        ok(ebb_reload(runtime_, t.handle, number_of(stream_), &info));
        ASSERT_NE(info.data, t.source);
        ok(cuda().memcpy_async(t.output, info.data, k_tensor_bytes, cudaMemcpyDeviceToDevice, stream_));
        ok(ebb_return(runtime_, info.claim, number_of(stream_)));
        ok(ebb_release(runtime_, t.handle));
    }
    void offload_all() {
        for (tensor &t : tensors_) {
            offload(t);
        }
    }
    void reload_all() {
        for (size_t i = k_tensors; i-- > 0;) {
            reload(tensors_[i]);
        }
    }
    void write_inputs(uint64_t round) {
        for (size_t i = 0; i < k_tensors; ++i) {
            ok(cuda().launch_fill(stream_, tensors_[i].input, k_tensor_bytes, 10 * round + i));
        }
    }
    void compare_outputs(uint64_t round) {
        for (size_t i = 0; i < k_tensors; ++i) {
            ok(cuda().launch_compare(stream_, tensors_[i].output, k_tensor_bytes, 10 * round + i, wrong_));
        }
    }
    // Sizes are learned and memory is taken before a capture.
    void eager_step(uint64_t round) {
        ok(ebb_step(runtime_, EBB_PHASE_TRAIN));
        write_inputs(round);
        offload_all();
        reload_all();
        compare_outputs(round);
    }
    void warm_up() {
        eager_step(1);
        eager_step(2);
        ok(cuda().device_synchronize());
        ASSERT_EQ(*wrong_, 0U);
    }

    cudaStream_t stream_ = nullptr;
    uint32_t *wrong_ = nullptr;
    std::vector<tensor> tensors_;
};

TEST_F(graphs, with_offload_and_reload_give_the_inputs_of_each_of_a_hundred_launches) {
    warm_up();
    captured_graph graph(cuda());
    ebb_graph handle = 0;
    ASSERT_NO_FATAL_FAILURE(graph.capture(stream_, [&] {
        offload_all();
        reload_all();
        ok(ebb_graph_join(runtime_, number_of(stream_), &handle));
    }));
    for (uint64_t round = 3; round < 103; ++round) {
        write_inputs(round);
        graph.launch(stream_);
        compare_outputs(round);
    }
    ok(cuda().stream_synchronize(stream_));
    EXPECT_EQ(*wrong_, 0U);
    ok(ebb_graph_release(runtime_, handle));
}

TEST_F(graphs, offload_in_one_and_reload_in_the_next) {
    warm_up();
    captured_graph forward(cuda());
    captured_graph backward(cuda());
    ebb_graph of_forward = 0;
    ebb_graph of_backward = 0;
    ASSERT_NO_FATAL_FAILURE(forward.capture(stream_, [&] {
        offload_all();
        ok(ebb_graph_join(runtime_, number_of(stream_), &of_forward));
    }));
    ASSERT_NO_FATAL_FAILURE(backward.capture(stream_, [&] {
        reload_all();
        ok(ebb_graph_join(runtime_, number_of(stream_), &of_backward));
    }));
    for (uint64_t round = 3; round < 23; ++round) {
        write_inputs(round);
        forward.launch(stream_);
        backward.launch(stream_);
        compare_outputs(round);
    }
    ok(cuda().stream_synchronize(stream_));
    EXPECT_EQ(*wrong_, 0U);
    ok(ebb_graph_release(runtime_, of_backward));
    ok(ebb_graph_release(runtime_, of_forward));
}

// Steps without a capture go on beside a graph that exists.
TEST_F(graphs, leave_eager_steps_alone) {
    warm_up();
    captured_graph graph(cuda());
    ebb_graph handle = 0;
    ASSERT_NO_FATAL_FAILURE(graph.capture(stream_, [&] {
        offload_all();
        reload_all();
        ok(ebb_graph_join(runtime_, number_of(stream_), &handle));
    }));
    for (uint64_t round = 3; round < 13; ++round) {
        write_inputs(round);
        graph.launch(stream_);
        compare_outputs(round);
        eager_step(100 + round);
    }
    ok(cuda().stream_synchronize(stream_));
    EXPECT_EQ(*wrong_, 0U);
    ok(ebb_graph_release(runtime_, handle));
}

// In the strictest mode, whatever any thread does that CUDA finds unsafe spoils the capture.
TEST_F(graphs, of_another_thread_are_not_spoilt_by_what_ebb_does_meanwhile) {
    warm_up();
    const cudaStream_t other = new_stream();
    void *const target = new_device_memory(4096);
    std::atomic<int> stage{0};
    cudaGraph_t graph = nullptr;
    cudaError_t ended = cudaErrorUnknown;
    std::thread capturing([&] {
        EXPECT_EQ(cuda().stream_begin_capture(other, cudaStreamCaptureModeGlobal), cudaSuccess);
        EXPECT_EQ(cuda().launch_fill(other, target, 4096, 1), cudaSuccess);
        stage = 1;
        while (stage != 2) {
            std::this_thread::yield();
        }
        EXPECT_EQ(cuda().launch_fill(other, target, 4096, 2), cudaSuccess);
        ended = cuda().stream_end_capture(other, &graph);
    });
    while (stage != 1) {
        std::this_thread::yield();
    }
    for (uint64_t round = 3; round < 23; ++round) {
        eager_step(round);
        EXPECT_EQ(ebb_progress(runtime_), EBB_OK) << ebb_last_error();
        static_cast<void>(statistics());
    }
    stage = 2;
    capturing.join();
    EXPECT_EQ(ended, cudaSuccess);
    if (graph != nullptr) {
        ok(cuda().graph_destroy(graph));
    }
    ok(cuda().stream_synchronize(stream_));
    EXPECT_EQ(*wrong_, 0U);
}

// What cannot be part of a capture is refused before it has harmed it.
TEST_F(graphs, with_verify_mode_are_refused_and_stay_whole) {
    ok(ebb_runtime_close(std::exchange(runtime_, nullptr), EBB_CLOSE_DEFAULT));
    runtime_wishes verified = wishes();
    verified.verify = true;
    open(verified);
    warm_up();
    captured_graph graph(cuda());
    ASSERT_NO_FATAL_FAILURE(graph.capture(stream_, [&] {
        const ebb_stream stream = number_of(stream_);
        ebb_offload_args args{};
        args.struct_size = sizeof args;
        args.name = "tensor0";
        args.data = tensors_[0].source;
        args.size_bytes = k_tensor_bytes;
        args.producers = &stream;
        args.producer_count = 1;
        ebb_offload_info info{};
        info.struct_size = sizeof info;
        EXPECT_EQ(ebb_offload(runtime_, &args, &info), EBB_UNSUPPORTED);
        EXPECT_STRNE(ebb_last_error(), "");
        ok(cuda().launch_fill(stream_, tensors_[0].output, k_tensor_bytes, 77));
    }));
    graph.launch(stream_);
    ok(cuda().launch_compare(stream_, tensors_[0].output, k_tensor_bytes, 77, wrong_));
    ok(cuda().stream_synchronize(stream_));
    EXPECT_EQ(*wrong_, 0U);
}

}  // namespace
}  // namespace ebb::test
