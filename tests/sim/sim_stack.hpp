// The simulated device in checking mode as a runtime gets it: faults over it where a test wants some, and on top a
// layer that counts the waits and leaves one out. And memory as a framework's caching allocator hands it out.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "device/fault/fault_device.hpp"
#include "device/sim/sim_device.hpp"

namespace ebb::test {

class sim_stack : public device_decorator {
public:
    sim_stack(const sim_machine &machine, uint64_t checking_seed, uint64_t slab_bytes)
        : sim_stack(std::make_unique<sim_device>(machine, checking_seed), slab_bytes) {}
    ~sim_stack() override {
        if (at_end_) {
            at_end_(*this);
        }
    }

    [[nodiscard]] sim_device &sim() { return *sim_; }
    [[nodiscard]] fault_device &fault() { return *fault_; }
    // The runtime that owns this is gone, and its last calls were made.
    void at_end(std::function<void(sim_stack &)> look) { at_end_ = std::move(look); }
    // The nth wait from now on (1: the next one) is not made.
    void leave_out_wait(uint64_t nth) { left_out_ = waits_ + nth; }
    [[nodiscard]] uint64_t waits() const { return waits_; }
    // The stream had seen that point already, by other waits: leaving it out changes no order.
    [[nodiscard]] bool left_out_was_redundant() const { return redundant_; }
    // The caller's own order, which no fault and no leaving out concerns.
    void order(stream_id earlier, stream_id later, event_id event) {
        EXPECT_TRUE(sim_->record_event(event, earlier).ok());
        note_record(event, earlier);
        note_wait(later, event);
        EXPECT_TRUE(sim_->wait_event(later, event).ok());
    }

    [[nodiscard]] const device_info &info() const noexcept override { return info_; }
    status record_event(event_id event, stream_id stream) override {
        note_record(event, stream);
        return inner().record_event(event, stream);
    }
    status wait_event(stream_id stream, event_id event) override {
        if (++waits_ == left_out_) {
            redundant_ = has_seen(clocks_[stream], points_[event]);
            return {};
        }
        note_wait(stream, event);
        return inner().wait_event(stream, event);
    }

private:
    sim_stack(std::unique_ptr<sim_device> &&sim, uint64_t slab_bytes)
        : sim_stack(std::make_unique<fault_device>(static_cast<device &>(*sim)), std::move(sim), slab_bytes) {}
    sim_stack(std::unique_ptr<fault_device> fault, std::unique_ptr<sim_device> &&sim, uint64_t slab_bytes)
        : device_decorator(static_cast<device &>(*fault)),
          info_(sim->info()),
          sim_(std::move(sim)),
          fault_(std::move(fault)) {
        info_.slab_bytes = slab_bytes;
    }

    using clock = std::map<stream_id, uint64_t>;  // by stream: how many of its records lie behind

    void note_record(event_id event, stream_id stream) {
        if (left_out_ != 0) {
            ++clocks_[stream][stream];
            points_[event] = clocks_[stream];
        }
    }
    void note_wait(stream_id stream, event_id event) {
        if (left_out_ != 0) {
            for (const auto &[other, passed] : points_[event]) {
                uint64_t &seen = clocks_[stream][other];
                seen = std::max(seen, passed);
            }
        }
    }
    static bool has_seen(const clock &at, const clock &point) {
        return std::all_of(point.begin(), point.end(), [&at](const auto &needed) {
            const auto seen = at.find(needed.first);
            return seen != at.end() && seen->second >= needed.second;
        });
    }

    device_info info_;
    std::unique_ptr<sim_device> sim_;
    std::unique_ptr<fault_device> fault_;
    std::function<void(sim_stack &)> at_end_;
    uint64_t waits_ = 0, left_out_ = 0;
    bool redundant_ = false;
    std::map<stream_id, clock> clocks_;
    std::map<event_id, clock> points_;
};

// Blocks belong to one stream: freed and given out again in its order.
class stream_pool {
public:
    explicit stream_pool(sim_device &device) : device_(device) {}

    std::byte *alloc(stream_id home, uint64_t size_bytes) {
        const uint64_t block_bytes = rounded(size_bytes);
        std::vector<std::byte *> &unused = unused_[{home, block_bytes}];
        if (unused.empty()) {
            result<void *> made = device_.alloc_device(block_bytes);
            EXPECT_TRUE(made.ok()) << made.why().text();
            return static_cast<std::byte *>(made.value());
        }
        std::byte *block = unused.back();
        unused.pop_back();
        EXPECT_TRUE(device_.alloc_on(home, block, block_bytes).ok());
        return block;
    }
    void free(stream_id home, std::byte *block, uint64_t size_bytes) {
        const uint64_t block_bytes = rounded(size_bytes);
        EXPECT_TRUE(device_.free_on(home, block, block_bytes).ok());
        unused_[{home, block_bytes}].push_back(block);
    }

private:
    static uint64_t rounded(uint64_t size_bytes) { return (size_bytes + 4095) / 4096 * 4096; }

    sim_device &device_;
    std::map<std::pair<stream_id, uint64_t>, std::vector<std::byte *>> unused_;
};

}  // namespace ebb::test
