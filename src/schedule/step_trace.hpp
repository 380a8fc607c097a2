// What one training step did, in the order of its calls: produce and use events of activations. Every step is
// traced; the first complete one becomes the record, and later ones are compared with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ebb {

constexpr uint32_t k_no_index = ~uint32_t{0};

// How calls are told apart within a step; the n-th call with one key is its n-th occurrence.
struct call_key {
    uint32_t name = 0;
    uint64_t micro_batch = 0;
    uint64_t stage = 0;

    friend bool operator==(const call_key &a, const call_key &b) noexcept {
        return a.name == b.name && a.micro_batch == b.micro_batch && a.stage == b.stage;
    }
};

// What an activation's own memory counts as until it is released.
enum class held_memory : uint8_t {
    nothing,  // a view's, a staged one's, or what is computed again
    kept,
    source,  // until it is given up
};

struct traced_activation {
    call_key key;
    uint32_t layer = 0;  // its scope
    uint64_t size_bytes = 0;
    bool movable = false;    // by policy: offload, or kept only as one of the last
    bool last_kept = false;  // the rule of the last ones is for it
    held_memory memory = held_memory::kept;
    uint32_t parent = k_no_index;  // activation of the same step whose copy it shares
    uint32_t produced_at = 0;      // event index
    uint32_t released_at = 0;      // number of events before its release, or of all when it outlives the step
};

struct traced_event {
    bool use = false;      // else produce
    bool claimed = false;  // a use that holds the bytes where they are: a source stays from here on
    uint32_t activation = 0;
};

// A span of the step in which a collective wanted the links; event indices of the calls that come after its ends.
struct traced_collective {
    uint32_t begin_at = 0;
    uint32_t end_at = k_no_index;
    uint64_t size_bytes = 0;
};

class step_trace {
public:
    uint32_t produce(const call_key &key, uint32_t layer, uint64_t size_bytes, bool movable, bool last_kept) {
        const auto id = static_cast<uint32_t>(activations_.size());
        // Filled in place: a record built first and then copied is read back before its parts are stored.
        traced_activation &a = activations_.emplace_back();
        a.key = key;
        a.layer = layer;
        a.size_bytes = size_bytes;
        a.movable = movable;
        a.last_kept = last_kept;
        a.memory = held_memory::kept;
        a.parent = k_no_index;
        a.produced_at = event_count();
        a.released_at = k_no_index;
        events_.push_back({false, false, id});
        return id;
    }
    // Once it is known what became of it.
    void place(uint32_t activation, held_memory memory, uint32_t parent) {
        activations_[activation].memory = memory;
        activations_[activation].parent = parent;
    }
    void use(uint32_t activation, bool claimed) { events_.push_back({true, claimed, activation}); }
    void release(uint32_t activation) { activations_[activation].released_at = event_count(); }
    uint32_t begin_collective(uint64_t size_bytes) {
        collectives_.push_back({event_count(), k_no_index, size_bytes});
        return static_cast<uint32_t>(collectives_.size() - 1);
    }
    void end_collective(uint32_t number) { collectives_[number].end_at = event_count(); }
    void clear() noexcept {
        activations_.clear();
        events_.clear();
        collectives_.clear();
    }

    [[nodiscard]] uint32_t event_count() const noexcept { return static_cast<uint32_t>(events_.size()); }
    [[nodiscard]] bool empty() const noexcept { return events_.empty(); }
    [[nodiscard]] const std::vector<traced_activation> &activations() const noexcept { return activations_; }
    [[nodiscard]] const std::vector<traced_event> &events() const noexcept { return events_; }
    [[nodiscard]] const std::vector<traced_collective> &collectives() const noexcept { return collectives_; }

    // The same calls in the same order; sizes may differ.
    [[nodiscard]] bool same_calls(const step_trace &other) const noexcept {
        if (events_.size() != other.events_.size() || activations_.size() != other.activations_.size()) {
            return false;
        }
        for (std::size_t i = 0; i < events_.size(); ++i) {
            if (events_[i].use != other.events_[i].use || events_[i].activation != other.events_[i].activation) {
                return false;
            }
        }
        for (std::size_t i = 0; i < activations_.size(); ++i) {
            if (!(activations_[i].key == other.activations_[i].key)) {
                return false;
            }
        }
        return true;
    }

private:
    std::vector<traced_activation> activations_;
    std::vector<traced_event> events_;
    std::vector<traced_collective> collectives_;
};

}  // namespace ebb
