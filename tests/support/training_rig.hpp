// A small training loop through the C ABI, for tests: layers that save activations in forward and read them back in
// backward, all compute on one stream of whatever machine is tested. Every byte that comes back is checked on that
// stream. The host runs ahead by itself, or waits for the device after every call.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "capi/session.hpp"
#include "device/fault/fault_device.hpp"
#include "device/trace/trace_device.hpp"
#include "ebb/ebb.h"
#include "side_by_side_device.hpp"
#include "test_machine.hpp"

namespace ebb::test {

#define EBB_ASSERT_OK(call)                                                                                 \
    do {                                                                                                    \
        const ebb_status ebb_test_status = (call);                                                          \
        ASSERT_EQ(ebb_test_status, EBB_OK) << ebb_status_name(ebb_test_status) << ": " << ebb_last_error(); \
    } while (false)
#define EBB_EXPECT_OK(call)                                                                                 \
    do {                                                                                                    \
        const ebb_status ebb_test_status = (call);                                                          \
        EXPECT_EQ(ebb_test_status, EBB_OK) << ebb_status_name(ebb_test_status) << ": " << ebb_last_error(); \
    } while (false)

// A machine, faults over its device, a trace over both; owns them and knows the streams that were made on it.
class rig_device : public trace_device {
public:
    // With slab_bytes, pinned memory comes in registrations of at most that size, side by side.
    static std::unique_ptr<rig_device> make(const host_device_options &options, uint64_t slab_bytes = 0) {
        return make(make_machine(options), slab_bytes);
    }
    static std::unique_ptr<rig_device> make(std::unique_ptr<test_machine> machine, uint64_t slab_bytes = 0) {
        std::unique_ptr<side_by_side_device> slabs;
        if (slab_bytes != 0) {
            slabs = std::make_unique<side_by_side_device>(*machine, slab_bytes);
        }
        auto fault = std::make_unique<fault_device>(slabs != nullptr ? *slabs : machine->dev(), machine->launcher());
        std::unique_ptr<rig_device> made(new rig_device(std::move(machine), std::move(slabs), std::move(fault)));
        if (slab_bytes != 0) {
            made->info_.slab_bytes = slab_bytes;
        }
        return made;
    }
    ~rig_device() override {
        if (at_end_) {
            at_end_(*this);
        }
    }

    [[nodiscard]] const device_info &info() const noexcept override { return info_; }
    // Called when the runtime that owns this device is gone, with its last calls counted.
    void at_end(std::function<void(rig_device &)> look) { at_end_ = std::move(look); }

    [[nodiscard]] test_machine &machine() { return *machine_; }
    [[nodiscard]] host_device &host() { return *machine_->host(); }  // where it is one
    [[nodiscard]] fault_device &fault() { return *fault_; }
    [[nodiscard]] side_by_side_device &slabs() { return *slabs_; }  // only when made with slab_bytes

    result<stream_id> create_stream(stream_role role) override {
        result<stream_id> made = trace_device::create_stream(role);
        if (made.ok()) {
            streams_.push_back(made.value());
        }
        return made;
    }
    status destroy_stream(stream_id stream) override {
        for (size_t i = 0; i < streams_.size(); ++i) {
            if (streams_[i] == stream) {
                streams_.erase(streams_.begin() + static_cast<std::ptrdiff_t>(i));
                break;
            }
        }
        return trace_device::destroy_stream(stream);
    }
    void wait_for_our_streams() {
        for (const stream_id s : streams_) {
            EXPECT_TRUE(machine_->synchronize(s).ok());
        }
    }

private:
    rig_device(std::unique_ptr<test_machine> machine, std::unique_ptr<side_by_side_device> slabs,
               std::unique_ptr<fault_device> fault)
        : trace_device(*fault),
          info_(machine->dev().info()),
          slab_range_(slabs != nullptr ? slabs->range() : nullptr),
          machine_(std::move(machine)),
          slabs_(std::move(slabs)),
          fault_(std::move(fault)) {}

    device_info info_;
    std::function<void(rig_device &)> at_end_;
    std::shared_ptr<std::byte> slab_range_;  // outlives the machine's streams, which copy there
    std::unique_ptr<test_machine> machine_;
    std::unique_ptr<side_by_side_device> slabs_;
    std::unique_ptr<fault_device> fault_;
    std::vector<stream_id> streams_;
};

// Fills or checks a pattern that depends on a seed and the position.
inline uint64_t pattern(uint64_t seed, uint64_t word) {
    return (seed + 1) * 0x9E3779B97F4A7C15ULL + word * 0xBF58476D1CE4E5B9ULL;
}

inline void fill_pattern(void *data, uint64_t size_bytes, uint64_t seed) {
    auto *bytes = static_cast<unsigned char *>(data);
    for (uint64_t at = 0; at < size_bytes; at += 8) {
        const uint64_t word = pattern(seed, at / 8);
        std::memcpy(bytes + at, &word, std::min<uint64_t>(8, size_bytes - at));
    }
}

inline bool has_pattern(const void *data, uint64_t size_bytes, uint64_t seed) {
    const auto *bytes = static_cast<const unsigned char *>(data);
    for (uint64_t at = 0; at < size_bytes; at += 8) {
        const uint64_t word = pattern(seed, at / 8);
        if (std::memcmp(bytes + at, &word, std::min<uint64_t>(8, size_bytes - at)) != 0) {
            return false;
        }
    }
    return true;
}

class rig {
public:
    struct options {
        runtime_options core;
        host_device_options host;
        bool wait_after_every_call = false;
        const ebb_allocator *allocator = nullptr;
    };

    explicit rig(options o) : options_(std::move(o)) {
        auto dev = rig_device::make(options_.host);
        device_ = dev.get();
        host_device *host = dev->machine().host();
        options_.core.lent_allocator = options_.allocator != nullptr;
        result<ebb_runtime *> made = capi::make_runtime(std::move(dev), host, options_.core,
                                                        logger(quiet, nullptr, log_level::error), options_.allocator);
        EXPECT_TRUE(made.ok()) << made.why().text();
        runtime_ = made.ok() ? std::move(made).value() : nullptr;
        if (runtime_ != nullptr) {
            const result<stream_id> compute = machine().create_stream();
            EXPECT_TRUE(compute.ok()) << compute.why().text();
            compute_ = static_cast<ebb_stream>(compute.value());
        }
    }
    ~rig() { close(); }
    rig(const rig &) = delete;
    rig &operator=(const rig &) = delete;

    void close() {
        if (runtime_ == nullptr) {
            return;
        }
        EXPECT_TRUE(machine().synchronize(stream_id{compute_}).ok());
        EBB_EXPECT_OK(ebb_runtime_close(std::exchange(runtime_, nullptr), EBB_CLOSE_FORCE));
        EXPECT_EQ(wrong_.load(), 0) << "activations came back with wrong bytes";
        EXPECT_EQ(deleted_, offloaded_) << "deleters must run exactly once";
    }

    [[nodiscard]] ebb_runtime *runtime() { return runtime_; }
    [[nodiscard]] rig_device &device() { return *device_; }
    [[nodiscard]] test_machine &machine() { return device_->machine(); }
    [[nodiscard]] ebb_stream compute() const { return compute_; }
    [[nodiscard]] int wrong() const { return wrong_.load(); }
    void forget_wrong() { wrong_ = 0; }

    using key = std::tuple<std::string, uint64_t, uint64_t>;  // name, micro-batch, stage

    void step(ebb_phase phase = EBB_PHASE_TRAIN) {
        EBB_ASSERT_OK(ebb_step(runtime_, phase));
        settle();
    }

    // Produces an activation on the compute stream and offloads it under scope `layer`.
    void forward(const std::string &layer, const std::string &name, uint64_t size_bytes, uint64_t micro_batch = 0,
                 uint64_t stage = 0) {
        void *data = alloc(size_bytes);
        const uint64_t seed = ++seed_;
        launch([data, size_bytes, seed] { fill_pattern(data, size_bytes, seed); }, {{data, size_bytes, true}});
        EBB_ASSERT_OK(ebb_scope_push(runtime_, layer.c_str()));
        source &s = sources_.emplace_back(source{this, data});
        ebb_offload_args args{};
        args.struct_size = sizeof(args);
        args.name = name.c_str();
        args.data = data;
        args.size_bytes = size_bytes;
        args.producers = &compute_;
        args.producer_count = 1;
        args.deleter = free_source;
        args.deleter_context = &s;
        args.micro_batch = micro_batch;
        args.stage = stage;
        ebb_offload_info info{};
        info.struct_size = sizeof(info);
        EBB_ASSERT_OK(ebb_offload(runtime_, &args, &info));
        ++offloaded_;
        EBB_ASSERT_OK(ebb_scope_pop(runtime_));
        live_[{layer + "/" + name, micro_batch, stage}].push_back({info.activation, seed, size_bytes, info.placement});
        settle();
    }

    // Reads it back (the youngest of that key), checks the bytes on the stream, returns and releases.
    void backward(const std::string &layer, const std::string &name, uint64_t micro_batch = 0, uint64_t stage = 0,
                  bool release = true) {
        auto &stack = live_[{layer + "/" + name, micro_batch, stage}];
        ASSERT_FALSE(stack.empty()) << layer << "/" << name;
        const saved s = stack.back();
        ebb_reload_info info{};
        info.struct_size = sizeof(info);
        const ebb_status reloaded = ebb_reload(runtime_, s.activation, compute_, &info);
        if (reloaded == EBB_NO_SLOT) {
            into_own_memory(s);
        } else {
            ASSERT_EQ(reloaded, EBB_OK) << ebb_last_error();
            settle();
            launch([this, data = info.data, s] { check(data, s); }, {{info.data, s.size_bytes, false}});
            EBB_ASSERT_OK(ebb_return(runtime_, info.claim, compute_));
            settle();
        }
        if (release) {
            stack.pop_back();
            EBB_ASSERT_OK(ebb_release(runtime_, s.activation));
            settle();
        }
    }

    [[nodiscard]] ebb_statistics stats() {
        ebb_statistics s{};
        s.struct_size = sizeof(s);
        EBB_EXPECT_OK(ebb_stats(runtime_, &s));
        return s;
    }

    void synchronize() {
        EXPECT_TRUE(machine().synchronize(stream_id{compute_}).ok());
        device_->wait_for_our_streams();
    }

    void launch(std::function<void()> body, const kernel_uses &uses = {}) {
        launches_.push_back(std::move(body));
        EXPECT_TRUE(machine().launch(stream_id{compute_}, run, &launches_.back(), uses).ok());
    }

    struct saved {
        ebb_activation activation;
        uint64_t seed;
        uint64_t size_bytes;
        ebb_placement placement;
    };
    [[nodiscard]] std::map<key, std::vector<saved>> &live() { return live_; }

private:
    struct source {
        rig *owner;
        void *data;
    };

    [[nodiscard]] void *alloc(uint64_t size_bytes) {
        const result<void *> data = machine().alloc(size_bytes);
        EXPECT_TRUE(data.ok()) << data.why().text();
        return data.ok() ? data.value() : nullptr;
    }
    static void quiet(void *, int32_t, const char *) {}
    static void run(void *body) { (*static_cast<std::function<void()> *>(body))(); }
    static void free_source(void *context) {
        auto *s = static_cast<source *>(context);
        ++s->owner->deleted_;
        // Freed for the host at once; the stream order that Ebb made protects what is still in flight.
        EXPECT_TRUE(s->owner->machine().free(s->data).ok());
    }

    void check(const void *data, const saved &s) {
        if (!has_pattern(data, s.size_bytes, s.seed)) {
            ++wrong_;
        }
    }

    void into_own_memory(const saved &s) {
        void *data = alloc(s.size_bytes);
        EBB_ASSERT_OK(ebb_reload_into(runtime_, s.activation, data, s.size_bytes, compute_));
        settle();
        launch([this, data, s] { check(data, s); }, {{data, s.size_bytes, false}});
        EXPECT_TRUE(machine().free(data).ok());
    }

    void settle() {
        if (options_.wait_after_every_call) {
            synchronize();
            EBB_ASSERT_OK(ebb_progress(runtime_));
        }
    }

    options options_;
    rig_device *device_ = nullptr;
    ebb_runtime *runtime_ = nullptr;
    ebb_stream compute_ = 0;
    uint64_t seed_ = 0;
    std::deque<source> sources_;
    std::deque<std::function<void()>> launches_;
    std::map<key, std::vector<saved>> live_;
    std::atomic<int> wrong_{0};
    uint64_t offloaded_ = 0;
    uint64_t deleted_ = 0;
};

}  // namespace ebb::test
