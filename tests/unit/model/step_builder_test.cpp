// Whole steps: published byte totals, the order of events, collectives, save sets, accumulation and pipelines.
#include "model/step_builder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "model/model_size.hpp"
#include "model/profile_library.hpp"
#include "schedule/evaluator.hpp"

namespace ebb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double k_gib = 1024.0 * 1024.0 * 1024.0;
constexpr const char *k_llama_offloads = "query_proj=offload,key_proj=offload,value_proj=offload";
constexpr const char *k_deepseek_offloads =
    "query_wa_proj=offload,kv_wa_proj=offload,mlpwi_0=offload,mlpwi_1=offload,moe_mlpwi_0=offload,moe_mlpwi_1=offload";

step_settings llama_settings() {
    step_settings s;
    s.micro_batch = 2;
    s.sequence = 8192;
    s.shards = 128;
    s.gemm_format = number_format::fp4;
    s.policy = k_llama_offloads;
    return s;
}

step_settings deepseek_settings() {
    step_settings s;
    s.micro_batch = 8;
    s.sequence = 4096;
    s.shards = 128;
    s.policy = k_deepseek_offloads;
    return s;
}

step_rates gb200_rates(const step_settings &s) {
    return rates_of(find_machine("gb200-nvl72").value(), s).value();
}

built_step build(const std::string &model, const step_settings &s) {
    result<built_step> built = build_step(find_model(model).value(), s, gb200_rates(s));
    EXPECT_TRUE(built.ok()) << built.why().text();
    built_step step = built.ok() ? std::move(built).value() : built_step{};
    const status sound = evaluator::check(step.model);
    EXPECT_TRUE(sound.ok()) << sound.text();
    EXPECT_EQ(step.save_set.placement.size(), step.model.tensors.size());
    return step;
}

std::string failure(const std::string &model, const step_settings &s) {
    const result<built_step> built = build_step(find_model(model).value(), s, gb200_rates(s));
    EXPECT_FALSE(built.ok());
    return built.ok() ? "" : built.why().text();
}

std::string last_part(const std::string &name) {
    return name.substr(name.rfind('/') + 1);
}

// GiB of what is placed so, by name without its layer.
std::map<std::string, double> gib_by_name(const built_step &step, tensor_placement placement) {
    std::map<std::string, double> sums;
    for (size_t t = 0; t < step.model.tensors.size(); ++t) {
        if (step.save_set.placement[t] == placement) {
            sums[last_part(step.model.tensors[t].name)] +=
                static_cast<double>(step.model.tensors[t].size_bytes) / k_gib;
        }
    }
    return sums;
}

double total(const std::map<std::string, double> &sums) {
    double sum = 0;
    for (const auto &[name, gib] : sums) {
        sum += gib;
    }
    return sum;
}

TEST(step_builder, llama_offloads_70_875_gib) {
    const built_step step = build("llama-3.1-405b", llama_settings());
    const std::map<std::string, double> moved = gib_by_name(step, tensor_placement::offload);
    EXPECT_EQ(total(moved), 70.875);
    EXPECT_EQ(moved.at("query_proj"), 126 * 0.5);
    EXPECT_EQ(moved.at("key_proj"), 126 * 0.03125);
    EXPECT_EQ(moved.at("value_proj"), 126 * 0.03125);
    const std::map<std::string, double> kept = gib_by_name(step, tensor_placement::keep);
    EXPECT_EQ(kept.size(), 1U);
    EXPECT_EQ(kept.at("decoder_layer_input"), 63.0);
}

TEST(step_builder, deepseek_offloads_145_113_gib_by_name) {
    const built_step step = build("deepseek-v3-671b", deepseek_settings());
    const std::map<std::string, double> moved = gib_by_name(step, tensor_placement::offload);
    EXPECT_NEAR(total(moved), 145.113, 0.0005);
    EXPECT_NEAR(moved.at("query_wa_proj"), 5.719, 0.0005);
    EXPECT_NEAR(moved.at("kv_wa_proj"), 2.145, 0.0005);
    EXPECT_EQ(moved.at("moe_mlpwi_0") + moved.at("moe_mlpwi_1"), 116.0);
    EXPECT_EQ(moved.at("mlpwi_0") + moved.at("mlpwi_1"), 14.5 + 6.75);  // shared experts, and the three dense layers
    double per_layer[2] = {0, 0};
    for (size_t t = 0; t < step.model.tensors.size(); ++t) {
        const step_tensor &tensor = step.model.tensors[t];
        if (step.save_set.placement[t] == tensor_placement::offload && (tensor.layer == 0 || tensor.layer == 60)) {
            per_layer[tensor.layer / 60] += static_cast<double>(tensor.size_bytes);
        }
    }
    EXPECT_EQ(per_layer[0], 2436.0 * 1024 * 1024);
    EXPECT_EQ(per_layer[1], 2436.0 * 1024 * 1024);
}

TEST(step_builder, keeping_all_would_need_598_and_328_gib_more) {
    const auto not_offloaded = [](const built_step &step) {
        double sum = 0;
        for (size_t t = 0; t < step.model.tensors.size(); ++t) {
            const bool counts = step.role[t] == tensor_role::saved;
            sum += counts && step.save_set.placement[t] != tensor_placement::offload
                       ? static_cast<double>(step.model.tensors[t].size_bytes)
                       : 0;
        }
        return sum / k_gib;
    };
    EXPECT_NEAR(not_offloaded(build("llama-3.1-405b", llama_settings())), 598.5, 0.5);
    EXPECT_NEAR(not_offloaded(build("deepseek-v3-671b", deepseek_settings())), 328, 0.5);
}

TEST(step_builder, model_flops_per_step_are_the_published_throughputs_numerator) {
    EXPECT_NEAR(build("deepseek-v3-671b", deepseek_settings()).model_flops, 908.2e12 * 9.237, 1e12);
    EXPECT_NEAR(build("llama-3.1-405b", llama_settings()).model_flops, 2746e12 * 15.135, 5e12);
}

TEST(step_builder, operators_take_what_binds) {
    step_rates rates = gb200_rates(llama_settings());
    // At 0.4 of 10 PFLOP/s, and 0.85 of 8 TB/s.
    const layer_work computed{"p", work_rate::gemm, 8e12, 3.4e9, 0};
    EXPECT_DOUBLE_EQ(rates.work_ns(computed), 2e6);
    EXPECT_DOUBLE_EQ(rates.hbm_fraction(computed), 0.25);
    const layer_work moved{"p", work_rate::gemm, 4e12, 13.6e9, 0};
    EXPECT_DOUBLE_EQ(rates.work_ns(moved), 2e6);
    EXPECT_DOUBLE_EQ(rates.hbm_fraction(moved), 1);
    rates.attention_flops_per_second = 1e15;
    const layer_work attention{"a", work_rate::attention, 8e12, 0, 0};
    EXPECT_DOUBLE_EQ(rates.work_ns(attention), 8e6);
}

TEST(step_builder, peaks_are_those_of_the_format) {
    step_settings s;
    EXPECT_DOUBLE_EQ(gb200_rates(s).gemm_flops_per_second, 0.4 * 2.5e15);
    s.gemm_format = number_format::fp8;
    EXPECT_DOUBLE_EQ(gb200_rates(s).gemm_flops_per_second, 0.4 * 5e15);
    EXPECT_DOUBLE_EQ(gb200_rates(s).attention_flops_per_second, 0.4 * 2.5e15);
    const result<step_rates> a100 = rates_of(find_machine("a100-pcie4").value(), s);
    ASSERT_FALSE(a100.ok());
    EXPECT_THAT(a100.why().text(), HasSubstr("a100-pcie4 has no /device/peak_flops/fp8"));
}

TEST(step_builder, fixed_parts_are_named_and_add_up) {
    const built_step step = build("deepseek-v3-671b", deepseek_settings());
    std::map<std::string, double> parts;
    double sum = 0;
    for (const named_bytes &part : step.fixed_parts) {
        parts[part.name] = static_cast<double>(part.size_bytes) / k_gib;
        sum += static_cast<double>(part.size_bytes);
    }
    EXPECT_EQ(sum, static_cast<double>(step.model.fixed_bytes));
    EXPECT_NEAR(parts.at("parameters and optimizer state"), 58.6, 0.1);
    EXPECT_NEAR(parts.at("logits, four fp32 buffers"), 63.1, 0.1);
    EXPECT_NEAR(parts.at("head in bf16"), 1.73, 0.01);
    EXPECT_NEAR(parts.at("gathered weights"), 21.4, 0.1);
}

// ---------------------------------------------------------------------------------------------- order of a backward --

std::vector<std::string> recomputed_at_layers_backward(const built_step &step, uint32_t layer) {
    std::vector<std::string> names;
    for (size_t t = 0; t < step.model.tensors.size(); ++t) {
        const step_tensor &tensor = step.model.tensors[t];
        if (tensor.layer == layer && tensor.recompute_at != k_no_index) {
            names.push_back(last_part(tensor.name));
        }
    }
    return names;
}

TEST(step_builder, attention_is_recomputed_before_gate_and_up_are_needed) {
    const built_step step = build("deepseek-v3-671b", deepseek_settings());
    EXPECT_THAT(recomputed_at_layers_backward(step, 30),
                ElementsAre("query_wa_proj", "kv_wa_proj", "mla_q", "mla_kv", "attention_statistics", "context",
                            "out_proj", "mlpwi_0", "mlpwi_1", "moe_mlpwi_0", "moe_mlpwi_1"));
    // They are computed where their layer's backward begins, and the first use of gate and up is behind that.
    for (const step_tensor &tensor : step.model.tensors) {
        if (tensor.recompute_at != k_no_index) {
            const step_event &before = step.model.events[tensor.recompute_at - 1];
            EXPECT_THAT(step.model.operation_names[before.operation], HasSubstr("mlpwo_input_gradient"));
        }
    }
}

TEST(step_builder, recompute_costs_and_inputs_follow_the_operators) {
    const step_settings s = llama_settings();
    const built_step step = build("llama-3.1-405b", s);
    const auto find = [&](const char *name) -> const step_tensor & {
        return *std::find_if(step.model.tensors.begin(), step.model.tensors.end(),
                             [&](const step_tensor &t) { return t.name == name; });
    };
    const step_tensor &gate = find("layer.7/mlpwi_0");
    EXPECT_NEAR(gate.recompute_ns, 2 * s.tokens() * 16384 * 53248 / (0.4 * 10e15) * 1e9, 1);
    ASSERT_EQ(gate.recompute_from.size(), 1U);
    EXPECT_EQ(step.model.tensors[gate.recompute_from[0]].name, "layer.7/post_attention_norm");
    const step_tensor &product = find("layer.7/mlp_product");
    ASSERT_EQ(product.recompute_from.size(), 2U);
    EXPECT_EQ(step.model.tensors[product.recompute_from[0]].name, "layer.7/mlpwi_0");
    EXPECT_EQ(step.model.tensors[product.recompute_from[1]].name, "layer.7/mlpwi_1");
    EXPECT_LT(product.recompute_ns, 0.2 * gate.recompute_ns);
    EXPECT_FALSE(find("layer.7/decoder_layer_input").can_recompute);
    // Attention is one operator with two results.
    const double attention = find("layer.7/context").recompute_ns + find("layer.7/attention_statistics").recompute_ns;
    EXPECT_NEAR(attention, s.tokens() * 8192 * 128 * 256 / (0.4 * 2.5e15) * 1e9, 1);
}

// ------------------------------------------------------------------------------------------------------- save sets --

TEST(step_builder, policies_of_one_word_and_none) {
    step_settings s = deepseek_settings();
    s.policy = "";
    std::map<std::string, double> kept = gib_by_name(build("deepseek-v3-671b", s), tensor_placement::keep);
    EXPECT_EQ(kept.size(), 2U);  // layer inputs and the experts' numbers
    EXPECT_EQ(kept.count("decoder_layer_input"), 1U);
    s.policy = "keep";
    kept = gib_by_name(build("deepseek-v3-671b", s), tensor_placement::keep);
    const double all = 254'080.0 * 32'768 * 61 / k_gib;
    EXPECT_NEAR(total(kept) - kept.at("moe_routing") - kept.at("attention_statistics"), all, 0.001);
    EXPECT_EQ(kept.count("mlp_product"), 0U);
    s.policy = "offload";
    const std::map<std::string, double> moved = gib_by_name(build("deepseek-v3-671b", s), tensor_placement::offload);
    EXPECT_NEAR(total(moved) - moved.at("attention_statistics"), all, 0.001);
}

TEST(step_builder, a_fixed_save_set_leaves_the_planner_keep_or_offload) {
    step_settings s = llama_settings();
    s.fixed_save_set = true;
    const built_step step = build("llama-3.1-405b", s);
    for (size_t t = 0; t < step.model.tensors.size(); ++t) {
        const bool again = step.save_set.placement[t] == tensor_placement::recompute;
        EXPECT_EQ(step.model.tensors[t].can_recompute, again);
        EXPECT_EQ(step.model.tensors[t].can_keep, !again);
        EXPECT_EQ(step.model.tensors[t].can_offload, !again);
    }
}

TEST(step_builder, maxtexts_fused_names_mean_their_parts) {
    step_settings s = llama_settings();
    s.policy = "qkv_proj=offload,mlpwi=device";
    const built_step step = build("llama-3.1-405b", s);
    EXPECT_EQ(total(gib_by_name(step, tensor_placement::offload)), 70.875);
    EXPECT_EQ(gib_by_name(step, tensor_placement::keep).count("mlpwi_1"), 1U);
    EXPECT_TRUE(step.notes.empty());
}

TEST(step_builder, names_without_a_tensor_are_noted) {
    step_settings s = llama_settings();
    s.policy = "mlpwo=offload,mla_q=offload,qery_proj=offload";
    EXPECT_THAT(build("llama-3.1-405b", s).notes,
                ElementsAre("policy: mlpwo is not needed by backward, so nothing is saved under it.",
                            "policy: no layer of this model has a mla_q.",
                            "policy: \"qery_proj\" is the name of no tensor here; is it spelt right?"));
}

TEST(step_builder, bad_settings_are_named) {
    step_settings s = llama_settings();
    s.policy = "query_proj=disk";
    EXPECT_THAT(failure("llama-3.1-405b", s), HasSubstr("\"disk\" is not a value"));
    s = llama_settings();
    s.policy = "decoder_layer_input=remat";
    EXPECT_THAT(failure("llama-3.1-405b", s), HasSubstr("layer.0/decoder_layer_input cannot be remat"));
    s = llama_settings();
    s.micro_batches = 0;
    EXPECT_EQ(failure("llama-3.1-405b", s), "micro_batches is 0; allowed: a whole number from 1 to 1000000");
    s = llama_settings();
    s.expert_shards = 8;
    EXPECT_EQ(failure("llama-3.1-405b", s), "expert_shards is 8; allowed: 1, as the model has no experts");
    s = deepseek_settings();
    s.expert_shards = 3;
    EXPECT_EQ(failure("deepseek-v3-671b", s), "expert_shards is 3; allowed: a divisor of the 256 experts");
    s = llama_settings();
    s.pipeline_stages = 4;
    s.pipeline_chunks = 2;
    s.micro_batches = 6;
    EXPECT_THAT(failure("llama-3.1-405b", s), HasSubstr("micro_batches is 6; allowed: a multiple of the 4 stages"));
    s = llama_settings();
    s.pipeline_stages = 200;
    EXPECT_EQ(failure("llama-3.1-405b", s), "pipeline_stages is 200; allowed: a whole number from 1 to 126");
}

// ----------------------------------------------------------------------------------------------------- collectives --

double collective_ns(const built_step &step, const char *name) {
    double sum = 0;
    for (const step_event &e : step.model.events) {
        sum += e.what == step_event_kind::collective_begin && step.model.operation_names[e.operation] == name
                   ? e.time_ns
                   : 0;
    }
    return sum;
}

TEST(step_builder, gathers_are_one_total_whatever_the_tokens_and_the_overlap) {
    step_settings s = deepseek_settings();
    const double rate = gb200_rates(s).collective_bytes_per_second;
    for (const collective_overlap overlap :
         {collective_overlap::exposed, collective_overlap::own_iteration, collective_overlap::across_iterations}) {
        for (const uint64_t micro_batch : {1U, 8U}) {
            s.gathers = overlap;
            s.micro_batch = micro_batch;
            const built_step step = build("deepseek-v3-671b", s);
            const model_profile m = find_model("deepseek-v3-671b").value();
            const double ends = 2 * embedding_parameters(m);
            const double layers = parameters_of_model(m) - ends;
            const double moved = 127.0 / 128;
            EXPECT_NEAR(collective_ns(step, "gather") * rate / 1e9, moved * (2 * 2 * layers + 2 * ends), 1e9);
            EXPECT_NEAR(collective_ns(step, "scatter") * rate / 1e9, moved * 2 * (layers + ends), 1e9);
        }
    }
}

TEST(step_builder, overlap_says_what_a_collective_hides_behind) {
    step_settings s = deepseek_settings();
    const auto step_seconds = [&](collective_overlap overlap) {
        s.gathers = overlap;
        const built_step step = build("deepseek-v3-671b", s);
        evaluator e(step.model);
        plan_budget wide;
        wide.d2h = wide.h2d = {1e15, 0, 0};
        wide.device_bytes = ~uint64_t{0};
        const evaluation &result = e.evaluate(step.save_set, wide);
        EXPECT_TRUE(result.feasible);
        return std::pair{result.step_ns / 1e9, result.exposed_collective_ns / 1e9};
    };
    const auto [exposed, exposed_wait] = step_seconds(collective_overlap::exposed);
    const double own_wait = step_seconds(collective_overlap::own_iteration).second;
    const auto [across, across_wait] = step_seconds(collective_overlap::across_iterations);
    const double all = 127.0 / 128 * 6 * 671e9 / 680e9;
    EXPECT_NEAR(exposed_wait, all, 0.02 * all);
    EXPECT_NEAR(exposed - across, all, 0.03 * all);
    EXPECT_LT(own_wait, 0.1 * all);
    EXPECT_LT(across_wait, 0.03 * all);
}

TEST(step_builder, spread_experts_are_not_gathered_but_exchanged) {
    step_settings s = deepseek_settings();
    s.expert_shards = 64;
    const double rate = gb200_rates(s).collective_bytes_per_second;
    const double dispatched = 58 * s.tokens() * 8 * 7168 * 2 * 63 / 64;
    for (const collective_overlap overlap :
         {collective_overlap::exposed, collective_overlap::own_iteration, collective_overlap::across_iterations}) {
        s.all_to_all = overlap;
        const built_step step = build("deepseek-v3-671b", s);
        EXPECT_LT(collective_ns(step, "gather") * rate / 1e9, 0.1 * 4 * 671e9);
        // On the critical path it is time of the compute stream.
        double work_ns = 0;
        for (const step_event &e : step.model.events) {
            const bool is_one = step.model.operation_names[e.operation] == "moe_dispatch_exchange";
            work_ns += e.what == step_event_kind::work && is_one ? e.time_ns : 0;
        }
        const bool exposed = overlap == collective_overlap::exposed;
        EXPECT_NEAR(work_ns * rate / 1e9, exposed ? dispatched : 0, 1e6);
        EXPECT_NEAR(collective_ns(step, "moe_dispatch_exchange") * rate / 1e9, exposed ? 0 : dispatched, 1e6);
    }
}

// ----------------------------------------------------------------------------------------- accumulation, pipelines --

TEST(step_builder, accumulation_repeats_the_chain) {
    step_settings s = deepseek_settings();
    const built_step one = build("deepseek-v3-671b", s);
    s.micro_batches = 3;
    const built_step three = build("deepseek-v3-671b", s);
    EXPECT_EQ(three.model.tensors.size(), 3 * one.model.tensors.size());
    EXPECT_EQ(three.model.tensors.back().micro_batch, 2U);
    EXPECT_DOUBLE_EQ(three.model_flops, 3 * one.model_flops);
    EXPECT_EQ(three.model.fixed_bytes, one.model.fixed_bytes);
}

TEST(step_builder, a_stage_has_its_layers_and_its_waits) {
    step_settings s = llama_settings();
    s.pipeline_stages = 4;
    s.micro_batches = 8;
    for (uint64_t stage = 0; stage < 4; ++stage) {
        s.pipeline_stage = stage;
        const built_step step = build("llama-3.1-405b", s);
        uint32_t least = ~0U;
        uint32_t most = 0;
        for (const step_tensor &t : step.model.tensors) {
            least = std::min(least, t.layer);
            most = std::max(most, t.layer);
        }
        const uint32_t begin[] = {0, 32, 64, 95, 126};
        EXPECT_EQ(least, begin[stage]);
        EXPECT_EQ(most, begin[stage + 1] - 1);
        EXPECT_EQ(std::count_if(step.fixed_parts.begin(), step.fixed_parts.end(),
                                [](const named_bytes &p) { return p.name == "head in bf16"; }),
                  stage == 3 ? 1 : 0);
    }
}

TEST(step_builder, interleaved_stages_name_their_chunks) {
    step_settings s = llama_settings();
    s.pipeline_stages = 3;
    s.pipeline_chunks = 2;
    s.micro_batches = 6;
    s.pipeline_stage = 1;
    const built_step step = build("llama-3.1-405b", s);
    std::map<uint64_t, std::pair<uint32_t, uint32_t>> layers;
    for (const step_tensor &t : step.model.tensors) {
        layers.try_emplace(t.stage, t.layer, t.layer);
        layers[t.stage].second = std::max(layers[t.stage].second, t.layer);
    }
    ASSERT_EQ(layers.size(), 2U);
    EXPECT_EQ(layers[0], (std::pair<uint32_t, uint32_t>{21, 41}));
    EXPECT_EQ(layers[1], (std::pair<uint32_t, uint32_t>{84, 104}));
}

TEST(step_builder, iterations_cover_all_events_in_their_order) {
    const built_step step = build("deepseek-v3-671b", deepseek_settings());
    uint32_t at = 0;
    for (const step_iteration &it : step.iterations) {
        EXPECT_EQ(it.begin, at);
        EXPECT_LT(it.begin, it.end);
        at = it.end;
    }
    EXPECT_EQ(at, step.model.events.size());
    EXPECT_EQ(step.iterations.size(), 2U * (61 + 2) + 1);
}

TEST(step_builder, random_models_and_settings_make_sound_steps) {
    std::mt19937 random(11);
    const auto pick = [&random](uint64_t low, uint64_t high) {
        return std::uniform_int_distribution<uint64_t>(low, high)(random);
    };
    const char *policies[] = {"",
                              "keep",
                              "offload",
                              k_llama_offloads,
                              k_deepseek_offloads,
                              "decoder_layer_input=offload,context=offload,out_proj=device,*=remat"};
    const collective_overlap overlaps[] = {collective_overlap::exposed, collective_overlap::own_iteration,
                                           collective_overlap::across_iterations};
    for (int round = 0; round < 200; ++round) {
        model_profile m = find_model(pick(0, 1) == 0 ? "generic-moe" : "deepseek-v3-671b").value();
        m.hidden = 64 * pick(1, 64);
        m.layers[0].count = pick(1, 5);
        m.layers[1].count = pick(1, 5);
        m.layers[1].mlp.shared_experts = pick(0, 2);
        m.layers[1].mlp.experts_per_token = pick(1, 8);
        step_settings s;
        s.micro_batch = pick(1, 4);
        s.sequence = pick(1, 5000);
        s.shards = pick(1, 16);
        s.expert_shards = pick(0, 1) == 0 ? 1 : 16;
        s.pipeline_stages = pick(1, 2);
        s.pipeline_stage = pick(0, s.pipeline_stages - 1);
        s.micro_batches = pick(1, 4) * s.pipeline_stages;
        s.policy = policies[pick(0, 5)];
        s.fixed_save_set = pick(0, 1) == 0;
        s.recompute_first = pick(0, 1) == 0;
        s.gathers = overlaps[pick(0, 2)];
        s.all_to_all = overlaps[pick(0, 2)];
        const result<built_step> built = build_step(m, s, gb200_rates(s));
        ASSERT_TRUE(built.ok()) << built.why().text();
        const status sound = evaluator::check(built.value().model);
        ASSERT_TRUE(sound.ok()) << sound.text();
        evaluator e(built.value().model);
        plan_budget wide;
        wide.d2h = wide.h2d = {100e9, 0, 0};
        wide.device_bytes = ~uint64_t{0};
        EXPECT_TRUE(e.evaluate(built.value().save_set, wide).feasible);
    }
}

}  // namespace
}  // namespace ebb
