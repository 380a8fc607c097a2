// A device of which only the memory exists, for tests and benchmarks of the memory layer: host slabs and device
// memory are reserved address space that nobody may touch, so a trace of hundreds of gigabytes runs anywhere.
// Refuses by rules; counts calls; checks that each mapping is undone once and with its own size.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "base/check.hpp"
#include "device/device.hpp"
#include "heap_limit.hpp"

namespace ebb {

class fake_memory_device final : public device {
public:
    static constexpr uint64_t k_unlimited = std::numeric_limits<uint64_t>::max();

    fake_memory_device() {
        info_.name = "fake";
        info_.slab_bytes = 1ULL << 30U;
    }
    ~fake_memory_device() override {
        for (const auto &[data, size_bytes] : mappings_) {
            ::munmap(data, size_bytes);
        }
    }
    fake_memory_device(const fake_memory_device &) = delete;
    fake_memory_device &operator=(const fake_memory_device &) = delete;

    // Rules.
    uint64_t host_limit_bytes = k_unlimited;          // host_room_bytes: the control group's limit, known before
    uint64_t pinning_limit_bytes = k_unlimited;       // pinned in all: found out by trying
    uint64_t pinning_call_limit_bytes = k_unlimited;  // in one registration
    uint64_t device_limit_bytes = k_unlimited;

    // What happened.
    uint64_t map_calls = 0;
    uint64_t unmap_calls = 0;
    uint64_t refused_map_calls = 0;
    mutable uint64_t room_calls = 0;
    uint64_t alloc_calls = 0;
    uint64_t free_calls = 0;
    uint64_t pinned_bytes = 0;
    uint64_t pinned_peak_bytes = 0;
    uint64_t device_bytes = 0;
    uint64_t device_peak_bytes = 0;

    [[nodiscard]] const device_info &info() const noexcept override { return info_; }
    [[nodiscard]] const std::map<void *, uint64_t> &mappings() const noexcept { return mappings_; }

    result<void *> map_host(uint64_t size_bytes) override {
        ++map_calls;
        if (size_bytes > pinning_call_limit_bytes || size_bytes > pinning_limit_bytes - pinned_bytes) {
            ++refused_map_calls;
            return status(code::out_of_host_memory, "the fake system refused pinning");
        }
        void *data = reserve(size_bytes);
        pinned_bytes += size_bytes;
        pinned_peak_bytes = pinned_bytes > pinned_peak_bytes ? pinned_bytes : pinned_peak_bytes;
        return data;
    }
    status unmap_host(void *data, uint64_t size_bytes) override {
        ++unmap_calls;
        pinned_bytes -= size_bytes;
        return release(data, size_bytes);
    }
    [[nodiscard]] uint64_t host_room_bytes() const override {
        ++room_calls;
        return host_limit_bytes == k_unlimited ? k_unlimited : host_limit_bytes - pinned_bytes;
    }

    result<void *> alloc_device(uint64_t size_bytes) override {
        ++alloc_calls;
        if (size_bytes > device_limit_bytes - device_bytes) {
            return status(code::out_of_device_memory, "the fake device is full");
        }
        device_bytes += size_bytes;
        device_peak_bytes = device_bytes > device_peak_bytes ? device_bytes : device_peak_bytes;
        return reserve(size_bytes);
    }
    status free_device(void *data, uint64_t size_bytes) override {
        ++free_calls;
        device_bytes -= size_bytes;
        return release(data, size_bytes);
    }
    [[nodiscard]] device_memory memory() const override {
        return {device_limit_bytes, device_limit_bytes - device_bytes};
    }

    // There are no streams.
    result<stream_id> create_stream(stream_role) override { return no_streams(); }
    status destroy_stream(stream_id) override { return no_streams(); }
    [[nodiscard]] status check_stream(stream_id) const override { return no_streams(); }
    result<event_id> create_event(event_kind) override { return no_streams(); }
    status destroy_event(event_id) override { return no_streams(); }
    status record_event(event_id, stream_id) override { return no_streams(); }
    status wait_event(stream_id, event_id) override { return no_streams(); }
    result<bool> event_done(event_id) override { return no_streams(); }
    status synchronize_event(event_id) override { return no_streams(); }
    result<uint64_t> elapsed_ns(event_id, event_id) override { return no_streams(); }
    status copy(stream_id, copy_direction, void *, const void *, uint64_t) override { return no_streams(); }
    status checksum(stream_id, const void *, uint64_t, uint64_t *) override { return no_streams(); }

private:
    static status no_streams() { return {code::unsupported, "the fake memory device has no streams"}; }

    // A sanitizer's shadow memory leaves no terabytes of address space: then addresses that no process has.
    void *reserve(uint64_t size_bytes) {
        const test::heap_memory_again for_the_mapping;
        void *data = ::mmap(nullptr, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (data == MAP_FAILED) {
            data = reinterpret_cast<void *>(next_address_);
            next_address_ += (size_bytes + k_page_bytes - 1) / k_page_bytes * k_page_bytes;
        }
        mappings_.emplace(data, size_bytes);
        return data;
    }
    status release(void *data, uint64_t size_bytes) {
        const auto found = mappings_.find(data);
        EBB_CHECK(found != mappings_.end() && found->second == size_bytes);
        mappings_.erase(found);
        EBB_CHECK(reinterpret_cast<uintptr_t>(data) >= k_no_process || ::munmap(data, size_bytes) == 0);
        return {};
    }

    static constexpr uintptr_t k_no_process = uintptr_t{1} << 60U;
    static constexpr uint64_t k_page_bytes = 4096;

    uintptr_t next_address_ = k_no_process;
    device_info info_;
    std::map<void *, uint64_t> mappings_;
};

}  // namespace ebb
