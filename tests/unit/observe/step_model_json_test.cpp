#include "observe/step_model_json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "observe/plan_json.hpp"

namespace ebb {
namespace {

using ::testing::HasSubstr;
using json = nlohmann::ordered_json;

step_event on(step_event_kind what, uint32_t tensor) {
    step_event e;
    e.what = what;
    e.tensor = tensor;
    return e;
}

step_event working(double time_ns, uint32_t operation = 0, double hbm = 0) {
    step_event e;
    e.time_ns = time_ns;
    e.operation = operation;
    e.hbm_fraction = hbm;
    return e;
}

// One of everything; times that have no short decimal form.
step_model example() {
    step_model m;
    m.fixed_bytes = (uint64_t{1} << 60U) + 1;
    m.operation_names = {"work", "gate \"x\"", "gather"};
    step_tensor input;
    input.name = "layer.0/input";
    input.size_bytes = ~uint64_t{0};
    input.can_offload = false;
    step_tensor gate;
    gate.name = "layer.0/gate";
    gate.size_bytes = 3;
    gate.micro_batch = 2;
    gate.stage = 1;
    gate.layer = 7;
    gate.can_keep = false;
    gate.can_recompute = true;
    gate.recompute_ns = 1.0 / 3;
    gate.recompute_from = {0};
    gate.recompute_at = 6;
    m.tensors = {input, gate};
    step_event gather;
    gather.what = step_event_kind::collective_begin;
    gather.time_ns = 0.1 + 0.2;
    gather.operation = 2;
    step_event end;
    end.what = step_event_kind::collective_end;
    m.events = {on(step_event_kind::produce, 0),
                gather,
                working(1e9 / 7, 1, 2.0 / 3),
                on(step_event_kind::produce, 1),
                end,
                working(12345678.9012345),
                working(5e-324),
                on(step_event_kind::use, 1),
                on(step_event_kind::done, 1),
                on(step_event_kind::release, 1),
                on(step_event_kind::release, 0)};
    return m;
}

void expect_equal(const step_model &a, const step_model &b) {
    EXPECT_EQ(a.fixed_bytes, b.fixed_bytes);
    EXPECT_EQ(a.operation_names, b.operation_names);
    ASSERT_EQ(a.tensors.size(), b.tensors.size());
    for (size_t i = 0; i < a.tensors.size(); ++i) {
        const step_tensor &x = a.tensors[i];
        const step_tensor &y = b.tensors[i];
        EXPECT_EQ(std::tie(x.name, x.size_bytes, x.micro_batch, x.stage, x.layer, x.can_keep, x.can_offload),
                  std::tie(y.name, y.size_bytes, y.micro_batch, y.stage, y.layer, y.can_keep, y.can_offload));
        EXPECT_EQ(std::tie(x.can_recompute, x.recompute_ns, x.recompute_from, x.recompute_at),
                  std::tie(y.can_recompute, y.recompute_ns, y.recompute_from, y.recompute_at));
    }
    ASSERT_EQ(a.events.size(), b.events.size());
    for (size_t i = 0; i < a.events.size(); ++i) {
        const step_event &x = a.events[i];
        const step_event &y = b.events[i];
        EXPECT_EQ(std::tie(x.what, x.tensor, x.time_ns, x.hbm_fraction, x.operation),
                  std::tie(y.what, y.tensor, y.time_ns, y.hbm_fraction, y.operation))
            << i;
    }
}

TEST(step_model_json, round_trip_is_exact_and_text_is_stable) {
    const std::string text = step_model_to_json(example());
    const result<step_model> read = step_model_from_json(text, "f");
    ASSERT_TRUE(read.ok()) << read.why().text();
    expect_equal(read.value(), example());
    EXPECT_EQ(step_model_to_json(read.value()), text);
    EXPECT_TRUE(looks_like_step_model(text));
    EXPECT_FALSE(looks_like_step_model("{\"ebb_model\": 1}"));
}

TEST(step_model_json, is_what_the_header_says) {
    step_model m = example();
    m.fixed_bytes = 5;
    m.tensors.resize(1);
    m.tensors[0].size_bytes = 8;
    m.events = {on(step_event_kind::produce, 0), working(1.5, 1, 0.25)};
    EXPECT_EQ(
        step_model_to_json(m),
        "{\"ebb_record\": 1,\n\"fixed_bytes\": 5,\n\"operations\": [\n\"work\",\n\"gate \\\"x\\\"\",\n\"gather\"],\n"
        "\"tensors\": [\n{\"name\":\"layer.0/input\",\"bytes\":8,\"micro_batch\":0,\"stage\":0,\"layer\":0,"
        "\"keep\":true,\"offload\":false}],\n"
        "\"events\": [\n[\"produce\",0],\n[\"work\",1,1.5,0.25]]}\n");
}

std::string failure(const json &changed) {
    const result<step_model> read = step_model_from_json(changed.dump(), "r.json");
    EXPECT_FALSE(read.ok());
    return read.ok() ? "" : read.why().text();
}

TEST(step_model_json, bad_files_are_named_with_path_value_and_what_is_allowed) {
    const json good = json::parse(step_model_to_json(example()));
    json bad = good;
    bad["events"][2][2] = -1;
    EXPECT_EQ(failure(bad), "r.json: /events/2/2 is -1; allowed: a number of at least 0");
    bad = good;
    bad["events"][2][1] = 3;
    EXPECT_EQ(failure(bad), "r.json: /events/2/1 is 3; allowed: the index of one of the 3 operations, 0 to 2");
    bad = good;
    bad["events"][7][1] = 9;
    EXPECT_EQ(failure(bad), "r.json: /events/7/1 is 9; allowed: the index of one of the 2 tensors, 0 to 1");
    bad = good;
    bad["events"][0][0] = "make";
    EXPECT_THAT(failure(bad), HasSubstr("/events/0/0 is \"make\"; allowed: \"work\""));
    bad = good;
    bad["events"][0] = json::array({"produce"});
    EXPECT_EQ(failure(bad), "r.json: /events/0 has 1 entries; allowed for produce: 2");
    bad = good;
    bad["events"][0] = json::array();
    EXPECT_EQ(failure(bad), "r.json: /events/0 is no event: its kind is missing");
    bad = good;
    bad["tensors"][1]["recompute"]["from"][0] = 2;
    EXPECT_THAT(failure(bad),
                HasSubstr("/tensors/1/recompute/from/0 is 2; allowed: the index of one of the 2 tensors"));
    bad = good;
    bad["tensors"][1]["recompute"]["where"] = 2;
    EXPECT_THAT(failure(bad), HasSubstr("/tensors/1/recompute/where is not known"));
    bad = good;
    bad["tensors"][0].erase("bytes");
    EXPECT_EQ(failure(bad), "r.json: /tensors/0/bytes is missing");
    bad = good;
    bad["ebb_record"] = 2;
    EXPECT_EQ(failure(bad), "r.json: /ebb_record is 2; allowed: a whole number from 1 to 1");
}

plan example_plan() {
    plan p;
    p.placement = {tensor_placement::keep, tensor_placement::recompute};
    p.staging_bytes = 1'234'567'890'123;
    return p;
}

TEST(plan_json, round_trip_is_exact_and_text_is_stable) {
    const step_model m = example();
    const std::string text = plan_to_json(example_plan(), m);
    EXPECT_EQ(text,
              "{\"ebb_plan\": 1,\n\"staging_bytes\": 1234567890123,\n\"tensors\": [\n"
              "[\"layer.0/input\",0,0,\"keep\"],\n[\"layer.0/gate\",2,1,\"recompute\"]]}\n");
    const result<plan> read = plan_from_json(text, m, "p");
    ASSERT_TRUE(read.ok()) << read.why().text();
    EXPECT_EQ(read.value().placement, example_plan().placement);
    EXPECT_EQ(read.value().staging_bytes, example_plan().staging_bytes);
}

std::string plan_failure(const json &changed, const step_model &m) {
    const result<plan> read = plan_from_json(changed.dump(), m, "p.json");
    EXPECT_FALSE(read.ok());
    return read.ok() ? "" : read.why().text();
}

TEST(plan_json, a_plan_for_another_step_is_refused) {
    const step_model m = example();
    const json good = json::parse(plan_to_json(example_plan(), m));
    json bad = good;
    bad["tensors"][1][0] = "layer.0/up";
    EXPECT_EQ(plan_failure(bad, m),
              "p.json: /tensors/1 names \"layer.0/up\" of micro-batch 2 and stage 1, of which the step has none");
    bad = good;
    bad["tensors"][1] = bad["tensors"][0];
    EXPECT_EQ(plan_failure(bad, m),
              "p.json: /tensors/1 names \"layer.0/input\" of micro-batch 0 and stage 0, of which the step has only 1");
    bad = good;
    bad["tensors"].erase(1);
    EXPECT_EQ(plan_failure(bad, m),
              "p.json: /tensors has no placement for \"layer.0/gate\" of micro-batch 2 and stage 1");
    bad = good;
    bad["tensors"][0][3] = "offload";
    EXPECT_EQ(plan_failure(bad, m), "p.json: /tensors/0/3 is \"offload\", which \"layer.0/input\" cannot be");
    bad = good;
    bad["tensors"][0][3] = "disk";
    EXPECT_EQ(plan_failure(bad, m), "p.json: /tensors/0/3 is \"disk\"; allowed: \"keep\", \"offload\", \"recompute\"");
}

// Which saves share the bytes of others differs between runs of one step: here the second and third of three do, there
// none does.
TEST(plan_json, is_for_runs_that_share_other_copies) {
    step_model three = example();
    three.tensors.resize(1);
    three.tensors[0].can_keep = three.tensors[0].can_offload = true;
    three.tensors.assign(3, three.tensors[0]);
    step_model one = three;
    one.tensors.resize(1);
    const std::vector<uint32_t> two_views{k_no_index, 0, 0};
    plan p;
    p.placement.assign(3, tensor_placement::offload);
    const std::string with_views = plan_to_json(p, three, two_views);
    EXPECT_THAT(with_views, HasSubstr("\"offload\",\"view\"]]"));
    for (const auto &[text, model, view_of] :
         {std::tuple(with_views, three, two_views), std::tuple(with_views, three, std::vector<uint32_t>()),
          std::tuple(with_views, one, std::vector<uint32_t>()), std::tuple(plan_to_json(p, three), three, two_views)}) {
        const result<plan> read = plan_from_json(text, model, "p", view_of);
        ASSERT_TRUE(read.ok()) << read.why().text();
        EXPECT_EQ(read.value().placement, std::vector(model.tensors.size(), tensor_placement::offload));
    }
    p.placement.resize(1);
    const result<plan> bodies = plan_from_json(plan_to_json(p, one), three, "p", two_views);
    ASSERT_TRUE(bodies.ok()) << bodies.why().text();
    EXPECT_EQ(bodies.value().placement[0], tensor_placement::offload);
    p.placement.assign(2, tensor_placement::offload);
    step_model two = three;
    two.tensors.resize(2);
    EXPECT_THAT(plan_failure(json::parse(plan_to_json(p, two)), three), HasSubstr("has no placement for"));
    EXPECT_THAT(plan_failure(json::parse(plan_to_json(p, two)), one), HasSubstr("of which the step has only 1"));
}

TEST(plan_json, equal_names_are_told_apart_by_their_order) {
    step_model m = example();
    m.tensors.push_back(m.tensors[1]);
    plan p = example_plan();
    p.placement.push_back(tensor_placement::offload);
    const result<plan> read = plan_from_json(plan_to_json(p, m), m, "p");
    ASSERT_TRUE(read.ok()) << read.why().text();
    EXPECT_EQ(read.value().placement, p.placement);
}

}  // namespace
}  // namespace ebb
