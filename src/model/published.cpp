#include "model/published.hpp"

#include <algorithm>
#include <string_view>

#include "model/published_notes.hpp"
#include "model/published_peak.hpp"

namespace ebb {

namespace {

constexpr double k_gib_bytes = 1024.0 * 1024.0 * 1024.0;

struct published_flip {
    const char *name;
    const char *by_default;
    const char *flipped;
    bool (*matters)(const published_row &);
    void (*flip)(published_assumptions &);
    bool fits_again;  // else the assumption is about this row alone
};

bool without_lhs(const published_row &row) {
    return !row.lhs;
}

const published_flip k_published_flips[] = {
    {"collectives without LHS", "exposed", "hidden in their own iteration", without_lhs,
     [](published_assumptions &a) { a.gathers_without_lhs = collective_overlap::own_iteration; }, false},
    {"copies without LHS", "compute waits for each", "hidden in their own iteration", without_lhs,
     [](published_assumptions &a) { a.copies_wait_without_lhs = false; }, false},
    {"collectives with LHS", "hidden across iterations", "exposed",
     [](const published_row &row) { return row.table == 1 && row.row == 2; },
     [](published_assumptions &a) { a.gathers_with_lhs = collective_overlap::exposed; }, false},
    {"kind of collectives", "FSDP gathers, one total whatever the tokens",
     "a fifth of row 4's is experts' all-to-all on the critical path",
     [](const published_row &row) { return row.table == 1; },
     [](published_assumptions &a) { a.all_to_all_share = 0.2; }, true},
    {"rate of attention", "as the other products", "a quarter of it (bf16 beside NVFP4)",
     [](const published_row &row) { return row.table == 2; },
     [](published_assumptions &a) { a.attention_slowdown = 4; }, true},
    {"rate of recompute", "as in forward", "half of it",
     [](const published_row &row) { return row.placement == published_placement::recompute; },
     [](published_assumptions &a) { a.recompute_slowdown = 2; }, true},
    {"start of a layer's backward", "the last product's input gradient", "recompute",
     [](const published_row &row) { return row.table == 2; },
     [](published_assumptions &a) { a.recompute_first = true; }, true},
    {"pipelining", "copies nothing more", "copies what an iteration moves once more on the device",
     [](const published_row &row) { return row.pipelined; },
     [](published_assumptions &a) { a.pipelining_copies_on_device = true; }, false},
};

std::string name_without_layer(const std::string &name) {
    return name.substr(name.rfind('/') + 1);
}

// The names of the published text: shared experts and dense layers have tensors of equal names.
std::string host_part_name(const model_profile &model, const step_tensor &tensor) {
    const std::string name = name_without_layer(tensor.name);
    const bool is_shared = model.mlp_of(tensor.layer).kind == mlp_profile::type::moe && name.rfind("mlpwi_", 0) == 0;
    return is_shared ? name + " (shared experts)" : name;
}

void add_host(const model_profile &model, const built_step &step, published_prediction &to) {
    for (size_t t = 0; t < step.model.tensors.size(); ++t) {
        if (step.save_set.placement[t] != tensor_placement::offload) {
            continue;
        }
        const std::string name = host_part_name(model, step.model.tensors[t]);
        auto part = std::find_if(to.host_parts.begin(), to.host_parts.end(),
                                 [&](const named_gib &p) { return p.name == name; });
        if (part == to.host_parts.end()) {
            part = to.host_parts.insert(part, {name, 0});
        }
        part->gib += static_cast<double>(step.model.tensors[t].size_bytes) / k_gib_bytes;
    }
    for (const named_gib &part : to.host_parts) {
        to.host_gib += part.gib;
    }
}

void add_peak(const published_run &run, bool lhs, uint64_t device_bytes, published_prediction &to) {
    const published_peak peak = peak_of(run.step, run.time, lhs);
    for (const named_bytes &part : peak.parts) {
        to.peak_parts.push_back({part.name, static_cast<double>(part.size_bytes) / k_gib_bytes});
    }
    to.low_peak_gib = peak.low_bytes / k_gib_bytes;
    to.high_peak_gib = peak.high_bytes / k_gib_bytes;
    to.peak_gib = to.low_peak_gib;
    // Even without a single gathered weight.
    to.out_of_memory = peak.low_bytes > static_cast<double>(device_bytes);
}

class published_predictor {
public:
    explicit published_predictor(const published_workload &workload) : workload_(workload) {
        fit_ = workload.fit({});
        for (const published_flip &flip : k_published_flips) {
            flip_fits_.push_back(flip.fits_again ? workload.fit(flipped(flip)) : fit_);
        }
    }

    [[nodiscard]] const published_fit &fit() const noexcept { return fit_; }

    published_prediction predict(const published_row &row) const {
        const published_run run = workload_.run(row, {}, fit_);
        published_prediction made;
        made.published = row;
        add_peak(run, row.lhs, workload_.machine().device_bytes.value, made);
        if (!made.out_of_memory) {
            made.tflops = run.tflops;
            made.step_seconds = run.time.step_ns / 1e9;
            made.low_tflops = made.high_tflops = run.tflops;
            add_sensitivity(row, made);
        }
        add_host(workload_.model_of(row), run.step, made);
        return made;
    }

private:
    static published_assumptions flipped(const published_flip &flip) {
        published_assumptions assumed;
        flip.flip(assumed);
        return assumed;
    }

    // A row that rates are fitted to comes out as published whatever is assumed.
    void add_sensitivity(const published_row &row, published_prediction &to) const {
        for (size_t i = 0; i < flip_fits_.size() && !row.fitted; ++i) {
            const published_flip &flip = k_published_flips[i];
            if (!flip.matters(row)) {
                continue;
            }
            const double tflops = workload_.run(row, flipped(flip), flip_fits_[i]).tflops;
            to.assumptions.push_back({flip.name, flip.by_default, flip.flipped, tflops});
            to.low_tflops = std::min(to.low_tflops, tflops);
            to.high_tflops = std::max(to.high_tflops, tflops);
        }
    }

    const published_workload &workload_;
    published_fit fit_;
    std::vector<published_fit> flip_fits_;
};

}  // namespace

result<published_report> predict_published() {
    const result<published_workload> loaded = published_workload::load();
    if (!loaded.ok()) {
        return loaded.why();
    }
    const published_predictor predictor(loaded.value());
    published_report report;
    report.fit = predictor.fit();
    for (const published_row &row : published_rows()) {
        report.rows.push_back(predictor.predict(row));
    }
    report.notes = published_notes(loaded.value(), report);
    return report;
}

}  // namespace ebb
