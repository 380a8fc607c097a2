// The recorded step: the sequence of produce and use events that later steps are expected to follow, with
// what the scheduler derives from it once, at a step boundary. Gradient accumulation, 1F1B and interleaved
// stages are such sequences like any other.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/plan.hpp"
#include "schedule/step_trace.hpp"

namespace ebb {

class step_record {
public:
    struct entry {
        call_key key;
        uint32_t layer = 0;
        uint64_t size_bytes = 0;  // the largest seen, so that budgets hold when sizes change
        bool movable = false;
        bool last_kept = false;
        held_memory memory = held_memory::kept;
        uint32_t parent = k_no_index;  // entry whose copy it shares
        uint32_t produced_at = 0;
        uint32_t released_at = 0;
        uint32_t first_use = k_no_index;  // event index
        uint32_t younger = 0;             // movable activations produced between this one and its first use
        uint32_t series = 0;              // dense number of the key; its entries are that key's occurrences
        uint32_t next_occurrence = k_no_index;
        bool given_up_before_use = true;  // see forecast()
        uint32_t first_reload = k_no_index;
        bool automatic = false;  // the planner may decide
        bool can_recompute = false;
        uint64_t recompute_cost_ns = 0;  // 0: not said
        uint32_t first_input = 0, input_count = 0;
    };
    struct event {
        bool use = false;
        bool claimed = false;
        uint32_t entry = 0;
        uint32_t next_use = k_no_index;   // of the same entry
        uint32_t layer_end = k_no_index;  // first later use event of another layer (for use events)
    };

    // What may have to be copied in: an activation's own use, or the use of one that is computed again from it.
    struct reload {
        uint32_t event = 0;
        uint32_t entry = 0;
        uint32_t next = k_no_index;  // of the same entry
        bool own = true;
    };

    // The conditions that the forecast depends on.
    struct budget {
        uint64_t device_bytes = ~uint64_t{0};  // for kept activations and sources
        uint64_t source_cap_bytes = ~uint64_t{0};
        uint64_t keep_last = 0;
    };

    void adopt(const step_trace &trace);
    // What a later step's call says about an entry: the largest size counts, otherwise the latest. True when something
    // is new: derive() and forecast() are due at the end of the step.
    bool learn(uint32_t index, uint64_t size_bytes, bool movable, held_memory memory, uint32_t parent) noexcept;
    void derive();
    // Replays the record under the give-up rule of the runtime and notes which sources are given up before their
    // use: a prefetch waits for those, and passes over the others, which will be forwarded.
    void forecast(const budget &b);

    // A plan's decisions, by entry; only of those that it may decide. derive() and forecast() are due.
    void place(const std::vector<tensor_placement> &placement);

    [[nodiscard]] bool empty() const noexcept { return events_.empty(); }
    [[nodiscard]] const std::vector<entry> &entries() const noexcept { return entries_; }
    [[nodiscard]] const std::vector<event> &events() const noexcept { return events_; }
    [[nodiscard]] const std::vector<traced_collective> &collectives() const noexcept { return collectives_; }
    [[nodiscard]] const std::vector<traced_end> &ends() const noexcept { return ends_; }
    [[nodiscard]] const uint32_t *inputs(const entry &e) const noexcept { return inputs_.data() + e.first_input; }
    // In the order in which they are needed.
    [[nodiscard]] const std::vector<reload> &reloads() const noexcept { return reloads_; }
    // The first of them that an event or a later one needs.
    [[nodiscard]] uint32_t reload_at(uint32_t number) const noexcept { return reload_at_[number]; }
    // By event: how many claims and activations end between the one before and it.
    [[nodiscard]] uint32_t ends_before(uint32_t number) const noexcept { return ends_before_[number]; }
    // By event: what kept activations and those computed again hold then, with a produced one's bytes in the making.
    [[nodiscard]] const std::vector<uint64_t> &fixed_bytes() const noexcept { return fixed_bytes_; }
    [[nodiscard]] entry &at(uint32_t index) noexcept { return entries_[index]; }

    // The series of a key, or k_no_index.
    [[nodiscard]] uint32_t find(const call_key &key) const noexcept;
    [[nodiscard]] const std::vector<uint32_t> &series_first() const noexcept { return series_first_; }
    [[nodiscard]] uint32_t first_use() const noexcept { return first_use_; }
    [[nodiscard]] uint32_t series_count() const noexcept { return static_cast<uint32_t>(series_first_.size()); }

    // Of every activation's lifetime, the largest sum of sizes that lived at once; and the largest size.
    [[nodiscard]] uint64_t peak_saved_bytes() const noexcept { return peak_saved_bytes_; }
    [[nodiscard]] uint64_t largest_bytes() const noexcept { return largest_bytes_; }
    [[nodiscard]] uint64_t largest_movable_bytes() const noexcept { return largest_movable_bytes_; }

private:
    void link_occurrences();
    void derive_uses();
    void derive_reloads();
    void derive_fixed();
    void derive_ends();
    void add_reload(uint32_t at, uint32_t e, bool own);
    void add_inputs(uint32_t at, uint32_t first);
    [[nodiscard]] static bool recomputed(const entry &e) noexcept;
    void derive_peak();
    [[nodiscard]] static uint64_t saved_bytes(const entry &e) noexcept;

    std::vector<entry> entries_;
    std::vector<event> events_;
    std::vector<traced_collective> collectives_;
    std::vector<traced_end> ends_;
    std::vector<uint32_t> inputs_;  // entries
    std::vector<reload> reloads_;
    std::vector<uint32_t> last_reload_;  // scratch, by entry
    std::vector<uint8_t> again_;
    struct again {
        uint32_t at;  // event
        uint32_t entry;
    };
    std::vector<again> recomputes_;  // in their order: each at the first use that needs it, its own or another's
    std::vector<uint32_t> to_recompute_;
    std::vector<uint32_t> reload_at_;    // by event, and one beyond
    std::vector<uint32_t> ends_before_;  // by event, and one beyond
    std::vector<uint64_t> fixed_bytes_;
    std::vector<uint32_t> series_first_;  // entry
    std::vector<uint32_t> buckets_;       // open addressing over series
    uint64_t peak_saved_bytes_ = 0;
    uint64_t largest_bytes_ = 0;
    uint64_t largest_movable_bytes_ = 0;
    uint32_t first_use_ = k_no_index;  // the first use event
};

}  // namespace ebb
