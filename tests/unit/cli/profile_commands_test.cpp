// ebb machines, ebb models.
#include <gmock/gmock.h>

#include "cli_fixture.hpp"
#include "model/profile_library.hpp"

namespace ebb::cli::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class profile_commands : public cli_files {};

TEST_F(profile_commands, machines_are_listed) {
    const ran r = run({"machines"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.err, IsEmpty());
    EXPECT_THAT(r.out, AllOf(HasSubstr("GB/s"), HasSubstr("GiB"), HasSubstr("TFLOP/s")));
    const nlohmann::json listed = run({"machines", "--json"}).json();
    ASSERT_EQ(listed["machines"].size(), machine_names().size());
    for (const nlohmann::json &m : listed["machines"]) {
        EXPECT_THAT(r.out, HasSubstr(m["name"].get<std::string>()));
        EXPECT_GT(m["device_gib"], 50);
        EXPECT_GT(m["d2h_gb_per_second"], 10);
    }
}

TEST_F(profile_commands, every_number_of_a_machine_has_its_source_and_kind) {
    const ran r = run({"machines", "gb200-nvl72"});
    EXPECT_EQ(r.status, 0) << r.err;
    size_t numbers = 0;
    const nlohmann::json file = run({"machines", "gb200-nvl72", "--json"}).json();
    const std::function<void(const nlohmann::json &)> check = [&](const nlohmann::json &at) {
        for (const auto &[key, inside] : at.items()) {
            if (inside.is_object() && inside.contains("value")) {
                ++numbers;
                EXPECT_THAT(r.out, AllOf(HasSubstr("/" + key), HasSubstr(inside["source"].get<std::string>())));
            } else if (inside.is_object()) {
                check(inside);
            }
        }
    };
    check(file);
    EXPECT_GT(numbers, 15U);
    EXPECT_THAT(r.out, AllOf(HasSubstr("measured"), HasSubstr("vendor"), HasSubstr("assumed"), HasSubstr("173.2"),
                             HasSubstr("NUMA node")));
}

TEST_F(profile_commands, a_machine_of_ones_own_starts_from_the_printed_file) {
    std::string text = run({"machines", "h100-pcie5", "--json"}).out;
    text.replace(text.find("h100-pcie5"), 10, "my-machine");
    const ran r = run({"machines", write("mine.json", text)});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("my-machine"));
}

TEST_F(profile_commands, models_are_listed_and_shown_with_the_names_of_policies) {
    const ran list = run({"models"});
    EXPECT_EQ(list.status, 0);
    EXPECT_THAT(list.out, AllOf(HasSubstr("llama-3.1-405b"), HasSubstr("405.9")));
    EXPECT_EQ(run({"models", "--json"}).json()["models"].size(), model_names().size());
    const ran one = run({"models", "deepseek-v3-671b"});
    EXPECT_EQ(one.status, 0);
    EXPECT_THAT(one.out, AllOf(HasSubstr("671.03 billion"), HasSubstr("moe_mlpwi_0"), HasSubstr("query_wa_proj"),
                               HasSubstr("8 of 256 experts")));
    EXPECT_EQ(run({"models", "deepseek-v3-671b", "--json"}).json()["hidden"], 7168);
}

TEST_F(profile_commands, a_recorded_step_is_a_model) {
    const std::string file = write("step.json", step_model_to_json(recorded_step()));
    const ran r = run({"models", file});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, AllOf(HasSubstr("16 tensors of 4.0 GiB"), HasSubstr("8 can be computed again"),
                             HasSubstr("192.0 ms of work")));
    EXPECT_EQ(run({"models", file, "--json"}).json()["ebb_record"], 1);
}

TEST_F(profile_commands, bad_names_and_files_are_wrong_usage_and_say_where) {
    ran r = run({"machines", "gb200-nvl27"});
    EXPECT_EQ(r.status, 2);
    EXPECT_THAT(r.err, AllOf(HasSubstr("gb200-nvl27"), HasSubstr("Did you mean gb200-nvl72?"), HasSubstr("gh200")));
    EXPECT_THAT(r.out, IsEmpty());
    EXPECT_EQ(run({"models", "lama"}).status, 2);
    EXPECT_EQ(run({"models", "./no such file"}).status, 2);

    std::string text = run({"machines", "h100-pcie5", "--json"}).out;
    const size_t at = text.find("\"measured\"");
    text.replace(at, 10, "\"guessed\"");
    r = run({"machines", write("bad.json", text)});
    EXPECT_EQ(r.status, 2);
    EXPECT_THAT(r.err,
                AllOf(HasSubstr("/links/d2h/bytes_per_second/kind"), HasSubstr("guessed"), HasSubstr("assumed")));
    r = run({"models", write("worse.json", "{\"ebb_model\": 1")});
    EXPECT_EQ(r.status, 2);
    EXPECT_THAT(r.err, Not(IsEmpty()));
}

}  // namespace
}  // namespace ebb::cli::test
