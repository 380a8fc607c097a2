// One activation: where its bytes are and what must be waited for before each place may be reused.
//
// Where the bytes are:
//   source  the caller's memory. kept or forwarded: until release. pending: until it is given up.
//   block   pinned host memory, from the offload call to release.
//   slot    staging memory, from a prefetch or reload until the last claim is returned.
// The edges that order reuse (invariant 2) belong to the activation: `produced`, `copies` and `readers`.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ticket.hpp"
#include "device/device.hpp"
#include "memory/pinned_arena.hpp"
#include "memory/staging.hpp"
#include "schedule/step_trace.hpp"

namespace ebb {

using deleter_function = void (*)(void *context);

// automatic: the planner's choice; only of policies, nobody asks for it.
enum class placement : uint8_t { by_policy = 0, keep = 1, offload = 2, recompute = 3, automatic = 4 };

// The numbers are those of ebb_reason.
enum class keep_reason : uint8_t {
    none = 0,
    policy = 1,
    floor = 2,
    last = 3,
    not_recomputable = 4,
    host_cap = 5,
    pinning = 6,
    copy_error = 7,
    larger_than_slot = 8,
    integrated = 9,
    evaluation = 10,
    plan = 11,
    capture = 12,
};

enum class activation_state : uint8_t {
    kept,        // source holds the bytes until release
    offloading,  // copy issued, source not given up
    forwarded,   // backward asked before the source was given up: it holds the bytes until release
    offloaded,   // only the block holds them
    resident,    // block and slot (prefetched, or claimed)
    recompute,   // nowhere: the caller computes them again
    shared,      // a view of another activation's bytes
};

[[nodiscard]] const char *state_name(activation_state s) noexcept;

// Records are used again and again: begin() sets every field for the next activation. It assigns them one by one, in
// the order of their declaration: clearing and copying the record as a whole costs several times as much.
struct activation {
    std::byte *data = nullptr;  // of the source; only compared and taken modulo once it is gone
    uint64_t size_bytes = 0;
    deleter_function deleter = nullptr;
    void *deleter_context = nullptr;
    stream_id home{};

    uint32_t name = 0;
    uint32_t layer = 0;
    uint64_t micro_batch = 0;
    uint64_t stage = 0;

    activation_state state = activation_state::kept;
    keep_reason reason = keep_reason::none;
    bool released = false;          // the caller has ended it; claims or views still hold it
    bool release_asked = false;     // the caller has ended it, but others recompute from it
    bool source_held = false;       // the deleter has not run
    bool counted_given_up = false;  // of the storage's bytes, see storage_index
    bool staged = false;            // the source is a slot of ours
    bool block_lost = false;        // it may be read behind a point that could not be had: not used again before close
    bool source_lost = false;       // the same of the source: its memory goes back at close
    bool unclaimed = false;         // prefetched and in that list
    bool in_storage_index = false;
    bool has_block = false;
    bool has_slot = false;
    bool readers_cover_copy = false;  // some reader's stream waited for h2d
    bool counted_kept = false;        // its bytes count as kept, for its reason
    bool recomputed = false;          // the caller has computed it again: it holds that memory until release
    bool lost = false;                // offloaded in a capture that came to nothing
    bool slot_lost = false;           // its slot was to be filled in one
    bool slot_shown = false;          // a claim was given on its slot: its holder may have written to it
    bool home_late = false;           // its home stream cannot be made to wait: the deleter runs when the copy is done
    bool copy_held = false;           // out of device memory: not issued before a collective has ended

    pinned_arena::block_id block = 0;
    staging::slot_id slot = 0;
    staging::slot_id source_slot = 0;  // staged form
    uint32_t claims = 0;

    ticket d2h;
    ticket h2d;
    ticket_set produced;  // the producers' points at the offload call
    ticket_set readers;   // last uses of what claims gave out: of the source, or of the slot
    ticket_set copies;    // copies out of and into the block that nothing later covers
    ticket_set arrivals;  // of all reloads, through whichever view: what ebb_wait waits for

    uint32_t expected_uses = 0;         // use events that the prefetch window has passed and that have not come yet
    uint32_t entry = k_no_index;        // in the record
    uint32_t next_use = k_no_index;     // event of the record
    uint32_t next_reload = k_no_index;  // of the record
    uint64_t traced_step = 0;
    uint32_t traced = k_no_index;  // in this step's trace

    // Lists, by index into the activation table.
    uint32_t queue_previous = k_no_index, queue_next = k_no_index;  // pending sources, or unclaimed prefetches
    uint32_t parent = k_no_index;                                   // whose copy this one shares
    uint32_t first_view = k_no_index, next_view = k_no_index;       // views of this one
    uint32_t view_count = 0;
    uint32_t storage_next = k_no_index;  // chain in the storage index
    uint64_t view_offset_bytes = 0;
    uint64_t storage_id = 0, storage_version = 0;

    uint64_t graph = 0;       // the capture that it was offloaded in; 0: none
    uint64_t slot_graph = 0;  // the capture that its slot is filled in; 0: filled outside, once

    std::vector<uint32_t> recompute_from;  // by index; they live until this is released
    uint32_t dependents = 0;
    uint32_t verify = k_no_index;  // record of the verifier

    void begin() noexcept {
        data = nullptr;
        size_bytes = 0;
        deleter = nullptr;
        deleter_context = nullptr;
        home = {};
        name = layer = 0;
        micro_batch = stage = 0;
        state = activation_state::kept;
        reason = keep_reason::none;
        released = release_asked = source_held = counted_given_up = staged = block_lost = source_lost = unclaimed =
            in_storage_index = has_block = has_slot = readers_cover_copy = counted_kept = recomputed = lost =
                slot_lost = slot_shown = home_late = copy_held = false;
        block = slot = source_slot = claims = 0;
        d2h = h2d = {};
        produced.clear();
        readers.clear();
        copies.clear();
        arrivals.clear();
        expected_uses = 0;
        entry = next_use = next_reload = k_no_index;
        traced_step = 0;
        traced = k_no_index;
        queue_previous = queue_next = parent = first_view = next_view = k_no_index;
        view_count = 0;
        storage_next = k_no_index;
        view_offset_bytes = storage_id = storage_version = 0;
        recompute_from.clear();  // keeps its capacity
        dependents = 0;
        verify = k_no_index;
        graph = slot_graph = 0;
    }
};

struct claim {
    static constexpr uint32_t k_max_streams = 8;
    uint32_t activation = 0;
    stream_id consumer{};
    stream_id others[k_max_streams] = {};  // declared by ebb_use
    uint32_t other_count = 0;

    void begin(uint32_t claimed, stream_id by) noexcept {
        activation = claimed;
        consumer = by;
        other_count = 0;
    }
};

}  // namespace ebb
