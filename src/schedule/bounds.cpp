#include "schedule/bounds.hpp"

#include <algorithm>
#include <cmath>

namespace ebb {

namespace {

// Time per byte at least, chunk latencies included.
double least_ns_per_byte(const step_model &model, const plan_link &link) {
    double least = INFINITY;
    for (const step_tensor &t : model.tensors) {
        if (t.size_bytes != 0) {
            least = std::min(least, link.transfer_ns(t.size_bytes) / static_cast<double>(t.size_bytes));
        }
    }
    return std::isfinite(least) ? least : 0;
}

double common_size(const step_model &model) {
    for (const step_tensor &t : model.tensors) {
        if (t.size_bytes != model.tensors.front().size_bytes) {
            return 0;
        }
    }
    return model.tensors.empty() ? 0 : static_cast<double>(model.tensors.front().size_bytes);
}

// Work done when each event begins, and where tensors live. Rooms and recomputes are at calls.
struct bounded_lives {
    explicit bounded_lives(const step_model &m)
        : first_use(m.tensors.size(), k_no_index),
          last_use(m.tensors.size(), k_no_index),
          produced(m.tensors.size(), k_no_index),
          released(m.tensors.size(), k_no_index),
          needed_until(m.tensors.size(), k_no_index) {
        const auto count = static_cast<uint32_t>(m.events.size());
        work_ns.reserve(count + 1);
        double done_ns = 0;
        for (uint32_t i = 0; i < count; ++i) {
            const step_event &e = m.events[i];
            work_ns.push_back(done_ns);
            if (e.what == step_event_kind::work) {
                done_ns += e.time_ns;
            } else if (e.what == step_event_kind::produce) {
                produced[e.tensor] = i;
            } else if (e.what == step_event_kind::use) {
                first_use[e.tensor] = std::min(first_use[e.tensor], i);
                last_use[e.tensor] = i;
                needed_until[e.tensor] = k_no_index;
                first_read = std::min(first_read, i);
            } else if (e.what == step_event_kind::done || e.what == step_event_kind::release) {
                needed_until[e.tensor] = std::min(needed_until[e.tensor], i);
                released[e.tensor] = e.what == step_event_kind::release ? i : k_no_index;
            }
        }
        work_ns.push_back(done_ns);
        for (const step_tensor &t : m.tensors) {
            first_read = std::min(first_read, t.recompute_at);
        }
    }

    std::vector<double> work_ns;
    std::vector<uint32_t> first_use, last_use, produced, released;
    std::vector<uint32_t> needed_until;  // the end of the last use: done or release
    uint32_t first_read = k_no_index;    // no use or recompute comes before
};

double with_collectives_ns(const step_model &m) {
    double compute = 0;
    double collective = 0;
    for (const step_event &e : m.events) {
        if (e.what == step_event_kind::work) {
            compute += e.time_ns;
        } else if (e.what == step_event_kind::collective_begin) {
            collective = std::max(collective, compute) + e.time_ns;
        } else if (e.what == step_event_kind::collective_end) {
            compute = std::max(compute, collective);
        }
    }
    return compute;
}

}  // namespace

step_bound::step_bound(const step_model &model, const plan_budget &budget)
    : d2h_ns_per_byte_(least_ns_per_byte(model, budget.d2h)),
      h2d_ns_per_byte_(least_ns_per_byte(model, budget.h2d)),
      unit_bytes_(common_size(model)),
      compute_ns_(with_collectives_ns(model)) {
    const uint64_t fixed_bytes = std::min(model.fixed_bytes, budget.device_bytes);
    memory_bytes_ = static_cast<double>(budget.device_bytes - fixed_bytes);
    host_bytes_ = static_cast<double>(budget.host_bytes);
    if (unit_bytes_ > 0) {
        memory_bytes_ = std::floor(memory_bytes_ / unit_bytes_) * unit_bytes_;
        host_bytes_ = std::floor(host_bytes_ / unit_bytes_) * unit_bytes_;
    }
    follow_events(model);
    sort_pieces(model);
    find_best();
}

void step_bound::follow_events(const step_model &model) {
    const bounded_lives lives(model);
    work_ns_ = lives.work_ns.back();
    // By where calls are: the room for a produce is made in the call (or recompute) before it.
    std::vector<uint8_t> is_place(model.events.size() + 1, 0);
    for (const step_tensor &t : model.tensors) {
        if (t.recompute_at < model.events.size()) {
            is_place[t.recompute_at] = 1;
        }
    }
    double live_bytes = 0;
    double needed_bytes = 0;  // in use now, or used later
    double room_at_ns = 0;
    uint32_t oldest = 0;    // tensor; none before it is alive and can be offloaded
    uint32_t last_use = 0;  // event: of what was produced so far
    d2h_before_uses_ns_ = d2h_ns_ = h2d_ns_ = -INFINITY;
    const auto count = static_cast<uint32_t>(model.events.size());
    for (uint32_t i = 0; i < count; ++i) {
        const step_event &e = model.events[i];
        if (is_place[i] != 0) {
            room_at_ns = lives.work_ns[i];
        }
        if (e.what < step_event_kind::produce) {
            continue;
        }
        const auto size_bytes = static_cast<double>(model.tensors[e.tensor].size_bytes);
        const bool used = lives.last_use[e.tensor] != k_no_index;
        if (e.what == step_event_kind::produce) {
            live_bytes += size_bytes;
            needed_bytes += used ? size_bytes : 0;
            last_use = std::max(last_use, used ? lives.last_use[e.tensor] : 0);
            while (oldest < e.tensor && (!model.tensors[oldest].can_offload || lives.released[oldest] < i)) {
                ++oldest;
            }
            const double hidden_ns = std::max(0.0, room_at_ns - lives.work_ns[lives.produced[oldest]]);
            const double exposed_ns = live_bytes * d2h_ns_per_byte_ - hidden_ns;
            d2h_ns_ = std::max(d2h_ns_, exposed_ns);
            if (i < lives.first_read) {
                d2h_before_uses_ns_ = std::max(d2h_before_uses_ns_, exposed_ns);
            }
            least_recomputed_bytes_ = std::max(least_recomputed_bytes_, live_bytes - memory_bytes_ - host_bytes_);
        } else if (e.what == step_event_kind::release) {
            const double hidden_ns = last_use > i ? lives.work_ns[last_use] - lives.work_ns[i] : 0;
            h2d_ns_ = std::max(h2d_ns_, needed_bytes * h2d_ns_per_byte_ - hidden_ns);
            live_bytes -= size_bytes;
        }
        needed_bytes -= used && lives.needed_until[e.tensor] == i ? size_bytes : 0;
        room_at_ns = lives.work_ns[i];
    }
}

void step_bound::sort_pieces(const step_model &model) {
    struct candidate {
        double size_bytes, ns_per_byte;
    };
    std::vector<candidate> sorted;
    for (const step_tensor &t : model.tensors) {
        if (t.can_recompute && t.size_bytes != 0) {
            const auto size_bytes = static_cast<double>(t.size_bytes);
            sorted.push_back({size_bytes, t.recompute_ns / size_bytes});
        }
    }
    std::sort(sorted.begin(), sorted.end(),
              [](const candidate &a, const candidate &b) { return a.ns_per_byte < b.ns_per_byte; });
    piece next;
    for (const candidate &c : sorted) {
        next.ns_per_byte = c.ns_per_byte;
        pieces_.push_back(next);
        next.at_bytes += c.size_bytes;
        next.cost_ns += c.size_bytes * c.ns_per_byte;
    }
    next.ns_per_byte = 0;
    pieces_.push_back(next);
}

double step_bound::recompute_cost_ns(double recomputed_bytes) const {
    auto p = std::upper_bound(pieces_.begin(), pieces_.end(), recomputed_bytes,
                              [](double bytes, const piece &q) { return bytes < q.at_bytes; });
    --p;
    return p->cost_ns + (recomputed_bytes - p->at_bytes) * p->ns_per_byte;
}

// Copies out end before the first use, copies in begin with the first release: the two spans do not overlap. Recompute
// lies in the second one, where it hides copies too.
double step_bound::at_recomputed_ns(double recomputed_bytes) const {
    const double cost_ns = recompute_cost_ns(recomputed_bytes);
    const double away = memory_bytes_ + recomputed_bytes;
    const double out_ns = std::max(0.0, d2h_before_uses_ns_ - away * d2h_ns_per_byte_);
    const double in_ns = std::max(cost_ns, h2d_ns_ - away * h2d_ns_per_byte_);
    const double out_anywhere_ns = std::max(cost_ns, d2h_ns_ - away * d2h_ns_per_byte_);
    return std::max(compute_ns_, work_ns_ + std::max(out_ns + in_ns, out_anywhere_ns));
}

void step_bound::consider(double recomputed_bytes) {
    if (recomputed_bytes >= least_recomputed_bytes_) {
        best_ns_ = std::min(best_ns_, at_recomputed_ns(recomputed_bytes));
    }
}

// Convex in the bytes recomputed: the least is at the best end of a piece or within the two beside it.
void step_bound::find_best() {
    best_ns_ = INFINITY;
    size_t best = 0;
    for (size_t i = 0; i < pieces_.size(); ++i) {
        const double before_ns = best_ns_;
        consider(pieces_[i].at_bytes);
        best = best_ns_ < before_ns ? i : best;
    }
    if (!std::isfinite(best_ns_)) {
        best_ns_ = compute_ns_;  // nothing fits: no plan is to be bounded
        return;
    }
    if (unit_bytes_ == 0) {
        look_inside(best);
        if (best > 0) {
            look_inside(best - 1);
        }
    }
}

// The time is the largest of straight lines there: its least is where two of them meet.
void step_bound::look_inside(size_t index) {
    if (index + 1 >= pieces_.size()) {
        return;
    }
    struct line {
        double at_zero, slope;
        [[nodiscard]] line operator+(const line &o) const { return {at_zero + o.at_zero, slope + o.slope}; }
    };
    const piece &p = pieces_[index];
    const auto link_line = [this](double all_ns, double ns_per_byte) {
        return line{all_ns - memory_bytes_ * ns_per_byte, -ns_per_byte};
    };
    const line cost{p.cost_ns - p.at_bytes * p.ns_per_byte, p.ns_per_byte};
    const line out = link_line(d2h_before_uses_ns_, d2h_ns_per_byte_);
    const line in = link_line(h2d_ns_, h2d_ns_per_byte_);
    const line lines[] = {
        cost, in, out + cost, out + in, link_line(d2h_ns_, d2h_ns_per_byte_), {compute_ns_ - work_ns_, 0}};
    const auto inside = [&](double bytes) {
        if (bytes > p.at_bytes && bytes < pieces_[index + 1].at_bytes) {
            consider(bytes);
        }
    };
    inside(least_recomputed_bytes_);
    for (const line &a : lines) {
        for (const line &b : lines) {
            if (a.slope != b.slope && std::isfinite(a.at_zero) && std::isfinite(b.at_zero)) {
                inside((b.at_zero - a.at_zero) / (a.slope - b.slope));
            }
        }
    }
}

}  // namespace ebb
