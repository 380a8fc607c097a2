#include "model/step_settings.hpp"

#include <fmt/format.h>

#include <string_view>

namespace ebb {

namespace {

status bad_setting(std::string_view name, uint64_t value, std::string_view allowed) {
    return {code::invalid_argument, fmt::format("{} is {}; allowed: {}", name, value, allowed)};
}

status check_at_least_one(std::string_view name, uint64_t value, uint64_t most) {
    const bool fits = value >= 1 && value <= most;
    return fits ? status() : bad_setting(name, value, fmt::format("a whole number from 1 to {}", most));
}

status check_pipeline(const step_settings &s, uint64_t layers) {
    EBB_TRY(check_at_least_one("pipeline_stages", s.pipeline_stages, layers));
    EBB_TRY(check_at_least_one("pipeline_chunks", s.pipeline_chunks, layers / s.pipeline_stages));
    if (s.pipeline_stage >= s.pipeline_stages) {
        return bad_setting("pipeline_stage", s.pipeline_stage, fmt::format("0 to {}", s.pipeline_stages - 1));
    }
    if (s.pipeline_chunks > 1 && s.pipeline_stages == 1) {
        return bad_setting("pipeline_chunks", s.pipeline_chunks, "1, as there is one stage only");
    }
    if (s.pipeline_chunks > 1 && s.micro_batches % s.pipeline_stages != 0) {
        return bad_setting("micro_batches", s.micro_batches,
                           fmt::format("a multiple of the {} stages, as they are interleaved", s.pipeline_stages));
    }
    return {};
}

status check_experts(const step_settings &s, const model_profile &model) {
    if (s.expert_shards == 1) {
        return {};
    }
    bool any = false;
    for (const model_profile::layer_group &group : model.layers) {
        if (group.mlp.kind != mlp_profile::type::moe) {
            continue;
        }
        any = true;
        if (s.expert_shards == 0 || group.mlp.experts % s.expert_shards != 0) {
            return bad_setting("expert_shards", s.expert_shards,
                               fmt::format("a divisor of the {} experts", group.mlp.experts));
        }
    }
    return any ? status() : bad_setting("expert_shards", s.expert_shards, "1, as the model has no experts");
}

}  // namespace

status check_settings(const step_settings &settings, const model_profile &model) {
    constexpr uint64_t k_many = 1'000'000;
    constexpr double k_most_tokens = 1e9;
    EBB_TRY(check_at_least_one("micro_batch", settings.micro_batch, k_many));
    EBB_TRY(check_at_least_one("sequence", settings.sequence, 1000 * k_many));
    EBB_TRY(check_at_least_one("micro_batches", settings.micro_batches, k_many));
    EBB_TRY(check_at_least_one("shards", settings.shards, k_many));
    if (settings.tokens() > k_most_tokens) {
        return {code::invalid_argument,
                fmt::format("micro_batch {} of {} tokens each are {:g} tokens; allowed: up to {:g}",
                            settings.micro_batch, settings.sequence, settings.tokens(), k_most_tokens)};
    }
    EBB_TRY(check_pipeline(settings, model.layer_count()));
    return check_experts(settings, model);
}

}  // namespace ebb
