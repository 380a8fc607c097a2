#include "base/config.hpp"

#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <string>
#include <vector>

namespace ebb {
namespace {

// Resolves with an environment of its own and keeps the log.
struct world {
    std::vector<std::string> entries;
    config_overrides overrides;
    std::vector<std::string> lines;

    static void sink(void *context, int32_t level, const char *line) {
        static_cast<world *>(context)->lines.push_back(std::string(log_level_name(static_cast<log_level>(level))) +
                                                       ": " + line);
    }

    result<config> resolve() {
        std::vector<const char *> environment;
        for (const std::string &entry : entries) {
            environment.push_back(entry.c_str());
        }
        environment.push_back(nullptr);
        logger log(sink, this, log_level::warning);
        return resolve_config(overrides, log, environment.data());
    }
};

status resolve_with(const std::string &entry) {
    world w;
    w.entries = {entry};
    const result<config> c = w.resolve();
    return c.ok() ? status() : c.why();
}

TEST(config, table_is_in_the_order_of_the_ids_and_names_the_variables_after_the_fields) {
    std::set<std::string_view> names;
    for (size_t i = 0; i < options().size(); ++i) {
        const option_row &row = options()[i];
        EXPECT_EQ(static_cast<size_t>(row.id), i);
        std::string variable = "EBB_";
        for (const char c : row.name) {
            variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
        }
        EXPECT_EQ(row.variable, variable);
        EXPECT_FALSE(row.meaning.empty());
        names.insert(row.name);
    }
    EXPECT_EQ(names.size(), k_option_count);
}

TEST(config, defaults_of_the_table_are_the_initialisers) {
    world w;
    const result<config> c = w.resolve();
    ASSERT_TRUE(c.ok()) << c.why().text();
    const config plain;
    for (const option_row &row : options()) {
        EXPECT_EQ(format_option(c.value(), row.id), row.default_text);
        EXPECT_EQ(format_option(plain, row.id), row.default_text);
    }
    EXPECT_TRUE(w.lines.empty());
}

TEST(config, field_then_environment_then_default) {
    world w;
    w.entries = {"EBB_LANES=3", "EBB_KEEP_LAST=5", "PATH=/bin"};
    w.overrides.set(option::lanes, 2);
    const config c = w.resolve().value();
    EXPECT_EQ(c.lanes, 2U);
    EXPECT_EQ(c.keep_last, 5U);
    EXPECT_EQ(c.sample_every, 16U);
    EXPECT_EQ(c.called(option::lanes), "lanes");
    EXPECT_EQ(c.called(option::keep_last), "EBB_KEEP_LAST");
    EXPECT_EQ(c.called(option::sample_every), "sample_every");
    EXPECT_EQ(c.origins[static_cast<size_t>(option::lanes)], option_origin::field);
    EXPECT_EQ(c.origins[static_cast<size_t>(option::keep_last)], option_origin::environment);
    EXPECT_EQ(c.origins[static_cast<size_t>(option::sample_every)], option_origin::by_default);
}

TEST(config, every_option_is_read_from_its_variable) {
    world w;
    w.entries = {"EBB_DEVICE=null",
                 "EBB_DEVICE_ORDINAL=1",
                 "EBB_LANES=4",
                 "EBB_DEVICE_BUDGET_BYTES=3G",
                 "EBB_STAGING_BYTES=64MiB",
                 "EBB_MAX_ACTIVATION_BYTES=8M",
                 "EBB_HOST_BYTES=10G",
                 "EBB_MIN_OFFLOAD_BYTES=1",
                 "EBB_POLICY=query_proj=offload,*=device",
                 "EBB_KEEP_LAST=2",
                 "EBB_PREFETCH_BYTES=layer",
                 "EBB_SOURCE_BYTES=none",
                 "EBB_CHUNK_BYTES=4K",
                 "EBB_SAMPLE_EVERY=1",
                 "EBB_VERIFY=on",
                 "EBB_LOG_LEVEL=debug",
                 "EBB_HOST_PROCESSES=4",
                 "EBB_HOST_DEVICE_BYTES=512M",
                 "EBB_HOST_D2H_BYTES_PER_SECOND=12GB/s",
                 "EBB_HOST_H2D_BYTES_PER_SECOND=1.5GB/s",
                 "EBB_RECORD=step.json",
                 "EBB_CALIBRATE=on",
                 "EBB_NVTX=1",
                 "EBB_CUDA_LIBRARY=/opt/libebb_cuda.so"};
    ASSERT_EQ(w.entries.size(), k_option_count);
    const result<config> resolved = w.resolve();
    ASSERT_TRUE(resolved.ok()) << resolved.why().text();
    const config &c = resolved.value();
    EXPECT_EQ(c.device, "null");
    EXPECT_EQ(c.device_ordinal, 1);
    EXPECT_EQ(c.lanes, 4U);
    EXPECT_EQ(c.device_budget_bytes, uint64_t{3} << 30U);
    EXPECT_EQ(c.staging_bytes, 64U << 20U);
    EXPECT_EQ(c.max_activation_bytes, 8U << 20U);
    EXPECT_EQ(c.host_bytes, uint64_t{10} << 30U);
    EXPECT_EQ(c.min_offload_bytes, 1U);
    EXPECT_EQ(c.policy, "query_proj=offload,*=device");
    EXPECT_EQ(c.keep_last, 2U);
    EXPECT_EQ(c.prefetch_bytes, k_prefetch_layer);
    EXPECT_EQ(c.source_bytes, k_sources_none);
    EXPECT_EQ(c.chunk_bytes, 4096U);
    EXPECT_EQ(c.sample_every, 1U);
    EXPECT_TRUE(c.verify);
    EXPECT_EQ(c.log_level, log_level::debug);
    EXPECT_EQ(c.host_processes, 4U);
    EXPECT_EQ(c.record, "step.json");
    EXPECT_TRUE(c.calibrate);
    EXPECT_TRUE(c.nvtx);
    EXPECT_EQ(c.cuda_library, "/opt/libebb_cuda.so");
    EXPECT_EQ(c.host_device_bytes, 512U << 20U);
    EXPECT_EQ(c.host_d2h_bytes_per_second, 12'000'000'000U);
    EXPECT_EQ(c.host_h2d_bytes_per_second, 1'500'000'000U);
    EXPECT_TRUE(w.lines.empty());
}

TEST(config, a_malformed_variable_is_named_with_its_value_and_what_is_allowed) {
    const status s = resolve_with("EBB_LANES=nine");
    EXPECT_EQ(s.code(), code::invalid_argument);
    EXPECT_EQ(s.text(), "EBB_LANES is \"nine\"; allowed: a whole number, 1 to 8");
    EXPECT_EQ(
        resolve_with("EBB_PREFETCH_BYTES=deep").text(),
        "EBB_PREFETCH_BYTES is \"deep\"; allowed: auto, none, layer, or bytes, 1 or more (units B, K, M, G, T, KiB, "
        "MiB, GiB, TiB)");
    EXPECT_EQ(resolve_with("EBB_DEVICE=gpu").text(), "EBB_DEVICE is \"gpu\"; allowed: auto, cuda, host, null, sim");
}

TEST(config, values_out_of_range_and_of_the_wrong_kind_are_refused) {
    for (const char *entry :
         {"EBB_LANES=0", "EBB_LANES=9", "EBB_LANES=-1", "EBB_LANES=2K", "EBB_CHUNK_BYTES=4095", "EBB_CHUNK_BYTES=0",
          "EBB_SAMPLE_EVERY=0", "EBB_SAMPLE_EVERY=4294967296", "EBB_DEVICE_ORDINAL=2147483648", "EBB_VERIFY=maybe",
          "EBB_LOG_LEVEL=2", "EBB_LOG_LEVEL=loud", "EBB_MIN_OFFLOAD_BYTES=0", "EBB_HOST_BYTES=1GB",
          "EBB_HOST_BYTES=18446744073709551615", "EBB_SOURCE_BYTES=layer", "EBB_HOST_D2H_BYTES_PER_SECOND=12G",
          "EBB_STAGING_BYTES=100", "EBB_KEEP_LAST=two"}) {
        const status s = resolve_with(entry);
        const std::string variable = std::string(entry).substr(0, std::string(entry).find('='));
        EXPECT_EQ(s.code(), code::invalid_argument) << entry;
        EXPECT_NE(s.text().find(variable + " is \""), std::string::npos) << s.text();
    }
}

TEST(config, a_malformed_variable_fails_also_where_a_field_overrides_it) {
    world w;
    w.entries = {"EBB_LANES=nine"};
    w.overrides.set(option::lanes, 2);
    EXPECT_EQ(w.resolve().why().code(), code::invalid_argument);
}

TEST(config, a_malformed_field_is_named_as_the_field) {
    world w;
    w.overrides.set(option::lanes, 9);
    EXPECT_EQ(w.resolve().why().text(), "lanes is \"9\"; allowed: a whole number, 1 to 8");
    world text;
    text.overrides.set(option::device, std::string("tpu"));
    EXPECT_EQ(text.resolve().why().text(), "device is \"tpu\"; allowed: auto, cuda, host, null, sim");
    text.overrides.set(option::device, std::string("sim:device_bytes=80G"));
    EXPECT_EQ(text.resolve().value().device, "sim:device_bytes=80G");  // the device itself reads what follows
    text.overrides.set(option::device, std::string("simple:"));
    EXPECT_EQ(text.resolve().why().code(), code::invalid_argument);
    world toggle;
    toggle.overrides.set(option::verify, 3);
    EXPECT_EQ(toggle.resolve().why().text(), "verify is \"3\"; allowed: off, on, 0, 1");
    world empty;
    empty.overrides.set(option::policy, std::string());
    EXPECT_EQ(empty.resolve().why().code(), code::invalid_argument);
}

TEST(config, fields_take_the_numbers_of_words) {
    world w;
    w.overrides.set(option::prefetch_bytes, k_prefetch_none);
    w.overrides.set(option::source_bytes, k_sources_none);
    w.overrides.set(option::verify, k_on);
    w.overrides.set(option::log_level, static_cast<uint64_t>(log_level::info));
    w.overrides.set(option::device_ordinal, std::string("2"));
    const config c = w.resolve().value();
    EXPECT_EQ(c.prefetch_bytes, k_prefetch_none);
    EXPECT_EQ(c.source_bytes, k_sources_none);
    EXPECT_TRUE(c.verify);
    EXPECT_EQ(c.log_level, log_level::info);
    EXPECT_EQ(c.device_ordinal, 2);
    EXPECT_EQ(format_option(c, option::prefetch_bytes), "none");
    EXPECT_EQ(format_option(c, option::verify), "on");
}

TEST(config, an_unknown_variable_gives_one_warning_with_the_nearest_name) {
    world w;
    w.entries = {"EBB_LANE=3", "EBB_LANES=3", "EBBTIDE=1", "MY_EBB_LANE=1"};
    ASSERT_TRUE(w.resolve().ok());
    EXPECT_EQ(w.lines, std::vector<std::string>{
                           "warning: EBB_LANE is set, but Ebb has no such variable; did you mean EBB_LANES?"});
    world far;
    far.entries = {"EBB_HOST_BITES=3", "EBB_HOST_BITES=4"};
    ASSERT_TRUE(far.resolve().ok());
    ASSERT_EQ(far.lines.size(), 1U);
    EXPECT_NE(far.lines[0].find("did you mean EBB_HOST_BYTES?"), std::string::npos) << far.lines[0];
}

TEST(config, warnings_follow_the_level_that_was_resolved) {
    world w;
    w.entries = {"EBB_LANE=3", "EBB_LOG_LEVEL=error"};
    ASSERT_TRUE(w.resolve().ok());
    EXPECT_TRUE(w.lines.empty());
}

TEST(config, an_empty_variable_is_not_set_and_the_first_of_two_counts) {
    world w;
    w.entries = {"EBB_LANES=", "EBB_KEEP_LAST=1", "EBB_KEEP_LAST=2", "EBB_NO_EQUALS"};
    const config c = w.resolve().value();
    EXPECT_EQ(c.lanes, 1U);
    EXPECT_EQ(c.keep_last, 1U);
    EXPECT_TRUE(w.lines.empty());
}

TEST(config, the_process_environment_is_the_default) {
    ASSERT_EQ(setenv("EBB_KEEP_LAST", "11", 1), 0);
    logger log;
    const result<config> c = resolve_config({}, log);
    ASSERT_EQ(unsetenv("EBB_KEEP_LAST"), 0);
    ASSERT_TRUE(c.ok()) << c.why().text();
    EXPECT_EQ(c.value().keep_last, 11U);
}

TEST(config, what_is_printed_is_read_back) {
    world w;
    w.entries = {"EBB_DEVICE_BUDGET_BYTES=1.5G", "EBB_HOST_D2H_BYTES_PER_SECOND=7GB/s", "EBB_SOURCE_BYTES=12345"};
    const config first = w.resolve().value();
    world again;
    for (const option_row &row : options()) {
        again.entries.push_back(std::string(row.variable) + "=" + format_option(first, row.id));
    }
    const config second = again.resolve().value();
    for (const option_row &row : options()) {
        EXPECT_EQ(format_option(first, row.id), format_option(second, row.id));
    }
    EXPECT_EQ(format_option(first, option::device_budget_bytes), "1536MiB");
}

TEST(config, docs_name_every_option) {
    const std::string docs = environment_docs();
    for (const option_row &row : options()) {
        EXPECT_NE(docs.find("## " + std::string(row.variable) + "\n"), std::string::npos);
        EXPECT_NE(docs.find("- field: `" + std::string(row.name) + "`\n"), std::string::npos);
    }
}

}  // namespace
}  // namespace ebb
