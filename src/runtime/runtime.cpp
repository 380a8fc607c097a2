#include "runtime/runtime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ebb {

namespace {

// Generations of two runtimes, and of a runtime's activations and claims, start far apart.
constexpr uint32_t k_seed_step = 0x9E3779B9U;

// The footprint of a slot depends on the source's address modulo 512; this is the largest for a size.
uint64_t worst_footprint_bytes(uint64_t size_bytes) noexcept {
    return staging::slot_footprint_bytes(size_bytes, reinterpret_cast<const void *>(staging::k_alignment - 1));
}

}  // namespace

const char *state_name(activation_state s) noexcept {
    switch (s) {
        case activation_state::kept:
            return "kept";
        case activation_state::offloading:
            return "offloading";
        case activation_state::forwarded:
            return "forwarded";
        case activation_state::offloaded:
            return "offloaded";
        case activation_state::resident:
            return "resident";
        case activation_state::recompute:
            return "recompute";
        case activation_state::shared:
            return "shared";
    }
    return "unknown";
}

runtime::runtime(device &dev, runtime_options options, policy rules)
    : device_(dev),
      options_(std::move(options)),
      policy_(std::move(rules)),
      lines_(dev),
      activations_(3 * options_.handle_seed * k_seed_step + 1),
      claims_((3 * options_.handle_seed + 1) * k_seed_step + 1),
      storages_(activations_),
      pending_(activations_),
      unclaimed_(activations_),
      graphs_((3 * options_.handle_seed + 2) * k_seed_step + 1) {}

result<std::unique_ptr<runtime>> runtime::create(device &dev, const runtime_options &options) {
    result<policy> rules = policy::parse(options.policy);
    if (!rules.ok()) {
        return rules.why();
    }
    std::unique_ptr<runtime> made(new runtime(dev, options, std::move(rules).value()));
    EBB_TRY(made->init());
    return made;
}

status runtime::init() {
    if (options_.chunk_bytes == 0) {
        options_.chunk_bytes = device_.info().default_chunk_bytes;
    }
    integrated_ = device_.info().integrated;
    threads_copy_ = device_.info().threads_copy;
    captures_ = device_.info().captures;
    EBB_TRY(check_sizes());
    result<std::unique_ptr<lanes>> made = lanes::make(device_, lines_, options_.lanes, options_.chunk_bytes);
    if (!made.ok()) {
        return made.why();
    }
    lanes_ = std::move(made).value();
    arena_ =
        std::make_unique<pinned_arena>(device_, pinned_arena_options{options_.host_bytes, 0, options_.host_processes});
    staging_ = std::make_unique<staging>(device_, staging_cap_bytes());
    samples_ = std::make_unique<time_samples>(device_);
    timer_ = std::make_unique<step_timer>(device_);
    if (options_.verify) {
        verifier_ = std::make_unique<verifier>(device_, lines_);
    }
    if (options_.staging_memory != nullptr) {
        staging_->lend_block(options_.staging_memory, options_.staging_bytes);
    } else if (options_.max_activation_bytes != 0 && options_.staging_bytes != 0 && !options_.lent_allocator) {
        EBB_TRY(staging_->take_block(options_.staging_bytes));
    }
    return {};
}

status runtime::check_sizes() const {
    if (options_.staging_memory != nullptr) {
        if (options_.staging_bytes == 0) {
            return {code::invalid_argument, "staging_memory is given without staging_bytes: say how large it is"};
        }
        if (reinterpret_cast<uintptr_t>(options_.staging_memory) % staging::k_alignment != 0) {
            return {code::invalid_argument, "staging_memory must be aligned to 512 bytes"};
        }
        if (options_.lent_allocator) {
            return {code::invalid_argument, "give staging_memory or allocator, not both"};
        }
    }
    const uint64_t smallest = worst_footprint_bytes(options_.max_activation_bytes);
    if (options_.staging_bytes != 0 && options_.staging_bytes < smallest && options_.max_activation_bytes != 0) {
        return {code::invalid_argument,
                fmt::format("staging_bytes is {}, too small for max_activation_bytes {}: at least {} is needed",
                            options_.staging_bytes, options_.max_activation_bytes, smallest)};
    }
    if (options_.device_budget_bytes != 0 && options_.staging_bytes >= options_.device_budget_bytes) {
        return {code::invalid_argument,
                fmt::format("device_budget_bytes is {} and includes staging_bytes, which is {}: at least {} is needed",
                            options_.device_budget_bytes, options_.staging_bytes,
                            options_.staging_bytes + std::max<uint64_t>(options_.max_activation_bytes, 1))};
    }
    if (options_.device_budget_bytes != 0 && options_.max_activation_bytes != 0 &&
        options_.device_budget_bytes < smallest + options_.max_activation_bytes) {
        return {code::invalid_argument,
                fmt::format("device_budget_bytes is {}: one activation of max_activation_bytes {} and one slot for it "
                            "need at least {}",
                            options_.device_budget_bytes, options_.max_activation_bytes,
                            smallest + options_.max_activation_bytes)};
    }
    return {};
}

// The cap while sizes are learned; the block that is taken later is no larger.
uint64_t runtime::staging_cap_bytes() const {
    if (options_.staging_bytes != 0) {
        return options_.staging_bytes;
    }
    if (options_.device_budget_bytes != 0) {
        return std::max(options_.device_budget_bytes / 2, worst_footprint_bytes(options_.max_activation_bytes));
    }
    return device_.memory().capacity_bytes;
}

runtime::~runtime() {
    if (lanes_ == nullptr) {
        return;
    }
    static_cast<void>(lines_.synchronize_all());
    samples_.reset();
    timer_.reset();
    for (index g = 0; g < graphs_.capacity(); ++g) {
        graphs_[g].copy_lanes.reset();
    }
    if (thread_clock_.has_value()) {
        static_cast<void>(device_.destroy_stream(*thread_clock_));
    }
    lanes_.reset();  // their streams end before the memory that they copy
}

// ------------------------------------------------------------------------------------------ small things --

std::string runtime::describe(const activation &a) const {
    std::string text = names_.path(a.name);
    if (a.micro_batch != 0 || a.stage != 0) {
        text += fmt::format(" (micro-batch {}, stage {})", a.micro_batch, a.stage);
    }
    return text;
}

std::string runtime::describe_a_live_one() const {
    for (index i = 0; i < activations_.capacity(); ++i) {
        if (activations_.live(i) && !activations_[i].released) {
            return fmt::format("'{}', {} bytes, {}", describe(activations_[i]), activations_[i].size_bytes,
                               state_name(activations_[i].state));
        }
    }
    return "none";
}

status runtime::stale(const char *what, uint64_t handle) const {
    return {code::stale_handle,
            fmt::format("{} {:#x} is not live: it was ended before, belongs to another runtime, or never was", what,
                        handle)};
}

status runtime::find_activation(uint64_t handle, index &i) const {
    i = activations_.find(handle);
    return i == k_no_index ? stale("activation", handle) : status();
}

status runtime::check_stream(stream_id stream, const char *argument) const {
    if (stream == k_calling_thread) {
        return {};
    }
    status s = device_.check_stream(stream);
    return s.ok() ? std::move(s) : about(argument, s);
}

status runtime::about(const char *argument, const status &why) {
    return {why.code(), fmt::format("{}: {}", argument, why.text())};
}

// What fails in the depths knows of streams and bytes; who reads it wants to know of which activation.
status runtime::name_failure(const char *doing, name_table::node name, status s) const {
    if (s.code() == code::recompute) {
        return s;
    }
    const std::string path = names_.path(name);
    if (s.text().find("'" + path) != std::string::npos) {
        return s;
    }
    return {s.code(), fmt::format("{} of '{}': {}", doing, path, s.text())};
}

void runtime::remember_failure(status failure) {
    if (failure_.ok()) {
        failure_ = std::move(failure);
    }
}

status runtime::take_failure() {
    return std::exchange(failure_, status());
}

bool runtime::take_note(std::string &note) {
    if (notes_.empty()) {
        return false;
    }
    note = std::move(notes_.front());
    notes_.erase(notes_.begin());
    return true;
}

uint32_t runtime::take_due(due_call *calls, uint32_t capacity) noexcept {
    uint32_t taken = 0;
    while (taken < capacity && due_head_ < due_.size()) {
        calls[taken++] = due_[due_head_++];
    }
    if (due_head_ == due_.size()) {
        due_.clear();  // keeps its capacity
        due_head_ = 0;
    }
    return taken;
}

// Deleters of sources whose home is the calling thread: no stream can order them, so they wait for the copy. One
// that is late does not hold the others back.
void runtime::poll_deleters() {
    size_t kept = 0;
    for (size_t i = 0; i < thread_sources_.size(); ++i) {
        bool over = true;
        for (const ticket t : thread_sources_[i].until) {
            result<bool> done = lines_.done(t);
            if (!done.ok()) {
                remember_failure(done.why());
            }
            over = over && done.ok() && done.value();
        }
        if (over) {
            due_.push_back(thread_sources_[i].call);
        } else {
            thread_sources_[kept++] = thread_sources_[i];
        }
    }
    thread_sources_.resize(kept);
}

status runtime::progress() {
    remember(lines_.poll());
    poll_deleters();
    remember(samples_->poll([this](const time_samples::sample &s) { note_sample(s); }));
    if (verifier_ != nullptr) {
        remember(verifier_->poll());
    }
    return {};
}

// The end of every call that may change what is held.
void runtime::settle() {
    make_room();
    pump();
    if (!thread_sources_.empty()) {
        poll_deleters();
    }
    if (verifier_ != nullptr) {
        remember(verifier_->poll());
    }
}

counters runtime::snapshot() {
    static_cast<void>(progress());
    counters c = counters_;
    c.hidden_ns = transfer_ns_ > c.exposed_ns ? transfer_ns_ - c.exposed_ns : 0;
    c.d2h_bytes = lanes_->copied_bytes(copy_direction::d2h);
    c.h2d_bytes = lanes_->copied_bytes(copy_direction::h2d);
    c.device_held_bytes = held_bytes();
    c.kept_bytes = kept_policy_bytes_ + kept_failure_bytes_ + kept_size_bytes_ + forwarded_bytes_;
    c.source_bytes = source_bytes_;
    c.staging_bytes = staging_->held_bytes();
    c.staging_used_bytes = staging_->used_bytes();
    c.staging_peak_bytes = staging_->held_peak_bytes();
    c.pinned_bytes = arena_->statistics().mapped_bytes;
    c.pinned_used_bytes = arena_->statistics().requested_bytes;
    c.pinned_peak_bytes = arena_->statistics().mapped_peak_bytes;
    c.pinned_peak_waste_bytes = c.pinned_peak_bytes - arena_->statistics().requested_at_mapped_peak_bytes;
    c.device_budget_bytes = options_.device_budget_bytes != 0 ? options_.device_budget_bytes : learned_budget_bytes_;
    c.graphs = graphs_.live_count();
    c.graph_pinned_bytes = block_holds_.size_bytes();
    c.graph_staging_bytes = graph_staging_bytes();
    c.device_allocations = staging_->device_allocation_count() + arena_->statistics().slab_count;
    return c;
}

// -------------------------------------------------------------------------------------------------- waits --

status runtime::wait_begin(uint64_t handle, thread_wait &wait) {
    index i = 0;
    EBB_TRY(find_activation(handle, i));
    const activation &body = activations_[body_of(i)];
    ticket_set until = body.arrivals;
    if (until.empty() && body.has_slot) {
        EBB_TRY(lines_.add(until, body.h2d));
    }
    if (body.source_held) {
        for (const ticket t : body.produced) {
            EBB_TRY(lines_.add(until, t));
        }
    }
    if (body.verify != k_no_index) {
        // Who waits is told whether the bytes are right: they are compared with a sum that the home stream makes.
        EBB_TRY(lines_.add(until, verifier_->at_home(body.verify)));
    }
    wait = {};
    EBB_TRY(pin_first_not_done(until, wait.event));
    time_wait(sample_kind::exposed_h2d, body.name, wait);
    return {};
}

status runtime::room_begin(thread_wait &wait) {
    wait = {};
    // A copy that ends between the look for deleters and the look for what to wait for leaves nothing to wait for, but
    // a deleter: look again.
    for (poll_deleters(); !thread_sources_.empty(); poll_deleters()) {
        for (const thread_source &s : thread_sources_) {
            EBB_TRY(pin_first_not_done(s.until, wait.event));
            if (wait.event.needed) {
                time_wait(sample_kind::exposed_d2h, s.name, wait);
                return {};
            }
        }
    }
    return {};
}

// Not known_done: while others wait on that line, it learns nothing from their waits.
status runtime::pin_first_not_done(const ticket_set &until, timelines::pinned_event &event) {
    for (const ticket t : until) {
        result<bool> done = lines_.done(t);
        if (!done.ok()) {
            return done.why();
        }
        if (!done.value()) {
            result<timelines::pinned_event> pinned = lines_.pin(t);
            if (!pinned.ok()) {
                return pinned.why();
            }
            event = pinned.value();
            return {};
        }
    }
    return {};
}

// The thread stands still until the wait ends: that is exposed time.
void runtime::time_wait(sample_kind kind, name_table::node name, thread_wait &wait) {
    stream_id clock = k_calling_thread;
    if (wait.event.needed && sampling_ && clock_of(clock)) {
        wait.sample = begin_sample(clock, kind, name, 0);
    }
}

status runtime::wait_end(const thread_wait &wait) {
    lines_.unpin(wait.event);
    sample_end(wait.sample);
    return progress();
}

// -------------------------------------------------------------------------------------- lent allocator --

runtime::memory_wish runtime::reload_wish(uint64_t handle) const {
    const index i = activations_.find(handle);
    if (i == k_no_index) {
        return {};
    }
    const activation &body = activations_[body_of(i)];
    if (body.source_held || body.has_slot || !body.has_block) {
        return {};
    }
    return {staging::slot_footprint_bytes(body.size_bytes, body.data), body.home};
}

bool runtime::lent_cap_allows(uint64_t footprint_bytes) const noexcept {
    return options_.staging_bytes == 0 || (footprint_bytes <= options_.staging_bytes &&
                                           staging_->held_bytes() <= options_.staging_bytes - footprint_bytes);
}

bool runtime::make_lent_room(uint64_t footprint_bytes) {
    while ((!lent_cap_allows(footprint_bytes) || held_bytes() + footprint_bytes > budget_bytes()) &&
           drop_last_unclaimed()) {
    }
    return lent_cap_allows(footprint_bytes);
}

void runtime::supply(void *memory, uint64_t footprint_bytes, stream_id home) {
    discard_supply();
    supply_ = {memory, footprint_bytes, home};
}

void runtime::discard_supply() {
    if (supply_.memory != nullptr) {
        due_.push_back({nullptr, nullptr, supply_.memory, supply_.footprint_bytes, supply_.home});
        supply_ = {};
    }
}

}  // namespace ebb
