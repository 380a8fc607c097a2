// Captures: offloads and reloads that become part of a caller's graph. A call whose streams are part of a capture puts
// its copies on lanes of that capture, which fork from it at its first call and are joined by graph_join. Nothing
// of a capture is ever asked whether it is done, and while one is open no memory is taken from the system or given
// back.
//
// The memory that a capture uses is its graph's until that is released (graph_holds.hpp): each launch reads and writes
// it again. Graphs are launched in the order in which they were captured, which is the caller's to see to; so to a
// capture, and to eager calls, all of an earlier one is over, and a reload outside comes behind what is on its
// consumer's stream.

#include <fmt/format.h>

#include <algorithm>

#include "runtime/runtime.hpp"

namespace ebb {

// All streams of a call are part of one capture, or none is.
status runtime::enter_same(const stream_id *streams, uint64_t count, stream_id home) {
    const result<capture_id> first = lines_.capture_of(streams[0]);
    if (!first.ok()) {
        return first.why();
    }
    for (uint64_t k = 1; k <= count; ++k) {
        const result<capture_id> other = lines_.capture_of(k == count ? home : streams[k]);
        if (!other.ok()) {
            return other.why();
        }
        if (other.value() != first.value()) {
            return {
                code::wrong_state,
                "the streams of this call are not all part of the same capture (the calling thread is part of none): "
                "make each of them wait for an event of the capture first"};
        }
    }
    return first.value() == capture_id::none ? status() : enter_capture(first.value(), streams[0]);
}

status runtime::enter_capture(capture_id capture, stream_id stream) {
    for (index g = 0; g < graphs_.capacity(); ++g) {
        if (graphs_.live(g) && graphs_[g].capture == capture) {
            if (!graphs_[g].open) {
                return {code::wrong_state,
                        "ebb_graph_join was called for this capture: it must be the last call of Ebb's in it"};
            }
            capture_ = g;
            step_captured_ = true;
            return {};
        }
    }
    return open_capture(capture, stream);
}

status runtime::check_capture() const {
    if (verifier_ != nullptr) {
        return {code::unsupported,
                "verify mode cannot be part of a capture, since its sums are compared by the host: leave verify off"};
    }
    if (record_.empty() && !staging_->block_taken() && !options_.lent_allocator) {
        return {code::wrong_state,
                "a capture needs memory that was taken before: run a training step without capturing first, or give "
                "staging_bytes and max_activation_bytes at create"};
    }
    return {};
}

// Both lanes fork here: a copy whose memory waits for nothing would otherwise run at once.
status runtime::open_capture(capture_id capture, stream_id stream) {
    EBB_TRY(check_capture());
    abandon_ended_captures();
    const index g = graphs_.acquire();
    graphs_[g].capture = capture;
    graphs_[g].open = true;
    ++open_captures_;
    graphs_[g].reloads = false;
    graphs_[g].slots = staging_->open_pool();
    lines_.open_capture(capture);
    freeze_memory();
    capture_ = g;
    step_captured_ = true;
    timer_->drop();
    if (status forked = fork_lanes(g, stream); !forked.ok()) {
        abandon_capture(g);
        return forked;
    }
    return {};
}

status runtime::fork_lanes(index g, stream_id stream) {
    result<std::unique_ptr<lanes>> made =
        lanes::make_in_capture(device_, lines_, options_.lanes, options_.chunk_bytes, graphs_[g].capture);
    if (!made.ok()) {
        return made.why();
    }
    graphs_[g].copy_lanes = std::move(made).value();
    ticket begin;
    EBB_TRY(lines_.mark(stream, begin));
    EBB_TRY(graphs_[g].copy_lanes->wait_all(copy_direction::d2h, begin));
    return graphs_[g].copy_lanes->wait_all(copy_direction::h2d, begin);
}

// Or none, where it was joined since, or is gone.
uint32_t runtime::open_graph(uint64_t handle) const noexcept {
    const index g = graphs_.find(handle);
    return g != k_no_index && graphs_[g].open ? g : k_no_index;
}

void runtime::freeze_memory() {
    const bool frozen = any_open_capture();
    arena_->freeze(frozen);
    staging_->freeze(frozen);
}

void runtime::close_capture(index g) {
    lines_.close_capture(graphs_[g].capture);
    graphs_[g].copy_lanes.reset();
    graphs_[g].open = false;
    --open_captures_;
    capture_ = k_no_index;
    freeze_memory();
}

// The caller's capture came to nothing: no copy of it will ever run, so what it offloaded is nowhere.
void runtime::abandon_capture(index g) {
    const uint64_t graph = graphs_.handle(g);
    for (index i = 0; i < activations_.capacity(); ++i) {
        if (activations_.live(i) && activations_[i].graph == graph) {
            activations_[i].lost = !activations_[i].d2h.empty();
        }
    }
    close_capture(g);
    drop_prefetched_in(graph);
    for (index i = 0; i < activations_.capacity(); ++i) {
        if (activations_.live(i) && activations_[i].has_slot && activations_[i].slot_graph == graph) {
            activations_[i].slot_lost = true;
        }
    }
    end_graph(g);
}

// What a capture prefetched and did not use is there for nobody else: its graph may be launched later, or never.
void runtime::drop_prefetched_in(uint64_t graph) {
    for (index i = 0; i < activations_.capacity(); ++i) {
        if (activations_.live(i) && activations_[i].unclaimed && activations_[i].slot_graph == graph) {
            drop_prefetched(i);
        }
    }
}

// A capture that ended without a join has left our lanes.
void runtime::abandon_ended_captures() {
    for (index g = 0; captures_ && g < graphs_.capacity(); ++g) {
        if (!graphs_.live(g) || !graphs_[g].open) {
            continue;
        }
        const stream_id lane = graphs_[g].copy_lanes->begin(copy_direction::d2h).stream();
        const result<capture_id> now = device_.capture_of(lane);
        if (now.ok() && now.value() != graphs_[g].capture) {
            add_note(
                "a capture ended without ebb_graph_join: its graph cannot be used, and what was offloaded in it is "
                "lost");
            abandon_capture(g);
        }
    }
}

status runtime::graph_join(stream_id stream, uint64_t &token) {
    if (!captures_) {
        return {code::unsupported, fmt::format("device \"{}\" has no graphs", device_.info().name)};
    }
    EBB_TRY(check_stream(stream, "stream"));
    const result<capture_id> capture = lines_.capture_of(stream);
    if (!capture.ok()) {
        return capture.why();
    }
    if (capture.value() == capture_id::none) {
        return {code::wrong_state, "ebb_graph_join: the stream is not part of a capture; join before it ends"};
    }
    EBB_TRY(enter(&stream, 1, stream));
    const index g = capture_;
    drop_prefetched_in(graphs_.handle(g));
    if (status joined = lines_.join_capture(capture.value(), stream); !joined.ok()) {
        abandon_capture(g);
        return joined;
    }
    token = graphs_.handle(g);
    close_capture(g);
    return {};
}

status runtime::graph_release(uint64_t token) {
    const index g = graphs_.find(token);
    if (g == k_no_index || graphs_[g].open) {
        return stale("graph", token);
    }
    end_graph(g);
    return {};
}

// What no other graph and no activation uses is free. What was captured is over: the graph is not launched any more.
void runtime::end_graph(index g) {
    const uint64_t graph = graphs_.handle(g);
    block_holds_.release(
        graph, [this](uint32_t block, const ticket_set &readers, stream_id) { arena_->free(block, readers); });
    slot_holds_.release(graph, [this](uint32_t slot, const ticket_set &readers, stream_id home) {
        free_unheld_slot(slot, home, readers);
    });
    staging_->close_pool(graphs_[g].slots);
    graphs_.release(g);
    waiting_for_slot_ = k_no_index;
}

uint64_t runtime::graph_staging_bytes() const noexcept {
    uint64_t sum = slot_holds_.size_bytes();
    for (index g = 0; g < graphs_.capacity(); ++g) {
        sum += graphs_.live(g) ? staging_->pool_bytes(graphs_[g].slots) : 0;
    }
    return sum;
}

// ------------------------------------------------------------------------------------------------- memory --

// Blocks and slots of a capture: its own that are free again, or new ones that nothing outside still uses.
std::optional<pinned_arena::block_id> runtime::allocate_captured_block(uint64_t size_bytes) {
    std::optional<pinned_arena::block_id> block = block_holds_.take(
        graphs_.handle(capture_), size_bytes, waits_, [this](const ticket_set &readers) { return reachable(readers); });
    if (block.has_value()) {
        return block;
    }
    block = arena_->allocate(size_bytes, waits_);
    if (block.has_value() && !waits_reachable()) {
        arena_->free(*block, folded_waits());
        arena_->refuse_frozen(size_bytes);
        return std::nullopt;
    }
    if (block.has_value()) {
        hold_captured_block(*block);
    }
    return block;
}

// Slots of a capture lie in its graph's part of the block. What a lent allocator gave is used again as it is.
std::optional<staging::slot_id> runtime::allocate_captured_slot(uint64_t size_bytes, const void *like) {
    if (options_.lent_allocator) {
        return slot_holds_.take(graphs_.handle(capture_), staging::slot_key(size_bytes, like), waits_,
                                [this](const ticket_set &readers) { return reachable(readers); });
    }
    const staging::pool_id pool = graphs_[capture_].slots;
    std::optional<staging::slot_id> slot = staging_->allocate_in(pool, size_bytes, like, waits_);
    const uint64_t piece_bytes = record_.largest_movable_bytes() + 2 * staging::k_alignment;
    if (slot.has_value() ||
        !staging_->grow_pool(pool, staging::slot_footprint_bytes(size_bytes, like), piece_bytes, waits_)) {
        return slot;
    }
    if (!waits_reachable()) {
        staging_->give_back_piece(pool, folded_waits());
        waits_.clear();
        return std::nullopt;
    }
    return staging_->allocate_in(pool, size_bytes, like, waits_);
}

void runtime::hold_captured_block(pinned_arena::block_id block) {
    const uint64_t size_bytes = arena_->block_bytes(block);
    block_holds_.hold(graphs_.handle(capture_), block, size_bytes, size_bytes);
}

void runtime::hold_captured_slot(staging::slot_id slot) {
    if (staging_->pool_of(slot) != graphs_[capture_].slots) {
        slot_holds_.hold(graphs_.handle(capture_), slot, staging_->key(slot), staging_->footprint_bytes(slot));
    }
}

void runtime::free_slot(staging::slot_id slot, stream_id home, const ticket_set &last_uses) {
    waiting_for_slot_ = k_no_index;
    if (!slot_holds_.put_aside(slot, last_uses, home)) {
        free_unheld_slot(slot, home, last_uses);
    }
}

// When a graph is released what was captured is over, but perhaps not who read its slots outside.
void runtime::free_unheld_slot(staging::slot_id slot, stream_id home, const ticket_set &last_uses) {
    if (const staging::pool_id pool = staging_->pool_of(slot); pool != staging::k_no_pool) {
        for (const ticket t : last_uses) {
            const result<bool> outside = lines_.reachable(t, capture_id::none);
            if (outside.ok() && outside.value()) {
                remember(lines_.add(staging_->pool_readers(pool), t));
            }
        }
    }
    give_back_memory(staging_->free(slot, last_uses), home, last_uses);
}

capture_id runtime::capture_now() const noexcept {
    return capture_ == k_no_index ? capture_id::none : graphs_[capture_].capture;
}

bool runtime::reachable(const ticket_set &points) {
    return std::all_of(points.begin(), points.end(), [this](ticket t) {
        const result<bool> can = lines_.reachable(t, capture_now());
        return can.ok() && can.value();
    });
}

bool runtime::waits_reachable() {
    return std::all_of(waits_.begin(), waits_.end(), [this](ticket t) {
        const result<bool> can = lines_.reachable(t, capture_now());
        return can.ok() && can.value();
    });
}

// What was taken goes back as it was.
ticket_set runtime::folded_waits() {
    ticket_set all;
    for (const ticket t : waits_) {
        remember(lines_.add(all, t));
    }
    return all;
}

// ------------------------------------------------------------------------------------------------ reloads --

status runtime::enter_captured_reload(index i, stream_id consumer) {
    EBB_TRY(enter(consumer));
    EBB_TRY(check_reload(activations_[body_of(i)]));
    if (capturing()) {
        graphs_[capture_].reloads = true;
    }
    return {};
}

// Before anything is enqueued: a wait that crosses the border of a capture ends it.
status runtime::check_captured_reload(const activation &body) {
    if (body.lost) {
        return {code::wrong_state,
                fmt::format("activation '{}' was offloaded in a capture that came to nothing", describe(body))};
    }
    if (body.has_slot && (body.slot_lost || (capturing() && of_one_launch(body)))) {
        return {code::wrong_state,
                fmt::format("activation '{}' is claimed with bytes that {}: return its claims first", describe(body),
                            body.slot_lost ? "a capture was to read back that came to nothing"
                                           : "were read back outside, after one launch of the graph that offloads it")};
    }
    ticket_set points;
    bool all = points.add(body.d2h);
    if (body.has_slot) {
        all = all && points.add(body.h2d);
    }
    if (!all || !reachable(points) || (body.source_held && !reachable(body.produced))) {
        return {
            code::wrong_state,
            capture_ == k_no_index
                ? fmt::format("activation '{}' is part of a capture that was not joined: ebb_graph_join comes first",
                              describe(body))
                : fmt::format("activation '{}' is still being copied outside of this capture: synchronize the device "
                              "before the capture begins",
                              describe(body))};
    }
    return {};
}

// Whether what its slot holds is right for one launch only of the graph that it was offloaded in.
bool runtime::of_one_launch(const activation &body) noexcept {
    return body.graph != 0 && body.slot_graph == 0;
}

// False where the stream is in a capture and the point is not, or the other way round.
bool runtime::can_wait(stream_id stream, ticket point) {
    if (!captures_ || stream == k_calling_thread || lines_.known_done(point)) {
        return true;
    }
    const result<capture_id> capture = lines_.capture_of(stream);
    const result<bool> can = capture.ok() ? lines_.reachable(point, capture.value()) : result<bool>(false);
    return can.ok() && can.value();
}

bool runtime::can_wait(stream_id stream, const ticket_set &points) {
    return !captures_ || std::all_of(points.begin(), points.end(), [&](ticket t) { return can_wait(stream, t); });
}

// What the window does at one that cannot be prefetched by this call. In a capture nothing is before its first reload:
// that of a forward pass alone takes no slots. Outside nobody knows when the graph is launched that an activation was
// offloaded in: its reload comes behind that by its consumer's stream.
std::optional<runtime::verdict> runtime::instead_of_prefetch(const activation &body) {
    if (!captures_) {
        return std::nullopt;
    }
    if (!capturing()) {
        const std::optional<verdict> later = of_this_context(body) ? verdict::pass : verdict::stop;
        return body.graph == 0 ? std::nullopt : later;
    }
    if (!graphs_[capture_].reloads) {
        return verdict::stop;
    }
    return check_reload(body).ok() ? std::nullopt : std::optional<verdict>(verdict::pass);
}

}  // namespace ebb
