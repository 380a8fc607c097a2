// Parameters and FLOPs, against the figures that are published for these models.
#include "model/model_size.hpp"

#include <gtest/gtest.h>

#include "model/profile_library.hpp"

namespace ebb {
namespace {

model_profile model(const char *name) {
    return find_model(name).value();
}

TEST(model_size, llama_has_405_85_billion_parameters) {
    const model_profile llama = model("llama-3.1-405b");
    EXPECT_NEAR(parameters_of_model(llama), 405.85e9, 0.01e9);
    EXPECT_NEAR(active_parameters(llama), 405.85e9, 0.01e9);
    EXPECT_EQ(llama.layer_count(), 126U);
}

TEST(model_size, deepseek_has_671_billion_parameters_and_37_55_active) {
    const model_profile deepseek = model("deepseek-v3-671b");
    EXPECT_NEAR(parameters_of_model(deepseek), 671e9, 0.1e9);
    EXPECT_NEAR(active_parameters(deepseek), 37.55e9, 0.01e9);
    EXPECT_EQ(deepseek.layer_count(), 61U);
    EXPECT_EQ(deepseek.mlp_of(2).kind, mlp_profile::type::dense);
    EXPECT_EQ(deepseek.mlp_of(3).kind, mlp_profile::type::moe);
    EXPECT_EQ(deepseek.mlp_of(60).kind, mlp_profile::type::moe);
}

TEST(model_size, forward_flops_per_token_and_layer) {
    const model_profile llama = model("llama-3.1-405b");
    EXPECT_NEAR(matrix_flops_per_token(llama, llama.mlp_of(0)), 6.375e9, 0.001e9);
    EXPECT_NEAR(attention_flops_per_token(llama, 8192), 0.268e9, 0.001e9);
    const model_profile deepseek = model("deepseek-v3-671b");
    EXPECT_NEAR(matrix_flops_per_token(deepseek, deepseek.mlp_of(3)), 1.171e9, 0.001e9);
    EXPECT_NEAR(attention_flops_per_token(deepseek, 4096), 0.168e9, 0.001e9);
}

TEST(model_size, model_flops_per_token_as_throughput_is_published_in) {
    EXPECT_NEAR(model_flops_per_token(model("deepseek-v3-671b"), 4096),
                6 * 37.55e9 + 3.0 * 61 * 128 * (192 + 128) * 4096, 0.05e9);
    EXPECT_NEAR(model_flops_per_token(model("llama-3.1-405b"), 8192), 6 * 405.85e9 + 3 * 126 * 0.268e9, 0.2e9);
}

TEST(model_size, a_tied_matrix_counts_once) {
    model_profile own = model("generic-dense");
    const double apart = parameters_of_model(own);
    own.tied_embeddings = true;
    EXPECT_DOUBLE_EQ(apart - parameters_of_model(own), 4096.0 * 128256.0);
}

}  // namespace
}  // namespace ebb
