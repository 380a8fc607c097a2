#include "model/xla_copies.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace ebb {

namespace {

// What follows from the plan before the run: which tensors are computed again in front of which event, and which are
// reloaded in which iteration, in the order of their first use.
class xla_schedule {
public:
    xla_schedule(const built_step &step, const plan &placed)
        : step_(step), placed_(placed), recomputed_at_(step.model.events.size()), reloads_(step.iterations.size()) {
        place_recomputes();
        list_reloads();
    }

    [[nodiscard]] const std::vector<uint32_t> &recomputed_at(uint32_t event) const { return recomputed_at_[event]; }
    [[nodiscard]] const std::vector<uint32_t> &reloads_of(size_t iteration) const { return reloads_[iteration]; }
    [[nodiscard]] bool is(uint32_t tensor, tensor_placement placement) const {
        return placed_.placement[tensor] == placement;
    }

private:
    // What others are computed from comes before them.
    void place_recomputes() {
        const std::vector<step_tensor> &tensors = step_.model.tensors;
        std::vector<uint32_t> place(tensors.size(), k_no_index);
        for (uint32_t e = 0; e < step_.model.events.size(); ++e) {
            const step_event &event = step_.model.events[e];
            if (event.what == step_event_kind::use && place[event.tensor] == k_no_index) {
                const uint32_t at = tensors[event.tensor].recompute_at;
                place[event.tensor] = at == k_no_index ? e : at;
            }
        }
        for (auto t = static_cast<uint32_t>(tensors.size()); t-- > 0;) {
            if (!is(t, tensor_placement::recompute) || place[t] == k_no_index) {
                continue;
            }
            recomputed_at_[place[t]].push_back(t);
            for (const uint32_t from : tensors[t].recompute_from) {
                place[from] = is(from, tensor_placement::recompute) ? std::min(place[from], place[t]) : place[from];
            }
        }
        for (std::vector<uint32_t> &here : recomputed_at_) {
            std::sort(here.begin(), here.end());
        }
    }

    void list_reloads() {
        std::vector<uint8_t> reloaded(step_.model.tensors.size(), 0);
        for (size_t i = 0; i < step_.iterations.size(); ++i) {
            const auto need = [&](uint32_t t) {
                if (is(t, tensor_placement::offload) && std::exchange(reloaded[t], uint8_t{1}) == 0) {
                    reloads_[i].push_back(t);
                }
            };
            for (uint32_t e = step_.iterations[i].begin; e < step_.iterations[i].end; ++e) {
                for (const uint32_t t : recomputed_at_[e]) {
                    for (const uint32_t from : step_.model.tensors[t].recompute_from) {
                        need(from);
                    }
                }
                if (step_.model.events[e].what == step_event_kind::use) {
                    need(step_.model.events[e].tensor);
                }
            }
        }
    }

    const built_step &step_;
    const plan &placed_;
    std::vector<std::vector<uint32_t>> recomputed_at_;
    std::vector<std::vector<uint32_t>> reloads_;
};

class xla_run {
public:
    xla_run(const built_step &step, const plan &placed, xla_copy_mode mode, const plan_link &d2h, const plan_link &h2d)
        : step_(step), schedule_(step, placed), mode_(mode), d2h_(d2h), h2d_(h2d) {
        copies_.resize(step.model.tensors.size());
    }

    xla_step run() {
        for (size_t i = 0; i < step_.iterations.size(); ++i) {
            begin_iteration(i);
            produced_bytes_ = 0;
            for (uint32_t e = step_.iterations[i].begin; e < step_.iterations[i].end; ++e) {
                recompute(e);
                event(e);
            }
            end_iteration(i);
        }
        result_.step_ns = compute_at_ns_;
        result_.copy_buffer_bytes = mode_ == xla_copy_mode::pipelined ? 2 * most_bytes_ : 0;
        return result_;
    }

private:
    struct copies {
        double out_ns = 0;  // ends
        double in_ns = 0;
        bool out_started = false;
        bool in_started = false;
    };

    void wait(double until_ns, double &exposed_ns) {
        if (until_ns > compute_at_ns_) {
            exposed_ns += until_ns - compute_at_ns_;
            compute_at_ns_ = until_ns;
        }
    }

    void copy_out(uint32_t t) {
        d2h_at_ns_ = std::max(d2h_at_ns_, compute_at_ns_) + d2h_.transfer_ns(step_.model.tensors[t].size_bytes);
        copies_[t].out_ns = d2h_at_ns_;
        copies_[t].out_started = true;
    }

    void copy_in(uint32_t t) {
        if (!std::exchange(copies_[t].in_started, true)) {
            h2d_at_ns_ = std::max({h2d_at_ns_, compute_at_ns_, copies_[t].out_ns}) +
                         h2d_.transfer_ns(step_.model.tensors[t].size_bytes);
            copies_[t].in_ns = h2d_at_ns_;
        }
    }

    void begin_iteration(size_t i) {
        if (mode_ == xla_copy_mode::pipelined) {
            for (const uint32_t t : std::exchange(produced_, {})) {
                copy_out(t);
            }
        }
        if (mode_ == xla_copy_mode::synchronous) {
            return;
        }
        // What could not come ahead, since the iteration before is the one that made it, comes first.
        start_reloads(i);
        if (mode_ == xla_copy_mode::pipelined && i + 1 < step_.iterations.size()) {
            start_reloads(i + 1);
        }
    }

    void start_reloads(size_t of_iteration) {
        uint64_t moved = 0;
        for (const uint32_t t : schedule_.reloads_of(of_iteration)) {
            moved += step_.model.tensors[t].size_bytes;
            if (copies_[t].out_started) {
                copy_in(t);
            }
        }
        most_bytes_ = std::max(most_bytes_, moved);
    }

    void end_iteration(size_t i) {
        most_bytes_ = std::max(most_bytes_, produced_bytes_);
        if (mode_ == xla_copy_mode::synchronous) {
            return;
        }
        wait(d2h_at_ns_, result_.exposed_d2h_ns);
        if (mode_ == xla_copy_mode::pipelined && i + 1 < step_.iterations.size()) {
            wait(h2d_at_ns_, result_.exposed_h2d_ns);
        }
    }

    void use(uint32_t t) {
        if (!schedule_.is(t, tensor_placement::offload)) {
            return;
        }
        copy_in(t);
        wait(copies_[t].in_ns, result_.exposed_h2d_ns);
    }

    void recompute(uint32_t e) {
        for (const uint32_t t : schedule_.recomputed_at(e)) {
            for (const uint32_t from : step_.model.tensors[t].recompute_from) {
                use(from);
            }
            compute_at_ns_ += step_.model.tensors[t].recompute_ns;
            result_.recompute_ns += step_.model.tensors[t].recompute_ns;
        }
    }

    void produce(uint32_t t) {
        if (!schedule_.is(t, tensor_placement::offload)) {
            return;
        }
        produced_bytes_ += step_.model.tensors[t].size_bytes;
        if (mode_ == xla_copy_mode::pipelined) {
            produced_.push_back(t);
            return;
        }
        copy_out(t);
        if (mode_ == xla_copy_mode::synchronous) {
            wait(d2h_at_ns_, result_.exposed_d2h_ns);
        }
    }

    void event(uint32_t at) {
        const step_event &e = step_.model.events[at];
        switch (e.what) {
            case step_event_kind::work:
                compute_at_ns_ += e.time_ns;
                result_.compute_ns += e.time_ns;
                return;
            case step_event_kind::collective_begin:
            case step_event_kind::hold_begin:  // only the runtime holds copies back for it
                collective_at_ns_ = std::max(collective_at_ns_, compute_at_ns_) + e.time_ns;
                return;
            case step_event_kind::collective_end:
                return wait(collective_at_ns_, result_.exposed_collective_ns);
            case step_event_kind::produce:
                return produce(e.tensor);
            case step_event_kind::use:
                return use(e.tensor);
            case step_event_kind::hold_end:
            case step_event_kind::done:
            case step_event_kind::release:
                return;
        }
    }

    const built_step &step_;
    xla_schedule schedule_;
    xla_copy_mode mode_;
    plan_link d2h_;
    plan_link h2d_;
    std::vector<copies> copies_;
    std::vector<uint32_t> produced_;  // pipelined: not copied out yet
    uint64_t produced_bytes_ = 0;     // of this iteration
    uint64_t most_bytes_ = 0;         // that an iteration moves
    double compute_at_ns_ = 0;
    double d2h_at_ns_ = 0;
    double h2d_at_ns_ = 0;
    double collective_at_ns_ = 0;
    xla_step result_;
};

}  // namespace

xla_step run_xla(const built_step &step, const plan &placed, xla_copy_mode mode, const plan_link &d2h,
                 const plan_link &h2d) {
    return xla_run(step, placed, mode, d2h, h2d).run();
}

}  // namespace ebb
