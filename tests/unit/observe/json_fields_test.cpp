#include "observe/json_fields.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace ebb {
namespace {

using ::testing::HasSubstr;

TEST(json_fields, reads_what_is_there) {
    json_file file("f", R"({"rate": 2.5, "count": 80e9, "on": true, "name": "x", "list": [1, 2], "kind": "b"})");
    json_object top = file.root().object();
    EXPECT_EQ(top.number("rate"), 2.5);
    EXPECT_EQ(top.count("count"), 80'000'000'000U);
    EXPECT_TRUE(top.field("on").boolean());
    EXPECT_EQ(top.text("name"), "x");
    EXPECT_EQ(top.field("list").size("numbers"), 2U);
    EXPECT_EQ(top.field("list").item(1).count(), 2U);
    EXPECT_EQ(top.field("kind").word({"a", "b"}), 1U);
    EXPECT_FALSE(top.optional_field("more").has_value());
    top.end();
    EXPECT_TRUE(file.outcome().ok()) << file.outcome().text();
}

std::string failure(const std::string &text, void (*read)(json_object &)) {
    json_file file("f.json", text);
    json_object top = file.root().object();
    read(top);
    return file.outcome().text();
}

TEST(json_fields, a_number_out_of_its_limits_is_named_with_path_value_and_limits) {
    const auto read = [](json_object &top) {
        json_object link = top.field("links").object().field("d2h").object();
        (void)link.number("rate", k_above_zero);
    };
    EXPECT_EQ(failure(R"({"links": {"d2h": {"rate": -3}}})", read),
              "f.json: /links/d2h/rate is -3; allowed: a number above 0");
    EXPECT_EQ(failure(R"({"links": {"d2h": {"rate": "fast"}}})", read),
              "f.json: /links/d2h/rate is \"fast\"; allowed: a number above 0");
    EXPECT_EQ(failure(R"({"links": {"d2h": {}}})", read), "f.json: /links/d2h/rate is missing");
    EXPECT_EQ(failure(R"({"links": {"d2h": 4}})", read), "f.json: /links/d2h is 4; allowed: an object");
}

TEST(json_fields, an_unknown_field_is_named_with_the_nearest_that_is_known) {
    const auto read = [](json_object &top) {
        (void)top.number("latency_ns");
        (void)top.optional_field("curve");
        top.end();
    };
    EXPECT_EQ(failure(R"({"latency_ns": 1, "curv": 2})", read),
              "f.json: /curv is not known; did you mean \"curve\"? allowed here: latency_ns, curve");
    EXPECT_EQ(failure(R"({"latency_ns": 1, "something/else": 2})", read),
              "f.json: /something~1else is not known; allowed here: latency_ns, curve");
}

TEST(json_fields, counts_and_indices_are_whole_and_within) {
    EXPECT_EQ(failure(R"({"n": 1.5})", [](json_object &top) { (void)top.count("n", 1); }),
              "f.json: /n is 1.5; allowed: a whole number of at least 1");
    EXPECT_EQ(failure(R"({"n": 9})", [](json_object &top) { (void)top.count("n", 1, 8); }),
              "f.json: /n is 9; allowed: a whole number from 1 to 8");
    EXPECT_EQ(failure(R"({"n": 3})", [](json_object &top) { (void)top.field("n").index(3, "tensors"); }),
              "f.json: /n is 3; allowed: the index of one of the 3 tensors, 0 to 2");
    EXPECT_THAT(failure(R"({"n": 0})", [](json_object &top) { (void)top.field("n").index(0, "tensors"); }),
                HasSubstr("no tensors"));
}

TEST(json_fields, words_and_arrays_name_what_is_allowed) {
    EXPECT_EQ(failure(R"({"k": "c"})",
                      [](json_object &top) {
                          (void)top.field("k").word({"a", "b"});
                      }),
              "f.json: /k is \"c\"; allowed: \"a\", \"b\"");
    EXPECT_EQ(failure(R"({"k": {}})", [](json_object &top) { (void)top.field("k").size("events"); }),
              "f.json: /k is an object; allowed: an array of events");
    EXPECT_EQ(failure(R"({"k": [1]})", [](json_object &top) { (void)top.field("k").item(1).count(); }),
              "f.json: /k/1 is missing");
}

TEST(json_fields, the_first_failure_is_kept) {
    EXPECT_THAT(failure(R"({"a": "x", "b": "y"})",
                        [](json_object &top) {
                            (void)top.number("a");
                            (void)top.number("b");
                        }),
                HasSubstr("/a is"));
}

TEST(json_fields, text_that_is_no_json_says_where) {
    json_file file("f.json", "{\"a\": 1,\n \"b\" 2}");
    EXPECT_THAT(file.outcome().text(), HasSubstr("f.json: not JSON: parse error at line 2"));
    (void)file.root().object();
    EXPECT_THAT(file.outcome().text(), HasSubstr("line 2"));
}

TEST(json_fields, a_key_that_stands_twice_is_refused) {
    EXPECT_EQ(failure(R"({"a": {"b": 1, "b": 2}})", [](json_object &) {}),
              "f.json: the key \"b\" stands twice in one object");
    EXPECT_EQ(failure(R"({"a": {"b": 1}, "c": {"b": 2}})", [](json_object &) {}), "");
}

}  // namespace
}  // namespace ebb
