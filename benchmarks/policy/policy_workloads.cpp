#include "policy/policy_workloads.hpp"

#include <fmt/format.h>

#include <utility>

#include "model/profile_library.hpp"
#include "policy/baseline.hpp"

namespace ebb::baselines {

namespace {

constexpr const char *k_dense = "generic-dense";
constexpr const char *k_moe = "generic-moe";
constexpr const char *k_llama = "llama-3.1-405b";
constexpr const char *k_deepseek = "deepseek-v3-671b";
constexpr number_format k_bf16 = number_format::bf16;
constexpr number_format k_fp8 = number_format::fp8;
constexpr number_format k_fp4 = number_format::fp4;

step_settings settings_of(const policy_workload &w, const char *save_set) {
    step_settings s;
    s.micro_batch = w.micro_batch;
    s.sequence = w.sequence;
    s.shards = w.shards;
    s.micro_batches = w.micro_batches;
    s.pipeline_stages = w.pipeline_stages;
    s.gemm_format = w.format;
    s.policy = save_set;
    return s;
}

}  // namespace

const std::vector<policy_workload> &policy_workloads() {
    static const std::vector<policy_workload> all = {
        // name, machine, model, micro-batch, sequence, shards, micro-batches, stages, format, budget
        {"dense 8B 4K A100", "a100-pcie4", k_dense, 2, 4096, 8, 1, 1, k_bf16, 0.3},
        {"dense 8B 16K A100, stage 1/2", "a100-pcie4", k_dense, 1, 16384, 8, 4, 2, k_bf16, 0.2},
        {"dense 8B 4K A100, x4", "a100-pcie4", k_dense, 2, 4096, 8, 4, 1, k_bf16, 0.3},
        {"MoE 4K A100", "a100-pcie4", k_moe, 2, 4096, 16, 1, 1, k_bf16, 0.1},
        {"dense 8B 8K H100", "h100-pcie5", k_dense, 2, 8192, 8, 1, 1, k_bf16, 0.2},
        {"dense 8B 8K H100, roomy", "h100-pcie5", k_dense, 1, 8192, 8, 1, 1, k_bf16, 0.8},
        {"dense 8B 16K H100, fp8", "h100-pcie5", k_dense, 1, 16384, 16, 1, 1, k_fp8, 0.3},
        {"dense 8B 64K H100, stage 1/4", "h100-pcie5", k_dense, 1, 65536, 8, 8, 4, k_bf16, 0.1},
        {"MoE 8K H100, stage 1/4", "h100-pcie5", k_moe, 1, 8192, 8, 8, 4, k_bf16, 0.3},
        {"dense 8B 32K H200", "h200-pcie5", k_dense, 1, 32768, 16, 1, 1, k_bf16, 0.15},
        {"MoE 8K H200", "h200-pcie5", k_moe, 2, 8192, 16, 1, 1, k_bf16, 0.4},
        {"MoE 8K H200, keeps", "h200-pcie5", k_moe, 1, 8192, 16, 1, 1, k_bf16, 1.05},
        {"dense 8B 16K B200", "b200-hgx", k_dense, 2, 16384, 8, 1, 1, k_bf16, 0.3},
        {"dense 8B 16K B200, fp8", "b200-hgx", k_dense, 2, 16384, 8, 1, 1, k_fp8, 0.5},
        {"dense 8B 8K GH200", "gh200", k_dense, 2, 8192, 8, 1, 1, k_bf16, 0.15},
        {"dense 8B 16K GH200, x2", "gh200", k_dense, 1, 16384, 8, 2, 1, k_bf16, 0.2},
        {"MoE 8K GH200", "gh200", k_moe, 1, 8192, 16, 1, 1, k_bf16, 0.2},
        {"Llama 405B 8K GB200, fp4", "gb200-nvl72", k_llama, 2, 8192, 128, 1, 1, k_fp4, 0.05},
        {"Llama 405B 8K GB200", "gb200-nvl72", k_llama, 1, 8192, 128, 1, 1, k_bf16, 0.1},
        {"DeepSeek-V3 4K GB200", "gb200-nvl72", k_deepseek, 8, 4096, 128, 1, 1, k_bf16, 0.1},
        {"DeepSeek-V3 4K GB200, roomy", "gb200-nvl72", k_deepseek, 2, 4096, 128, 1, 1, k_bf16, 0.5},
        {"dense 8B 32K GB200", "gb200-nvl72", k_dense, 1, 32768, 8, 1, 1, k_bf16, 0.1},
        {"MoE 16K GB200, x4", "gb200-nvl72", k_moe, 2, 16384, 32, 4, 1, k_bf16, 0.2},
        {"Llama 405B 16K GB300, fp4", "gb300-nvl72", k_llama, 1, 16384, 128, 1, 1, k_fp4, 0.2},
        {"DeepSeek-V3 4K GB300, fp8, x2", "gb300-nvl72", k_deepseek, 4, 4096, 128, 2, 1, k_fp8, 0.2},
        {"Llama 405B 8K Vera Rubin, fp4", "vera-rubin-nvl", k_llama, 2, 8192, 64, 1, 1, k_fp4, 0.1},
        {"dense 8B 64K Vera Rubin, fp4", "vera-rubin-nvl", k_dense, 1, 65536, 8, 1, 1, k_fp4, 0.3},
    };
    return all;
}

// "projections" are published for Llama 3.1 405B, "projections, MLP" for DeepSeek-V3.
const std::vector<save_set_choice> &policy_save_sets() {
    static const std::vector<save_set_choice> all = {
        {"all", "offload"},
        {"attention",
         "decoder_layer_input=offload,query_proj=offload,key_proj=offload,value_proj=offload,query_wa_proj=offload,"
         "kv_wa_proj=offload,context=offload,out_proj=offload"},
        {"inputs", "decoder_layer_input=offload"},
        {"projections",
         "query_proj=offload,key_proj=offload,value_proj=offload,query_wa_proj=offload,kv_wa_proj=offload"},
        {"projections, MLP",
         "query_proj=offload,key_proj=offload,value_proj=offload,query_wa_proj=offload,kv_wa_proj=offload,"
         "mlpwi_0=offload,mlpwi_1=offload,moe_mlpwi_0=offload,moe_mlpwi_1=offload"},
        {"MLP, rest kept",
         "decoder_layer_input=device,query_proj=device,key_proj=device,value_proj=device,query_wa_proj=device,"
         "kv_wa_proj=device,mla_q=device,mla_kv=device,context=device,out_proj=device,"
         "mlpwi_0=offload,mlpwi_1=offload,moe_mlpwi_0=offload,moe_mlpwi_1=offload"},
    };
    return all;
}

result<built_workload> build_workload(const policy_workload &w) {
    result<machine_profile> machine = find_machine(w.machine);
    if (!machine.ok()) {
        return machine.why();
    }
    const result<model_profile> model = find_model(w.model);
    if (!model.ok()) {
        return model.why();
    }
    built_workload made;
    made.machine = std::move(machine).value();
    for (const save_set_choice &save_set : policy_save_sets()) {
        const step_settings settings = settings_of(w, save_set.policy);
        const result<step_rates> rates = rates_of(made.machine, settings);
        if (!rates.ok()) {
            return rates.why();
        }
        result<built_step> built = build_step(model.value(), settings, rates.value());
        if (!built.ok()) {
            return status{built.why().code(), fmt::format("{}: {}", w.name, built.why().text())};
        }
        made.by_save_set.push_back(std::move(built).value());
        for (step_tensor &t : made.by_save_set.back().model.tensors) {
            t.can_offload = t.can_offload && t.size_bytes >= k_least_moved_bytes;
        }
    }
    return made;
}

}  // namespace ebb::baselines
