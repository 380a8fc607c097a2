// Machine and model profiles: the built-in ones, and what is said about a bad file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "model/profile_library.hpp"

namespace ebb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using json = nlohmann::ordered_json;

json machine_json(const std::string &name) {
    const result<std::string> text = machine_text(name);
    EXPECT_TRUE(text.ok());
    return json::parse(text.value());
}

std::string machine_failure(const json &changed) {
    const result<machine_profile> read = parse_machine_profile(changed.dump(), "own.json");
    EXPECT_FALSE(read.ok());
    return read.ok() ? "" : read.why().text();
}

std::string model_failure(const json &changed) {
    const result<model_profile> read = parse_model_profile(changed.dump(), "own.json");
    EXPECT_FALSE(read.ok());
    return read.ok() ? "" : read.why().text();
}

TEST(profiles, all_that_are_built_in_can_be_read_and_are_called_like_their_files) {
    EXPECT_THAT(machine_names(), ElementsAre("a100-pcie4", "b200-hgx", "gb200-nvl72", "gb300-nvl72", "gh200",
                                             "h100-pcie5", "h200-pcie5", "vera-rubin-nvl"));
    EXPECT_THAT(model_names(), ElementsAre("deepseek-v3-671b", "generic-dense", "generic-moe", "llama-3.1-405b"));
    for (const std::string_view name : machine_names()) {
        const result<machine_profile> read = find_machine(std::string(name));
        ASSERT_TRUE(read.ok()) << read.why().text();
        EXPECT_EQ(read.value().name, name);
    }
    for (const std::string_view name : model_names()) {
        const result<model_profile> read = find_model(std::string(name));
        ASSERT_TRUE(read.ok()) << read.why().text();
        EXPECT_EQ(read.value().name, name);
    }
}

TEST(profiles, every_number_of_a_machine_says_where_it_is_from) {
    for (const std::string_view name : machine_names()) {
        const json flat = machine_json(std::string(name)).flatten();
        for (const auto &item : flat.items()) {
            if (item.key().find("/source") != std::string::npos) {
                EXPECT_GT(item.value().get<std::string>().size(), 5U) << name << ' ' << item.key();
            }
            const bool number_without = item.value().is_number() && item.key() != "/ebb_machine" &&
                                        item.key().find("/value") == std::string::npos;
            EXPECT_FALSE(number_without) << name << ' ' << item.key();
        }
    }
}

TEST(profiles, vera_rubin_measures_nothing) {
    EXPECT_THAT(machine_text("vera-rubin-nvl").value(), HasSubstr("\"vendor\""));
    const json flat = machine_json("vera-rubin-nvl").flatten();
    for (const auto &item : flat.items()) {
        if (item.key().find("/device/") == 0 || item.key().find("/links/") == 0) {
            EXPECT_NE(item.value(), "measured") << item.key();
        }
    }
}

TEST(profiles, gb200_is_what_was_measured) {
    const result<machine_profile> read = find_machine("gb200-nvl72");
    ASSERT_TRUE(read.ok());
    const machine_profile &m = read.value();
    EXPECT_EQ(m.d2h.bytes_per_second.value, 193e9);
    EXPECT_EQ(m.h2d.bytes_per_second.value, 201e9);
    EXPECT_EQ(m.d2h.bytes_per_second.kind, source_kind::measured);
    EXPECT_EQ(m.device_bytes.value, 186'000'000'000U);
    EXPECT_EQ(m.peak_flops[2]->value, 10e15);
}

TEST(profiles, a_machine_becomes_a_simulated_one) {
    const result<machine_profile> read = find_machine("gb200-nvl72");
    ASSERT_TRUE(read.ok());
    const sim_machine sim = to_sim_machine(read.value());
    EXPECT_EQ(sim.device_bytes, 186'000'000'000U);
    EXPECT_EQ(sim.host_bytes, 192'000'000'000U);  // 0.8 of 480 GB, for two GPUs
    EXPECT_EQ(sim.d2h.bytes_per_second, 193e9);
    EXPECT_EQ(sim.h2d.both_bytes_per_second, 190e9);
    EXPECT_EQ(sim.d2h.latency_ps, 5'000'000U);
    EXPECT_EQ(sim.d2h.curve.size(), 5U);
    EXPECT_EQ(sim.gpus_per_host_memory, 2U);
    EXPECT_EQ(sim.host_dram_bytes_per_second, 381e9);
    EXPECT_EQ(sim.host_call_ps, 4'000'000U);
    EXPECT_DOUBLE_EQ(sim.hbm_bytes_per_second, 0.85 * 8e12);
    EXPECT_EQ(sim.collective_loss, 0.1);
    EXPECT_FALSE(sim.half_duplex);
}

TEST(profiles, a_machine_becomes_links_for_the_planner) {
    const result<machine_profile> read = find_machine("gb200-nvl72");
    ASSERT_TRUE(read.ok());
    constexpr uint64_t k_mib = uint64_t{1} << 20U;
    const machine_links alone = to_plan_links(read.value(), 64 * k_mib, false);
    EXPECT_EQ(alone.d2h.bytes_per_second, 193e9);
    EXPECT_EQ(alone.h2d.bytes_per_second, 201e9);
    EXPECT_EQ(alone.d2h.latency_ns, 5000);
    EXPECT_EQ(alone.d2h.chunk_bytes, 64 * k_mib);
    // One CPU's memory serves both GPUs.
    const machine_links shared = to_plan_links(read.value(), 64 * k_mib);
    EXPECT_EQ(shared.d2h.bytes_per_second, 381e9 / 2);
    EXPECT_EQ(shared.h2d.bytes_per_second, 381e9 / 2);
    // Half way from 0.7 at 4 MiB to 0.9 at 16.
    EXPECT_DOUBLE_EQ(to_plan_links(read.value(), 10 * k_mib, false).d2h.bytes_per_second, 193e9 * 0.8);
}

TEST(profiles, a_bad_machine_file_is_named_with_path_value_and_what_is_allowed) {
    json own = machine_json("gh200");
    own["links"]["d2h"]["bytes_per_second"]["value"] = -5;
    EXPECT_EQ(machine_failure(own), "own.json: /links/d2h/bytes_per_second/value is -5; allowed: a number above 0");

    own = machine_json("gh200");
    own["links"]["d2h"]["bytes_per_second"]["kind"] = "rumour";
    EXPECT_EQ(machine_failure(own),
              "own.json: /links/d2h/bytes_per_second/kind is \"rumour\"; allowed: \"measured\", \"vendor\", "
              "\"assumed\"");

    own = machine_json("gh200");
    own["links"]["d2h"]["bytes_per_second"].erase("source");
    EXPECT_EQ(machine_failure(own), "own.json: /links/d2h/bytes_per_second/source is missing");

    own = machine_json("gh200");
    own["links"]["d2h"]["bytes_per_second"] = 3e9;
    EXPECT_EQ(machine_failure(own), "own.json: /links/d2h/bytes_per_second is 3000000000.0; allowed: an object");

    own = machine_json("gh200");
    own["host"]["gpu_per_memory"] = own["host"]["gpus_per_memory"];
    EXPECT_THAT(machine_failure(own),
                HasSubstr("/host/gpu_per_memory is not known; did you mean \"gpus_per_memory\"?"));

    own = machine_json("gh200");
    own["links"]["h2d"]["curve"]["value"] = json::parse("[[1024, 0.5], [512, 1]]");
    EXPECT_EQ(machine_failure(own),
              "own.json: /links/h2d/curve/value/1/0 is 512; allowed: a whole number of at least 1025");

    own = machine_json("gh200");
    own["links"]["h2d"]["curve"]["value"] = json::parse("[[1024, 1.5]]");
    EXPECT_EQ(machine_failure(own),
              "own.json: /links/h2d/curve/value/0/1 is 1.5; allowed: a number above 0 and at most 1");
}

TEST(profiles, a_bad_model_file_is_named_with_path_value_and_what_is_allowed) {
    json model = json::parse(model_text("deepseek-v3-671b").value());
    json own = model;
    own["attention"]["kind"] = "mha";
    EXPECT_EQ(model_failure(own), "own.json: /attention/kind is \"mha\"; allowed: \"gqa\", \"mla\"");
    own = model;
    own["layers"][1]["mlp"]["experts_per_token"] = 300;
    EXPECT_EQ(model_failure(own),
              "own.json: /layers/1/mlp/experts_per_token is 300; allowed: a whole number from 1 to 256");
    own = model;
    own["layers"][0]["mlp"]["experts"] = 4;
    EXPECT_THAT(model_failure(own), HasSubstr("/layers/0/mlp/experts is not known"));
    own = model;
    own["layers"] = json::array();
    EXPECT_EQ(model_failure(own), "own.json: /layers is empty; allowed: at least one group of layers");
    own = json::parse(model_text("llama-3.1-405b").value());
    own["attention"]["kv_heads"] = 3;
    EXPECT_EQ(model_failure(own), "own.json: /attention/kv_heads is 3; allowed: a divisor of heads");
}

TEST(profiles, a_name_that_is_not_known_gets_the_nearest_and_the_list) {
    const result<machine_profile> machine = find_machine("gb20-nvl72");
    ASSERT_FALSE(machine.ok());
    EXPECT_THAT(machine.why().text(), HasSubstr("There is no machine \"gb20-nvl72\". Did you mean gb200-nvl72?"));
    EXPECT_THAT(machine.why().text(), HasSubstr("a100-pcie4"));
    const result<model_profile> model = find_model("lama-3.1-405b");
    ASSERT_FALSE(model.ok());
    EXPECT_THAT(model.why().text(), HasSubstr("Did you mean llama-3.1-405b?"));
}

TEST(profiles, a_path_is_read_and_named_when_it_cannot_be) {
    const std::string path = testing::TempDir() + "ebb_own_machine.json";
    json own = machine_json("h200-pcie5");
    own["name"] = "mine";
    std::ofstream(path) << own.dump();
    const result<machine_profile> read = find_machine(path);
    ASSERT_TRUE(read.ok()) << read.why().text();
    EXPECT_EQ(read.value().name, "mine");
    std::remove(path.c_str());
    EXPECT_THAT(find_machine(path).why().text(), HasSubstr(path + " cannot be opened: No such file"));
}

}  // namespace
}  // namespace ebb
