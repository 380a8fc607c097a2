// Whether a step model is one: what the evaluator takes for granted.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "schedule/evaluator.hpp"

namespace ebb {

namespace {

struct model_tensor_life {
    uint32_t produced = k_no_index;  // events
    uint32_t first_use = k_no_index;
    uint32_t released = k_no_index;
    uint32_t open_uses = 0;
};

const char *model_kind_name(step_event_kind what) {
    switch (what) {
        case step_event_kind::work:
            return "work";
        case step_event_kind::collective_begin:
            return "collective_begin";
        case step_event_kind::collective_end:
            return "collective_end";
        case step_event_kind::hold_begin:
            return "hold_begin";
        case step_event_kind::hold_end:
            return "hold_end";
        case step_event_kind::produce:
            return "produce";
        case step_event_kind::use:
            return "use";
        case step_event_kind::done:
            return "done";
        case step_event_kind::release:
            return "release";
    }
    return "unknown";
}

bool is_model_time(double value) {
    return std::isfinite(value) && value >= 0;
}

std::string checked_tensor_name(const step_model &m, uint32_t tensor) {
    return fmt::format("tensor {} ('{}')", tensor, m.tensors[tensor].name);
}

class model_checker {
public:
    explicit model_checker(const step_model &m) : m_(m), lives_(m.tensors.size()) {}

    status run() {
        for (uint32_t i = 0; i < m_.events.size(); ++i) {
            EBB_TRY(check_event(i));
        }
        for (uint32_t t = 0; t < m_.tensors.size(); ++t) {
            EBB_TRY(check_tensor(t));
        }
        return {};
    }

private:
    status bad(uint32_t event, const std::string &why) const {
        return {code::invalid_argument,
                fmt::format("event {} ({}): {}", event, model_kind_name(m_.events[event].what), why)};
    }

    status check_event(uint32_t i) {
        const step_event &e = m_.events[i];
        switch (e.what) {
            case step_event_kind::work:
                if (!is_model_time(e.hbm_fraction)) {
                    return bad(i, fmt::format("hbm_fraction {} is not a number from 0 on", e.hbm_fraction));
                }
                if (e.operation >= m_.operation_names.size()) {
                    return bad(i, fmt::format("operation {}, but there are {} names of operations", e.operation,
                                              m_.operation_names.size()));
                }
                return check_time(i);
            case step_event_kind::collective_begin:
                collective_begun_ = true;
                return check_time(i);
            case step_event_kind::collective_end:
                return collective_begun_ ? status{} : bad(i, "no collective was begun before it");
            case step_event_kind::hold_begin:
                ++holds_;
                return check_time(i);
            case step_event_kind::hold_end:
                return holds_-- != 0 ? status{} : bad(i, "nothing holds the links: each hold_end needs a hold_begin");
            default:
                break;
        }
        if (e.tensor >= m_.tensors.size()) {
            return bad(i, fmt::format("tensor {}, but there are {}", e.tensor, m_.tensors.size()));
        }
        return check_call(i, lives_[e.tensor]);
    }

    status check_time(uint32_t i) const {
        return is_model_time(m_.events[i].time_ns)
                   ? status{}
                   : bad(i, fmt::format("time {} ns is not a finite number from 0 on", m_.events[i].time_ns));
    }

    status check_call(uint32_t i, model_tensor_life &life) {
        const step_event &e = m_.events[i];
        if (e.what == step_event_kind::produce) {
            if (e.tensor != produced_) {
                return bad(i, fmt::format("{} is not the next one: tensors stand in the order of their production, "
                                          "and {} were produced before",
                                          checked_tensor_name(m_, e.tensor), produced_));
            }
            ++produced_;
            life.produced = i;
            return {};
        }
        if (life.produced == k_no_index) {
            return bad(i, checked_tensor_name(m_, e.tensor) + " was not produced before");
        }
        if (life.released != k_no_index) {
            return bad(i, fmt::format("{} was released at event {}", checked_tensor_name(m_, e.tensor), life.released));
        }
        if (e.what == step_event_kind::use) {
            life.first_use = std::min(life.first_use, i);
            ++life.open_uses;
        } else if (e.what == step_event_kind::done) {
            if (life.open_uses == 0) {
                return bad(i, checked_tensor_name(m_, e.tensor) + " is not in use");
            }
            --life.open_uses;
        } else {
            life.released = i;
        }
        return {};
    }

    status check_tensor(uint32_t t) const {
        const step_tensor &tensor = m_.tensors[t];
        const auto wrong = [&](const std::string &why) {
            return status{code::invalid_argument, checked_tensor_name(m_, t) + ": " + why};
        };
        const model_tensor_life &life = lives_[t];
        if (life.produced == k_no_index) {
            return wrong("no event produces it");
        }
        if (!tensor.can_keep && !tensor.can_offload && !tensor.can_recompute) {
            return wrong("it may neither be kept nor offloaded nor recomputed");
        }
        if (!is_model_time(tensor.recompute_ns)) {
            return wrong(fmt::format("recompute_ns {} is not a finite number from 0 on", tensor.recompute_ns));
        }
        const uint32_t place = tensor.recompute_at != k_no_index ? tensor.recompute_at : life.first_use;
        if (tensor.recompute_at != k_no_index) {
            const uint32_t last = std::min(life.first_use, life.released);
            if (tensor.recompute_at >= m_.events.size() || tensor.recompute_at <= life.produced ||
                tensor.recompute_at > last) {
                return wrong(
                    fmt::format("recompute_at {} does not lie behind its production (event {}) and before "
                                "its first use or release",
                                tensor.recompute_at, life.produced));
            }
        }
        for (const uint32_t from : tensor.recompute_from) {
            if (from >= t) {
                return wrong(fmt::format("recompute_from {} was not produced before it", from));
            }
            if (place != k_no_index && lives_[from].released < place) {
                return wrong(fmt::format("it is recomputed from {}, which is released at event {}, before event {}",
                                         checked_tensor_name(m_, from), lives_[from].released, place));
            }
        }
        return {};
    }

    const step_model &m_;
    std::vector<model_tensor_life> lives_;
    uint32_t produced_ = 0;
    bool collective_begun_ = false;
    uint32_t holds_ = 0;
};

}  // namespace

status evaluator::check(const step_model &model) {
    return model_checker(model).run();
}

}  // namespace ebb
