// A test in a world, with a stream, memory and a runtime that are given back at its end.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu_world.hpp"

namespace ebb::test {

class gpu_fixture : public ::testing::Test {
protected:
    void TearDown() override {
        ok(cuda().device_synchronize());
        if (runtime_ != nullptr) {
            ok(ebb_runtime_close(std::exchange(runtime_, nullptr), EBB_CLOSE_DEFAULT));
        }
        while (!undo_.empty()) {
            undo_.back()();
            undo_.pop_back();
        }
    }

    [[nodiscard]] gpu_world &world() { return *world_; }
    [[nodiscard]] const cuda_user &cuda() const { return world_->cuda(); }

    static void ok(cudaError_t error) { ASSERT_EQ(error, cudaSuccess); }
    static void ok(ebb_status status) {
        ASSERT_EQ(status, EBB_OK) << ebb_status_name(status) << ": " << ebb_last_error();
    }

    void open(const runtime_wishes &wishes) { ok(world_->create_runtime(wishes, &runtime_)); }
    cudaStream_t new_stream() {
        cudaStream_t made = nullptr;
        ok(cuda().stream_create_with_flags(&made, cudaStreamNonBlocking));
        undo_.emplace_back([this, made] { ok(cuda().stream_destroy(made)); });
        return made;
    }
    void *new_device_memory(size_t size_bytes) {
        void *made = nullptr;
        ok(cuda().malloc(&made, size_bytes));
        undo_.emplace_back([this, made] { ok(cuda().free(made)); });
        return made;
    }
    // Zero.
    uint32_t *new_pinned_words(size_t count) {
        void *made = nullptr;
        ok(cuda().host_alloc(&made, count * sizeof(uint32_t), cudaHostAllocDefault));
        undo_.emplace_back([this, made] { ok(cuda().free_host(made)); });
        auto *words = static_cast<uint32_t *>(made);
        std::fill(words, words + count, 0);
        return words;
    }
    [[nodiscard]] static ebb_stream number_of(cudaStream_t stream) { return reinterpret_cast<ebb_stream>(stream); }
    [[nodiscard]] ebb_statistics statistics() const {
        ebb_statistics made{};
        made.struct_size = sizeof made;
        EXPECT_EQ(ebb_stats(runtime_, &made), EBB_OK);
        return made;
    }

    std::unique_ptr<gpu_world> world_ = make_gpu_world();
    ebb_runtime *runtime_ = nullptr;

private:
    std::vector<std::function<void()>> undo_;
};

// A graph that was captured, ready to be launched.
class captured_graph {
public:
    explicit captured_graph(const cuda_user &cuda) : cuda_(cuda) {}
    ~captured_graph() {
        if (exec_ != nullptr) {
            EXPECT_EQ(cuda_.graph_exec_destroy(exec_), cudaSuccess);
        }
        if (graph_ != nullptr) {
            EXPECT_EQ(cuda_.graph_destroy(graph_), cudaSuccess);
        }
    }
    captured_graph(const captured_graph &) = delete;
    captured_graph &operator=(const captured_graph &) = delete;

    // Captures what `body` enqueues on the stream, in the strictest mode.
    template <class Body>
    void capture(cudaStream_t stream, const Body &body) {
        ASSERT_EQ(cuda_.stream_begin_capture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
        body();
        ASSERT_EQ(cuda_.stream_end_capture(stream, &graph_), cudaSuccess);
        ASSERT_EQ(cuda_.graph_instantiate(&exec_, graph_), cudaSuccess);
    }
    void launch(cudaStream_t stream) { ASSERT_EQ(cuda_.graph_launch(exec_, stream), cudaSuccess); }

private:
    const cuda_user &cuda_;
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t exec_ = nullptr;
};

}  // namespace ebb::test
