#include "model/step_builder.hpp"

#include <algorithm>
#include <utility>

#include "model/model_size.hpp"
#include "model/save_set.hpp"
#include "model/step_iterations.hpp"
#include "model/step_writer.hpp"

namespace ebb {

namespace {

void add_part(built_step &to, const char *name, double size_bytes) {
    const auto whole = static_cast<uint64_t>(size_bytes);
    if (whole != 0) {
        to.fixed_parts.push_back({name, whole});
        to.model.fixed_bytes += whole;
    }
}

// What is held all the time. Logits live for a moment only; what is there then (all layer inputs) is the peak.
void add_fixed_parts(const model_profile &model, const step_settings &s, built_step &to) {
    constexpr double k_logit_buffers = 4;  // logits, their gradient, and the softmax between, in fp32
    constexpr double k_fp32_bytes = 4;
    constexpr double k_bf16_bytes = 2;
    add_part(to, "parameters and optimizer state", s.state_bytes * parameters_held(model, s));
    if (s.pipeline_stage + 1 == s.pipeline_stages) {
        add_part(to, "logits, four fp32 buffers",
                 k_logit_buffers * k_fp32_bytes * s.tokens() * static_cast<double>(model.vocabulary));
        add_part(to, "head in bf16", k_bf16_bytes * embedding_parameters(model));
    }
    if (s.shards > 1) {
        for (const model_profile::layer_group &group : model.layers) {
            // In bf16, which is what they are gathered in or made into.
            to.gathered_layer_bytes =
                std::max(to.gathered_layer_bytes, k_bf16_bytes * gathered_parameters(model, group.mlp, s));
        }
        add_part(to, "gathered weights", to.gathered_layer_bytes * static_cast<double>(s.gathered_layers));
    }
}

}  // namespace

result<built_step> build_step(const model_profile &model, const step_settings &settings, const step_rates &rates) {
    EBB_TRY(check_settings(settings, model));
    result<save_set> parsed = save_set::parse(settings.policy);
    if (!parsed.ok()) {
        return parsed.why();
    }
    save_set saved = std::move(parsed).value();
    built_step to;
    const step_layers layers = make_step_layers(model, settings);
    step_writer(model, settings, layers, rates, saved, to).write(plan_iterations(model, settings, layers, rates));
    EBB_TRY(saved.outcome());
    add_fixed_parts(model, settings, to);
    to.notes = saved.notes();
    to.tokens = settings.tokens() * static_cast<double>(settings.micro_batches);
    to.model_flops =
        to.tokens * model_flops_per_token(model, settings.sequence) / static_cast<double>(settings.pipeline_stages);
    return to;
}

}  // namespace ebb
