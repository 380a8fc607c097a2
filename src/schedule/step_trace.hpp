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
    bool automatic = false;        // the planner may decide
    bool can_recompute = false;
    uint64_t recompute_cost_ns = 0;             // 0: not said
    uint32_t first_input = 0, input_count = 0;  // of what it can be computed again from, in inputs()
};

// The end of the last claim on an activation, or of the activation itself.
struct traced_end {
    uint32_t activation = 0;
    uint32_t at = 0;  // number of events before
    bool release = false;
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
        owe_end();
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
        a.automatic = a.can_recompute = false;
        a.recompute_cost_ns = 0;
        a.first_input = a.input_count = 0;
        events_.push_back({false, false, id});
        return id;
    }
    // Once it is known what became of it.
    void place(uint32_t activation, held_memory memory, uint32_t parent) {
        activations_[activation].memory = memory;
        activations_[activation].parent = parent;
    }
    // What the planner may do with it. Inputs of other steps cannot be counted on and are left out by the caller.
    void allow(uint32_t activation, bool automatic) { activations_[activation].automatic = automatic; }
    void can_recompute(uint32_t activation, uint64_t cost_ns) {
        activations_[activation].can_recompute = true;
        activations_[activation].recompute_cost_ns = cost_ns;
        activations_[activation].first_input = static_cast<uint32_t>(inputs_.size());
    }
    void recompute_input(uint32_t activation, uint32_t from) {
        inputs_.push_back(from);
        ++activations_[activation].input_count;
    }
    void use(uint32_t activation, bool claimed) {
        owe_end();
        events_.push_back({true, claimed, activation});
    }
    // At most once for each use; as the release, it takes no memory.
    void done(uint32_t activation) { ends_.push_back({activation, event_count(), false}); }
    void release(uint32_t activation) {
        activations_[activation].released_at = event_count();
        ends_.push_back({activation, event_count(), true});
    }
    uint32_t begin_collective(uint64_t size_bytes) {
        collectives_.push_back({event_count(), k_no_index, size_bytes});
        return static_cast<uint32_t>(collectives_.size() - 1);
    }
    void end_collective(uint32_t number) { collectives_[number].end_at = event_count(); }
    void clear() noexcept {
        activations_.clear();
        events_.clear();
        ends_.clear();
        owed_ = 0;
        inputs_.clear();
        collectives_.clear();
    }

    [[nodiscard]] uint32_t event_count() const noexcept { return static_cast<uint32_t>(events_.size()); }
    [[nodiscard]] bool empty() const noexcept { return events_.empty(); }
    [[nodiscard]] const std::vector<traced_activation> &activations() const noexcept { return activations_; }
    [[nodiscard]] const std::vector<traced_event> &events() const noexcept { return events_; }
    [[nodiscard]] const std::vector<traced_end> &ends() const noexcept { return ends_; }
    [[nodiscard]] const std::vector<uint32_t> &inputs() const noexcept { return inputs_; }
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
    // What ends an activation or a claim must not fail for want of memory: it is taken when they begin.
    void owe_end() {
        if (ends_.capacity() <= owed_) {
            ends_.reserve(2 * (owed_ + 1));
        }
        ++owed_;
    }

    size_t owed_ = 0;  // produce and use calls
    std::vector<traced_activation> activations_;
    std::vector<traced_event> events_;
    std::vector<traced_end> ends_;
    std::vector<uint32_t> inputs_;
    std::vector<traced_collective> collectives_;
};

}  // namespace ebb
