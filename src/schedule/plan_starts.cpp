#include "schedule/plan_starts.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <tuple>

namespace ebb {

namespace {

constexpr double k_alike = 1.05;  // sizes and times of equal layers, as measured, differ by less
constexpr uint32_t k_most_spans = 64;

bool alike(double a, double b) {
    return std::max(a, b) <= std::min(a, b) * k_alike;
}

bool same_layer(const step_tensor &a, const step_tensor &b) {
    return a.layer == b.layer && a.micro_batch == b.micro_batch && a.stage == b.stage;
}

double recompute_density(const step_tensor &t) {
    return t.size_bytes == 0 ? 0 : t.recompute_ns / static_cast<double>(t.size_bytes);
}

}  // namespace

plan_starts::plan_starts(const step_model &model) : model_(model) {
    uint64_t of_layer_bytes = 0;
    const step_tensor *before = nullptr;
    for (const step_tensor &t : model.tensors) {
        of_layer_bytes = before != nullptr && same_layer(*before, t) ? of_layer_bytes + t.size_bytes : t.size_bytes;
        layer_bytes_ = std::max(layer_bytes_, of_layer_bytes);
        largest_bytes_ = std::max(largest_bytes_, t.size_bytes);
        before = &t;
    }
    find_classes();
    sort_by_density();
    find_lives();
}

void plan_starts::find_classes() {
    const auto count = static_cast<uint32_t>(model_.tensors.size());
    // Of a tensor: its place in its layer (of its micro-batch and stage), so that layers need not be compared.
    std::vector<uint32_t> place(count, 0);
    for (uint32_t t = 1; t < count; ++t) {
        place[t] = same_layer(model_.tensors[t - 1], model_.tensors[t]) ? place[t - 1] + 1 : 0;
    }
    const auto key = [&](uint32_t t) {
        const step_tensor &x = model_.tensors[t];
        return std::make_tuple(place[t], x.recompute_from.size(), x.can_keep, x.can_offload, x.can_recompute);
    };
    std::vector<uint32_t> sorted(count);
    std::iota(sorted.begin(), sorted.end(), 0U);
    std::stable_sort(sorted.begin(), sorted.end(), [&](uint32_t a, uint32_t b) {
        const step_tensor &x = model_.tensors[a];
        const step_tensor &y = model_.tensors[b];
        return std::make_tuple(key(a), x.size_bytes, x.recompute_ns) <
               std::make_tuple(key(b), y.size_bytes, y.recompute_ns);
    });
    for (const uint32_t t : sorted) {
        const step_tensor &x = model_.tensors[t];
        const bool joins = !classes_.empty() && [&] {
            const uint32_t first = classes_.back().front();
            const step_tensor &y = model_.tensors[first];
            return key(first) == key(t) &&
                   alike(static_cast<double>(x.size_bytes), static_cast<double>(y.size_bytes)) &&
                   (!x.can_recompute || alike(x.recompute_ns, y.recompute_ns));
        }();
        if (!joins) {
            classes_.emplace_back();
        }
        classes_.back().push_back(t);
    }
    for (std::vector<uint32_t> &c : classes_) {
        std::sort(c.begin(), c.end());
    }
}

void plan_starts::sort_by_density() {
    std::vector<uint32_t> &latest = by_density_[0];
    for (uint32_t t = static_cast<uint32_t>(model_.tensors.size()); t-- > 0;) {
        if (model_.tensors[t].can_recompute) {
            latest.push_back(t);
        }
    }
    // That of their class, so that layers which measured a little differently are equal.
    std::vector<double> density(model_.tensors.size(), 0);
    for (const std::vector<uint32_t> &members : classes_) {
        double sum = 0;
        for (const uint32_t t : members) {
            sum += recompute_density(model_.tensors[t]);
        }
        for (const uint32_t t : members) {
            density[t] = sum / static_cast<double>(members.size());
        }
    }
    const auto denser = [&density](uint32_t a, uint32_t b) { return density[a] < density[b]; };
    std::stable_sort(latest.begin(), latest.end(), denser);
    by_density_[1] = by_density_[2] = latest;
    for (size_t from = 0; from < latest.size();) {
        size_t to = from + 1;
        while (to < latest.size() && !denser(latest[from], latest[to])) {
            ++to;
        }
        std::reverse(by_density_[1].begin() + static_cast<std::ptrdiff_t>(from),
                     by_density_[1].begin() + static_cast<std::ptrdiff_t>(to));
        // Every other one, then the rest.
        size_t at = from;
        for (size_t k = from; k < to; k += 2) {
            by_density_[2][at++] = latest[k];
        }
        for (size_t k = from + 1; k < to; k += 2) {
            by_density_[2][at++] = latest[k];
        }
        from = to;
    }
    density_bytes_.assign(1, 0);
    for (const uint32_t t : latest) {
        density_bytes_.push_back(density_bytes_.back() + model_.tensors[t].size_bytes);
    }
}

// From production to release, in calls. Where all are alive at once, as in a chain, one span says all.
void plan_starts::find_lives() {
    const size_t count = model_.tensors.size();
    std::vector<uint32_t> produced(count, 0), used(count, k_no_index), released(count, k_no_index);
    std::vector<uint32_t> first_use(count, k_no_index);  // event
    uint32_t call = 0;
    for (uint32_t i = 0; i < model_.events.size(); ++i) {
        const step_event &e = model_.events[i];
        if (e.what == step_event_kind::produce) {
            produced[e.tensor] = call++;
        } else if (e.what == step_event_kind::use) {
            used[e.tensor] = std::min(used[e.tensor], call++);
            first_use[e.tensor] = std::min(first_use[e.tensor], i);
        } else if (e.what == step_event_kind::release) {
            released[e.tensor] = call++;
        }
    }
    for (uint32_t t = 0; t < count; ++t) {
        place_.push_back(std::min(model_.tensors[t].recompute_at, first_use[t]));
        by_place_.push_back(t);
    }
    std::stable_sort(by_place_.begin(), by_place_.end(),
                     [this](uint32_t a, uint32_t b) { return place_[a] < place_[b]; });
    uint32_t last_produce = 0;
    uint32_t first_release = call;
    for (size_t t = 0; t < count; ++t) {
        last_produce = std::max(last_produce, produced[t]);
        first_release = std::min(first_release, released[t]);
        used[t] = std::min({used[t], released[t], call});
        released[t] = std::min(released[t], call);
    }
    spans_ = last_produce < first_release ? 1 : std::min(k_most_spans, std::max(call, 1U));
    for (size_t t = 0; t < count; ++t) {
        const auto span = [&](uint32_t at) {
            return static_cast<uint32_t>(static_cast<uint64_t>(at) * spans_ / (uint64_t{call} + 1));
        };
        first_span_.push_back(span(produced[t]));
        last_span_.push_back(span(released[t]));
        by_reuse_.push_back(static_cast<uint32_t>(t));
    }
    std::stable_sort(by_reuse_.begin(), by_reuse_.end(),
                     [&](uint32_t a, uint32_t b) { return used[a] - produced[a] < used[b] - produced[b]; });
    // By the bits of their place in that order, the lowest first.
    bool first = true;
    for (size_t stride = std::bit_ceil(count + 1) / 2; stride > 0; stride /= 2) {
        for (size_t t = first ? 0 : stride; t < count; t += first ? stride : 2 * stride) {
            by_spread_.push_back(by_reuse_[t]);
        }
        first = false;
    }
}

bool plan_starts::keep_within(uint32_t tensor, uint64_t limit_bytes, std::vector<uint64_t> &kept) const {
    const uint64_t size_bytes = model_.tensors[tensor].size_bytes;
    for (uint32_t s = first_span_[tensor]; s <= last_span_[tensor]; ++s) {
        if (kept[s] + size_bytes > limit_bytes) {
            return false;
        }
    }
    for (uint32_t s = first_span_[tensor]; s <= last_span_[tensor]; ++s) {
        kept[s] += size_bytes;
    }
    return true;
}

void plan_starts::keep(const plan_start &start, uint64_t limit_bytes, std::vector<uint64_t> &kept, plan &p) const {
    for (const uint32_t t : start.kept_spread ? by_spread_ : by_reuse_) {
        if (p.placement[t] == tensor_placement::offload && model_.tensors[t].can_keep &&
            keep_within(t, limit_bytes, kept)) {
            p.placement[t] = tensor_placement::keep;
        }
    }
}

void plan_starts::build(const plan_start &start, plan &p) const {
    p.staging_bytes = start.staging_bytes;
    p.placement.assign(model_.tensors.size(), tensor_placement::offload);
    std::vector<uint64_t> kept(spans_, 0);
    keep(start, std::min(start.kept_first_bytes, start.kept_limit_bytes), kept, p);
    uint32_t left = start.recomputed;
    for (const uint32_t t : by_density_[start.order]) {
        if (left != 0 && p.placement[t] == tensor_placement::offload) {
            p.placement[t] = tensor_placement::recompute;
            --left;
        }
    }
    if (start.kept_first_bytes < start.kept_limit_bytes) {
        keep(start, start.kept_limit_bytes, kept, p);
    }
    for (uint32_t t = 0; t < p.placement.size(); ++t) {
        const step_tensor &tensor = model_.tensors[t];
        if (p.placement[t] == tensor_placement::offload && (!tensor.can_offload || !start.may_offload)) {
            p.placement[t] = tensor.can_recompute ? tensor_placement::recompute
                             : tensor.can_keep    ? tensor_placement::keep
                                                  : tensor_placement::offload;
        }
    }
}

uint64_t plan_starts::fixed_peak_bytes(const plan &p) const {
    uint64_t held_bytes = 0;
    uint64_t most_bytes = 0;
    size_t next_place = 0;
    for (uint32_t i = 0; i < model_.events.size(); ++i) {
        for (; next_place < by_place_.size() && place_[by_place_[next_place]] <= i; ++next_place) {
            const uint32_t t = by_place_[next_place];
            held_bytes += p.placement[t] == tensor_placement::recompute ? model_.tensors[t].size_bytes : 0;
        }
        const step_event &e = model_.events[i];
        if (e.what == step_event_kind::produce) {
            const uint64_t size_bytes = model_.tensors[e.tensor].size_bytes;
            most_bytes = std::max(most_bytes, held_bytes + size_bytes);
            held_bytes += p.placement[e.tensor] == tensor_placement::keep ? size_bytes : 0;
        } else if (e.what == step_event_kind::release) {
            most_bytes = std::max(most_bytes, held_bytes);
            const bool there = p.placement[e.tensor] == tensor_placement::keep ||
                               (p.placement[e.tensor] == tensor_placement::recompute && place_[e.tensor] <= i);
            held_bytes -= there ? model_.tensors[e.tensor].size_bytes : 0;
        }
    }
    return most_bytes;
}

uint64_t plan_starts::used_at_once_bytes(const plan &p) const {
    std::vector<uint32_t> uses(model_.tensors.size(), 0);
    uint64_t used_bytes = 0;
    uint64_t most_bytes = 0;
    for (const step_event &e : model_.events) {
        if (e.tensor == k_no_index || p.placement[e.tensor] != tensor_placement::offload) {
            continue;
        }
        uint32_t &count = uses[e.tensor];
        const uint64_t size_bytes = model_.tensors[e.tensor].size_bytes;
        if (e.what == step_event_kind::use) {
            used_bytes += count++ == 0 ? size_bytes : 0;
            most_bytes = std::max(most_bytes, used_bytes);
        } else if (count != 0 && (e.what == step_event_kind::done || e.what == step_event_kind::release)) {
            count = e.what == step_event_kind::release ? 0 : count - 1;
            used_bytes -= count == 0 ? size_bytes : 0;
        }
    }
    return most_bytes;
}

}  // namespace ebb
