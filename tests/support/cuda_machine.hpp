// The CUDA backend on a double of the CUDA runtime, and a program beside it: streams that it makes, and memory that it
// gets from CUDA and then keeps, as training frameworks do, since cudaFree may wait for the device.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "cuda_double/checked_cuda.hpp"
#include "device/cuda/cuda_device.hpp"
#include "test_machine.hpp"

namespace ebb::test {

class cuda_machine final : public test_machine {
public:
    explicit cuda_machine(const host_device_options &options, const cuda_device_options &of_device = {})
        : cuda_machine(double_options(options), device_options(options, of_device)) {}
    cuda_machine(const cuda_double_options &options, const cuda_device_options &of_device) : cuda_(options) {
        result<std::unique_ptr<cuda_device>> made = cuda_device::make(cuda_.api(), 0, of_device);
        EXPECT_TRUE(made.ok()) << made.why().text();
        device_ = std::move(made).value();
    }

    [[nodiscard]] checked_cuda &cuda() { return cuda_; }
    // A lost device does nothing any more, and the program goes on without noticing.
    void bear_loss() { bears_loss_ = true; }
    device &dev() override { return *device_; }

    result<stream_id> create_stream() override {
        cudaStream_t made = nullptr;
        const cudaError_t error = user().stream_create_with_flags(&made, cudaStreamNonBlocking);
        return error == cudaSuccess ? result<stream_id>(stream_id{reinterpret_cast<uint64_t>(made)}) : failed(error);
    }
    status destroy_stream(stream_id stream) override { return done(user().stream_destroy(native(stream))); }
    status synchronize(stream_id stream) override { return done(user().stream_synchronize(native(stream))); }
    status launch(stream_id stream, void (*function)(void *argument), void *argument,
                  const kernel_uses &uses) override {
        std::vector<function_range> ranges;
        for (const kernel_use &use : uses) {
            ranges.push_back({use.data, use.size_bytes, use.writes});
        }
        return done(cuda_.launch_function(
            native(stream), [function, argument] { function(argument); }, work_kind::may_stand, ranges));
    }
    fault_device::launcher launcher() override {
        return [this](stream_id stream, void (*function)(void *argument), void *argument) {
            const cudaError_t error = cuda_.launch_function(
                native(stream), [function, argument] { function(argument); }, work_kind::always);
            if (is_borne(error)) {
                function(argument);  // no stream takes anything any more
            }
            return done(error);
        };
    }
    status copy_in(stream_id stream, void *destination, const void *source, uint64_t size_bytes) override {
        return done(user().memcpy_async(destination, source, size_bytes, cudaMemcpyHostToDevice, native(stream)));
    }

    result<void *> alloc(uint64_t size_bytes) override {
        const std::lock_guard lock(mutex_);
        void *data = take_kept(size_bytes);
        if (data == nullptr) {
            cudaError_t error = user().malloc(&data, size_bytes);
            if (error == cudaErrorMemoryAllocation && !kept_.empty()) {
                static_cast<void>(user().get_last_error());
                give_back_kept();
                error = user().malloc(&data, size_bytes);
            }
            if (error != cudaSuccess && !is_borne(error)) {
                return failed(error);
            }
            if (error != cudaSuccess) {
                data = substitutes_.emplace_back(size_bytes).data();
            }
        }
        sizes_[data] = size_bytes;
        return data;
    }
    // Used again for the same size by whoever enqueues behind its last use.
    status free(void *data) override {
        const std::lock_guard lock(mutex_);
        const auto found = sizes_.find(data);
        if (found == sizes_.end()) {
            return {code::invalid_argument, "the program frees what it does not hold"};
        }
        kept_.emplace(found->second, data);
        kept_bytes_ += found->second;
        sizes_.erase(found);
        return {};
    }
    uint64_t used_bytes() override {
        size_t free_bytes = 0;
        size_t total_bytes = 0;
        EXPECT_EQ(user().mem_get_info(&free_bytes, &total_bytes), cudaSuccess);
        const std::lock_guard lock(mutex_);
        return total_bytes - free_bytes - kept_bytes_;
    }

    void registered(void *data, uint64_t size_bytes) override {
        EXPECT_EQ(cuda_.api().host_register(data, size_bytes, cudaHostRegisterPortable), cudaSuccess);
    }
    void unregistered(void *data) override { EXPECT_EQ(cuda_.api().host_unregister(data), cudaSuccess); }

private:
    static cuda_double_options double_options(const host_device_options &options) {
        cuda_double_options out;
        out.capacity_bytes = options.capacity_bytes;
        out.d2h_bytes_per_second = options.d2h_bytes_per_second;
        out.h2d_bytes_per_second = options.h2d_bytes_per_second;
        return out;
    }
    static cuda_device_options device_options(const host_device_options &options, cuda_device_options out) {
        out.system_root = options.system_root;
        out.prefault_threads = options.prefault_threads;
        return out;
    }
    static const cuda_user &user() { return cuda_double::user(); }
    static status failed(cudaError_t error) {
        static_cast<void>(user().get_last_error());
        return {error == cudaErrorMemoryAllocation ? code::out_of_device_memory : code::device_error,
                "CUDA error " + std::to_string(static_cast<int>(error))};
    }
    [[nodiscard]] bool is_borne(cudaError_t error) const { return bears_loss_ && is_sticky(error); }
    [[nodiscard]] status done(cudaError_t error) const {
        return error == cudaSuccess || is_borne(error) ? status() : failed(error);
    }
    [[nodiscard]] cudaStream_t native(stream_id stream) const {
        const result<cudaStream_t> handle = device_->native_stream(stream);
        EXPECT_TRUE(handle.ok()) << handle.why().text();
        return handle.ok() ? handle.value() : nullptr;
    }

    void *take_kept(uint64_t size_bytes) {
        const auto range = kept_.equal_range(size_bytes);
        if (range.first == range.second) {
            return nullptr;
        }
        const auto last = std::prev(range.second);  // freed last
        void *data = last->second;
        kept_.erase(last);
        kept_bytes_ -= size_bytes;
        return data;
    }
    void give_back_kept() {
        EXPECT_EQ(user().device_synchronize(), cudaSuccess);
        for (const auto &[size_bytes, data] : kept_) {
            EXPECT_EQ(user().free(data), cudaSuccess);
        }
        kept_.clear();
        kept_bytes_ = 0;
    }

    checked_cuda cuda_;
    std::unique_ptr<cuda_device> device_;
    std::mutex mutex_;
    std::unordered_map<void *, uint64_t> sizes_;  // what the program holds
    std::multimap<uint64_t, void *> kept_;        // what it freed, by size
    uint64_t kept_bytes_ = 0;
    bool bears_loss_ = false;
    std::deque<std::vector<std::byte>> substitutes_;
};

}  // namespace ebb::test
