#include "device/sim/sim_engines.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"

namespace ebb {

double sim_link::fraction_at(uint64_t size_bytes) const noexcept {
    if (curve.empty()) {
        return 1;
    }
    if (size_bytes <= curve.front().size_bytes) {
        return curve.front().fraction;
    }
    for (size_t i = 1; i < curve.size(); ++i) {
        const point &low = curve[i - 1];
        const point &high = curve[i];
        if (size_bytes <= high.size_bytes) {
            const double part = static_cast<double>(size_bytes - low.size_bytes) /
                                static_cast<double>(high.size_bytes - low.size_bytes);
            return low.fraction + part * (high.fraction - low.fraction);
        }
    }
    return curve.back().fraction;
}

void sim_engines::push(state &e, const queued &added) {
    if (e.count == e.ring.size()) {
        std::rotate(e.ring.begin(), e.ring.begin() + static_cast<std::ptrdiff_t>(e.head), e.ring.end());
        e.head = 0;
        e.ring.resize(std::max<size_t>(16, e.ring.size() * 2));
    }
    e.ring[(e.head + e.count) & (e.ring.size() - 1)] = added;
    ++e.count;
}

void sim_engines::submit(piece_id piece, const sim_work &work) {
    state &e = of(work.engine);
    if (e.active) {
        push(e, {piece, work});
        return;
    }
    begin(e, {piece, work});
    set_speeds();
}

void sim_engines::begin(state &e, const queued &next) {
    const bool copies = next.work.engine == sim_engine::d2h || next.work.engine == sim_engine::h2d;
    e.active = true;
    e.current = next;
    e.began_ps = now_;
    e.latency_left_ps = !copies                               ? 0
                        : next.work.engine == sim_engine::d2h ? machine_.d2h.latency_ps
                                                              : machine_.h2d.latency_ps;
    e.left = static_cast<double>(copies ? next.work.size_bytes : next.work.duration_ps);
    ++active_count_;
}

bool sim_engines::moving(sim_engine e) const noexcept {
    const state &at = engines_[static_cast<size_t>(e)];
    return at.active && at.latency_left_ps == 0;
}

double sim_engines::copy_rate(const sim_link &link, const state &e, bool both) const noexcept {
    double rate = link.bytes_per_second;
    if (both && machine_.half_duplex) {
        rate /= 2;
    } else if (both && link.both_bytes_per_second > 0) {
        rate = link.both_bytes_per_second;
    }
    return rate * link.fraction_at(e.current.work.size_bytes);
}

void sim_engines::set_speeds() noexcept {
    state &out = of(sim_engine::d2h);
    state &in = of(sim_engine::h2d);
    const bool out_moves = moving(sim_engine::d2h);
    const bool in_moves = moving(sim_engine::h2d);
    const bool both = out_moves && in_moves;
    double out_rate = out_moves ? copy_rate(machine_.d2h, out, both) : 0;
    double in_rate = in_moves ? copy_rate(machine_.h2d, in, both) : 0;
    const double host_rate = (out_rate + in_rate) * machine_.gpus_per_host_memory;
    if (machine_.host_dram_bytes_per_second > 0 && host_rate > machine_.host_dram_bytes_per_second) {
        const double part = machine_.host_dram_bytes_per_second / host_rate;
        out_rate *= part;
        in_rate *= part;
    }
    out.speed = out_rate / k_ps_per_second;
    in.speed = in_rate / k_ps_per_second;

    state &compute = of(sim_engine::compute);
    compute.speed = 1;
    if (machine_.hbm_bytes_per_second > 0) {
        const double free_part = std::max(0.01, 1 - (out_rate + in_rate) / machine_.hbm_bytes_per_second);
        compute.speed = std::min(1.0, free_part / std::max(compute.current.work.hbm_fraction, 1e-9));
    }
    of(sim_engine::collective).speed = out_moves ? 1 - machine_.collective_loss : 1;
}

// Until the end of its latency, or of the piece, at the present rates.
sim_time_ps sim_engines::left_ps(const state &e) noexcept {
    if (e.latency_left_ps != 0) {
        return e.latency_left_ps;
    }
    return e.left <= 0 ? 0 : static_cast<sim_time_ps>(std::ceil(e.left / e.speed));
}

void sim_engines::pass(sim_time_ps time) {
    for (state &e : engines_) {
        if (!e.active) {
            continue;
        }
        e.busy_ps += time;
        if (e.latency_left_ps != 0) {
            e.latency_left_ps -= time;
        } else {
            e.left -= e.speed * static_cast<double>(time);
        }
    }
    now_ += time;
}

sim_engines::ended sim_engines::advance(sim_time_ps limit) {
    EBB_CHECK(limit >= now_);
    for (;;) {
        state *next = nullptr;
        sim_time_ps soonest = limit - now_;
        for (state &e : engines_) {
            if (e.active && left_ps(e) <= soonest && (next == nullptr || left_ps(e) < soonest)) {
                next = &e;
                soonest = left_ps(e);
            }
        }
        const bool in_latency = next != nullptr && next->latency_left_ps != 0;
        pass(soonest);
        if (next == nullptr) {
            return {};
        }
        if (in_latency) {
            set_speeds();  // its bytes begin to move
            continue;
        }
        const ended done{true, next->current.piece, next->began_ps};
        next->active = false;
        --active_count_;
        if (next->count != 0) {
            const queued following = next->ring[next->head];
            next->head = (next->head + 1) & (next->ring.size() - 1);
            --next->count;
            begin(*next, following);
        }
        set_speeds();
        return done;
    }
}

}  // namespace ebb
