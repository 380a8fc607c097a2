#include "link/measure_cell.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "link/traffic.hpp"

namespace ebb::link {

namespace {

using maker = result<std::unique_ptr<traffic>> (*)(link_rig &, way, traffic_size, traffic_memory);

// Twice the bytes the other way, so that it outlasts what is measured.
constexpr uint64_t k_other_way_factor = 2;

struct side {
    std::unique_ptr<traffic> measured;
    std::unique_ptr<traffic> opposing;  // null: alone
    side_times times;
};

status make_side(link_rig &rig, const link_cell &cell, maker make, side &made) {
    const uint64_t count = copies_of(cell);
    const uint64_t area_bytes = count * slot_pool::slot_bytes(cell.size_bytes);
    const traffic_memory first{rig.device_memory(), rig.pinned_memory()};
    result<std::unique_ptr<traffic>> measured = make(rig, cell.measured, {cell.size_bytes, count}, first);
    EBB_TRY(measured.why());
    made.measured = std::move(measured).value();
    if (!cell.together) {
        return {};
    }
    const traffic_memory second{first.sources + area_bytes, first.pinned + area_bytes};
    result<std::unique_ptr<traffic>> opposing =
        make(rig, other(cell.measured), {cell.size_bytes, k_other_way_factor * count}, second);
    EBB_TRY(opposing.why());
    made.opposing = std::move(opposing).value();
    return {};
}

status enqueue_all(side &s, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
        EBB_TRY(s.measured->enqueue(i));
        for (uint64_t k = 0; s.opposing && k < k_other_way_factor; ++k) {
            EBB_TRY(s.opposing->enqueue(k_other_way_factor * i + k));
        }
    }
    return {};
}

struct repetition {
    uint64_t ns = 0;
    bool other_way_busy = true;
};

// The gate is closed by the caller, and opened by it whatever comes of this.
status hold_streams(link_rig &rig, side &s) {
    EBB_TRY(rig.kernels().hold(s.measured->held_stream()));
    return s.opposing ? rig.kernels().hold(s.opposing->held_stream()) : status();
}

status enqueue_from_mark(link_rig &rig, const link_cell &cell, side &s, uint64_t &start) {
    const result<uint64_t> marked = rig.mark(s.measured->held_stream());
    EBB_TRY(marked.why());
    start = marked.value();
    if (cell.under != load::none) {
        EBB_TRY(rig.kernels().begin_load(cell.under));
    }
    return enqueue_all(s, copies_of(cell));
}

// A first repetition takes memory, which may wait for the device: it has no gate.
result<repetition> run(link_rig &rig, const link_cell &cell, side &s, bool gated) {
    rig.forget_marks();
    status held;
    if (gated) {
        EBB_TRY(rig.kernels().close_gate());
        held = hold_streams(rig, s);
    }
    uint64_t start = 0;
    const status enqueued = held.ok() ? enqueue_from_mark(rig, cell, s, start) : held;
    const result<uint64_t> end = rig.mark(s.measured->last_stream());
    const result<uint64_t> other_end = s.opposing ? rig.mark(s.opposing->last_stream()) : end;
    const status opened = gated ? rig.kernels().open_gate() : status();
    EBB_TRY(enqueued);
    EBB_TRY(opened);
    EBB_TRY(end.why());
    EBB_TRY(other_end.why());
    EBB_TRY(rig.finish(s.measured->last_stream()));
    if (s.opposing) {
        EBB_TRY(rig.finish(s.opposing->last_stream()));
    }
    if (cell.under != load::none) {
        EBB_TRY(rig.kernels().end_load());
    }
    const result<uint64_t> ns = rig.ns_between(start, end.value());
    EBB_TRY(ns.why());
    const result<uint64_t> other_ns = rig.ns_between(start, other_end.value());
    EBB_TRY(other_ns.why());
    return repetition{ns.value(), other_ns.value() >= ns.value()};
}

status repeat(link_rig &rig, const link_cell &cell, side &s, uint64_t seed, bool counts) {
    EBB_TRY(s.measured->prepare(seed));
    if (s.opposing) {
        EBB_TRY(s.opposing->prepare(seed + copies_of(cell)));
    }
    const result<repetition> timed = run(rig, cell, s, counts);
    EBB_TRY(timed.why());
    EBB_TRY(s.measured->verify());
    if (s.opposing) {
        EBB_TRY(s.opposing->verify());
    }
    if (counts) {
        s.times.other_way_busy = timed.value().other_way_busy && (s.times.ns.empty() || s.times.other_way_busy);
        s.times.ns.push_back(timed.value().ns);
    }
    return {};
}

}  // namespace

uint64_t side_times::median_ns() const {
    std::vector<uint64_t> sorted = ns;
    std::sort(sorted.begin(), sorted.end());
    const size_t half = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double cell_times::bytes_per_second(const side_times &side) const {
    const double seconds = static_cast<double>(side.median_ns()) * 1e-9;
    return static_cast<double>(copies * cell.size_bytes) / seconds;
}

result<cell_times> measure_cell(link_rig &rig, const link_cell &cell, uint32_t repetitions) {
    side plain;
    side ebb;
    EBB_TRY(make_side(rig, cell, make_plain_traffic, plain));
    EBB_TRY(make_side(rig, cell, make_ebb_traffic, ebb));
    const uint64_t seeds_per_repetition = 3 * copies_of(cell);
    for (uint32_t i = 0; i <= repetitions; ++i) {
        // The bytes differ each time: those of the time before would show.
        const uint64_t seed = 1 + i * 2 * seeds_per_repetition;
        EBB_TRY(repeat(rig, cell, plain, seed, i > 0));
        const uint64_t moved = copies_of(cell) * (cell.together ? 1 + k_other_way_factor : 1);
        const uint64_t slot_bytes = slot_pool::slot_bytes(cell.size_bytes);
        rig.slots().reset(rig.device_memory() + moved * slot_bytes, moved, slot_bytes);
        EBB_TRY(repeat(rig, cell, ebb, seed + seeds_per_repetition, i > 0));
    }
    EBB_TRY(rig.drop_streams());
    return cell_times{cell, copies_of(cell), std::move(plain.times), std::move(ebb.times)};
}

}  // namespace ebb::link
