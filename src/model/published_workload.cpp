#include "model/published_workload.hpp"

#include <limits>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "model/profile_library.hpp"

namespace ebb {

namespace {

constexpr double k_per_tera = 1e-12;
constexpr double k_seconds_per_ns = 1e-9;

// What each workload saves, with what becomes of it.
std::string saved_tensors(uint32_t table, std::string_view value) {
    const std::vector<std::string_view> names =
        table == 1 ? std::vector<std::string_view>{"query_wa_proj", "kv_wa_proj",  "mlpwi_0",
                                                   "mlpwi_1",       "moe_mlpwi_0", "moe_mlpwi_1"}
                   : std::vector<std::string_view>{"query_proj", "key_proj", "value_proj"};
    std::string text;
    for (const std::string_view name : names) {
        text += (text.empty() ? "" : ",") + std::string(name) + '=' + std::string(value);
    }
    return text;
}

std::string policy_of(const published_row &row) {
    switch (row.placement) {
        case published_placement::offload:
            return saved_tensors(row.table, "offload");
        case published_placement::keep:
            return saved_tensors(row.table, "device");
        case published_placement::recompute:
            break;
    }
    return {};
}

}  // namespace

result<published_workload> published_workload::load() {
    published_workload w;
    result<machine_profile> machine = find_machine(std::string(k_published_machine));
    if (!machine.ok()) {
        return machine.why();
    }
    w.machine_ = std::move(machine).value();
    for (const auto &[row, to] :
         {std::pair{&published_row_of(1, 1), &w.deepseek_}, {&published_row_of(2, 1), &w.llama_}}) {
        result<model_profile> model = find_model(std::string(row->model));
        if (!model.ok()) {
            return model.why();
        }
        *to = std::move(model).value();
    }
    return w;
}

const model_profile &published_workload::model_of(const published_row &row) const noexcept {
    return row.table == 1 ? deepseek_ : llama_;
}

step_settings published_workload::settings_of(const published_row &row, const published_assumptions &assumed) {
    constexpr uint64_t k_devices = 128;
    step_settings s;
    s.micro_batch = row.micro_batch;
    s.sequence = row.table == 1 ? 4096 : 8192;
    s.shards = k_devices;
    s.gathered_layers = 0;  // a range has them: published_peak.hpp
    s.gemm_format = row.table == 1 ? number_format::bf16 : number_format::fp4;
    s.policy = policy_of(row);
    s.gathers = row.lhs ? assumed.gathers_with_lhs : assumed.gathers_without_lhs;
    s.recompute_first = assumed.recompute_first;
    if (row.table == 1 && assumed.all_to_all_share > 0) {
        s.expert_shards = k_devices;
        s.all_to_all = collective_overlap::exposed;
    }
    return s;
}

step_rates published_workload::rates_of(const published_row &row, const published_assumptions &assumed,
                                        const published_fit &fit) const noexcept {
    step_rates rates;
    rates.gemm_flops_per_second = row.table == 1 ? fit.deepseek_flops_per_second : fit.llama_flops_per_second;
    rates.attention_flops_per_second = rates.gemm_flops_per_second / assumed.attention_slowdown;
    rates.hbm_bytes_per_second = machine_.hbm_bytes_per_second.value * machine_.hbm_reached.value;
    rates.collective_bytes_per_second = fit.collective_bytes_per_second;
    rates.all_to_all_bytes_per_second = fit.all_to_all_bytes_per_second;
    return rates;
}

xla_copy_mode published_workload::copies_of(const published_row &row, const published_assumptions &assumed) noexcept {
    if (!row.lhs) {
        return assumed.copies_wait_without_lhs ? xla_copy_mode::synchronous : xla_copy_mode::own_iteration;
    }
    return row.pipelined ? xla_copy_mode::pipelined : xla_copy_mode::own_iteration;
}

published_run published_workload::run(const published_row &row, const published_assumptions &assumed,
                                      const published_fit &fit) const {
    const step_rates rates = rates_of(row, assumed, fit);
    result<built_step> built = build_step(model_of(row), settings_of(row, assumed), rates);
    EBB_CHECK(built.ok());
    published_run run;
    run.step = std::move(built).value();
    double offloaded_bytes = 0;
    for (size_t t = 0; t < run.step.model.tensors.size(); ++t) {
        step_tensor &tensor = run.step.model.tensors[t];
        tensor.recompute_ns *= assumed.recompute_slowdown;
        offloaded_bytes +=
            run.step.save_set.placement[t] == tensor_placement::offload ? static_cast<double>(tensor.size_bytes) : 0;
    }
    const plan_link d2h{machine_.d2h.bytes_per_second.value, 0, 0};
    const plan_link h2d{machine_.h2d.bytes_per_second.value, 0, 0};
    run.time = run_xla(run.step, run.step.save_set, copies_of(row, assumed), d2h, h2d);
    if (row.pipelined && assumed.pipelining_copies_on_device) {
        // Read and written, on the way out and on the way back.
        run.time.step_ns += 4 * offloaded_bytes / rates.hbm_bytes_per_second / k_seconds_per_ns;
    }
    run.tflops = run.step.model_flops * k_per_tera / (run.time.step_ns * k_seconds_per_ns);
    return run;
}

published_workload::collective_seconds published_workload::collectives_of(const published_row &row,
                                                                          const published_assumptions &assumed,
                                                                          const published_fit &fit) const {
    const published_run now = run(row, assumed, fit);
    published_fit no_exchange = fit;
    no_exchange.all_to_all_bytes_per_second = std::numeric_limits<double>::infinity();
    const published_run without = run(row, assumed, no_exchange);
    collective_seconds sum;
    for (const step_event &e : now.step.model.events) {
        sum.gathers += e.what == step_event_kind::collective_begin ? e.time_ns * k_seconds_per_ns : 0;
    }
    // On the critical path it is work.
    sum.all_to_all =
        (now.time.compute_ns + now.time.recompute_ns - without.time.compute_ns - without.time.recompute_ns) *
        k_seconds_per_ns;
    return sum;
}

double published_workload::tflops_ratio(uint32_t table, uint32_t row, const published_assumptions &assumed,
                                        const published_fit &fit) const {
    const published_row &r = published_row_of(table, row);
    return r.tflops / run(r, assumed, fit).tflops;
}

// Each row's time falls as its rate grows, and the rates of a row's own kind dominate it: this converges fast.
published_fit published_workload::fit(const published_assumptions &assumed) const {
    constexpr int k_rounds = 30;
    published_assumptions gathers_only = assumed;
    gathers_only.all_to_all_share = 0;
    published_fit fit{1e15, 800e9, 800e9, 3e15};
    for (int i = 0; i < k_rounds; ++i) {
        fit.deepseek_flops_per_second *= tflops_ratio(1, 1, gathers_only, fit);
        fit.collective_bytes_per_second *= tflops_ratio(1, 4, gathers_only, fit);
        fit.llama_flops_per_second *= tflops_ratio(2, 2, gathers_only, fit);
    }
    fit.all_to_all_bytes_per_second = fit.collective_bytes_per_second;
    if (assumed.all_to_all_share > 0) {
        split_collectives(assumed, fit);
        for (int i = 0; i < k_rounds; ++i) {
            fit.deepseek_flops_per_second *= tflops_ratio(1, 1, assumed, fit);
        }
    }
    return fit;
}

// Row 4's time is that of one fabric that carries both kinds, one after the other.
void published_workload::split_collectives(const published_assumptions &assumed, published_fit &fit) const {
    published_assumptions gathers_only = assumed;
    gathers_only.all_to_all_share = 0;
    const published_row &row = published_row_of(1, 4);
    const double total = collectives_of(row, gathers_only, fit).gathers;
    const collective_seconds apart = collectives_of(row, assumed, fit);
    fit.collective_bytes_per_second *= apart.gathers / (total * (1 - assumed.all_to_all_share));
    fit.all_to_all_bytes_per_second *= apart.all_to_all / (total * assumed.all_to_all_share);
}

}  // namespace ebb
