// Layers as operators: published byte and FLOP totals, and that forward and backward fit together.
#include "model/layer_graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "model/model_size.hpp"
#include "model/profile_library.hpp"

namespace ebb {
namespace {

using ::testing::ElementsAre;

model_profile model(const char *name) {
    return find_model(name).value();
}

layer_graph graph_of(const model_profile &m, uint32_t layer, double sequence, double tokens = 1,
                     double expert_shards = 1) {
    layer_shape shape;
    shape.tokens = tokens;
    shape.sequence = sequence;
    shape.expert_shards = expert_shards;
    return make_layer_graph(m, m.mlp_of(layer), shape);
}

uint64_t bytes_of(const layer_graph &g, const std::string &name) {
    for (const layer_tensor &t : g.tensors) {
        if (t.name == name) {
            return t.size_bytes;
        }
    }
    ADD_FAILURE() << "no tensor " << name;
    return 0;
}

std::vector<std::string> names_of(const layer_graph &g, tensor_role role) {
    std::vector<std::string> names;
    for (const layer_tensor &t : g.tensors) {
        if (t.role == role) {
            names.push_back(t.name);
        }
    }
    return names;
}

double flops_of(const std::vector<layer_step> &steps, work_rate rate) {
    double sum = 0;
    for (const layer_step &s : steps) {
        sum += s.what == layer_step_kind::work && s.work.rate == rate ? s.work.flops : 0;
    }
    return sum;
}

TEST(layer_graph, llama_saves_348160_bytes_per_token) {
    const layer_graph g = graph_of(model("llama-3.1-405b"), 0, 8192);
    EXPECT_EQ(g.bytes_of(tensor_role::saved), 348'160U);
    EXPECT_THAT(names_of(g, tensor_role::saved),
                ElementsAre("decoder_layer_input", "query_proj", "key_proj", "value_proj", "context", "out_proj",
                            "mlpwi_0", "mlpwi_1"));
    EXPECT_EQ(bytes_of(g, "decoder_layer_input"), 32'768U);
    EXPECT_EQ(bytes_of(g, "query_proj"), 32'768U);
    EXPECT_EQ(bytes_of(g, "key_proj"), 2'048U);
    EXPECT_EQ(bytes_of(g, "mlpwi_0"), 106'496U);
}

TEST(layer_graph, deepseek_saves_254080_bytes_per_token_in_every_layer) {
    const model_profile deepseek = model("deepseek-v3-671b");
    const layer_graph moe = graph_of(deepseek, 3, 4096);
    const layer_graph dense = graph_of(deepseek, 0, 4096);
    EXPECT_EQ(moe.bytes_of(tensor_role::saved), 254'080U);
    EXPECT_EQ(dense.bytes_of(tensor_role::saved), 254'080U);
    EXPECT_THAT(names_of(moe, tensor_role::saved),
                ElementsAre("decoder_layer_input", "query_wa_proj", "kv_wa_proj", "mla_q", "mla_kv", "context",
                            "out_proj", "mlpwi_0", "mlpwi_1", "moe_mlpwi_0", "moe_mlpwi_1"));
    EXPECT_EQ(bytes_of(moe, "decoder_layer_input"), 14'336U);
    EXPECT_EQ(bytes_of(moe, "query_wa_proj"), 2U * 1536);
    EXPECT_EQ(bytes_of(moe, "kv_wa_proj"), 2U * 576);
    EXPECT_EQ(bytes_of(moe, "moe_mlpwi_0"), 2U * 8 * 2048);
    EXPECT_EQ(bytes_of(moe, "mlpwi_0"), 2U * 2048);
    EXPECT_EQ(bytes_of(dense, "mlpwi_0"), 2U * 18432);
}

TEST(layer_graph, what_else_backward_needs_is_there_under_its_names) {
    const layer_graph g = graph_of(model("deepseek-v3-671b"), 3, 4096);
    EXPECT_THAT(names_of(g, tensor_role::nearly_free),
                ElementsAre("pre_attention_norm", "post_attention_norm", "router_logits", "moe_dispatched",
                            "moe_mlp_product", "mlp_product"));
    EXPECT_THAT(names_of(g, tensor_role::companion), ElementsAre("attention_statistics"));
    EXPECT_THAT(names_of(g, tensor_role::always_kept), ElementsAre("moe_routing"));
    EXPECT_EQ(bytes_of(g, "attention_statistics"), 4U * 128);
    EXPECT_EQ(bytes_of(g, "router_logits"), 4U * 256);
    EXPECT_EQ(bytes_of(g, "moe_dispatched"), 2U * 8 * 7168);
}

TEST(layer_graph, forward_flops_are_the_models) {
    for (const char *name : {"llama-3.1-405b", "deepseek-v3-671b", "generic-dense", "generic-moe"}) {
        const model_profile m = model(name);
        for (const uint32_t layer : {0U, m.layer_count() - 1}) {
            const layer_graph g = graph_of(m, layer, 4096, 10);
            // Norms have parameters and no products.
            EXPECT_NEAR(g.forward_flops(work_rate::gemm) / 10, matrix_flops_per_token(m, m.mlp_of(layer)),
                        4.0 * static_cast<double>(m.hidden) + 1)
                << name << ' ' << layer;
            EXPECT_NEAR(g.forward_flops(work_rate::attention) / 10, attention_flops_per_token(m, 4096), 1) << name;
        }
    }
}

TEST(layer_graph, backward_has_both_gradients_of_every_product) {
    for (const char *name : {"llama-3.1-405b", "deepseek-v3-671b"}) {
        const layer_graph g = graph_of(model(name), 60, 4096);
        EXPECT_NEAR(flops_of(g.backward, work_rate::gemm) / g.forward_flops(work_rate::gemm), 2, 1e-9) << name;
        EXPECT_NEAR(flops_of(g.backward, work_rate::attention) / g.forward_flops(work_rate::attention), 2.5, 1e-9);
    }
}

TEST(layer_graph, computing_all_again_costs_forward_without_the_last_product) {
    const model_profile llama = model("llama-3.1-405b");
    const layer_graph g = graph_of(llama, 0, 8192);
    double flops = 0;
    for (const layer_tensor &t : g.tensors) {
        for (const layer_work &w : t.recompute) {
            flops += w.flops;
        }
    }
    const double forward = g.forward_flops(work_rate::gemm) + g.forward_flops(work_rate::attention);
    EXPECT_NEAR(flops, forward - 2.0 * 16384 * 53248, 1);
}

// Every tensor is produced once, used in backward, released once behind its uses; what it is computed from is there.
void expect_whole(const layer_graph &g) {
    std::vector<uint32_t> produced;
    for (const layer_step &s : g.forward) {
        EXPECT_TRUE(s.what != layer_step_kind::use && s.what != layer_step_kind::release);
        if (s.what == layer_step_kind::produce) {
            produced.push_back(s.tensor);
        }
    }
    ASSERT_EQ(produced.size(), g.tensors.size());
    EXPECT_TRUE(std::is_sorted(produced.begin(), produced.end()));
    std::set<uint32_t> used;
    std::set<uint32_t> released;
    for (const layer_step &s : g.backward) {
        if (s.what == layer_step_kind::use) {
            EXPECT_EQ(released.count(s.tensor), 0U) << g.tensors[s.tensor].name;
            used.insert(s.tensor);
            for (const uint32_t from : g.tensors[s.tensor].from) {
                EXPECT_LT(from, s.tensor);
                EXPECT_EQ(released.count(from), 0U) << g.tensors[s.tensor].name << " from " << g.tensors[from].name;
            }
        }
        if (s.what == layer_step_kind::release) {
            EXPECT_EQ(used.count(s.tensor), 1U) << g.tensors[s.tensor].name;
            EXPECT_TRUE(released.insert(s.tensor).second) << g.tensors[s.tensor].name;
        }
    }
    EXPECT_EQ(released.size(), g.tensors.size());
}

TEST(layer_graph, forward_and_backward_fit_together) {
    for (const std::string_view name : model_names()) {
        const model_profile m = find_model(std::string(name)).value();
        for (const uint32_t layer : {0U, m.layer_count() - 1}) {
            expect_whole(graph_of(m, layer, 4096));
            expect_whole(graph_of(m, layer, 4096, 8, 4));
        }
    }
}

TEST(layer_graph, the_last_products_input_gradient_comes_before_anything_saved_is_needed) {
    const layer_graph g = graph_of(model("deepseek-v3-671b"), 3, 4096);
    std::string before;
    for (const layer_step &s : g.backward) {
        if (s.what == layer_step_kind::backward_begins) {
            break;
        }
        if (s.what == layer_step_kind::use) {
            EXPECT_EQ(g.tensors[s.tensor].role, tensor_role::always_kept);
        }
        before = s.what == layer_step_kind::work ? s.work.name : before;
    }
    EXPECT_EQ(before, "moe_mlpwo_input_gradient");
}

TEST(layer_graph, tokens_travel_only_where_experts_are_spread) {
    const model_profile m = model("deepseek-v3-671b");
    const auto exchanged = [&](double shards) {
        const layer_graph g = graph_of(m, 3, 4096, 1, shards);
        double sum = 0;
        for (const std::vector<layer_step> *steps : {&g.forward, &g.backward}) {
            for (const layer_step &s : *steps) {
                sum += s.what == layer_step_kind::exchange_begin ? s.work.exchange_bytes : 0;
            }
        }
        return sum;
    };
    EXPECT_EQ(exchanged(1), 0);
    // Dispatch, combine and their gradients: eight copies of a token each, of which 63 of 64 leave.
    EXPECT_DOUBLE_EQ(exchanged(64), 4.0 * 8 * 7168 * 2 * 63 / 64);
}

}  // namespace
}  // namespace ebb
