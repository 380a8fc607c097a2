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

fake_call made(const std::string &layout, const std::string &names, std::int64_t site = 7) {
    fake_call call(1, 0, nullptr);
    call.text("layout", layout).text("names", names).number("reloads", 2).text("scope", "layer");
    call.number("site", site).number("stays", 1);
    return call;
}

TEST(jax_attributes, are_taken_apart) {
    fake_call call = made("0123456789", "up\ndown");
    const call_attributes &said = said_by(call);
    EXPECT_EQ(said.layout, "0123456789");
    EXPECT_THAT(said.names, ::testing::ElementsAre("up", "down"));
    EXPECT_EQ(said.scope, "layer");
    EXPECT_EQ(said.site, 7);
    EXPECT_EQ(said.reloads, 2U);
    EXPECT_TRUE(said.stays);
    fake_call none(1, 0, nullptr);
    EXPECT_THAT(said_by(none).names, ::testing::IsEmpty());
}

TEST(jax_attributes, that_are_the_same_are_one_object) {
    fake_call one = made("", "x"), other = made("", "x");
    const call_attributes &said = said_by(one);
    EXPECT_EQ(&said_by(one), &said);
    EXPECT_EQ(&said_by(other), &said);
}

// Each overwrites what the one before it said, at the same addresses.
TEST(jax_attributes, others_at_the_same_address_are_others) {
    char layout[] = "0123456789abcde", names[] = "up", scope[] = "layer", key[] = "scope";
    std::int64_t site = 7;
    const xla::span texts[] = {{layout, 15}, {names, 2}, {scope, 5}};
    xla::span layout_key{"layout", 6}, names_key{"names", 5}, scope_key{key, 5}, site_key{"site", 4};
    xla::scalar number{xla::k_s64, &site};
    xla::span *keys[] = {&layout_key, &names_key, &scope_key, &site_key};
    std::int32_t kinds[] = {xla::k_string_attribute, xla::k_string_attribute, xla::k_string_attribute,
                            xla::k_scalar_attribute};
    void *values[] = {const_cast<xla::span *>(&texts[0]), const_cast<xla::span *>(&texts[1]),
                      const_cast<xla::span *>(&texts[2]), &number};
    xla::attributes block{sizeof(xla::attributes), nullptr, 4, kinds, keys, values};
    EXPECT_EQ(attributes_of(block).scope, "layer");
    layout[14] = 'f';
    EXPECT_EQ(attributes_of(block).layout, "0123456789abcdf");
    names[1] = 's';
    EXPECT_THAT(attributes_of(block).names, ::testing::ElementsAre("us"));
    scope[2] = 'z';
    EXPECT_EQ(attributes_of(block).scope, "lazer");
    site = 8;
    EXPECT_EQ(attributes_of(block).site, 8);
    key[0] = 'S';
    EXPECT_EQ(attributes_of(block).scope, "");
    number.type = 4;
    EXPECT_EQ(attributes_of(block).site, 0);
    block.size = 1;
    EXPECT_THAT(attributes_of(block).names, ::testing::IsEmpty());
}

}  // namespace
}  // namespace ebb_jax::test
