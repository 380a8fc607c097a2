// A device in virtual time: models machines that we do not have, and drives the very same core through millions of
// operations. Memory is address space without pages, so that 165 GiB of device memory are simulated anywhere.
// Deterministic: the same calls give the same times and the same log.
//
// In checking mode it is not the machine's times that count: work runs at shuffled times and each piece looks at what
// it touches (sim_checker.hpp), so that an order that nobody made shows.
//
// The host's clock goes on by a fixed time per call, the device's with it; waiting for an event moves both to
// where it is passed. Calls may come from any thread, one after the other: only the order of the calls counts.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "device/device.hpp"
#include "device/reserved_memory.hpp"
#include "device/sim/sim_streams.hpp"

namespace ebb {

struct sim_kernel {
    sim_engine engine = sim_engine::compute;  // or collective
    sim_time_ps duration_ps = 0;              // alone on the machine
    double hbm_fraction = 0;                  // of HBM's rate, when alone
    // For checking mode, which copies them; otherwise nobody looks.
    std::span<const sim_read> reads{};
    std::span<const sim_write> writes{};
};

class sim_device : public device {
public:
    // The machine has passed check_machine(). With a seed, in checking mode.
    explicit sim_device(const sim_machine &machine, std::optional<uint64_t> checking_seed = std::nullopt);
    ~sim_device() override;
    sim_device(const sim_device &) = delete;
    sim_device &operator=(const sim_device &) = delete;

    [[nodiscard]] const device_info &info() const noexcept override { return info_; }

    result<void *> alloc_device(uint64_t size_bytes) override;
    status free_device(void *data, uint64_t size_bytes) override;
    [[nodiscard]] device_memory memory() const override;
    result<void *> map_host(uint64_t size_bytes) override;
    status unmap_host(void *data, uint64_t size_bytes) override;
    [[nodiscard]] uint64_t host_room_bytes() const override;

    result<stream_id> create_stream(stream_role role) override;
    status destroy_stream(stream_id stream) override;
    [[nodiscard]] status check_stream(stream_id stream) const override;

    result<event_id> create_event(event_kind kind) override;
    status destroy_event(event_id event) override;
    status record_event(event_id event, stream_id stream) override;
    status wait_event(stream_id stream, event_id event) override;
    result<bool> event_done(event_id event) override;
    status synchronize_event(event_id event) override;
    result<uint64_t> elapsed_ns(event_id start, event_id end) override;

    // A copy within the device is compute that uses all of HBM.
    status copy(stream_id stream, copy_direction direction, void *destination, const void *source,
                uint64_t size_bytes) override;
    // Takes the time of reading; there are no bytes to sum, so the accumulator stays.
    status checksum(stream_id stream, const void *data, uint64_t size_bytes, uint64_t *accumulator) override;

    // For what computes on the simulated machine.
    status launch(stream_id stream, const sim_kernel &kernel);
    // From now on, for copies that are under way too: a link that is shared with somebody else gets slower. Above 0.
    void set_link_rates(double d2h_bytes_per_second, double h2d_bytes_per_second);
    // The stream stands until open_gate(), once.
    struct gate {
        sim_streams::index number;
    };
    result<gate> stand(stream_id stream);
    void open_gate(gate g);
    // The host waits for everything that can be done.
    void synchronize();

    // Memory that an allocator of the caller's takes back and gives out again in the order of a stream, for checking
    // mode; otherwise nothing. What was alloc_device'd is memory already.
    status free_on(stream_id stream, void *data, uint64_t size_bytes);
    status alloc_on(stream_id stream, void *data, uint64_t size_bytes);
    // Checking mode: the first ones, and how many there were.
    [[nodiscard]] std::vector<sim_violation> violations() const;
    [[nodiscard]] uint64_t violation_count() const;

    [[nodiscard]] sim_time_ps host_time_ps() const;
    [[nodiscard]] sim_time_ps busy_ps(sim_engine engine) const;
    [[nodiscard]] uint64_t log_hash() const;
    [[nodiscard]] uint64_t operation_count() const;

private:
    // What a stream's or event's number stands for.
    struct stream_slot {
        uint64_t number = 0;  // 0: free
        sim_streams::index stream = 0;
    };
    struct event_slot {
        uint64_t number = 0;
        event_kind kind = event_kind::plain;
        sim_streams::index latest = sim_streams::k_none;
    };

    [[nodiscard]] const stream_slot *find(stream_id stream) const noexcept;
    event_slot *find(event_id event) noexcept;
    [[nodiscard]] static status no_such(stream_id stream);
    [[nodiscard]] static status no_such(event_id event);
    result<sim_time_ps> time_of(event_id event, const char *which);
    struct touched {
        sim_action action;
        std::span<const sim_read> reads;
        std::span<const sim_write> writes;
    };
    status enqueue(stream_id stream, sim_work work, const touched &memory);
    status enqueue_at_once(stream_id stream, sim_action action, const sim_write &range);
    result<void *> reserve(reserved_memory &memory, uint64_t size_bytes);
    status give_back(reserved_memory &memory, void *data, uint64_t size_bytes);
    [[nodiscard]] sim_time_ps hbm_time_ps(uint64_t size_bytes) const noexcept;
    void call();       // the host's time for a call, and what the device does meanwhile
    void call_ends();  // a host that does not run ahead waits

    const sim_machine machine_;
    device_info info_;
    reserved_memory device_memory_;
    reserved_memory host_memory_;
    mutable std::mutex mutex_;
    std::unique_ptr<sim_checker> checker_;
    sim_streams streams_;
    sim_time_ps host_ps_ = 0;
    sim_streams::index default_stream_;
    std::vector<stream_slot> stream_slots_;
    std::vector<event_slot> event_slots_;
    std::vector<uint32_t> free_stream_slots_, free_event_slots_;
};

}  // namespace ebb
