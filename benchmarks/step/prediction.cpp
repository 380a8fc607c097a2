#include "prediction.hpp"

#include <algorithm>
#include <stdexcept>

#include "ebb_call.hpp"
#include "observe/plan_json.hpp"
#include "observe/step_model_json.hpp"
#include "schedule/evaluator.hpp"

namespace step {
namespace {

constexpr uint64_t k_unlimited_bytes = uint64_t{1} << 60U;

std::string exported(ebb_runtime *runtime, ebb_status (*write)(ebb_runtime *, ebb_text_sink, void *),
                     const char *call) {
    std::string text;
    const auto append = [](void *context, const char *piece, uint64_t size_bytes) {
        static_cast<std::string *>(context)->append(piece, size_bytes);
    };
    const ebb_status status = write(runtime, append, &text);
    if (status != EBB_WRONG_STATE) {  // that there is none yet
        train::check(status, call);
    }
    return text;
}

template <class value>
value value_or_throw(ebb::result<value> got) {
    if (!got.ok()) {
        throw std::runtime_error(got.why().text());
    }
    return std::move(got).value();
}

// Nothing moves: what cannot be as wanted is kept.
ebb::plan plan_of(const ebb::step_model &model, bool recompute) {
    ebb::plan p;
    for (const ebb::step_tensor &t : model.tensors) {
        const bool again = recompute && t.can_recompute;
        p.placement.push_back(again ? ebb::tensor_placement::recompute : ebb::tensor_placement::keep);
    }
    return p;
}

ebb::plan_budget budget_of(const recorded_run &run, bool moves) {
    ebb::plan_budget b;
    b.d2h.bytes_per_second = run.rates.d2h_bytes_per_second;
    b.h2d.bytes_per_second = run.rates.h2d_bytes_per_second;
    b.mode = ebb::memory_mode::staging;
    b.device_bytes = moves ? run.device_budget_bytes : k_unlimited_bytes;
    b.exact_slots = true;
    return b;
}

bool has_times(const ebb::step_model &model) {
    return std::any_of(model.events.begin(), model.events.end(),
                       [](const ebb::step_event &e) { return e.time_ns > 0; });
}

}  // namespace

recorded_run recorded_by(ebb_runtime *runtime, const copy_rates &rates) {
    return {exported(runtime, ebb_record_export, "ebb_record_export"),
            exported(runtime, ebb_plan_export, "ebb_plan_export"), train::statistics_of(runtime).device_budget_bytes,
            rates};
}

std::optional<double> predicted_ms(const recorded_run &run, const std::string &mode) {
    const bool moves = mode == "offload-auto";
    const bool recompute = mode == "recompute";
    if (run.record.empty() || (moves && run.plan.empty()) || !(moves || recompute || mode == "keep")) {
        return {};
    }
    const auto model = value_or_throw(ebb::step_model_from_json(run.record, "the recorded step"));
    if (!has_times(model)) {
        return {};
    }
    if (const ebb::status sound = ebb::evaluator::check(model); !sound.ok()) {
        throw std::runtime_error("the recorded step: " + sound.text());
    }
    const ebb::plan followed =
        moves ? value_or_throw(ebb::plan_from_json(run.plan, model, "the plan followed")) : plan_of(model, recompute);
    ebb::evaluator judge(model);
    const ebb::evaluation &e = judge.evaluate(followed, budget_of(run, moves));
    return e.feasible ? std::optional<double>(e.step_ns * 1e-6) : std::nullopt;
}

}  // namespace step
