// Plays a step on a simulated machine: kernels, collectives and recomputes in their order on one compute stream, and at
// each turn asks a rule what becomes of the tensors that move. Rules only use streams, events and copies; memory is
// accounted, not limited: what a rule needs is found out, not what it would do for want of memory. The exception is the
// caching allocator, which has compute wait for memory that a copy still reads (give_up_to_allocator).
//
// The host's calls take no time here, which is generous.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "device/sim/sim_device.hpp"
#include "policy/baseline.hpp"
#include "policy/baseline_memory.hpp"
#include "policy/step_outline.hpp"

namespace ebb::baselines {

// Called in the order of the step. The tensors are those that the save set moves.
class baseline_rule {
public:
    virtual ~baseline_rule() = default;
    virtual void begins(uint32_t /*iteration*/) {}
    virtual void produced(uint32_t /*tensor*/) {}
    virtual void needed(uint32_t /*tensor*/) {}  // compute may read it behind this call
    virtual void ends(uint32_t /*iteration*/) {}
};

class baseline_player {
public:
    using rule_maker = std::function<std::unique_ptr<baseline_rule>(baseline_player &)>;

    baseline_player(const built_step &step, const sim_machine &machine, uint64_t device_budget_bytes);

    // Exposed time is not known here.
    [[nodiscard]] result<baseline_result> play(const rule_maker &make);

    [[nodiscard]] const built_step &step() const noexcept { return step_; }
    [[nodiscard]] const step_outline &outline() const noexcept { return outline_; }

    // -------------------------------------------------------------------------------------------------- for rules --
    [[nodiscard]] stream_id compute() const noexcept { return compute_; }
    [[nodiscard]] stream_id out() const noexcept { return out_; }
    [[nodiscard]] stream_id in() const noexcept { return in_; }

    // Behind what compute has to do so far.
    void copy_out(uint32_t tensor, stream_id stream);
    // Takes memory; behind what compute has to do so far, and its own copy out. Nothing if it is here.
    void copy_in(uint32_t tensor, stream_id stream);
    [[nodiscard]] bool is_here(uint32_t tensor) const noexcept { return live_[tensor].here; }
    [[nodiscard]] bool is_going_out(uint32_t tensor) const noexcept { return live_[tensor].copied_out; }

    void compute_waits_for(stream_id stream);
    void compute_waits_for_event(event_id event) { waits(compute_, event); }
    void compute_waits_for_copy_in(uint32_t tensor);
    // The host waits for all that compute has to do so far, then looks.
    [[nodiscard]] bool is_stored(uint32_t tensor);
    void host_waits_for_copy_out(uint32_t tensor);

    // The source's memory is free: behind its copy and what compute has to do so far, which waits for it,
    void give_up(uint32_t tensor);
    // or since the copy has ended, before this call or after, and nobody waits,
    void give_up_when_stored(uint32_t tensor);
    // or the same, and where memory is short what takes it next waits. (An allocator that knows of the copy's stream
    // gives its block out again once the copy has ended, and when it finds none it waits for those.)
    void give_up_to_allocator(uint32_t tensor);

    // Timed, of compute: for what measures.
    [[nodiscard]] event_id now() { return point_of(compute_); }
    [[nodiscard]] event_id copied_out_event(uint32_t tensor) const noexcept { return live_[tensor].out_event; }
    [[nodiscard]] double ns_between(event_id from, event_id until);

private:
    struct live_tensor {
        bool here = false;
        bool copied_out = false;
        bool in_pinned = false;
        bool arrives = false;  // compute has not waited for its copy in
        event_id out_event{};
        event_id in_event{};
    };
    struct deferred_block {
        uint64_t size_bytes;
        event_id freed;
    };

    void must(const status &done);
    template <class T>
    T must(result<T> made) {
        must(made.why());
        return made.ok() ? std::move(made).value() : T{};
    }
    void set_up();
    [[nodiscard]] event_id point_of(stream_id stream);
    void waits(stream_id stream, event_id event);
    void take(uint64_t size_bytes);
    void give_back(uint64_t size_bytes, event_id also_behind);
    void recompute(uint32_t tensor);
    void need(uint32_t tensor);
    void play_event(const step_event &event);
    void produce(uint32_t tensor);
    void release(uint32_t tensor);
    void work(double time_ns, double hbm_fraction, stream_id stream, sim_engine engine);
    [[nodiscard]] std::byte *host_of(uint32_t tensor) const { return host_ + offset_[tensor]; }
    [[nodiscard]] std::byte *device_of(uint32_t tensor) const { return memory_ + offset_[tensor]; }
    [[nodiscard]] bool is_recomputed(uint32_t tensor) const {
        return step_.save_set.placement[tensor] == tensor_placement::recompute;
    }

    const built_step &step_;
    step_outline outline_;
    uint64_t budget_bytes_, host_limit_bytes_;
    sim_machine machine_;
    std::unique_ptr<sim_device> device_;
    std::unique_ptr<baseline_rule> rule_;
    baseline_memory ledger_;
    status failed_;
    stream_id compute_{}, out_{}, in_{}, collective_{};
    event_id compute_point_{};  // the last one, while compute has got nothing since
    bool compute_moved_ = true;
    std::byte *memory_ = nullptr, *host_ = nullptr;
    std::vector<uint64_t> offset_;
    std::vector<live_tensor> live_;
    uint64_t held_bytes_ = 0;  // in the order of the calls, what is deferred included
    std::vector<deferred_block> deferred_;
    size_t deferred_head_ = 0;
};

// With exposed time.
[[nodiscard]] result<baseline_result> play_rule(const built_step &step, const sim_machine &machine,
                                                uint64_t device_budget_bytes, const baseline_player::rule_maker &make);

}  // namespace ebb::baselines
