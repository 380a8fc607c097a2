// A small CUDA program for tests of the double: what it makes is given back at its end, and any rule that it broke and
// did not say so fails the test. Calls come through the backend's table where that has them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "cuda_double/checked_cuda.hpp"

namespace ebb::test {

class cuda_program : public ::testing::Test {
protected:
    static constexpr size_t k_bytes = 4096;

    explicit cuda_program(const cuda_double_options &options = {}) : cuda_(options) {
        ok(user().device_synchronize());  // the device is in use
    }

    void TearDown() override {
        open_all();
        cuda_.finish();
        for (const std::function<void()> &undo : undo_) {
            undo();
        }
    }

    [[nodiscard]] const cuda_api &api() const { return cuda_.api(); }
    [[nodiscard]] static const cuda_user &user() { return cuda_double::user(); }
    static void ok(cudaError_t error) { EXPECT_EQ(error, cudaSuccess) << cudaError_name(error); }
    static std::string cudaError_name(cudaError_t error) { return std::to_string(static_cast<int>(error)); }
    // The call failed with that error, which is the thread's last one and taken.
    void fails(cudaError_t error, cudaError_t expected) {
        EXPECT_EQ(error, expected);
        EXPECT_EQ(api().get_last_error(), expected);
    }
    void broke(cuda_rule rule) { cuda_.expect_misuse(rule); }
    // Both.
    void breaks(cuda_rule rule, cudaError_t error, cudaError_t expected) {
        fails(error, expected);
        broke(rule);
    }

    cudaStream_t stream(unsigned flags = cudaStreamNonBlocking) {
        cudaStream_t made = nullptr;
        ok(user().stream_create_with_flags(&made, flags));
        return made;
    }
    cudaEvent_t event(unsigned flags = cudaEventDisableTiming) {
        cudaEvent_t made = nullptr;
        ok(user().event_create_with_flags(&made, flags));
        return made;
    }
    uint64_t *device_memory(size_t size_bytes = k_bytes) {
        void *made = nullptr;
        ok(user().malloc(&made, size_bytes));
        return static_cast<uint64_t *>(made);
    }
    uint64_t *pinned_memory(size_t size_bytes = k_bytes) {
        void *made = nullptr;
        ok(user().host_alloc(&made, size_bytes, cudaHostAllocDefault));
        return static_cast<uint64_t *>(made);
    }

    // The stream stands until open().
    uint32_t *stand(cudaStream_t at) {
        auto *flag = reinterpret_cast<uint32_t *>(pinned_memory(sizeof(uint64_t)));
        __atomic_store_n(flag, 0U, __ATOMIC_RELEASE);
        flags_.push_back(flag);
        ok(user().launch_wait(at, flag));
        return flag;
    }
    static void open(uint32_t *flag) { __atomic_store_n(flag, 1U, __ATOMIC_RELEASE); }
    void open_all() {
        for (uint32_t *flag : flags_) {
            open(flag);
        }
    }
    // Records on one and waits on the other.
    void order(cudaStream_t later, cudaStream_t earlier) {
        const cudaEvent_t between = event();
        ok(api().event_record(between, earlier));
        ok(api().stream_wait_event(later, between, 0));
    }
    // The words of device memory that differ from what was filled.
    uint32_t wrong_words(const uint64_t *data, uint64_t seed, size_t size_bytes = k_bytes) {
        std::vector<uint64_t> words(size_bytes / sizeof(uint64_t));
        const cudaStream_t own = stream();
        ok(user().memcpy_async(words.data(), data, size_bytes, cudaMemcpyDeviceToHost, own));
        uint32_t wrong = 0;
        for (uint64_t word = 0; word < words.size(); ++word) {
            wrong += words[word] == filled_word(seed, word) ? 0 : 1;
        }
        return wrong;
    }

    cudaGraph_t capture(cudaStream_t on, const std::function<void()> &body,
                        cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
        ok(user().stream_begin_capture(on, mode));
        body();
        cudaGraph_t graph = nullptr;
        ok(user().stream_end_capture(on, &graph));
        return graph;
    }
    cudaGraphExec_t instantiated(cudaGraph_t graph) {
        cudaGraphExec_t exec = nullptr;
        ok(user().graph_instantiate(&exec, graph));
        return exec;
    }
    cudaStreamCaptureStatus status_of(cudaStream_t at) {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        ok(user().stream_is_capturing(at, &status));
        return status;
    }
    // A capture that is left behind spoilt.
    void end_spoilt(cudaStream_t on) {
        cudaGraph_t graph = nullptr;
        fails(user().stream_end_capture(on, &graph), cudaErrorStreamCaptureInvalidated);
        EXPECT_EQ(graph, nullptr);
    }
    static void on_another_thread(const std::function<void()> &body) { std::thread(body).join(); }

    checked_cuda cuda_;
    std::vector<uint32_t *> flags_;
    std::vector<std::function<void()>> undo_;
};

}  // namespace ebb::test
