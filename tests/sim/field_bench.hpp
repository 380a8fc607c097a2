// A runtime on a simulated machine with streams of the caller's own, for steps that no step model describes: brackets
// around spans of a stream, and copies of somebody else.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "capi/session.hpp"
#include "device/sim/sim_device.hpp"
#include "ebb/ebb.h"
#include "runtime/runtime.hpp"

namespace ebb::test {

class field_bench {
public:
    field_bench(const sim_machine &machine, const runtime_options &core) {
        auto made = std::make_unique<sim_device>(machine);
        device_ = made.get();
        const result<ebb_runtime *> opened =
            capi::make_runtime(std::move(made), nullptr, core, logger(no_line, nullptr, log_level::error), nullptr);
        EXPECT_TRUE(opened.ok()) << opened.why().text();
        runtime_ = opened.ok() ? opened.value() : nullptr;
    }
    ~field_bench() {
        if (runtime_ != nullptr) {
            EXPECT_EQ(ebb_runtime_close(runtime_, EBB_CLOSE_FORCE), EBB_OK) << ebb_last_error();
        }
    }
    field_bench(const field_bench &) = delete;
    field_bench &operator=(const field_bench &) = delete;

    [[nodiscard]] bool open() const { return runtime_ != nullptr; }
    [[nodiscard]] ebb_runtime *runtime() { return runtime_; }
    [[nodiscard]] sim_device &device() { return *device_; }
    stream_id stream() { return device_->create_stream(stream_role::compute).value(); }
    event_id event() { return device_->create_event(event_kind::timed).value(); }
    std::byte *memory(uint64_t size_bytes) {
        return static_cast<std::byte *>(device_->alloc_device(size_bytes).value());
    }

    void step() { EXPECT_EQ(ebb_step(runtime_, EBB_PHASE_TRAIN), EBB_OK) << ebb_last_error(); }
    void work(stream_id on, double time_ns, double hbm_fraction = 0) {
        sim_kernel kernel;
        kernel.duration_ps = ps(time_ns);
        kernel.hbm_fraction = hbm_fraction;
        EXPECT_TRUE(device_->launch(on, kernel).ok());
    }
    void collective(stream_id on, double time_ns) {
        sim_kernel kernel;
        kernel.engine = sim_engine::collective;
        kernel.duration_ps = ps(time_ns);
        EXPECT_TRUE(device_->launch(on, kernel).ok());
    }
    void mark(event_id point, stream_id on) { EXPECT_TRUE(device_->record_event(point, on).ok()); }
    void wait(stream_id on, event_id point) { EXPECT_TRUE(device_->wait_event(on, point).ok()); }
    double between_ns(event_id start, event_id end) {
        EXPECT_TRUE(device_->synchronize_event(end).ok());
        const result<uint64_t> time = device_->elapsed_ns(start, end);
        EXPECT_TRUE(time.ok()) << time.why().text();
        return time.ok() ? static_cast<double>(time.value()) : 0;
    }
    // Of the engines that copy, so far.
    [[nodiscard]] sim_time_ps copying_ps() const {
        return device_->busy_ps(sim_engine::d2h) + device_->busy_ps(sim_engine::h2d);
    }

    ebb_offload_info offload(const std::string &name, std::byte *data, uint64_t size_bytes, stream_id on) {
        const auto stream = static_cast<ebb_stream>(on);
        ebb_offload_args args{};
        args.struct_size = sizeof(args);
        args.name = name.c_str();
        args.data = data;
        args.size_bytes = size_bytes;
        args.producers = &stream;
        args.producer_count = 1;
        ebb_offload_info info{};
        info.struct_size = sizeof(info);
        EXPECT_EQ(ebb_offload(runtime_, &args, &info), EBB_OK) << ebb_last_error();
        return info;
    }
    ebb_claim reload(ebb_activation activation, stream_id on) {
        ebb_reload_info info{};
        info.struct_size = sizeof(info);
        EXPECT_EQ(ebb_reload(runtime_, activation, static_cast<ebb_stream>(on), &info), EBB_OK) << ebb_last_error();
        return info.claim;
    }
    void end(ebb_claim claim, ebb_activation activation, stream_id on) {
        EXPECT_EQ(ebb_return(runtime_, claim, static_cast<ebb_stream>(on)), EBB_OK) << ebb_last_error();
        EXPECT_EQ(ebb_release(runtime_, activation), EBB_OK) << ebb_last_error();
    }
    void begin_span(stream_id on, uint64_t size_bytes) {
        EXPECT_EQ(ebb_collective_begin(runtime_, static_cast<ebb_stream>(on), size_bytes), EBB_OK) << ebb_last_error();
    }
    void end_span(stream_id on) {
        EXPECT_EQ(ebb_collective_end(runtime_, static_cast<ebb_stream>(on)), EBB_OK) << ebb_last_error();
    }
    ebb_statistics statistics() {
        ebb_statistics s{};
        s.struct_size = sizeof(s);
        EXPECT_EQ(ebb_stats(runtime_, &s), EBB_OK) << ebb_last_error();
        return s;
    }

private:
    static void no_line(void *, int32_t, const char *) {}
    static sim_time_ps ps(double time_ns) { return static_cast<sim_time_ps>(time_ns * 1e3 + 0.5); }

    sim_device *device_ = nullptr;  // the runtime's
    ebb_runtime *runtime_ = nullptr;
};

}  // namespace ebb::test
