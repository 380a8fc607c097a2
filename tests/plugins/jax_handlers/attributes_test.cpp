// Attributes are taken apart once, and never taken for others that lie where they lay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_xla.hpp"
#include "jax_attributes.hpp"

namespace ebb_jax::test {
namespace {

const call_attributes &said_by(fake_call &call) {
    const call_attributes *said = nullptr;
    EXPECT_EQ(call.make([&](const xla::call_frame *frame) -> xla::error * {
        said = &attributes_of(frame->attrs);
        return nullptr;
    }),
              nullptr);
    return *said;
}

fake_call made(const std::string &text) {
    fake_call call(1, 0, nullptr);
    call.says(text);
    return call;
}

TEST(jax_attributes, are_taken_apart) {
    fake_call call = made("site 7\nserial 3\nreloads 2\nstays 1\nlayout 0123456789\nscope a layer\nname up\nname down");
    const call_attributes &said = said_by(call);
    EXPECT_EQ(said.layout, "0123456789");
    EXPECT_THAT(said.names, ::testing::ElementsAre("up", "down"));
    EXPECT_THAT(said.paths, ::testing::ElementsAre("a layer/up", "a layer/down"));
    EXPECT_EQ(said.scope, "a layer");
    EXPECT_EQ(said.site, 7);
    EXPECT_EQ(said.reloads, 2U);
    EXPECT_TRUE(said.stays);
}

TEST(jax_attributes, without_values_and_of_other_kinds_are_empty) {
    fake_call bare = made("\nlayout \nscope\nname \nsite x");
    const call_attributes &said = said_by(bare);
    EXPECT_EQ(said.layout, "");
    EXPECT_EQ(said.scope, "");
    EXPECT_THAT(said.names, ::testing::ElementsAre(""));
    EXPECT_EQ(said.site, 0);
    fake_call none(1, 0, nullptr);
    EXPECT_THAT(said_by(none).names, ::testing::IsEmpty());
    fake_call two = made("name up");
    two.says("name down");
    EXPECT_THAT(said_by(two).names, ::testing::IsEmpty());
    char text[] = "name up";
    xla::span content{text, 7};
    std::int32_t kind = xla::k_string_attribute + 1;
    void *values[] = {&content};
    EXPECT_THAT(attributes_of({sizeof(xla::attributes), nullptr, 1, &kind, nullptr, values}).names,
                ::testing::IsEmpty());
}

TEST(jax_attributes, that_are_the_same_are_one_object) {
    fake_call one = made("name x"), other = made("name x");
    const call_attributes &said = said_by(one);
    EXPECT_EQ(&said_by(one), &said);
    EXPECT_EQ(&said_by(other), &said);
}

// Each overwrites what the one before it said, at the same address.
TEST(jax_attributes, others_at_the_same_address_are_others) {
    char text[] = "site 7\nname up";
    xla::span content{text, sizeof text - 1};
    std::int32_t kind = xla::k_string_attribute;
    void *values[] = {&content};
    const xla::attributes block{sizeof(xla::attributes), nullptr, 1, &kind, nullptr, values};
    EXPECT_EQ(attributes_of(block).site, 7);
    text[5] = '8';
    EXPECT_EQ(attributes_of(block).site, 8);
    text[13] = 's';
    EXPECT_THAT(attributes_of(block).names, ::testing::ElementsAre("us"));
    content.size = 6;
    EXPECT_THAT(attributes_of(block).names, ::testing::IsEmpty());
}

}  // namespace
}  // namespace ebb_jax::test
