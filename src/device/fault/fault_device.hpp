// A device on which things go wrong when a test says so: calls are refused, pinning hits a limit, the device breaks for
// good, copies are held up or damage a byte. Otherwise it is the device that it decorates.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "device/call_kind.hpp"
#include "device/decorator.hpp"

namespace ebb {

class host_device;

class fault_device : public device_decorator {
public:
    static constexpr uint64_t k_for_good = std::numeric_limits<uint64_t>::max();

    // Puts a function on a stream of the device, which runs it in the stream's order.
    using launcher = std::function<status(stream_id stream, void (*function)(void *argument), void *argument)>;

    // Without anything to launch with, copies cannot be held or damaged: those calls say so.
    explicit fault_device(device &inner, launcher launch = {}) : device_decorator(inner), launch_(std::move(launch)) {}
    explicit fault_device(host_device &inner);
    // `host` is what `inner` decorates.
    fault_device(device &inner, host_device &host);
    ~fault_device() override;  // lets everything pass that is held, and waits until it has

    // Refuses the nth call of that kind from now on (1: the next one) and those after it, `count` in all. The code is
    // that of the call's natural failure when not given.
    void refuse(call_kind kind, uint64_t nth = 1, uint64_t count = 1, std::optional<code> reason = std::nullopt);
    // Refuses each further call of that kind with that probability, by seed and number of the call: the same calls meet
    // the same refusals, whatever other kinds are called between them.
    void refuse_at_random(call_kind kind, double probability, uint64_t seed);
    // map_host is refused when more than that would be mapped in all.
    void refuse_pinning_above(uint64_t total_bytes);
    // After that many more calls of any kind, each one fails with code::device_error.
    void break_after(uint64_t calls);
    // Ends refusals, those at random too, the pinning limit, breakage and damage that did not come yet. Holds stay.
    void clear();

    // Calls that came in since the beginning, and those of them that this device refused.
    [[nodiscard]] uint64_t calls(call_kind kind) const;
    [[nodiscard]] uint64_t refused(call_kind kind) const;

    // Copies in that direction do not begin until released, or until let_pass allows so many of them. They stand on
    // their streams, as on a slow link; also those enqueued before, if they have not begun.
    status hold(copy_direction direction);
    status release(copy_direction direction);
    status let_pass(copy_direction direction, uint64_t copies);
    // Blocks until at least one copy stands at the gate; hold first, and enqueue one.
    status wait_until_held(copy_direction direction);

    // Flips one bit of the destination behind the nth copy in that direction from now on (1: the next one).
    status damage_copy(copy_direction direction, uint64_t nth, uint64_t offset_bytes);

    result<void *> alloc_device(uint64_t size_bytes) override;
    status free_device(void *data, uint64_t size_bytes) override;
    result<void *> map_host(uint64_t size_bytes) override;
    status unmap_host(void *data, uint64_t size_bytes) override;
    result<stream_id> create_stream(stream_role role) override;
    status destroy_stream(stream_id stream) override;
    result<event_id> create_event(event_kind kind) override;
    status destroy_event(event_id event) override;
    status record_event(event_id event, stream_id stream) override;
    status wait_event(stream_id stream, event_id event) override;
    result<bool> event_done(event_id event) override;
    status synchronize_event(event_id event) override;
    result<uint64_t> elapsed_ns(event_id start, event_id end) override;
    status copy(stream_id stream, copy_direction direction, void *destination, const void *source,
                uint64_t size_bytes) override;
    status copy_by_thread(copy_direction direction, void *destination, const void *source, uint64_t size_bytes,
                          uint64_t *time_ns) override;
    status checksum(stream_id stream, const void *data, uint64_t size_bytes, uint64_t *accumulator) override;

private:
    struct refusal {
        call_kind kind;
        uint64_t first;  // as counted by calls_
        uint64_t count;
        code reason;
    };
    struct chance {
        double probability = 0;
        uint64_t seed = 0;
    };
    struct gate {
        std::mutex mutex;
        std::condition_variable changed;
        bool held = false;
        uint64_t permits = 0;  // copies that may pass although held
        uint64_t standing = 0;
        uint64_t pending = 0;  // launched and not through yet
    };
    struct damage {
        copy_direction direction;
        uint64_t copies_before;
        uint64_t offset_bytes;
    };
    struct flip {
        gate *at;
        unsigned char *byte;
    };
    status admit(call_kind kind);
    status check_launcher(const char *call) const;
    status launch_gate(gate &at, stream_id stream);
    status launch_flip(gate &at, stream_id stream, unsigned char *byte);
    std::optional<uint64_t> damaged_offset(copy_direction direction);
    static void pass_gate(void *at);
    static void flip_byte(void *argument);
    static void leave(gate &at);
    [[nodiscard]] gate &gate_of(copy_direction direction) { return gates_[static_cast<size_t>(direction)]; }

    const launcher launch_;
    mutable std::mutex mutex_;
    std::array<uint64_t, k_call_kinds> calls_{};
    std::array<uint64_t, k_call_kinds> refused_{};
    std::vector<refusal> refusals_;
    std::array<chance, k_call_kinds> chances_{};
    uint64_t calls_until_broken_ = k_for_good;
    uint64_t pinning_limit_bytes_ = k_for_good;
    uint64_t pinned_bytes_ = 0;
    std::vector<damage> damages_;
    std::deque<flip> flips_;  // arguments of launches: addresses stay
    std::array<gate, 3> gates_;
};

}  // namespace ebb
