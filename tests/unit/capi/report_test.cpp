// What Ebb says afterwards: failures of the background, verify mode, statistics, reports.

#include <cstring>
#include <nlohmann/json.hpp>

#include "capi_fixture.hpp"

namespace ebb::test {
namespace {

using ::testing::HasSubstr;

class reports : public capi_test {
protected:
    std::string report(ebb_report_format format) {
        std::string text;
        EBB_EXPECT_STATUS(ebb_report_write(
                              runtime_, format,
                              [](void *to, const char *piece, uint64_t size_bytes) {
                                  static_cast<std::string *>(to)->append(piece, size_bytes);
                              },
                              &text),
                          EBB_OK);
        return text;
    }
};

// --------------------------------------------------------------------------------- failures of the background --

TEST_F(reports, a_copy_that_fails_keeps_the_activation_and_is_named_once) {
    open();
    device_->fault().refuse(call_kind::copy);
    buffer &b = make_buffer();
    EBB_ASSERT_OK(ebb_scope_push(runtime_, "layer.2"));
    const ebb_activation a = offload(b);
    EBB_ASSERT_OK(ebb_scope_pop(runtime_));
    EXPECT_EQ(info_.placement, EBB_PLACE_KEEP);
    EXPECT_EQ(info_.reason, EBB_REASON_COPY_ERROR);
    EBB_EXPECT_REFUSED(ebb_progress(runtime_), EBB_DEVICE_ERROR, "offload of 'layer.2/gate'");
    EBB_EXPECT_OK(ebb_progress(runtime_));
    reload_and_return(a, b);
    EXPECT_EQ(b.deleted, 0);
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    EXPECT_EQ(b.deleted, 1);
    expect_nothing_held();
}

TEST_F(reports, every_reporting_call_names_it_and_does_nothing_else) {
    open();
    buffer &b = make_buffer();
    const ebb_activation a = offload(b, "first");
    ebb_reload_info info = zeroed<ebb_reload_info>();
    DLManagedTensorVersioned *tensor = nullptr;
    std::vector<char> own(k_size);
    const std::vector<std::function<ebb_status()>> calls = {
        [&] { return ebb_step(runtime_, EBB_PHASE_TRAIN); },
        [&] { return ebb_reload(runtime_, a, compute_, &info); },
        [&] { return ebb_reload_into(runtime_, a, own.data(), k_size, compute_); },
        [&] { return ebb_reload_dlpack(runtime_, a, compute_, &tensor); },
        [&] { return ebb_wait(runtime_, a); },
        [&] { return ebb_wait_room(runtime_); },
        [&] { return ebb_progress(runtime_); },
    };
    for (size_t i = 0; i < calls.size(); ++i) {
        SCOPED_TRACE(i);
        device_->fault().refuse(call_kind::copy);
        EBB_EXPECT_OK(ebb_release(runtime_, offload(make_buffer(), "second")));
        EBB_EXPECT_REFUSED(calls[i](), EBB_DEVICE_ERROR, "offload of 'second'");
        EXPECT_EQ(info.claim, 0U);
        EXPECT_EQ(tensor, nullptr);
        EXPECT_EQ(stats().h2d_bytes, 0U);
    }
    device_->fault().refuse(call_kind::copy);
    EBB_EXPECT_OK(ebb_release(runtime_, offload(make_buffer(), "second")));
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    EBB_EXPECT_REFUSED(ebb_runtime_close(std::exchange(runtime_, nullptr), EBB_CLOSE_DEFAULT), EBB_DEVICE_ERROR,
                       "offload of 'second'");
    for (const buffer &each : buffers_) {
        EXPECT_EQ(each.deleted, 1) << "the runtime is closed all the same";
    }
}

TEST_F(reports, pinned_memory_at_its_cap_keeps_and_says_how_much) {
    options_.host_bytes = 2 * k_size;
    open();
    offload(make_buffer());
    offload(make_buffer());
    offload(make_buffer());
    EXPECT_EQ(info_.placement, EBB_PLACE_KEEP);
    EXPECT_EQ(info_.reason, EBB_REASON_HOST_CAP);
    EXPECT_EQ(info_.wanted_bytes, k_size);
    EXPECT_EQ(info_.cap_bytes, 2 * k_size);
    EXPECT_LE(stats().pinned_peak_bytes, 2 * k_size);
    EXPECT_THAT(log_lines_, ::testing::ElementsAre(HasSubstr("host_bytes"))) << "one line, not one for each";
}

TEST_F(reports, refused_pinning_keeps_and_says_so) {
    open();
    device_->fault().refuse_pinning_above(0);
    offload(make_buffer());
    EXPECT_EQ(info_.placement, EBB_PLACE_KEEP);
    EXPECT_EQ(info_.reason, EBB_REASON_PINNING);
    EXPECT_GE(info_.wanted_bytes, k_size);
}

// ------------------------------------------------------------------------------------------------ verify mode --

TEST_F(reports, verify_names_a_source_that_was_changed_in_place) {
    options_.verify = true;
    options_.source_bytes = k_automatic;
    open();
    buffer &b = make_buffer();
    hold(copy_direction::d2h);
    const ebb_activation a = offload(b, "changed");
    EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, compute_));
    ASSERT_TRUE(device_->fault().wait_until_held(copy_direction::d2h).ok());
    std::memset(b.data, 0xEE, 64);
    let_all_pass();
    device_->wait_for_our_streams();
    EBB_EXPECT_REFUSED(ebb_progress(runtime_), EBB_DATA_MISMATCH, "'changed' was changed in place");
    EBB_EXPECT_OK(ebb_release(runtime_, a));
}

TEST_F(reports, verify_names_a_damaged_copy_and_a_damaged_reload) {
    options_.verify = true;
    open();
    ASSERT_TRUE(device_->fault().damage_copy(copy_direction::d2h, 1, 100).ok());
    const ebb_activation a = offload(make_buffer(), "going");
    device_->wait_for_our_streams();
    EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, compute_));  // the first sum is taken there
    EBB_EXPECT_REFUSED(ebb_progress(runtime_), EBB_DATA_MISMATCH, "'going' was not copied right");
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    const ebb_activation b = offload(make_buffer(), "coming");
    ASSERT_TRUE(device_->fault().damage_copy(copy_direction::h2d, 1, 100).ok());
    const ebb_reload_info info = reload(b);
    EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, compute_));
    EBB_EXPECT_REFUSED(ebb_wait(runtime_, b), EBB_DATA_MISMATCH, "'coming' came back different");
    EBB_EXPECT_OK(ebb_return(runtime_, info.claim, compute_));
}

TEST_F(reports, without_verify_nothing_is_summed) {
    open();
    buffer &b = make_buffer();
    reload_and_return(offload(b), b);
    EXPECT_EQ(device_->fault().calls(call_kind::checksum), 0U);
}

// ------------------------------------------------------------------------------------------------ statistics --

TEST_F(reports, statistics_count_what_was_done) {
    open();
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    buffer &b = make_buffer();
    const ebb_activation a = offload(b);
    ebb_offload_args kept = args_for(make_buffer(), "kept");
    kept.placement = EBB_PLACE_KEEP;
    const ebb_activation k = offload(kept);
    ebb_statistics s = stats();
    EXPECT_EQ(s.struct_size, sizeof(s));
    EXPECT_EQ(s.live_activations, 2U);
    EXPECT_EQ(s.offload_calls, 2U);
    EXPECT_EQ(s.kept_count, 1U);
    EXPECT_EQ(s.offloaded_count, 1U);
    EXPECT_EQ(s.kept_bytes, k_size);
    EXPECT_EQ(s.given_up_bytes, k_size);
    EXPECT_EQ(s.pinned_used_bytes, k_size);
    EXPECT_EQ(s.steps, 0U);
    reload_and_return(a, b);
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    EBB_EXPECT_OK(ebb_release(runtime_, k));
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_EVALUATE));
    s = stats();
    EXPECT_EQ(s.steps, 1U);
    EXPECT_EQ(s.d2h_bytes, k_size);
    EXPECT_EQ(s.h2d_bytes, k_size);
    EXPECT_EQ(s.reloads_on_demand, 1U);
    EXPECT_GE(s.device_peak_bytes, 2 * k_size);
    expect_nothing_held();
}

// A caller of an older header gives a smaller struct, and nothing is written beyond it.
TEST_F(reports, a_shorter_struct_than_the_first_release_had_is_refused) {
    open();
    ebb_statistics s = zeroed<ebb_statistics>();
    s.struct_size = offsetof(ebb_statistics, device_allocations);
    s.device_allocations = 4711;
    EBB_EXPECT_STATUS(ebb_stats(runtime_, &s), EBB_INVALID_ARGUMENT);
    EXPECT_EQ(s.device_allocations, 4711U);
}

// --------------------------------------------------------------------------------------------------- reports --

TEST_F(reports, text_and_json_have_names_bytes_reasons_and_peaks) {
    options_.policy = "gate=offload,norm=remat,typo=device";
    open();
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    std::vector<ebb_activation> saved;
    for (int l = 0; l < 3; ++l) {
        EBB_ASSERT_OK(ebb_scope_push(runtime_, ("layer." + std::to_string(l)).c_str()));
        saved.push_back(offload(make_buffer()));
        saved.push_back(offload(make_buffer(), "norm"));
        EBB_ASSERT_OK(ebb_scope_pop(runtime_));
    }
    for (const ebb_activation a : saved) {
        EBB_ASSERT_OK(ebb_release(runtime_, a));
    }
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_EVALUATE));
    const std::string text = report(EBB_REPORT_TEXT);
    EXPECT_THAT(text, HasSubstr("1 training steps"));
    EXPECT_THAT(text, HasSubstr("layer.*/gate"));
    EXPECT_THAT(text, HasSubstr("'typo' matched no activation"));
    const nlohmann::json json = nlohmann::json::parse(report(EBB_REPORT_JSON));
    EXPECT_EQ(json.at("totals").at("steps"), 1);
    EXPECT_EQ(json.at("totals").at("d2h_bytes"), 3 * k_size);
    EXPECT_EQ(json.at("unmatched_patterns"), nlohmann::json({"typo"}));
    ASSERT_EQ(json.at("names").size(), 6U);
    const nlohmann::json &norm = json.at("names").at(1);
    EXPECT_EQ(norm.at("name"), "layer.0/norm");
    EXPECT_EQ(norm.at("kept_by_reason").at("not_recomputable"), 1);
    EXPECT_EQ(json.at("names").at(0).at("offloaded_bytes"), k_size);
}

TEST_F(reports, names_that_matched_no_pattern_are_named) {
    options_.policy = "gate=offload,norm=remat";
    open();
    const auto save = [&](const char *name, ebb_placement wish) {
        ebb_offload_args args = args_for(make_buffer(), name);
        args.placement = wish;
        EBB_EXPECT_OK(ebb_release(runtime_, offload(args)));
    };
    save("gate", EBB_PLACE_BY_POLICY);
    save("norm", EBB_PLACE_BY_POLICY);
    save("bias", EBB_PLACE_BY_POLICY);
    save("head", EBB_PLACE_OFFLOAD);  // the caller's own wish, not the policy's doing
    EXPECT_THAT(report(EBB_REPORT_TEXT), HasSubstr("'bias' matched no policy pattern and was kept"));
    EXPECT_EQ(nlohmann::json::parse(report(EBB_REPORT_JSON)).at("unmatched_names"), nlohmann::json({"bias"}));
}

TEST_F(reports, a_policy_without_patterns_leaves_no_name_unmatched) {
    options_.policy = "keep";
    open();
    EBB_EXPECT_OK(ebb_release(runtime_, offload(make_buffer())));
    EXPECT_TRUE(nlohmann::json::parse(report(EBB_REPORT_JSON)).at("unmatched_names").empty());
}

TEST_F(reports, waste_of_pinned_memory_is_that_at_its_peak) {
    open();
    const ebb_activation a = offload(make_buffer(k_size - 1000));
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    EXPECT_EQ(nlohmann::json::parse(report(EBB_REPORT_JSON)).at("totals").at("pinned_peak_waste_bytes"), 1000);
}

TEST_F(reports, a_name_that_is_not_utf8_is_reported) {
    open();
    EBB_EXPECT_OK(ebb_release(runtime_, offload(make_buffer(), "caf\xE9")));
    const nlohmann::json json = nlohmann::json::parse(report(EBB_REPORT_JSON));
    EXPECT_THAT(json.at("names").at(0).at("name").get<std::string>(), HasSubstr("caf"));
}

TEST_F(reports, sinks_may_call_and_may_fail) {
    open();
    struct caller {
        ebb_runtime *runtime;
        int pieces;
    } c{runtime_, 0};
    const ebb_text_sink asking = [](void *to, const char *, uint64_t size_bytes) {
        auto *x = static_cast<caller *>(to);
        ebb_statistics s = zeroed<ebb_statistics>();
        EBB_EXPECT_OK(ebb_stats(x->runtime, &s));
        x->pieces += size_bytes != 0 ? 1 : 0;
    };
    EBB_ASSERT_OK(ebb_report_write(runtime_, EBB_REPORT_TEXT, asking, &c));
    EXPECT_GT(c.pieces, 0);
    // They must not throw; one that does meets the barrier, and the runtime works on.
    EBB_EXPECT_REFUSED(
        ebb_report_write(
            runtime_, EBB_REPORT_TEXT,
            [](void *, const char *, uint64_t) { throw std::runtime_error("the sink is full"); }, nullptr),
        EBB_INTERNAL, "the sink is full");
    EXPECT_EQ(stats().live_activations, 0U);
}

}  // namespace
}  // namespace ebb::test
