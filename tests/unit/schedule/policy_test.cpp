#include "schedule/policy.hpp"

#include <gtest/gtest.h>

#include <string>

namespace ebb {
namespace {

policy parsed(std::string_view text) {
    result<policy> p = policy::parse(text);
    EXPECT_TRUE(p.ok()) << p.why().text();
    return p.ok() ? std::move(p).value() : policy();
}

policy_placement place(policy &p, std::string_view name) {
    return p.decide(name).placement;
}

TEST(glob, matches_the_whole_text) {
    EXPECT_TRUE(glob_matches("gate", "gate"));
    EXPECT_FALSE(glob_matches("gate", "gates"));
    EXPECT_FALSE(glob_matches("gate", "agate"));
    EXPECT_FALSE(glob_matches("", "a"));
    EXPECT_TRUE(glob_matches("", ""));
}

TEST(glob, star_takes_any_text_and_question_mark_one_character) {
    EXPECT_TRUE(glob_matches("*", ""));
    EXPECT_TRUE(glob_matches("*", "decoder/gate"));
    EXPECT_TRUE(glob_matches("mlp*", "mlpwi_0"));
    EXPECT_TRUE(glob_matches("*_0", "mlpwi_0"));
    EXPECT_TRUE(glob_matches("layer.?/gate", "layer.3/gate"));
    EXPECT_FALSE(glob_matches("layer.?/gate", "layer.31/gate"));
    EXPECT_FALSE(glob_matches("?", ""));
    EXPECT_TRUE(glob_matches("a*b*c", "a_b_b_c"));
    EXPECT_FALSE(glob_matches("a*b*c", "a_b_b_d"));
    EXPECT_TRUE(glob_matches("**a", "ba"));
    EXPECT_FALSE(glob_matches("a[b]", "ab"));
}

TEST(policy, one_word_holds_for_everything) {
    policy none;
    EXPECT_EQ(place(none, "x"), policy_placement::offload);
    policy open = parsed("auto");
    EXPECT_EQ(place(open, "a/b"), policy_placement::automatic);
    for (const char *text : {"offload", " offload "}) {
        policy p = parsed(text);
        EXPECT_EQ(place(p, "a/b"), policy_placement::offload) << text;
        EXPECT_FALSE(p.decide("a/b").rule.has_value());
    }
    for (const char *text : {"keep", "device"}) {
        policy p = parsed(text);
        EXPECT_EQ(place(p, "a/b"), policy_placement::keep) << text;
    }
    policy p = parsed("remat");
    EXPECT_EQ(place(p, "a/b"), policy_placement::recompute);
}

TEST(policy, takes_the_names_and_values_of_maxtext) {
    policy p = parsed("decoder_layer_input=offload,query_proj=remat, mlpwi_0 = device");
    EXPECT_EQ(place(p, "decoder/layer.3/decoder_layer_input"), policy_placement::offload);
    EXPECT_EQ(place(p, "decoder/layer.3/query_proj"), policy_placement::recompute);
    EXPECT_EQ(place(p, "mlpwi_0"), policy_placement::keep);
    EXPECT_EQ(p.decide("decoder/layer.9/mlpwi_0").rule, 2U);
}

TEST(policy, what_a_list_does_not_name_is_kept) {
    policy p = parsed("gate=offload");
    const policy_decision d = p.decide("decoder/up");
    EXPECT_EQ(d.placement, policy_placement::keep);
    EXPECT_FALSE(d.rule.has_value());
    policy all = parsed("gate=keep,*=offload");
    EXPECT_EQ(place(all, "decoder/up"), policy_placement::offload);
    EXPECT_EQ(place(all, "decoder/gate"), policy_placement::keep);
}

TEST(policy, a_pattern_matches_the_whole_name_or_its_last_component) {
    policy p = parsed("decoder/layer.1/*=device,gate=offload,layer.2=remat");
    EXPECT_EQ(place(p, "decoder/layer.1/gate"), policy_placement::keep);
    EXPECT_EQ(place(p, "decoder/layer.3/gate"), policy_placement::offload);
    EXPECT_FALSE(p.decide("decoder/layer.2/up").rule.has_value());
    EXPECT_FALSE(p.decide("layer.3/gateway").rule.has_value());
}

TEST(policy, the_first_match_counts) {
    policy p = parsed("mlp*=device,mlpwo=offload");
    EXPECT_EQ(p.decide("mlpwo").rule, 0U);
    EXPECT_EQ(p.unmatched_rules(), std::vector<std::string>{"mlpwo"});
}

TEST(policy, counts_the_names_of_each_rule) {
    policy p = parsed("gate=offload,gaet=offload,up=keep");
    EXPECT_EQ(p.unmatched_rules(), (std::vector<std::string>{"gate", "gaet", "up"}));
    (void)p.decide("layer.0/gate");
    (void)p.decide("layer.1/gate");
    (void)p.decide("layer.0/up");
    (void)p.decide("layer.0/down");
    EXPECT_EQ(p.rules()[0].match_count, 2U);
    EXPECT_EQ(p.unmatched_rules(), std::vector<std::string>{"gaet"});
}

TEST(policy, a_bad_text_is_refused_with_position_text_and_what_is_allowed) {
    const status value = policy::parse("gate=offload,up=host", "EBB_POLICY").why();
    EXPECT_EQ(value.code(), code::invalid_argument);
    EXPECT_EQ(value.text(),
              "EBB_POLICY \"gate=offload,up=host\", at character 17: \"host\" is not a value; allowed: remat, device, "
              "offload, keep or auto");
    EXPECT_EQ(
        policy::parse("none").why().text(),
        "policy \"none\", at character 1: \"none\" is not pattern=value; a list holds such pairs, a policy of one word "
        "is offload or keep");
    EXPECT_EQ(policy::parse("a=keep,,b=keep").why().text(),
              "policy \"a=keep,,b=keep\", at character 8: an entry is missing; allowed: offload, keep, or "
              "pattern=value,pattern=value,...");
    EXPECT_EQ(policy::parse("a=keep, =keep").why().text(),
              "policy \"a=keep, =keep\", at character 9: the pattern before '=' is empty; use * for every name");
}

TEST(policy, no_malformed_text_passes) {
    for (const char *text : {"", " ", ",", "a=keep,", "=", "a=", "a==keep", "a=keep;b=keep", "OFFLOAD", "offload,keep",
                             "a=Keep", "a=keep,b"}) {
        const result<policy> p = policy::parse(text);
        EXPECT_FALSE(p.ok()) << '"' << text << '"';
        EXPECT_EQ(p.why().code(), code::invalid_argument) << text;
    }
}

}  // namespace
}  // namespace ebb
