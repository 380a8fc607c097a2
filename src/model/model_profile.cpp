#include "model/model_profile.hpp"

#include <optional>
#include <utility>

#include "observe/json_fields.hpp"

namespace ebb {

namespace {

constexpr uint64_t k_most_layers = 100'000;
constexpr uint64_t k_largest_dim = 100'000'000;

uint64_t read_dim(json_object &o, std::string_view name) {
    return o.count(name, 1, k_largest_dim);
}

attention_profile read_attention(const json_value &at) {
    json_object o = at.object();
    attention_profile a;
    a.kind = static_cast<attention_profile::type>(o.field("kind").word({"gqa", "mla"}));
    a.heads = read_dim(o, "heads");
    if (a.kind == attention_profile::type::gqa) {
        const json_value kv_heads = o.field("kv_heads");
        a.kv_heads = kv_heads.count(1, k_largest_dim);
        if (a.kv_heads != 0 && a.heads % a.kv_heads != 0) {
            kv_heads.refuse("a divisor of heads");
        }
        a.head_dim = read_dim(o, "head_dim");
    } else {
        a.q_lora_rank = read_dim(o, "q_lora_rank");
        a.kv_lora_rank = read_dim(o, "kv_lora_rank");
        a.qk_nope_dim = read_dim(o, "qk_nope_dim");
        a.qk_rope_dim = read_dim(o, "qk_rope_dim");
        a.v_dim = read_dim(o, "v_dim");
    }
    o.end();
    return a;
}

mlp_profile read_mlp(const json_value &at) {
    json_object o = at.object();
    mlp_profile m;
    m.kind = static_cast<mlp_profile::type>(o.field("kind").word({"dense", "moe"}));
    m.intermediate = read_dim(o, "intermediate");
    if (m.kind == mlp_profile::type::moe) {
        m.experts = read_dim(o, "experts");
        m.experts_per_token = o.count("experts_per_token", 1, m.experts == 0 ? 1 : m.experts);
        m.shared_experts = o.count("shared_experts", 0, k_largest_dim);
    }
    o.end();
    return m;
}

std::vector<model_profile::layer_group> read_layers(const json_value &at) {
    std::vector<model_profile::layer_group> groups;
    const size_t count = at.size("groups of layers");
    uint64_t layers = 0;
    for (size_t i = 0; i < count; ++i) {
        json_object o = at.item(i).object();
        model_profile::layer_group group;
        group.count = o.count("count", 1, k_most_layers - layers);
        group.mlp = read_mlp(o.field("mlp"));
        o.end();
        layers += group.count;
        groups.push_back(group);
    }
    if (count == 0) {
        at.fail("is empty; allowed: at least one group of layers");
    }
    return groups;
}

}  // namespace

uint32_t model_profile::layer_count() const noexcept {
    uint64_t count = 0;
    for (const layer_group &group : layers) {
        count += group.count;
    }
    return static_cast<uint32_t>(count);
}

const mlp_profile &model_profile::mlp_of(uint32_t layer) const noexcept {
    uint64_t end = 0;
    for (const layer_group &group : layers) {
        end += group.count;
        if (layer < end) {
            return group.mlp;
        }
    }
    return layers.back().mlp;
}

result<model_profile> parse_model_profile(std::string_view text, std::string called) {
    json_file file(std::move(called), text);
    json_object top = file.root().object();
    model_profile read;
    (void)top.count("ebb_model", 1, 1);
    read.name = top.text("name");
    read.title = top.text("title");
    if (const std::optional<json_value> source = top.optional_field("source")) {
        read.source = source->text();
    }
    read.hidden = read_dim(top, "hidden");
    read.vocabulary = read_dim(top, "vocabulary");
    if (const std::optional<json_value> tied = top.optional_field("tied_embeddings")) {
        read.tied_embeddings = tied->boolean();
    }
    read.attention = read_attention(top.field("attention"));
    read.layers = read_layers(top.field("layers"));
    top.end();
    EBB_TRY(file.outcome());
    return read;
}

}  // namespace ebb
