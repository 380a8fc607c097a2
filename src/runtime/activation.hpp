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
//
// With very many live at once each line of a record that a call touches is fetched from memory, so fields lie in groups
// of 64 bytes (the first after the 8 of its handle_table entry) by the calls that want them together.
struct activation {
    std::byte *data = nullptr;  // of the source; only compared and taken modulo once it is gone
    uint64_t size_bytes = 0;
    pinned_arena::block_id block = 0;
    staging::slot_id slot = 0;
    ticket h2d;
    uint32_t parent = k_no_index;  // whose copy this one shares
    uint32_t claims = 0;
    activation_state state = activation_state::kept;
    bool released = false;          // the caller has ended it; claims or views still hold it
    bool release_asked = false;     // the caller has ended it, but others recompute from it
    bool source_held = false;       // the deleter has not run
    bool counted_given_up = false;  // of the storage's bytes, see storage_index
    bool staged = false;            // the source is a slot of ours
    bool block_lost = false;        // it may be read behind a point that could not be had: not used again before close
    bool unclaimed = false;         // prefetched and in that list
    bool in_storage_index = false;
    bool has_block = false;
    bool has_slot = false;
    bool readers_cover_copy = false;  // some reader's stream waited for h2d
    bool recomputed = false;          // the caller has computed it again: it holds that memory until release
    bool slot_lost : 1 = false;       // its slot was to be filled in a capture that came to nothing
    bool slot_shown : 1 = false;      // a claim was given on its slot: its holder may have written to it
    bool by_thread : 1 = false;       // copied by the calling thread, in the call: the block needs no waiting for
    bool home_late = false;           // its home stream cannot be made to wait: the deleter runs when the copy is done
    bool copy_held = false;           // out of device memory: not issued before a collective has ended

    ticket d2h;
    uint32_t verify = k_no_index;  // record of the verifier
    uint32_t expected_uses = 0;    // use events that the prefetch window has passed and that have not come yet
    uint64_t traced_step = 0;
    uint32_t traced = k_no_index;       // in this step's trace
    uint32_t entry = k_no_index;        // in the record; what it says of this one:
    uint32_t next_use = k_no_index;     // event of the record
    uint32_t next_reload = k_no_index;  // of the record
    uint32_t released_at = k_no_index;  // number of its events before the release
    uint32_t name = 0;
    uint32_t dependents = 0;
    uint32_t view_count = 0;
    uint32_t first_view = k_no_index, next_view = k_no_index;  // views of this one; lists are by index into the table

    uint32_t queue_previous = k_no_index, queue_next = k_no_index;  // pending sources, or unclaimed prefetches
    ticket_set readers;  // last uses of what claims gave out: of the source, or of the slot
    uint64_t view_offset_bytes = 0;
    uint64_t slot_graph = 0;  // the capture that its slot is filled in; 0: filled outside, once

    ticket_set copies;   // copies out of and into the block that nothing later covers
    uint64_t graph = 0;  // the capture that it was offloaded in; 0: none
    uint64_t storage_id = 0, storage_version = 0;

    ticket_set arrivals;                   // of all reloads, through whichever view: what ebb_wait waits for
    std::vector<uint32_t> recompute_from;  // by index; they live until this is released

    stream_id home{};
    deleter_function deleter = nullptr;
    void *deleter_context = nullptr;
    ticket_set produced;  // the producers' points at the offload call

    uint32_t layer = 0;
    uint32_t storage_next = k_no_index;  // chain in the storage index
    uint64_t micro_batch = 0;
    uint64_t stage = 0;
    staging::slot_id source_slot = 0;  // staged form
    keep_reason reason = keep_reason::none;
    bool counted_kept = false;  // its bytes count as kept, for its reason
    bool source_lost = false;   // it may be read behind a point that could not be had: its memory goes back at close
    bool lost = false;          // offloaded in a capture that came to nothing

    void begin() noexcept {
        data = nullptr;
        size_bytes = 0;
        block = slot = 0;
        h2d = {};
        parent = k_no_index;
        claims = 0;
        state = activation_state::kept;
        released = release_asked = source_held = counted_given_up = staged = block_lost = unclaimed = in_storage_index =
            has_block = has_slot = readers_cover_copy = recomputed = slot_lost = slot_shown = home_late = copy_held =
                by_thread = false;
        d2h = {};
        verify = k_no_index;
        expected_uses = 0;
        traced_step = 0;
        traced = entry = next_use = next_reload = released_at = k_no_index;
        name = dependents = view_count = 0;
        first_view = next_view = queue_previous = queue_next = k_no_index;
        readers.clear();
        view_offset_bytes = slot_graph = 0;
        copies.clear();
        graph = storage_id = storage_version = 0;
        arrivals.clear();
        recompute_from.clear();  // keeps its capacity
        home = {};
        deleter = nullptr;
        deleter_context = nullptr;
        produced.clear();
        layer = 0;
        storage_next = k_no_index;
        micro_batch = stage = 0;
        source_slot = 0;
        reason = keep_reason::none;
        counted_kept = source_lost = lost = false;
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
