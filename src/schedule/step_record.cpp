#include "schedule/step_record.hpp"

#include <algorithm>

namespace ebb {

namespace {

uint64_t hash_of(const call_key &key) noexcept {
    uint64_t h = key.name * 0x9E3779B97F4A7C15ULL;
    h = (h ^ (h >> 29U) ^ key.micro_batch) * 0xBF58476D1CE4E5B9ULL;
    h = (h ^ (h >> 32U) ^ key.stage) * 0x94D049BB133111EBULL;
    return h ^ (h >> 31U);
}

size_t bucket_count_for(size_t items) noexcept {
    size_t count = 16;
    while (count < items * 2) {
        count *= 2;
    }
    return count;
}

}  // namespace

void step_record::adopt(const step_trace &trace) {
    entries_.clear();
    events_.clear();
    for (const traced_activation &a : trace.activations()) {
        entry e;
        e.key = a.key;
        e.layer = a.layer;
        e.size_bytes = a.size_bytes;
        e.movable = a.movable;
        e.last_kept = a.last_kept;
        e.memory = a.memory;
        e.parent = a.parent;
        e.produced_at = a.produced_at;
        e.released_at = std::min(a.released_at, trace.event_count());
        e.automatic = a.automatic;
        e.can_recompute = a.can_recompute;
        e.recompute_cost_ns = a.recompute_cost_ns;
        e.first_input = a.first_input;
        e.input_count = a.input_count;
        entries_.push_back(e);
    }
    for (const traced_event &t : trace.events()) {
        event e;
        e.use = t.use;
        e.claimed = t.claimed;
        e.entry = t.activation;
        events_.push_back(e);
    }
    collectives_ = trace.collectives();
    ends_ = trace.ends();
    inputs_ = trace.inputs();
    link_occurrences();
    derive();
}

bool step_record::learn(uint32_t index, uint64_t size_bytes, bool movable, held_memory memory,
                        uint32_t parent) noexcept {
    entry &e = entries_[index];
    const bool fresh = size_bytes > e.size_bytes || movable != e.movable || memory != e.memory || parent != e.parent;
    e.size_bytes = std::max(e.size_bytes, size_bytes);
    e.movable = movable;
    e.memory = memory;
    e.parent = parent;
    return fresh;
}

void step_record::derive() {
    derive_uses();
    derive_peak();
    derive_reloads();
    derive_fixed();
    derive_ends();
}

// What is computed again has no claim that ends, and a claim that ends right before its activation is no end of its
// own.
void step_record::derive_ends() {
    ends_before_.assign(events_.size() + 1, 0);
    for (const traced_end &end : ends_) {
        const entry &e = entries_[end.activation];
        if (end.release || (e.released_at != end.at && !recomputed(e))) {
            ++ends_before_[end.at];
        }
    }
}

void step_record::place(const std::vector<tensor_placement> &placement) {
    for (size_t i = 0; i < entries_.size(); ++i) {
        entry &e = entries_[i];
        if (!e.automatic) {
            continue;
        }
        e.memory = placement[i] == tensor_placement::keep      ? held_memory::kept
                   : placement[i] == tensor_placement::offload ? held_memory::source
                                                               : held_memory::nothing;
    }
}

void step_record::derive_reloads() {
    reloads_.clear();
    for (entry &e : entries_) {
        e.first_reload = k_no_index;
    }
    reload_at_.assign(events_.size() + 1, 0);
    last_reload_.assign(entries_.size(), k_no_index);
    again_.assign(entries_.size(), 0);
    recomputes_.clear();
    for (uint32_t i = 0; i < events_.size(); ++i) {
        reload_at_[i] = static_cast<uint32_t>(reloads_.size());
        if (events_[i].use) {
            add_inputs(i, events_[i].entry);
            add_reload(i, events_[i].entry, true);
        }
    }
    reload_at_[events_.size()] = static_cast<uint32_t>(reloads_.size());
}

bool step_record::recomputed(const entry &e) noexcept {
    return e.memory == held_memory::nothing && e.can_recompute && e.parent == k_no_index;
}

// An activation that is nowhere is computed again at its use: what it is computed from is needed then, and so on. What
// was computed again once is there until its release. No recursion: chains of inputs may be long.
void step_record::add_inputs(uint32_t at, uint32_t first) {
    to_recompute_.assign(1, first);
    while (!to_recompute_.empty()) {
        const uint32_t e = to_recompute_.back();
        to_recompute_.pop_back();
        if (!recomputed(entries_[e]) || again_[e] != 0) {
            continue;
        }
        again_[e] = 1;
        recomputes_.push_back({at, e});
        for (uint32_t k = 0; k < entries_[e].input_count; ++k) {
            const uint32_t from = inputs_[entries_[e].first_input + k];
            if (entries_[from].memory == held_memory::source) {
                add_reload(at, from, false);
            } else {
                to_recompute_.push_back(from);
            }
        }
    }
}

void step_record::add_reload(uint32_t at, uint32_t e, bool own) {
    const auto number = static_cast<uint32_t>(reloads_.size());
    (last_reload_[e] == k_no_index ? entries_[e].first_reload : reloads_[last_reload_[e]].next) = number;
    last_reload_[e] = number;
    reloads_.push_back({at, e, k_no_index, own});
}

// Views hold nothing of their own.
void step_record::derive_fixed() {
    fixed_bytes_.assign(events_.size(), 0);
    std::vector<uint8_t> there(entries_.size(), 0);
    uint64_t held = 0;
    size_t end = 0;
    size_t next = 0;
    for (uint32_t i = 0; i < events_.size(); ++i) {
        for (; end < ends_.size() && ends_[end].at <= i; ++end) {
            const uint32_t gone = ends_[end].activation;
            if (ends_[end].release && there[gone] != 0) {
                there[gone] = 0;
                held -= entries_[gone].size_bytes;
            }
        }
        const uint32_t e = events_[i].entry;
        const auto stays = [&](uint32_t what) {
            held += there[what] == 0 ? entries_[what].size_bytes : 0;
            there[what] = 1;
        };
        for (; next < recomputes_.size() && recomputes_[next].at == i; ++next) {
            stays(recomputes_[next].entry);
        }
        const bool kept = entries_[e].memory == held_memory::kept;
        if (kept) {
            stays(e);
        }
        const bool in_the_making = !events_[i].use && !kept;
        fixed_bytes_[i] = held + (in_the_making ? entries_[e].size_bytes : 0);
    }
}

void step_record::link_occurrences() {
    series_first_.clear();
    buckets_.assign(bucket_count_for(entries_.size()), k_no_index);
    std::vector<uint32_t> last;  // by series
    const size_t mask = buckets_.size() - 1;
    for (uint32_t i = 0; i < entries_.size(); ++i) {
        size_t b = hash_of(entries_[i].key) & mask;
        while (buckets_[b] != k_no_index && !(entries_[series_first_[buckets_[b]]].key == entries_[i].key)) {
            b = (b + 1) & mask;
        }
        if (buckets_[b] == k_no_index) {
            buckets_[b] = static_cast<uint32_t>(series_first_.size());
            series_first_.push_back(i);
            last.push_back(i);
        } else {
            entries_[last[buckets_[b]]].next_occurrence = i;
            last[buckets_[b]] = i;
        }
        entries_[i].series = buckets_[b];
    }
}

void step_record::derive_uses() {
    uint32_t next_use_event = k_no_index;
    std::vector<uint32_t> next_of_entry(entries_.size(), k_no_index);
    for (uint32_t i = static_cast<uint32_t>(events_.size()); i-- > 0;) {
        event &e = events_[i];
        if (!e.use) {
            continue;
        }
        e.next_use = next_of_entry[e.entry];
        next_of_entry[e.entry] = i;
        entries_[e.entry].first_use = i;
        if (next_use_event != k_no_index) {
            const event &n = events_[next_use_event];
            const bool same = entries_[n.entry].layer == entries_[e.entry].layer;
            e.layer_end = same ? n.layer_end : next_use_event;
        }
        next_use_event = i;
    }
    first_use_ = next_use_event;
    std::vector<uint32_t> movable_before(events_.size() + 1, 0);
    for (size_t i = 0; i < events_.size(); ++i) {
        const bool counts = !events_[i].use && entries_[events_[i].entry].movable;
        movable_before[i + 1] = movable_before[i] + (counts ? 1 : 0);
    }
    for (entry &e : entries_) {
        const uint32_t until = e.first_use == k_no_index ? static_cast<uint32_t>(events_.size()) : e.first_use;
        e.younger = movable_before[until] - movable_before[e.produced_at + 1];
    }
}

// A view's bytes are those of the copy that it shares.
uint64_t step_record::saved_bytes(const entry &e) noexcept {
    return e.parent == k_no_index ? e.size_bytes : 0;
}

void step_record::derive_peak() {
    std::vector<uint64_t> ends(events_.size() + 1, 0);
    largest_bytes_ = 0;
    largest_movable_bytes_ = 0;
    for (const entry &e : entries_) {
        ends[e.released_at] += saved_bytes(e);
        largest_bytes_ = std::max(largest_bytes_, e.size_bytes);
        largest_movable_bytes_ = std::max(largest_movable_bytes_, e.movable ? e.size_bytes : 0);
    }
    uint64_t live = 0;
    peak_saved_bytes_ = 0;
    for (size_t i = 0; i < events_.size(); ++i) {
        live -= ends[i];
        if (!events_[i].use) {
            live += saved_bytes(entries_[events_[i].entry]);
        }
        peak_saved_bytes_ = std::max(peak_saved_bytes_, live);
    }
}

// The rule that it replays is runtime::make_room(): after every call the oldest sources are given up until the next
// produced activation fits. Bytes of kept and forwarded activations stay until their release, and that of their views.
void step_record::forecast(const budget &b) {
    std::vector<uint8_t> pending(entries_.size(), 0);
    std::vector<uint64_t> held(entries_.size(), 0);
    std::vector<uint32_t> ends_at(entries_.size());
    for (uint32_t i = 0; i < entries_.size(); ++i) {
        ends_at[i] = entries_[i].released_at;
        entries_[i].given_up_before_use = false;
    }
    for (const entry &e : entries_) {
        if (e.parent != k_no_index) {
            ends_at[e.parent] = std::max(ends_at[e.parent], e.released_at);
        }
    }
    std::vector<std::vector<uint32_t>> ends(events_.size() + 1);
    for (uint32_t i = 0; i < entries_.size(); ++i) {
        ends[ends_at[i]].push_back(i);
    }
    std::vector<uint32_t> queue;  // of sources, oldest first; entries that left it are skipped
    size_t head = 0;
    size_t next = 0;
    uint64_t total_bytes = 0;
    uint64_t source_bytes = 0;
    const auto leave = [&](uint32_t i) {
        if (pending[i] != 0) {
            pending[i] = 0;
            source_bytes -= entries_[i].size_bytes;
        }
    };
    const auto give_up_for = [&](uint64_t next_bytes) {
        while (head < queue.size() &&
               (total_bytes + next_bytes > b.device_bytes || source_bytes > b.source_cap_bytes)) {
            const uint32_t oldest = queue[head++];
            if (pending[oldest] != 0) {
                leave(oldest);
                total_bytes -= held[oldest];
                held[oldest] = 0;
                entries_[oldest].given_up_before_use = true;
            }
        }
    };
    for (uint32_t at = 0; at < events_.size(); ++at) {
        for (const uint32_t i : ends[at]) {
            leave(i);
            total_bytes -= held[i];
            held[i] = 0;
        }
        const uint32_t i = events_[at].entry;
        entry &e = entries_[i];
        if (ends_before_[at] != 0) {
            give_up_for(events_[at].use ? 0 : e.size_bytes);  // the last call before a produce makes its room
        }
        if (next < recomputes_.size() && recomputes_[next].at == at) {
            for (uint32_t r = reload_at_[at]; r < reload_at_[at + 1]; ++r) {
                leave(reloads_[r].own ? i : reloads_[r].entry);  // read, so it stays
            }
        }
        for (; next < recomputes_.size() && recomputes_[next].at == at; ++next) {
            const uint32_t made = recomputes_[next].entry;
            give_up_for(entries_[made].size_bytes);
            held[made] = entries_[made].size_bytes;
            total_bytes += held[made];
        }
        if (events_[at].claimed) {
            leave(e.parent == k_no_index ? i : e.parent);
        } else if (!events_[at].use && e.memory != held_memory::nothing) {
            held[i] = e.size_bytes;
            total_bytes += e.size_bytes;
            if (e.memory == held_memory::source && !(e.last_kept && e.younger < b.keep_last)) {
                pending[i] = 1;
                source_bytes += e.size_bytes;
                queue.push_back(i);
            }
        }
        const bool produce_next = at + 1 < events_.size() && !events_[at + 1].use && ends_before_[at + 1] == 0;
        const uint64_t next_bytes = produce_next ? entries_[events_[at + 1].entry].size_bytes : 0;
        give_up_for(next_bytes);
    }
    for (entry &e : entries_) {
        if (e.parent != k_no_index) {
            e.given_up_before_use = entries_[e.parent].given_up_before_use;
        }
    }
}

uint32_t step_record::find(const call_key &key) const noexcept {
    if (buckets_.empty()) {
        return k_no_index;
    }
    const size_t mask = buckets_.size() - 1;
    size_t b = hash_of(key) & mask;
    while (buckets_[b] != k_no_index) {
        const uint32_t series = buckets_[b];
        if (entries_[series_first_[series]].key == key) {
            return series;
        }
        b = (b + 1) & mask;
    }
    return k_no_index;
}

}  // namespace ebb
