#include "device/sim/sim_engines.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"

namespace ebb {
namespace {

constexpr double k_sim_unlimited_rate = 1e30;  // so fast that what it moves is there at once

bool is_copy(sim_engine engine) noexcept {
    return engine == sim_engine::d2h || engine == sim_engine::h2d;
}

}  // namespace

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
    if (e.ended_ps != now_) {
        e.late_ps = 0;
    }
    begin(e, {piece, work});
    set_speeds();
}

void sim_engines::begin(state &e, const queued &next) {
    e.active = true;
    e.current = next;
    e.began_ps = now_;
    e.since_ps = now_;
    e.speed = 0;
    e.in_latency = false;
    if (is_copy(next.work.engine)) {
        const sim_link &link = next.work.engine == sim_engine::d2h ? machine_.d2h : machine_.h2d;
        e.fraction = link.fraction_at(next.work.size_bytes);
        e.in_latency = link.latency_ps != 0;
        e.ends_ps = now_ + link.latency_ps;
        e.left = static_cast<double>(next.work.size_bytes);
    } else {
        e.left = static_cast<double>(next.work.duration_ps);
    }
    ++active_count_;
}

void sim_engines::end(state &e) {
    e.late_ps = static_cast<double>(e.ends_ps - e.since_ps) - e.left / e.speed;
    e.busy_ps += now_ - e.began_ps;
    e.ended_ps = now_;
    e.active = false;
    e.ends_ps = k_never;
    --active_count_;
    if (e.count != 0) {
        const queued following = e.ring[e.head];
        e.head = (e.head + 1) & (e.ring.size() - 1);
        --e.count;
        begin(e, following);
    }
}

double sim_engines::copy_rate(const sim_link &link, const state &e, bool both) const noexcept {
    double rate = link.bytes_per_second > 0 ? link.bytes_per_second : k_sim_unlimited_rate;
    if (both && machine_.half_duplex) {
        rate /= 2;
    } else if (both && link.both_bytes_per_second > 0) {
        rate = link.both_bytes_per_second;
    }
    return rate * e.fraction;
}

void sim_engines::set_speed(state &e, double speed) noexcept {
    if (!e.active || e.in_latency || e.speed == speed) {
        return;
    }
    const double passed_ps = e.speed == 0 ? 0 : static_cast<double>(now_ - e.since_ps);
    e.left -= e.speed == 0 ? e.late_ps * speed : e.speed * passed_ps;
    e.since_ps = now_;
    e.speed = speed;
    constexpr double k_longest_ps = 8e18;  // so that a time is never out of range
    e.ends_ps = now_ + static_cast<sim_time_ps>(std::clamp(std::floor(e.left / speed + 0.5), 0.0, k_longest_ps));
}

void sim_engines::set_speeds() noexcept {
    state &out = of(sim_engine::d2h);
    state &in = of(sim_engine::h2d);
    const bool out_moves = out.active && !out.in_latency;
    const bool in_moves = in.active && !in.in_latency;
    double out_rate = out_moves ? copy_rate(machine_.d2h, out, in_moves) : 0;
    double in_rate = in_moves ? copy_rate(machine_.h2d, in, out_moves) : 0;
    const double host_rate = (out_rate + in_rate) * machine_.gpus_per_host_memory;
    if (machine_.host_dram_bytes_per_second > 0 && host_rate > machine_.host_dram_bytes_per_second) {
        const double part = machine_.host_dram_bytes_per_second / host_rate;
        out_rate *= part;
        in_rate *= part;
    }
    set_speed(out, out_rate / k_ps_per_second);
    set_speed(in, in_rate / k_ps_per_second);

    state &compute = of(sim_engine::compute);
    if (compute.active) {
        double speed = 1;
        if (machine_.hbm_bytes_per_second > 0) {
            constexpr double k_least_part = 0.01;
            const double free_part = std::max(k_least_part, 1 - (out_rate + in_rate) / machine_.hbm_bytes_per_second);
            speed = std::min(1.0, free_part / std::max(compute.current.work.hbm_fraction, k_least_part));
        }
        set_speed(compute, speed);
    }
    set_speed(of(sim_engine::collective), out_moves ? 1 - machine_.collective_loss : 1);

    next_end_ps_ = k_never;
    next_ = nullptr;
    for (state &e : engines_) {
        if (e.active && e.ends_ps < next_end_ps_) {
            next_end_ps_ = e.ends_ps;
            next_ = &e;
        }
    }
}

void sim_engines::set_link_rates(double d2h_bytes_per_second, double h2d_bytes_per_second) noexcept {
    machine_.d2h.bytes_per_second = d2h_bytes_per_second;
    machine_.h2d.bytes_per_second = h2d_bytes_per_second;
    set_speeds();
}

sim_engines::ended sim_engines::advance(sim_time_ps limit) {
    EBB_CHECK(limit >= now_);
    while (next_ != nullptr && next_end_ps_ <= limit) {
        now_ = next_end_ps_;
        state &e = *next_;
        if (e.in_latency) {
            e.in_latency = false;  // its bytes begin to move
            set_speeds();
            continue;
        }
        const ended done{true, e.current.piece, e.began_ps};
        end(e);
        set_speeds();
        return done;
    }
    now_ = limit;
    return {};
}

sim_time_ps sim_engines::busy_ps(sim_engine engine) const noexcept {
    const state &e = engines_[static_cast<size_t>(engine)];
    return e.busy_ps + (e.active ? now_ - e.began_ps : 0);
}

}  // namespace ebb
