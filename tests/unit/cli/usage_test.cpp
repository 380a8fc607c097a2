// Wrong usage is status 2, says what is wrong on standard error, with the value and what is allowed, and prints
// nothing.
#include <gmock/gmock.h>

#include "cli/command_line.hpp"
#include "cli_fixture.hpp"

namespace ebb::cli::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct wrong_usage {
    const char *name;
    arguments args;
    std::vector<std::string> said;
};

class usage : public ::testing::TestWithParam<wrong_usage> {};

TEST_P(usage, is_refused) {
    const ran r = run(GetParam().args);
    EXPECT_EQ(r.status, 2);
    EXPECT_THAT(r.out, IsEmpty());
    for (const std::string &said : GetParam().said) {
        EXPECT_THAT(r.err, HasSubstr(said));
    }
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
}

const wrong_usage k_wrong[] = {
    {"unknown_command", {"plam"}, {"\"plam\"", "did you mean plan?", "machines"}},
    {"unknown_option", {"plan", "--modle", "x"}, {"--modle", "did you mean --model?"}},
    {"argument_too_many", {"machines", "gh200", "more"}, {"\"more\""}},
    {"value_missing", {"plan", "--model"}, {"--model"}},
    {"model_missing", {"plan"}, {"--model is missing", "llama-3.1-405b"}},
    {"unknown_model", {"plan", "--model", "lama-3.1-405b"}, {"--model", "Did you mean llama-3.1-405b?"}},
    {"unknown_machine", {"simulate", "--model", "generic-dense", "--machine", "h100"}, {"--machine", "h100-pcie5"}},
    {"no_count", {"plan", "--micro-batch", "two"}, {"--micro-batch", "\"two\"", "a whole number from 1"}},
    {"count_too_small", {"plan", "--sequence", "0"}, {"--sequence", "\"0\"", "from 1"}},
    {"count_negative", {"plan", "--shards", "-1"}, {"--shards", "\"-1\"", "from 1"}},
    {"decimal_unit", {"plan", "--device-bytes", "40GB"}, {"--device-bytes", "\"40GB\"", "40GiB"}},
    {"no_bytes", {"plan", "--host-bytes", "0"}, {"--host-bytes", "above zero"}},
    {"unknown_word", {"plan", "--memory", "one-pool"}, {"--memory", "one_pool, staging", "did you mean one_pool?"}},
    {"unknown_format", {"plan", "--format", "fp16"}, {"--format", "bf16, fp8, fp4"}},
    {"number_out_of_range", {"simulate", "--jitter", "2"}, {"--jitter", "\"2\"", "0 to 0.9"}},
    {"too_few_steps", {"simulate", "--steps", "2"}, {"--steps", "from 3"}},
    {"policy_value", {"plan", "--model", "generic-dense", "--policy", "context=gone"}, {"\"gone\"", "remat"}},
    {"policy_impossible",
     {"simulate", "--model", "generic-dense", "--policy", "decoder_layer_input=remat"},
     {"decoder_layer_input", "device or offload"}},
    {"no_such_format_there",
     {"plan", "--model", "generic-dense", "--machine", "a100-pcie4", "--format", "fp4"},
     {"a100-pcie4", "fp4"}},
    {"shapes_that_do_not_fit",
     {"plan", "--model", "generic-moe", "--expert-shards", "7"},
     {"expert_shards is 7", "divisor"}},
    {"pipeline", {"plan", "--model", "generic-dense", "--pipeline-stages", "4", "--pipeline-stage", "4"}, {"0 to 3"}},
};

INSTANTIATE_TEST_SUITE_P(wrong, usage, ::testing::ValuesIn(k_wrong), [](const auto &p) { return p.param.name; });

TEST(help, is_enough_for_each_command) {
    for (const char *command : {"machines", "models", "plan", "simulate", "tables"}) {
        for (const char *asked : {"--help", "-h"}) {
            const ran r = run({command, asked});
            EXPECT_EQ(r.status, 0);
            EXPECT_THAT(r.err, IsEmpty());
            EXPECT_THAT(r.out, AllOf(HasSubstr("Examples:\n  ebb " + std::string(command)), HasSubstr("--json"),
                                     HasSubstr("Exit status: 0 done")));
        }
        EXPECT_THAT(run({"--help"}).out, HasSubstr(command));
    }
    EXPECT_EQ(run({}).status, 2);
    EXPECT_EQ(run({"help"}).status, 0);
    EXPECT_THAT(run({"--version"}).out, HasSubstr("ebb"));
}

// Those that read no file of the user's.
TEST(help, its_examples_work) {
    for (const char *command : {"machines", "models", "plan", "simulate"}) {
        std::istringstream text(run({command, "--help"}).out);
        size_t tried = 0;
        for (std::string line; std::getline(text, line);) {
            if (line.rfind("  ebb ", 0) != 0) {
                continue;
            }
            while (line.back() == '\\') {
                std::string more;
                ASSERT_TRUE(std::getline(text, more));
                line = line.substr(0, line.size() - 1) + more;
            }
            if (line.find("./") != std::string::npos || line.find('>') != std::string::npos) {
                continue;
            }
            std::istringstream words(line.substr(6));
            arguments args;
            for (std::string word; words >> word;) {
                args.push_back(word);
            }
            const ran r = run(args);
            EXPECT_EQ(r.status, 0) << line << '\n' << r.err;
            ++tried;
        }
        EXPECT_GE(tried, 2U) << command;
    }
}

TEST(nearest, is_named_only_if_it_is_near) {
    EXPECT_EQ(nearest_of("sequnce", {"sequence", "shards"}), "sequence");
    EXPECT_EQ(nearest_of("zzzzzz", {"sequence", "shards"}), "");
}

TEST(output, that_cannot_be_written_is_a_failure) {
    std::ostringstream out;
    out.setstate(std::ios::badbit);
    std::ostringstream err;
    terminal io{out, err, false};
    EXPECT_EQ(run_ebb({"models"}, io), 1);
    EXPECT_THAT(err.str(), HasSubstr("standard output"));
}

}  // namespace
}  // namespace ebb::cli::test
