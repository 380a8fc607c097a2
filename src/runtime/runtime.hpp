// The core: steps, activations and their states. A state machine driven by the calls made on it, by one thread at
// a time (src/capi holds the lock). Which copies are made, in which order, and when memory is reused follows from
// the order of the calls, the record and counts, never from what the device has finished (docs/architecture.md,
// "The host runs ahead").
//
// Callbacks are never run from here: deleters that may run now are queued as `due` calls, and memory from a
// caller's allocator is asked for through memory_wanted(); the layer above does both with no lock held.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/name_table.hpp"
#include "base/status.hpp"
#include "device/device.hpp"
#include "memory/pinned_arena.hpp"
#include "memory/staging.hpp"
#include "observe/counters.hpp"
#include "runtime/activation.hpp"
#include "runtime/activation_list.hpp"
#include "runtime/graph_holds.hpp"
#include "runtime/handle_table.hpp"
#include "runtime/profile_range.hpp"
#include "runtime/step_timer.hpp"
#include "runtime/storage_index.hpp"
#include "runtime/time_samples.hpp"
#include "runtime/verifier.hpp"
#include "schedule/evaluator.hpp"
#include "schedule/plan.hpp"
#include "schedule/planner.hpp"
#include "schedule/policy.hpp"
#include "schedule/record_model.hpp"
#include "schedule/sliding_maximum.hpp"
#include "schedule/step_record.hpp"
#include "schedule/step_trace.hpp"
#include "transfer/lanes.hpp"
#include "transfer/timelines.hpp"

namespace ebb {

enum class phase : uint8_t { train = 1, evaluate = 2 };

constexpr uint64_t k_automatic = 0;
constexpr uint64_t k_none_bytes = ~uint64_t{0};
constexpr uint64_t k_one_layer = ~uint64_t{0} - 1;

struct runtime_options {
    uint32_t lanes = 1;
    uint64_t device_budget_bytes = 0;
    uint64_t staging_bytes = 0;
    uint64_t max_activation_bytes = 0;
    uint64_t host_bytes = 0;
    uint32_t host_processes = 1;  // that share what is taken where host_bytes is 0
    uint64_t min_offload_bytes = uint64_t{1} << 20U;
    std::string policy = "offload";
    uint64_t keep_last = 0;
    uint64_t prefetch_bytes = k_automatic;  // or k_none_bytes, k_one_layer
    uint64_t source_bytes = k_automatic;    // or k_none_bytes
    uint64_t chunk_bytes = 0;
    uint32_t sample_every = 16;
    bool verify = false;
    void *staging_memory = nullptr;
    uint32_t handle_seed = 0;     // differs between the runtimes of a process, so that each knows its own handles
    bool measure_steps = false;   // times are taken though nothing is to be planned
    bool profile_ranges = false;  // say to a profiler what is done for which activation
    bool lent_allocator = false;  // slots live on memory that the layer above supplies
};

struct offload_request {
    name_table::node scope = name_table::k_root;
    name_table::node name = name_table::k_root;  // of runtime::names(), below scope
    void *data = nullptr;
    uint64_t size_bytes = 0;
    const stream_id *producers = nullptr;
    uint64_t producer_count = 0;
    stream_id home{};
    deleter_function deleter = nullptr;
    void *deleter_context = nullptr;
    uint64_t micro_batch = 0;
    uint64_t stage = 0;
    uint64_t storage_id = 0;
    uint64_t storage_version = 0;
    bool can_recompute = false;
    uint64_t recompute_cost_ns = 0;  // 0: not said
    placement wish = placement::by_policy;
    const uint64_t *recompute_from = nullptr;
    uint64_t recompute_from_count = 0;
    bool staged = false;
};

struct offload_outcome {
    uint64_t activation = 0;
    placement where = placement::keep;
    keep_reason reason = keep_reason::none;
    uint64_t wanted_bytes = 0, held_bytes = 0, cap_bytes = 0;
};

struct reload_outcome {
    uint64_t claim = 0;
    void *data = nullptr;
    uint64_t size_bytes = 0;
};

// A callback that may run now.
struct due_call {
    deleter_function deleter;  // or, when null, memory for the lent allocator:
    void *context;
    void *memory;
    uint64_t size_bytes;
    stream_id home;
};

class runtime {
public:
    static result<std::unique_ptr<runtime>> create(device &dev, const runtime_options &options);
    ~runtime();
    runtime(const runtime &) = delete;
    runtime &operator=(const runtime &) = delete;

    status begin_step(phase p);

    // Fails only on misuse, or when the device cannot even mark the producers' streams; nothing was taken then.
    status offload(const offload_request &request, offload_outcome &outcome);
    status reload(uint64_t activation, stream_id consumer, reload_outcome &outcome);
    status reload_into(uint64_t activation, void *data, uint64_t size_bytes, stream_id consumer);
    status use(uint64_t claim, stream_id stream);
    status give_back(uint64_t claim, stream_id last);
    // With the consumer's stream as the last: for claims that are ended without one.
    status give_back_on_consumer(uint64_t claim);
    status release(uint64_t activation);
    status recompute_begin(uint64_t size_bytes);
    status recompute_end();
    // Copies that nobody waits for are not issued in between, and come behind the end.
    status collective_begin(stream_id stream, uint64_t size_bytes);
    status collective_end(stream_id stream);
    status progress();

    // The stream's capture, which this runtime took part in, has all its work: what follows on the stream is behind it.
    status graph_join(stream_id stream, uint64_t &token);
    // The graph is not launched any more.
    status graph_release(uint64_t token);
    [[nodiscard]] uint32_t graph_count() const noexcept { return graphs_.live_count(); }
    // What is known of streams holds for one call; a call that other calls came into goes on in its own context.
    void begin_call(uint64_t context = 0) noexcept {
        lines_.begin_call();
        capture_ = context == 0 ? k_no_index : open_graph(context);
    }
    [[nodiscard]] uint64_t call_context() const noexcept { return capturing() ? graphs_.handle(capture_) : 0; }
    [[nodiscard]] bool any_open_capture() const noexcept { return open_captures_ != 0; }

    struct lane_sample {
        bool taken = false;
        time_samples::sample_id id = 0;
        name_table::node name = name_table::k_root;  // of the activation, where it is one's
    };
    // For ebb_wait: an event to block on with no lock held, given back afterwards.
    struct thread_wait {
        timelines::pinned_event event;
        lane_sample sample;
    };
    status wait_begin(uint64_t activation, thread_wait &wait);
    status wait_end(const thread_wait &wait);
    // For ebb_wait_room: the next given-up source whose home is the calling thread; not needed when none is left.
    status room_begin(thread_wait &wait);

    // Takes up to `capacity` callbacks that may run now; the caller runs them with no lock held.
    uint32_t take_due(due_call *calls, uint32_t capacity) noexcept;
    [[nodiscard]] bool has_due() const noexcept { return due_head_ != due_.size(); }

    // Lent allocator. After a call that returned no_slot, or after any call: the next slot's memory that is wanted.
    struct memory_wish {
        uint64_t footprint_bytes = 0;  // 0: none
        stream_id home{};
    };
    [[nodiscard]] memory_wish take_prefetch_wish() noexcept { return std::exchange(wish_, memory_wish{}); }
    [[nodiscard]] memory_wish reload_wish(uint64_t activation) const;
    // Memory for one slot, used by the next slot of at most that footprint, else due to be freed by discard_supply().
    void supply(void *memory, uint64_t footprint_bytes, stream_id home);
    void discard_supply();
    // Before asking: unclaimed prefetches make room within the cap and the budget. False: the cap forbids it.
    bool make_lent_room(uint64_t footprint_bytes);
    // The supply was refused: drops unclaimed prefetches so that the allocator may try again.
    // False when there was none.
    bool drop_unclaimed();
    void settle();

    // The sticky background failure, once: the first since it was taken last.
    status take_failure();
    void note_failure(status failure) { remember_failure(std::move(failure)); }
    // Lines for the log, warnings all.
    bool take_note(std::string &note);
    [[nodiscard]] bool has_notes() const noexcept { return !notes_.empty(); }

    // For budgets that are learned with a lent allocator: what it could give, asked at each new peak of the recorded
    // step.
    // Once for each: other calls come in while the answer is awaited.
    [[nodiscard]] bool take_wish_for_available_bytes() noexcept { return std::exchange(peak_is_new_, false); }
    void note_available(uint64_t free_bytes) noexcept { free_at_peak_bytes_ = free_bytes; }

    // Waits for all copies, ends everything that is live, claims included, and gives the failure that nobody was
    // told yet. All deleters that have not run are due afterwards.
    status shut_down();

    // The recorded step, with names, and the times of the work between its calls once they are measured.
    [[nodiscard]] bool has_record() const noexcept { return !record_.empty(); }
    [[nodiscard]] bool step_is_measured() const noexcept { return has_record() && timer_->complete(); }
    [[nodiscard]] record_model recorded_model() const;
    // All that the recorded step saves, views included, as the tensors of a model; view_of says whose bytes each
    // shares.
    [[nodiscard]] step_model recorded_saves(std::vector<uint32_t> &view_of) const;
    // For those. False: there is none.
    [[nodiscard]] bool followed_plan(plan &followed) const;
    // For those, from the next step on; nothing is planned any more for this record.
    void follow_plan(const plan &chosen);

    [[nodiscard]] uint32_t live_activations() const noexcept { return user_live_; }
    [[nodiscard]] std::string describe_a_live_one() const;
    [[nodiscard]] counters snapshot();
    [[nodiscard]] const std::vector<name_counters> &by_name() const noexcept { return by_name_; }
    [[nodiscard]] const name_table &names() const noexcept { return names_; }
    [[nodiscard]] name_table &names() noexcept { return names_; }
    [[nodiscard]] const policy &rules() const noexcept { return policy_; }
    [[nodiscard]] const runtime_options &options() const noexcept { return options_; }
    [[nodiscard]] device &dev() noexcept { return device_; }

private:
    using index = uint32_t;
    struct decision {
        placement where = placement::keep;
        keep_reason reason = keep_reason::none;
        bool automatic = false;  // the planner's to change
    };
    [[nodiscard]] decision planned_decision(const activation &a, bool can_recompute) const;
    struct thread_source {  // given up, its home is the calling thread: the deleter runs when the copy is done
        ticket_set until;
        due_call call;
        name_table::node name = name_table::k_root;
    };

    runtime(device &dev, runtime_options options, policy rules);
    status init();
    void drop_all();
    void add_note(std::string note) { notes_.push_back(std::move(note)); }
    void note_first_refusal(const activation &a, const offload_outcome &outcome);
    [[nodiscard]] status check_sizes() const;
    [[nodiscard]] uint64_t staging_cap_bytes() const;

    // runtime_offload.cpp
    status check_request(const offload_request &request);
    void reset(activation &a, const offload_request &request);
    status offload_named(const offload_request &request, offload_outcome &outcome);
    status take(index i, const offload_request &request, offload_outcome &outcome);
    void trace_recompute(index i, const offload_request &request);
    void untake(index i) noexcept;
    status mark_producers(activation &a, const offload_request &request);
    void make_counters(name_table::node name);
    void place(index i, const offload_request &request, offload_outcome &outcome);
    decision decide(const offload_request &request, index i);
    void keep(activation &a, keep_reason reason);
    [[nodiscard]] uint64_t *kept_counter(keep_reason reason) noexcept;
    void give_up_uncopied(activation &a);
    bool share(const offload_request &request, index i);
    [[nodiscard]] uint64_t slot_limit_bytes() const noexcept;
    [[nodiscard]] bool lent_cap_allows(uint64_t footprint_bytes) const noexcept;
    bool start_copy(index i, offload_outcome &outcome);
    [[nodiscard]] bool sums_at_home(const activation &a) const noexcept {
        return a.home != k_calling_thread || (a.produced.empty() && device_.info().type == memory_type::cpu);
    }
    status sum_source(activation &a);
    [[gnu::cold]] void fail_copy(activation &a, const status &why);
    status copy_out(index i);
    void staged_copy_issued(activation &a);
    status verify_copy(const activation &a, const lanes::transfer &t);
    void abandon_block(activation &a);
    status after_failed_copy(copy_direction direction, ticket_set &behind);
    status stage(index i, const offload_request &request);
    bool grow_staging(uint64_t footprint_bytes);

    // runtime_thread.cpp
    status offload_by_thread(index i);
    result<bool> waits_are_over();
    status reload_by_thread(activation &body, const activation &view, std::byte *data);
    status copy_by_thread(copy_direction direction, const activation &body, const activation &view, std::byte *data);
    void note_thread_copy(name_table::node name, uint64_t time_ns);

    // runtime_reload.cpp
    void ask_to_recompute(index i, bool claimed);
    status reload_found(index i, stream_id consumer, reload_outcome &outcome);
    status reload_found_into(index i, std::byte *data, uint64_t size_bytes, stream_id consumer);
    status use_found(claim &held, stream_id stream);
    status give_back_found(index c, stream_id last);
    status claim_bytes(index i, stream_id consumer, reload_outcome &outcome);
    void forward(index b);
    void hand_back(index b);
    status ensure_slot(index b, stream_id consumer);
    [[nodiscard]] status no_slot(const activation &a) const;
    status make_slot(activation &a, bool &room, bool may_drop);
    status copy_in(activation &body);
    status copy_into(activation &body, std::byte *destination, const std::vector<ticket> &behind);
    void release_slot(activation &body);
    void lose_block(activation &body);
    void unclaimed_add(index b, bool front);
    void unclaimed_remove(index b);
    void leave_unclaimed(index b);
    bool drop_last_unclaimed();
    void drop_prefetched(index b);
    bool drop_unexpected(index b);
    void drop_all_unclaimed();
    status copy_to_caller(index i, std::byte *data, stream_id consumer);
    status wait_exposed(stream_id consumer, ticket point, const activation &a);
    status wait_for_callers_copy(activation &body, const activation &view, stream_id consumer, ticket arrival);
    status after_failed_reload(activation &body, stream_id consumer, const status &why);
    void keep_block_behind(activation &body, const ticket_set &readers);
    status copy_part(activation &body, const activation &view, std::byte *data, ticket free_at, ticket &arrival);
    status copy_on_device(index b, const activation &view, std::byte *data, stream_id consumer, ticket free_at);
    struct device_copy {
        std::byte *to;
        const std::byte *from;
        uint64_t size_bytes;
    };
    status enqueue_on_device(const ticket_set &behind, const device_copy &copy, stream_id consumer, bool &enqueued,
                             ticket &done);
    void hold_until_close(index b, stream_id consumer);
    status end_claim(index c, stream_id last);

    // runtime_release.cpp
    void release_now(index i);
    void release_one(index i);
    void end_dependences(activation &a);
    void end_view(index i);
    void end_body(index i);
    void end_source(index i);
    void strand(activation &a, status why);
    void forget(index i);

    // runtime_collective.cpp
    lane_sample sample_collective(stream_id stream, uint32_t number);
    status come_behind(stream_id collective);
    [[nodiscard]] bool links_wanted() const noexcept { return links_taken() && !capturing(); }
    [[nodiscard]] bool links_taken() const noexcept { return !collectives_.empty() && any_eager_collective(); }
    [[nodiscard]] bool any_eager_collective() const noexcept;
    status hold_copy(index i);
    void issue_held_to(index last);
    void issue_held(index i);
    void cancel_held(index i);

    // runtime_capture.cpp. Where the device has no captures, or none is open, calls pass by what is theirs alone.
    status enter(const stream_id *streams, uint64_t count, stream_id home) {
        capture_ = k_no_index;
        return captures_ ? enter_same(streams, count, home) : status();
    }
    status enter_same(const stream_id *streams, uint64_t count, stream_id home);
    status enter(stream_id stream) { return enter(&stream, 1, stream); }
    status enter_capture(capture_id capture, stream_id stream);
    [[nodiscard]] status check_capture() const;
    status open_capture(capture_id capture, stream_id stream);
    status fork_lanes(index g, stream_id stream);
    void freeze_memory();
    void close_capture(index g);
    void abandon_capture(index g);
    void drop_prefetched_in(uint64_t graph);
    void abandon_ended_captures();
    void end_graph(index g);
    [[nodiscard]] uint64_t graph_staging_bytes() const noexcept;
    // Leaves in waits_ what must be waited for.
    std::optional<pinned_arena::block_id> allocate_block(uint64_t size_bytes) {
        waits_.clear();
        return capturing() ? allocate_captured_block(size_bytes) : arena_->allocate(size_bytes, waits_);
    }
    std::optional<pinned_arena::block_id> allocate_captured_block(uint64_t size_bytes);
    std::optional<staging::slot_id> allocate_slot(uint64_t size_bytes, const void *like) {
        return capturing() ? allocate_captured_slot(size_bytes, like) : staging_->allocate(size_bytes, like, waits_);
    }
    std::optional<staging::slot_id> allocate_captured_slot(uint64_t size_bytes, const void *like);
    void hold_block(pinned_arena::block_id block) {
        if (capturing()) {
            hold_captured_block(block);
        }
    }
    void hold_captured_block(pinned_arena::block_id block);
    void hold_slot(staging::slot_id slot) {
        if (capturing()) {
            hold_captured_slot(slot);
        }
    }
    void hold_captured_slot(staging::slot_id slot);
    void free_block(pinned_arena::block_id block, const ticket_set &last_uses) {
        if (!block_holds_.put_aside(block, last_uses, {})) {
            arena_->free(block, last_uses);
        }
    }
    void free_slot(staging::slot_id slot, stream_id home, const ticket_set &last_uses);
    void free_unheld_slot(staging::slot_id slot, stream_id home, const ticket_set &last_uses);
    [[nodiscard]] capture_id capture_now() const noexcept;
    [[nodiscard]] bool capturing() const noexcept { return capture_ != k_no_index; }
    [[nodiscard]] lanes &lanes_now() noexcept { return capturing() ? *graphs_[capture_].copy_lanes : *lanes_; }
    [[nodiscard]] bool reachable(const ticket_set &points);
    [[nodiscard]] bool waits_reachable();
    [[nodiscard]] ticket_set folded_waits();
    status enter_reload(index i, stream_id consumer) {
        return captures_ ? enter_captured_reload(i, consumer) : status();
    }
    status enter_captured_reload(index i, stream_id consumer);
    status check_reload(const activation &body) {
        const bool captured = open_captures_ != 0 || (body.graph | body.slot_graph) != 0;
        return captured ? check_captured_reload(body) : status();
    }
    status check_captured_reload(const activation &body);
    [[nodiscard]] static bool of_one_launch(const activation &body) noexcept;
    // Whether the call may work on it: in a capture what belongs to it, and outside what does not.
    [[nodiscard]] bool of_this_context(const activation &a) const noexcept {
        return (a.graph == 0 ? k_no_index : open_graph(a.graph)) == capture_;
    }
    [[nodiscard]] index open_graph(uint64_t handle) const noexcept;
    [[nodiscard]] bool can_wait(stream_id stream, ticket point);
    [[nodiscard]] bool can_wait(stream_id stream, const ticket_set &points);
    // Where the home stream cannot come behind what still uses the memory, the end of that is looked for.
    [[nodiscard]] bool home_can_wait(const activation &a) {
        return !captures_ || (can_wait(a.home, a.d2h) && can_wait(a.home, a.readers) && can_wait(a.home, a.produced));
    }

    // runtime_room.cpp: the give-up rule and the budget
    void make_room();
    // Of those that this call may give up: its stream's capture has its own.
    [[nodiscard]] index oldest_pending() const noexcept {
        return open_captures_ == 0 ? pending_.front() : oldest_of_this_context();
    }
    [[nodiscard]] index oldest_of_this_context() const noexcept;
    bool give_up_oldest();  // false: there is none
    void give_up(index i);
    void give_up_view(activation &view, const activation &parent);
    void run_deleter(activation &a);
    void give_back_memory(const staging::handed_back &memory, stream_id home, const ticket_set &behind);
    void note_storage_given_up(index i);
    [[nodiscard]] uint64_t source_cap_bytes() const noexcept;
    [[nodiscard]] uint64_t next_produced_bytes() const noexcept;
    void strand_slot(staging::slot_id slot, stream_id home);
    [[nodiscard]] uint64_t held_bytes() const noexcept {
        return kept_policy_bytes_ + kept_failure_bytes_ + kept_size_bytes_ + forwarded_bytes_ + source_bytes_ +
               recompute_bytes_ + recomputed_bytes_ + staging_->held_bytes();
    }
    [[nodiscard]] uint64_t budget_bytes() const noexcept;
    [[nodiscard]] bool budget_known() const noexcept {
        return options_.device_budget_bytes != 0 || learned_budget_bytes_ != 0;
    }
    [[gnu::cold]] void note_budget(uint64_t held, uint64_t budget);
    // NVTX, where it is on: the name is put together for it.
    [[nodiscard]] profile_range profiled(const char *what, const activation &a) {
        return options_.profile_ranges ? profile_range(device_, what, names_.path(a.name).c_str(), a.size_bytes)
                                       : profile_range();
    }
    lane_sample sample_begin(stream_id stream, sample_kind kind, const activation &a) {
        return sampling_ ? begin_sample(stream, kind, a.name, a.size_bytes) : lane_sample();
    }
    lane_sample begin_sample(stream_id stream, sample_kind kind, name_table::node name, uint64_t size_bytes);
    void sample_end(const lane_sample &sample) {
        if (sample.taken) {
            end_sample(sample);
        }
    }
    void end_sample(const lane_sample &sample);

    // runtime_step.cpp: matching to the record
    void match_produce(index i, bool movable, bool last_kept);
    void note_memory(const activation &a, bool movable, keep_reason reason);
    [[nodiscard]] uint32_t find_entry(const call_key &key) const noexcept;
    void match_use(index i, bool claimed);
    void time_use(index i, stream_id consumer) {
        if (timer_->timing()) {
            time_known_use(i, consumer);
        }
    }
    void time_known_use(index i, stream_id consumer);
    bool follow_to(uint32_t event);
    void expire_use(uint32_t event);
    void expire_reload(uint32_t number);
    void consume_reloads(index i, uint32_t until_event);
    void match_input(index i);
    uint32_t forget_expected(index i);
    void look_again_from(const activation &a);
    status end_step();
    void adopt_trace();
    void take_staging();
    void learn_budget();
    void forecast();

    // runtime_plan.cpp
    void consider_planning();
    [[nodiscard]] plan_budget measured_budget() const;
    void make_plan();
    void note_plan(const planned &made);
    evaluation settle_staging(const step_model &model, planned &made, plan_budget budget);
    void search_exactly(planner &search, planned &made, plan_budget budget);
    void adopt_plan(const record_model &seen, const plan &chosen);
    void follow(std::vector<tensor_placement> placement, uint64_t staging_bytes);
    void keep_as_best();
    void try_next_plan();
    void begin_span(stream_id stream);
    void time_point(stream_id stream);
    void time_wait(sample_kind kind, name_table::node name, thread_wait &wait);
    bool clock_of(stream_id &stream);
    void end_span();
    void retire_staging();
    status retake_staging(uint64_t size_bytes);
    void prove_plan();
    void compare_with_plan();
    void forget_plan();
    void note_sample(const time_samples::sample &s);

    // runtime_prefetch.cpp
    void pump();
    [[gnu::noinline]] void move_window();
    enum class verdict : uint8_t { pass, stop };
    verdict consider(uint32_t number);
    [[nodiscard]] std::optional<verdict> instead_of_prefetch(const activation &body);
    verdict prefetch(index i, uint32_t number);
    [[nodiscard]] bool leaves_room(uint64_t footprint_bytes, uint32_t use_event);
    [[nodiscard]] bool depth_allows(const activation &body, uint32_t event) const noexcept;

    [[gnu::cold]] void remember_failure(status failure);
    void remember(status outcome) {
        if (!outcome.ok()) {
            remember_failure(std::move(outcome));
        }
    }
    void poll_deleters();
    status pin_first_not_done(const ticket_set &until, timelines::pinned_event &event);
    [[nodiscard]] std::string describe(const activation &a) const;
    [[nodiscard, gnu::cold]] status stale(const char *what, uint64_t handle) const;
    [[nodiscard, gnu::cold]] static status about(const char *argument, const status &why);
    // The failure with what was being done to which activation, where it does not say so itself.
    [[nodiscard]] status naming(const char *doing, name_table::node name, status s) const {
        return s.ok() ? std::move(s) : name_failure(doing, name, std::move(s));
    }
    [[nodiscard, gnu::cold]] status name_failure(const char *doing, name_table::node name, status s) const;
    status find_activation(uint64_t handle, index &i) const;
    // The calling thread is one; a failure names the argument.
    [[nodiscard]] status check_stream(stream_id stream, const char *argument) const;
    // The same before mark(), which itself refuses a stream that was right once and is gone.
    [[nodiscard]] status check_stream_to_mark(stream_id stream, const char *argument) const {
        return lines_.used_last(stream) ? status() : check_stream(stream, argument);
    }
    [[nodiscard]] index body_of(index i) const noexcept {
        return activations_[i].parent == k_no_index ? i : activations_[i].parent;
    }
    [[nodiscard]] bool training() const noexcept { return phase_ == phase::train; }
    [[nodiscard]] bool following() const noexcept { return training() && !record_.empty(); }

    device &device_;
    runtime_options options_;
    policy policy_;
    name_table names_;
    std::vector<name_counters> by_name_;  // by node
    std::vector<placement> decided_;      // by node, at the name's first offload; by_policy: not yet
    bool integrated_ = false;             // device memory is host memory: copying cannot pay
    bool threads_copy_ = false;           // the calling thread may copy by itself
    bool staged_seen_ = false;            // there are saves that cannot stay where they are

    timelines lines_;
    std::unique_ptr<lanes> lanes_;
    std::unique_ptr<pinned_arena> arena_;
    std::unique_ptr<staging> staging_;
    std::unique_ptr<verifier> verifier_;  // verify mode only
    std::unique_ptr<time_samples> samples_;

    handle_table<activation> activations_;
    handle_table<claim> claims_;
    storage_index storages_;
    activation_list pending_;    // sources not given up, oldest first
    activation_list unclaimed_;  // prefetched and not claimed, first expected first
    struct collective {
        stream_id stream{};
        uint32_t traced = k_no_index;
        uint64_t traced_step = 0;
        lane_sample sample;
        bool captured = false;
    };
    struct captured_graph {
        capture_id capture = capture_id::none;
        bool open = false;  // not joined yet
        bool reloads = false;
        staging::pool_id slots = staging::k_no_pool;
        std::unique_ptr<lanes> copy_lanes;
    };
    bool captures_ = false;  // the device has them
    handle_table<captured_graph> graphs_;
    uint32_t open_captures_ = 0;
    uint32_t capture_ = k_no_index;  // that the streams of this call are part of
    bool step_captured_ = false;     // some of this step's calls were
    graph_holds block_holds_, slot_holds_;
    std::vector<collective> collectives_;  // begun and not ended
    bool prefetch_held_ = false;           // one would have been issued meanwhile
    std::vector<index>
        held_copies_;         // offloads that wait for them, in their order; those not held any more are skipped
    uint32_t user_live_ = 0;  // activations that the caller has not ended

    std::vector<due_call> due_;
    size_t due_head_ = 0;
    std::vector<thread_source> thread_sources_;
    std::vector<thread_source> stranded_;  // the device refused to order their reuse: run at close
    std::vector<ticket> waits_;            // scratch
    std::vector<index> to_release_;        // scratch
    struct supplied {
        void *memory = nullptr;
        uint64_t footprint_bytes = 0;
        stream_id home{};
    } supply_;
    memory_wish wish_;

    // The step.
    phase phase_ = phase::evaluate;
    bool evaluating_ = false;   // a step says so; before the first one nobody does
    uint64_t step_number_ = 0;  // of training steps begun
    step_trace trace_;
    step_trace last_mismatch_;  // calls of the last step, where it differed from the record
    bool has_last_mismatch_ = false;
    step_record record_;
    uint32_t position_ = 0;                   // the next event expected
    uint32_t last_use_ = k_no_index;          // event of the last matched use
    uint32_t ends_seen_ = 0;                  // of claims and activations, since the last event
    uint32_t window_ = 0;                     // the next of the record's reloads that prefetching looks at
    uint32_t waiting_for_slot_ = k_no_index;  // the activation that the window stops at until a slot is freed
    std::vector<uint64_t> bound_;             // by entry: handle of this step's activation, 0 none
    std::vector<uint32_t> cursor_;            // by series: the next occurrence's entry
    std::vector<uint64_t> passed_;            // by reload: step in which the window passed it as expected
    sliding_maximum reserve_;                 // of what is fixed between now and a prefetch's use
    uint32_t matched_events_ = 0;
    uint32_t unknown_events_ = 0;
    uint32_t misordered_events_ = 0;
    bool record_learned_ = false;  // calls of this step say more than it: derived and forecast anew at its end
    bool recomputing_ = false;
    uint64_t recompute_bytes_ = 0;           // of the section that is open
    uint64_t recomputed_bytes_ = 0;          // computed again and not released
    bool recompute_due_ = false;             // one was just asked for
    std::vector<uint64_t> recompute_asked_;  // reloads that were answered with recompute
    bool sampling_ = false;
    uint64_t steps_since_plan_ = 0;

    // The plan.
    struct measured_link {
        uint64_t copied_bytes = 0;
        uint64_t time_ns = 0;
        void add(uint64_t size_bytes, uint64_t ns) noexcept {
            copied_bytes += size_bytes;
            time_ns += ns;
        }
        [[nodiscard]] double bytes_per_second() const noexcept {
            return time_ns == 0 ? 0 : static_cast<double>(copied_bytes) * 1e9 / static_cast<double>(time_ns);
        }
    };
    std::unique_ptr<step_timer> timer_;
    bool plan_wanted_ = false;  // the policy leaves something of the record open
    std::vector<double> work_ns_, collective_ns_;
    measured_link d2h_measured_, h2d_measured_;  // before the first plan, or by the step that a plan was late in
    measured_link d2h_proof_, h2d_proof_;        // in the step that is compared with the plan
    double d2h_trust_ = 1, h2d_trust_ = 1;       // part of the measured rates that plans count on
    std::vector<tensor_placement> planned_;      // by entry; empty: no plan yet
    uint64_t planned_staging_bytes_ = 0;
    evaluation predicted_;
    uint32_t plan_count_ = 0;
    bool plan_given_ = false;     // by the caller
    uint32_t trial_steps_ = 0;    // of the plan that is followed
    uint64_t trial_span_ns_ = 0;  // the shorter one
    uint32_t trial_ = 0;          // which of several plans is followed to see how long its step is
    struct measured_plan {
        std::vector<tensor_placement> placement;
        uint64_t staging_bytes = 0;
        evaluation predicted;
        plan_counters counted;
        uint64_t span_ns = 0;
        uint32_t trial = 0;
    } best_;  // of those that were followed
    std::optional<stream_id> thread_clock_;
    bool span_begun_ = false;
    lane_sample span_;
    uint64_t plan_span_ns_ = 0;  // of the whole step that is compared
    std::optional<plan> plan_to_adopt_;
    uint64_t proof_step_ = 0;                                     // the step that is compared with the plan; 0: none
    uint64_t plan_exposed_d2h_ns_ = 0, plan_exposed_h2d_ns_ = 0;  // in that step

    // The budget.
    uint64_t learned_budget_bytes_ = 0;
    uint64_t largest_seen_bytes_ = 0;
    uint64_t kept_policy_bytes_ = 0, kept_failure_bytes_ = 0, kept_size_bytes_ = 0, forwarded_bytes_ = 0;
    uint64_t source_bytes_ = 0;
    uint64_t record_peak_bytes_ = 0, free_at_peak_bytes_ = 0;
    bool peak_is_new_ = false;
    uint64_t unclaimed_bytes_ = 0;

    counters counters_;
    uint64_t transfer_ns_ = 0;
    status failure_;
    std::vector<std::string> notes_;
    bool refusal_noted_ = false;
    bool closing_ = false;  // deleters that run at close cannot offload any more
};

}  // namespace ebb
