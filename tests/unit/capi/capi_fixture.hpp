// What the tests of the C ABI share: a runtime on host, fault and trace devices, buffers that count their deleter's
// runs, and arguments that are right unless a test changes them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "training_rig.hpp"

namespace ebb::test {

// A status, with the text that goes with it when a test fails.
#define EBB_EXPECT_STATUS(call, wanted)                                                                       \
    do {                                                                                                      \
        const ebb_status ebb_test_status = (call);                                                            \
        EXPECT_EQ(ebb_test_status, (wanted)) << ebb_status_name(ebb_test_status) << ": " << ebb_last_error(); \
    } while (false)
// ... and whose text has `words`.
#define EBB_EXPECT_REFUSED(call, wanted, words)                     \
    do {                                                            \
        EBB_EXPECT_STATUS(call, wanted);                            \
        EXPECT_THAT(ebb_last_error(), ::testing::HasSubstr(words)); \
    } while (false)

template <class Struct>
Struct zeroed() {
    Struct s{};
    s.struct_size = sizeof(s);
    return s;
}

constexpr uint64_t k_size = 64 * 1024;

// The caller's memory. Its deleter counts; the memory itself is freed with the runtime's device.
struct buffer {
    void *data = nullptr;
    uint64_t size_bytes = 0;
    uint64_t seed = 0;
    std::atomic<int> deleted{0};
    std::function<void()> in_deleter;

    static void deleter(void *context) {
        auto *b = static_cast<buffer *>(context);
        ++b->deleted;
        if (b->in_deleter) {
            b->in_deleter();
        }
    }
};

class capi_test : public ::testing::Test {
protected:
    void SetUp() override {
        options_.min_offload_bytes = 1;
        options_.source_bytes = k_none_bytes;  // given up in the offload call, unless a test says otherwise
        host_options_.capacity_bytes = 64ULL << 20U;
    }
    void TearDown() override { close(); }

    // Called by the test when its options stand.
    void open(const ebb_allocator *allocator = nullptr) {
        auto dev = rig_device::make(host_options_);
        device_ = dev.get();
        host_device *host = &dev->host();
        options_.lent_allocator = allocator != nullptr;
        result<ebb_runtime *> made = capi::make_runtime(std::move(dev), host, options_,
                                                        logger(log_line, &log_lines_, log_level::warning), allocator);
        ASSERT_TRUE(made.ok()) << made.why().text();
        runtime_ = made.value();
        EBB_ASSERT_OK(ebb_host_stream_create(runtime_, &compute_));
        EBB_ASSERT_OK(ebb_host_stream_create(runtime_, &other_));
    }
    void close() {
        if (runtime_ != nullptr) {
            let_all_pass();
            EBB_EXPECT_STATUS(ebb_runtime_close(std::exchange(runtime_, nullptr), EBB_CLOSE_FORCE), EBB_OK);
        }
    }

    // Copies stand still from here on until let_all_pass.
    void hold(copy_direction direction) {
        ASSERT_TRUE(device_->fault().hold(direction).ok());
        held_.push_back(direction);
    }
    void let_all_pass() {
        for (const copy_direction direction : held_) {
            ASSERT_TRUE(device_->fault().release(direction).ok());
        }
        held_.clear();
    }

    buffer &make_buffer(uint64_t size_bytes = k_size) {
        buffer &b = buffers_.emplace_back();
        b.size_bytes = size_bytes;
        b.seed = ++seed_;
        EXPECT_EQ(ebb_host_alloc(runtime_, size_bytes, &b.data), EBB_OK) << ebb_last_error();
        fill_pattern(b.data, size_bytes, b.seed);
        return b;
    }
    ebb_offload_args args_for(buffer &b, const char *name = "gate") {
        ebb_offload_args a = zeroed<ebb_offload_args>();
        a.name = name;
        a.data = b.data;
        a.size_bytes = b.size_bytes;
        a.producers = &compute_;
        a.producer_count = 1;
        a.deleter = buffer::deleter;
        a.deleter_context = &b;
        return a;
    }
    ebb_offload_args staged_args_for(buffer &b, const char *name = "gate") {
        ebb_offload_args a = args_for(b, name);
        a.deleter = nullptr;
        a.deleter_context = nullptr;
        return a;
    }
    ebb_activation offload(const ebb_offload_args &a) {
        EBB_EXPECT_STATUS(ebb_offload(runtime_, &a, &info_), EBB_OK);
        return info_.activation;
    }
    ebb_activation offload(buffer &b, const char *name = "gate") { return offload(args_for(b, name)); }

    ebb_reload_info reload(ebb_activation a) { return reload(a, compute_); }
    ebb_reload_info reload(ebb_activation a, ebb_stream consumer) {
        ebb_reload_info info = zeroed<ebb_reload_info>();
        EBB_EXPECT_STATUS(ebb_reload(runtime_, a, consumer, &info), EBB_OK);
        return info;
    }
    // The bytes as they are when the compute stream is done.
    void expect_bytes(const void *data, uint64_t size_bytes, uint64_t seed) {
        EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, compute_));
        EXPECT_TRUE(has_pattern(data, size_bytes, seed));
    }
    void expect_bytes(const void *data, const buffer &b) { expect_bytes(data, b.size_bytes, b.seed); }
    void reload_and_return(ebb_activation a, const buffer &b) {
        const ebb_reload_info info = reload(a);
        ASSERT_EQ(info.size_bytes, b.size_bytes);
        expect_bytes(info.data, b);
        EBB_EXPECT_OK(ebb_return(runtime_, info.claim, compute_));
    }

    ebb_statistics stats() {
        ebb_statistics s = zeroed<ebb_statistics>();
        EBB_EXPECT_STATUS(ebb_stats(runtime_, &s), EBB_OK);
        return s;
    }
    void expect_nothing_held() {
        const ebb_statistics s = stats();
        EXPECT_EQ(s.live_activations, 0U);
        EXPECT_EQ(s.kept_bytes, 0U);
        EXPECT_EQ(s.source_bytes, 0U);
        EXPECT_EQ(s.staging_used_bytes, 0U);
        EXPECT_EQ(s.pinned_used_bytes, 0U);
    }

    runtime_options options_;
    host_device_options host_options_;
    rig_device *device_ = nullptr;
    ebb_runtime *runtime_ = nullptr;
    ebb_stream compute_ = 0, other_ = 0;
    ebb_offload_info info_ = zeroed<ebb_offload_info>();
    std::deque<buffer> buffers_;
    std::vector<std::string> log_lines_;

private:
    static void log_line(void *context, int32_t, const char *line) {
        static_cast<std::vector<std::string> *>(context)->emplace_back(line);
    }
    std::vector<copy_direction> held_;
    uint64_t seed_ = 0;
};

}  // namespace ebb::test
