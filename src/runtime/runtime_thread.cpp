// Copies that the calling thread makes itself, in the call: where device memory is the CPU's. For what is small,
// handing a copy to a lane and waiting for it costs many times the copy. Such copies have no points and nobody waits
// for them: what else uses that memory comes behind the call.

#include <fmt/format.h>

#include "runtime/runtime.hpp"
#include "runtime/view_parts.hpp"

namespace ebb {

// Into pinned memory; the source is the caller's again. Where it cannot be done at once nothing was taken: the caller
// has the other forms.
status runtime::offload_by_thread(index i) {
    activation &a = activations_[i];
    if (!threads_copy_ || integrated_ || verifier_ != nullptr) {
        return {code::unsupported,
                fmt::format("args->producers[0] is the calling thread, which does not copy {}: name a stream",
                            verifier_ != nullptr ? "while checksums are taken (verify)" : "on this device")};
    }
    if (links_wanted()) {
        return {code::no_slot,
                fmt::format("a collective has the links, and '{}' would be copied now: use ebb_offload", describe(a))};
    }
    if (a.size_bytes == 0) {
        return {};
    }
    make_counters(a.name);
    a.source_held = false;
    const std::optional<pinned_arena::block_id> block = allocate_block(a.size_bytes);
    if (!block.has_value()) {
        const pinned_arena::refusal &why = arena_->last_refusal();
        return {code::out_of_host_memory,
                fmt::format("no pinned host memory for '{}': {} bytes wanted, {} held, cap {}; raise host_bytes "
                            "(EBB_HOST_BYTES)",
                            describe(a), why.wanted_bytes, why.held_bytes, why.cap_bytes)};
    }
    a.block = *block;
    const result<bool> over = waits_are_over();
    status copied = over.why();
    if (copied.ok() && over.value()) {
        copied = copy_by_thread(copy_direction::d2h, a, a, a.data);
        a.has_block = a.by_thread = copied.ok();
    }
    if (a.has_block) {
        return {};
    }
    ticket_set behind;
    for (const ticket w : waits_) {
        remember(lines_.add(behind, w));
    }
    free_block(a.block, behind);
    EBB_TRY(std::move(copied));
    return {code::no_slot, fmt::format("the pinned host memory for '{}', {} bytes, is still read by a copy under way: "
                                       "use ebb_offload",
                                       describe(a), a.size_bytes)};
}

// Those of the block's memory nearly always are.
result<bool> runtime::waits_are_over() {
    for (const ticket w : waits_) {
        result<bool> over = lines_.done(w);
        if (!over.ok() || !over.value()) {
            return over;
        }
    }
    return true;
}

status runtime::reload_by_thread(activation &body, const activation &view, std::byte *data) {
    EBB_TRY(copy_by_thread(copy_direction::h2d, body, view, data));
    ++counters_.reloads_on_demand;
    name_counters &n = by_name_[view.name];
    ++n.on_demand;
    n.reloaded_bytes += view.size_bytes;
    return {};
}

// Between `data` and the part of the body's block that is the view's.
status runtime::copy_by_thread(copy_direction direction, const activation &body, const activation &view,
                               std::byte *data) {
    uint64_t time_ns = 0;
    const auto copy = [&](std::byte *own, std::byte *callers, uint64_t size_bytes) {
        const bool out = direction == copy_direction::d2h;
        return device_.copy_by_thread(direction, out ? own : callers, out ? callers : own, size_bytes,
                                      sampling_ ? &time_ns : nullptr);
    };
    EBB_TRY(for_each_part(*arena_, body.block, view, data, copy));
    lanes_->count(direction, view.size_bytes);
    if (sampling_) {
        note_thread_copy(view.name, time_ns);
    }
    return {};
}

// All of it is exposed.
void runtime::note_thread_copy(name_table::node name, uint64_t time_ns) {
    name_counters &n = by_name_[name];
    n.transfer_ns += time_ns;
    n.exposed_ns += time_ns;
    transfer_ns_ += time_ns;
    counters_.exposed_ns += time_ns;
}

}  // namespace ebb
