// Options at create, from fields and from the environment, and what the policies decide.

#include <cstdlib>

#include "capi_fixture.hpp"

namespace ebb::test {
namespace {

using ::testing::HasSubstr;

class create : public ::testing::Test {
protected:
    void SetUp() override {
        options_ = zeroed<ebb_runtime_options>();
        options_.device = "host";
        options_.host_device_bytes = 16 << 20;
        options_.log = [](void *to, ebb_log_level, const char *line) {
            static_cast<std::vector<std::string> *>(to)->emplace_back(line);
        };
        options_.log_context = &log_;
    }
    void TearDown() override {
        for (const std::string &name : set_) {
            ::unsetenv(name.c_str());
        }
    }
    void set_variable(const char *name, const char *value) {
        ::setenv(name, value, 1);
        set_.emplace_back(name);
    }
    void expect_refused(const char *words, ebb_status wanted = EBB_INVALID_ARGUMENT) {
        ebb_runtime *made = nullptr;
        EBB_EXPECT_REFUSED(ebb_runtime_create(&options_, &made), wanted, words);
        EXPECT_EQ(made, nullptr);
        SetUp();
    }
    ebb_runtime *open() {
        ebb_runtime *made = nullptr;
        EBB_EXPECT_STATUS(ebb_runtime_create(&options_, &made), EBB_OK);
        return made;
    }

    ebb_runtime_options options_{};
    std::vector<std::string> log_;

private:
    std::vector<std::string> set_;
};

TEST_F(create, null_options_are_all_defaults) {
    ebb_runtime *made = nullptr;
    EBB_ASSERT_OK(ebb_runtime_create(nullptr, &made));
    EBB_EXPECT_OK(ebb_runtime_close(made, EBB_CLOSE_DEFAULT));
}

TEST_F(create, malformed_fields_are_named) {
    options_.device = "cuba";
    expect_refused("device is \"cuba\"");
    options_.device = "";
    expect_refused("device is \"\"");
    options_.device_ordinal = 5;
    expect_refused("device_ordinal 5");
    options_.device_ordinal = -1;
    expect_refused("options->device_ordinal is -1");
    options_.lanes = 9;
    expect_refused("lanes is \"9\"");
    options_.policy = "gate=somewhere";
    expect_refused("\"somewhere\" is not a value");
    options_.policy = "gate=device,,up=remat";
    expect_refused("policy \"gate=device,,up=remat\", at character 13");
    options_.host_bytes = 100;
    expect_refused("host_bytes");
    options_.chunk_bytes = 5;
    expect_refused("chunk_bytes");
    options_.verify = 7;
    expect_refused("verify");
    options_.verify = -1;
    expect_refused("options->verify");
    options_.log_level = 9;
    expect_refused("log_level");
    options_.host_processes = 1 << 20;
    expect_refused("host_processes");
    options_.host_device_bytes = uint64_t{1} << 50;
    expect_refused("host_device_bytes", EBB_OUT_OF_HOST_MEMORY);
    options_.prefetch_bytes = EBB_PREFETCH_LAYER - 1;
    expect_refused("prefetch_bytes");
}

TEST_F(create, sizes_that_cannot_work_are_refused_with_the_smallest_that_does) {
    options_.max_activation_bytes = 1 << 20;
    options_.staging_bytes = 1 << 16;
    expect_refused("at least 1049088 is needed");
    options_.max_activation_bytes = 1 << 20;
    options_.staging_bytes = 1049088;
    EBB_EXPECT_OK(ebb_runtime_close(open(), EBB_CLOSE_DEFAULT));
    SetUp();
    options_.device_budget_bytes = 1 << 20;
    options_.staging_bytes = 1 << 20;
    expect_refused("device_budget_bytes is 1048576 and includes staging_bytes");
    options_.max_activation_bytes = 1 << 20;
    options_.device_budget_bytes = 1 << 20;
    expect_refused("need at least 2097664");
    options_.max_activation_bytes = 1 << 20;
    options_.device_budget_bytes = 2097664;
    EBB_EXPECT_OK(ebb_runtime_close(open(), EBB_CLOSE_DEFAULT));
}

// Moves nothing that anyone could look at, but every call of the runtime is there; calls that need the host device say
// so.
TEST_F(create, a_simulated_machine_takes_activations_and_runs_no_functions) {
    constexpr uint64_t k_gib = uint64_t{1} << 30U;
    options_.device = "sim:device_bytes=80G,latency_ns=5000";
    options_.device_budget_bytes = 8 * k_gib;
    ebb_runtime *r = open();
    const ebb_stream stream = EBB_STREAM_DEFAULT;
    ebb_offload_args args = zeroed<ebb_offload_args>();
    args.name = "activation";
    args.data = &args;  // never touched there
    args.size_bytes = k_gib;
    args.producers = &stream;
    args.producer_count = 1;
    ebb_offload_info saved = zeroed<ebb_offload_info>();
    EBB_ASSERT_OK(ebb_offload(r, &args, &saved));
    EXPECT_EQ(saved.placement, EBB_PLACE_OFFLOAD);
    ebb_reload_info info = zeroed<ebb_reload_info>();
    EBB_EXPECT_OK(ebb_reload(r, saved.activation, stream, &info));
    EXPECT_EQ(info.size_bytes, k_gib);
    EBB_EXPECT_REFUSED(ebb_host_launch(
                           r, stream, [](void *) {}, nullptr),
                       EBB_UNSUPPORTED,
                       "this is for the host device, the runtime's is 'sim', on which no function of the caller's can "
                       "run and no memory can be touched; create the runtime with device \"host\"");
    void *data = nullptr;
    EBB_EXPECT_STATUS(ebb_host_alloc(r, 4096, &data), EBB_UNSUPPORTED);
    EBB_EXPECT_OK(ebb_runtime_close(r, EBB_CLOSE_FORCE));
    options_.device = "sim:device_bytes=lots";
    expect_refused("device \"sim\": device_bytes is \"lots\"");
}

TEST_F(create, sizes_beyond_what_memory_is_cut_from_stop_nothing) {
    constexpr uint64_t k_tib = uint64_t{1} << 40U;
    options_.device = "null";
    options_.staging_bytes = k_tib + 1;
    expect_refused("staging_bytes is \"1099511627777\"; allowed: auto, or bytes, 512 to 1TiB");
#ifndef EBB_SANITIZES_THREADS  // which leaves a program less address space than that
    options_.device = "null";
    options_.staging_bytes = k_tib;
    options_.max_activation_bytes = 1;
    EBB_EXPECT_OK(ebb_runtime_close(open(), EBB_CLOSE_DEFAULT));
    SetUp();
#endif
    options_.device = "null";
    options_.source_bytes = EBB_SOURCES_NONE;
    ebb_runtime *r = open();
    const ebb_stream stream = EBB_STREAM_DEFAULT;
    ebb_offload_args args = zeroed<ebb_offload_args>();
    args.name = "absurd";
    args.data = &args;  // never touched there
    args.producers = &stream;
    args.producer_count = 1;
    args.size_bytes = 8 * k_tib;
    ebb_offload_info info = zeroed<ebb_offload_info>();
    EBB_EXPECT_OK(ebb_offload(r, &args, &info));
    EXPECT_EQ(info.reason, EBB_REASON_HOST_CAP);
    args.size_bytes = k_tib;
    EBB_EXPECT_OK(ebb_offload(r, &args, &info));
    EXPECT_EQ(info.placement, EBB_PLACE_OFFLOAD);
    ebb_reload_info none = zeroed<ebb_reload_info>();
    EBB_EXPECT_STATUS(ebb_reload(r, info.activation, stream, &none), EBB_NO_SLOT);
    EBB_EXPECT_OK(ebb_runtime_close(r, EBB_CLOSE_FORCE));
}

TEST_F(create, a_malformed_variable_is_named) {
    const std::pair<const char *, const char *> all[] = {
        {"EBB_LANES", "many"},          {"EBB_HOST_BYTES", "12 parsecs"}, {"EBB_POLICY", "gate=nowhere"},
        {"EBB_DEVICE", "abacus"},       {"EBB_VERIFY", "maybe"},          {"EBB_LOG_LEVEL", "loud"},
        {"EBB_PREFETCH_BYTES", "some"}, {"EBB_SAMPLE_EVERY", "0"},        {"EBB_STAGING_BYTES", "-1"},
    };
    for (const auto &[name, value] : all) {
        set_variable(name, value);
        if (std::string(name) == "EBB_DEVICE") {
            options_.device = nullptr;
        }
        expect_refused(name);
        ::unsetenv(name);
    }
}

TEST_F(create, field_then_environment_then_default) {
    set_variable("EBB_DEVICE_BUDGET_BYTES", "3MiB");
    set_variable("EBB_DEVICE", "null");
    options_.device = nullptr;
    ebb_runtime *r = open();
    ebb_statistics s = zeroed<ebb_statistics>();
    EBB_ASSERT_OK(ebb_stats(r, &s));
    EXPECT_EQ(s.device_budget_bytes, 3U << 20U);
    ebb_stream stream = 0;
    EBB_EXPECT_REFUSED(ebb_host_stream_create(r, &stream), EBB_UNSUPPORTED, "'null'");
    EBB_EXPECT_OK(ebb_runtime_close(r, EBB_CLOSE_DEFAULT));
    options_.device_budget_bytes = 5 << 20;
    r = open();
    EBB_ASSERT_OK(ebb_stats(r, &s));
    EXPECT_EQ(s.device_budget_bytes, 5U << 20U);
    EBB_EXPECT_OK(ebb_runtime_close(r, EBB_CLOSE_DEFAULT));
}

TEST_F(create, an_unknown_variable_gives_one_warning_with_the_nearest_name) {
    set_variable("EBB_LANE", "2");
    EBB_EXPECT_OK(ebb_runtime_close(open(), EBB_CLOSE_DEFAULT));
    ASSERT_EQ(log_.size(), 1U);
    EXPECT_THAT(log_[0], HasSubstr("EBB_LANE is set"));
    EXPECT_THAT(log_[0], HasSubstr("did you mean EBB_LANES?"));
    log_.clear();
    options_.log_level = EBB_LOG_ERROR;
    EBB_EXPECT_OK(ebb_runtime_close(open(), EBB_CLOSE_DEFAULT));
    EXPECT_TRUE(log_.empty());
}

// ------------------------------------------------------------------------------------------ the host device --

TEST_F(create, the_host_devices_functions_are_unsupported_on_others) {
    options_.device = "null";
    ebb_runtime *r = open();
    void *data = nullptr;
    EBB_EXPECT_STATUS(ebb_host_stream_destroy(r, 0), EBB_UNSUPPORTED);
    EBB_EXPECT_STATUS(ebb_host_stream_synchronize(r, 0), EBB_UNSUPPORTED);
    EBB_EXPECT_STATUS(ebb_host_launch(
                          r, 0, [](void *) {}, nullptr),
                      EBB_UNSUPPORTED);
    EBB_EXPECT_STATUS(ebb_host_alloc(r, 64, &data), EBB_UNSUPPORTED);
    EBB_EXPECT_STATUS(ebb_host_free(r, &data), EBB_UNSUPPORTED);
    EBB_EXPECT_STATUS(ebb_host_memory(r, nullptr, nullptr, nullptr), EBB_UNSUPPORTED);
    EBB_EXPECT_OK(ebb_runtime_close(r, EBB_CLOSE_DEFAULT));
}

TEST_F(create, host_memory_is_capped_counted_and_aligned) {
    ebb_runtime *r = open();
    uint64_t capacity = 0;
    uint64_t used = 1;
    uint64_t peak = 1;
    EBB_ASSERT_OK(ebb_host_memory(r, &capacity, &used, &peak));
    EXPECT_EQ(capacity, 16U << 20U);
    EXPECT_EQ(used, 0U);
    void *data = nullptr;
    EBB_ASSERT_OK(ebb_host_alloc(r, 12 << 20, &data));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 512, 0U);
    void *more = nullptr;
    EBB_EXPECT_REFUSED(ebb_host_alloc(r, 8 << 20, &more), EBB_OUT_OF_DEVICE_MEMORY, "8388608 bytes wanted");
    EBB_ASSERT_OK(ebb_host_free(r, data));
    EBB_EXPECT_STATUS(ebb_host_free(r, data), EBB_INVALID_ARGUMENT);
    EBB_ASSERT_OK(ebb_host_memory(r, nullptr, &used, &peak));
    EXPECT_EQ(used, 0U);
    EXPECT_EQ(peak, 12U << 20U);
    EBB_EXPECT_OK(ebb_runtime_close(r, EBB_CLOSE_DEFAULT));
}

// ------------------------------------------------------------------------------------------------- policies --

struct placed {
    ebb_placement where;
    ebb_reason why;
    friend bool operator==(const placed &a, const placed &b) { return a.where == b.where && a.why == b.why; }
    friend void PrintTo(const placed &p, std::ostream *to) { *to << "placement " << p.where << " reason " << p.why; }
};

class policies : public capi_test {
protected:
    placed place(const char *name, uint64_t size_bytes = k_size, uint32_t flags = 0,
                 ebb_placement wish = EBB_PLACE_BY_POLICY) {
        buffer &b = make_buffer(size_bytes);
        ebb_offload_args a = args_for(b, name);
        a.flags = flags;
        a.placement = wish;
        const ebb_activation made = offload(a);
        const placed p{info_.placement, info_.reason};
        EBB_EXPECT_OK(ebb_release(runtime_, made));
        return p;
    }
    static constexpr placed k_offloaded{EBB_PLACE_OFFLOAD, EBB_REASON_NONE};
    static constexpr placed k_kept{EBB_PLACE_KEEP, EBB_REASON_POLICY};
};

TEST_F(policies, maxtext_names_and_values) {
    options_.policy = "decoder_layer_input=offload,mlpwi*=device,query_proj=remat,*=device";
    open();
    EXPECT_EQ(place("decoder_layer_input"), k_offloaded);
    EXPECT_EQ(place("mlpwi_0"), k_kept);
    EXPECT_EQ(place("query_proj", k_size, EBB_OFFLOAD_CAN_RECOMPUTE), (placed{EBB_PLACE_RECOMPUTE, EBB_REASON_NONE}));
    EXPECT_EQ(place("query_proj"), (placed{EBB_PLACE_KEEP, EBB_REASON_NOT_RECOMPUTABLE}));
    EXPECT_EQ(place("out_proj"), k_kept);
}

TEST_F(policies, the_first_match_counts_and_scopes_are_part_of_the_name) {
    options_.policy = "first/*=device,gate=offload";
    open();
    EBB_ASSERT_OK(ebb_scope_push(runtime_, "first"));
    EXPECT_EQ(place("gate"), k_kept);
    EBB_ASSERT_OK(ebb_scope_pop(runtime_));
    EBB_ASSERT_OK(ebb_scope_push(runtime_, "second"));
    EXPECT_EQ(place("gate"), k_offloaded);
    EXPECT_EQ(place("up"), k_kept) << "what matches nothing is kept";
    EBB_ASSERT_OK(ebb_scope_pop(runtime_));
}

TEST_F(policies, keep_keeps_all_and_the_callers_wish_goes_before) {
    options_.policy = "keep";
    open();
    EXPECT_EQ(place("gate"), k_kept);
    EXPECT_EQ(place("gate", k_size, 0, EBB_PLACE_OFFLOAD), k_offloaded);
    EXPECT_EQ(place("gate", k_size, EBB_OFFLOAD_CAN_RECOMPUTE, EBB_PLACE_RECOMPUTE),
              (placed{EBB_PLACE_RECOMPUTE, EBB_REASON_NONE}));
}

TEST_F(policies, the_floor) {
    options_.min_offload_bytes = k_size;
    open();
    EXPECT_EQ(place("gate"), k_offloaded);
    EXPECT_EQ(place("small", k_size - 1), (placed{EBB_PLACE_KEEP, EBB_REASON_FLOOR}));
    EXPECT_EQ(place("small", k_size - 1, 0, EBB_PLACE_OFFLOAD), k_offloaded) << "the caller wants it";
}

TEST_F(policies, larger_than_a_slot_is_kept_and_says_what_was_wanted) {
    options_.max_activation_bytes = k_size;
    options_.staging_bytes = 4 * k_size;
    open();
    EXPECT_EQ(place("large", 2 * k_size), (placed{EBB_PLACE_KEEP, EBB_REASON_LARGER_THAN_SLOT}));
    EXPECT_EQ(info_.wanted_bytes, 2 * k_size);
    EXPECT_EQ(info_.cap_bytes, k_size);
}

TEST_F(policies, keep_last_keeps_the_youngest_once_the_order_is_known) {
    options_.keep_last = 2;
    options_.device_budget_bytes = 64 * k_size;
    open();
    for (int step = 0; step < 2; ++step) {
        EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        std::vector<ebb_activation> saved;
        std::vector<placed> where;
        for (int l = 0; l < 4; ++l) {
            saved.push_back(offload(make_buffer(), ("layer" + std::to_string(l)).c_str()));
            where.push_back({info_.placement, info_.reason});
        }
        const placed last = step == 0 ? k_offloaded : placed{EBB_PLACE_KEEP, EBB_REASON_LAST};
        EXPECT_THAT(where, ::testing::ElementsAre(k_offloaded, k_offloaded, last, last)) << "step " << step;
        for (size_t l = 4; l-- > 0;) {
            reload_and_return(saved[l], *(buffers_.end() - static_cast<std::ptrdiff_t>(4 - l)));
            EBB_ASSERT_OK(ebb_release(runtime_, saved[l]));
        }
    }
}

TEST_F(policies, a_pattern_that_matched_nothing_is_named_after_the_first_step) {
    options_.policy = "gate=offload,gaet=device";
    open();
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    place("gate");
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    EXPECT_THAT(log_lines_, ::testing::ElementsAre(HasSubstr("'gaet'")));
}

}  // namespace
}  // namespace ebb::test
