// The recorded step and the plan, out of a runtime and into another: automatic mode seen through the C ABI, on the host
// device.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "capi_fixture.hpp"

namespace ebb::test {
namespace {

using nlohmann::json;

class plans : public capi_test {
protected:
    void SetUp() override {
        capi_test::SetUp();
        options_.policy = "auto";
        options_.source_bytes = k_automatic;
        options_.device_budget_bytes = 6 * k_size;
        options_.prefetch_bytes = k_automatic;
    }
    static void collect(void *context, const char *text, uint64_t size_bytes) {
        static_cast<std::string *>(context)->append(text, size_bytes);
    }
    json record() {
        std::string text;
        EBB_EXPECT_OK(ebb_record_export(runtime_, collect, &text));
        return json::parse(text);
    }
    // A chain of layers; the bytes that come back are checked.
    void run_layers(int layers) {
        std::vector<ebb_activation> saved;
        std::vector<buffer *> from;
        for (int l = 0; l < layers; ++l) {
            from.push_back(&make_buffer());
            saved.push_back(offload(*from.back(), ("layer." + std::to_string(l)).c_str()));
        }
        for (size_t l = saved.size(); l-- > 0;) {
            reload_and_return(saved[l], *from[l]);
            EBB_EXPECT_OK(ebb_release(runtime_, saved[l]));
        }
    }
    void train(int steps, int layers = 8) {
        for (int s = 0; s < steps; ++s) {
            EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
            run_layers(layers);
        }
        EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    }
    // How soon the times of a step are there is not for a test to say.
    template <typename Condition>
    bool train_until(Condition met, int layers = 8) {
        for (int step = 0; step < 100; ++step) {
            train(1, layers);
            if (met()) {
                return true;
            }
        }
        return false;
    }
};

TEST_F(plans, the_recorded_step_is_exported_with_names_and_then_with_times) {
    open();
    std::string text;
    EBB_EXPECT_REFUSED(ebb_record_export(runtime_, collect, &text), EBB_WRONG_STATE, "no step is recorded");
    train(1, 3);
    const json first = record();
    ASSERT_EQ(first["tensors"].size(), 3U);
    EXPECT_EQ(first["tensors"][1]["name"], "layer.1");
    EXPECT_EQ(first["tensors"][1]["bytes"], k_size);
    const auto work = [](const json &r) {
        return std::count_if(r["events"].begin(), r["events"].end(), [](const json &e) { return e[0] == "work"; });
    };
    EXPECT_EQ(work(first), 0) << "nothing is measured in the first step";
    EXPECT_TRUE(train_until([&] { return work(record()) > 0; }, 3));
}

TEST_F(plans, a_plan_is_made_once_times_are_measured_and_is_followed) {
    open();
    train(1);
    std::string text;
    EBB_EXPECT_REFUSED(ebb_plan_export(runtime_, collect, &text), EBB_WRONG_STATE, "there is no plan");
    ASSERT_TRUE(train_until([&] { return ebb_plan_export(runtime_, collect, &text) == EBB_OK; }));
    // The plan of a step is what is exported while it runs: at each boundary it may be made anew.
    for (int step = 0; step < 12; ++step) {
        EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        text.clear();
        EBB_ASSERT_OK(ebb_plan_export(runtime_, collect, &text));
        const json made = json::parse(text);
        ASSERT_EQ(made["tensors"].size(), 8U);
        const auto kept = static_cast<uint64_t>(std::count_if(made["tensors"].begin(), made["tensors"].end(),
                                                              [](const json &t) { return t[3] == "keep"; }));
        const ebb_statistics before = stats();
        run_layers(8);
        const ebb_statistics after = stats();
        EXPECT_EQ(after.kept_count - before.kept_count, kept) << "in step " << step;
        EXPECT_EQ(after.offloaded_count - before.offloaded_count, 8 - kept) << "in step " << step;
    }
}

// Who computes on the thread itself has no stream whose events tell the time.
TEST_F(plans, a_plan_is_made_also_for_what_the_calling_thread_computes) {
    const ebb_stream thread = EBB_STREAM_CALLING_THREAD;
    host_options_.d2h_bytes_per_second = uint64_t{64} << 20U;  // a copy takes a millisecond, and is waited for
    open();
    std::string text;
    ebb_status found = EBB_WRONG_STATE;
    for (int step = 0; step < 100 && found == EBB_WRONG_STATE; ++step) {
        EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        std::vector<ebb_activation> saved;
        std::vector<buffer *> from;
        for (int l = 0; l < 8; ++l) {
            from.push_back(&make_buffer());
            ebb_offload_args args = args_for(*from.back(), "layer");
            args.producers = &thread;
            saved.push_back(offload(args));
            EBB_ASSERT_OK(ebb_wait_room(runtime_));
        }
        for (size_t l = saved.size(); l-- > 0;) {
            const ebb_reload_info info = reload(saved[l], thread);
            EBB_ASSERT_OK(ebb_wait(runtime_, saved[l]));
            EXPECT_TRUE(has_pattern(info.data, k_size, from[l]->seed));
            EBB_EXPECT_OK(ebb_return(runtime_, info.claim, thread));
            EBB_EXPECT_OK(ebb_release(runtime_, saved[l]));
        }
        found = ebb_plan_export(runtime_, collect, &text);  // not before the events of three steps were seen to be over
    }
    EBB_EXPECT_STATUS(found, EBB_OK);
    EXPECT_GT(stats().exposed_ns, 0U) << "the thread stood still";
}

// A tensor that two operations save: the second save shares the copy of the first, and its memory is free only if both
// go.
TEST_F(plans, a_save_that_shares_a_copy_goes_where_the_copy_goes_and_is_in_the_plan) {
    options_.device_budget_bytes = 4 * k_size;
    open();
    std::string text;
    int planned_steps = 0;
    for (int step = 0; step < 100 && planned_steps < 3; ++step) {
        EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        std::vector<ebb_activation> saved;
        std::vector<buffer *> from;
        int apart = 0;
        for (uint64_t l = 0; l < 8; ++l) {
            from.push_back(&make_buffer());
            ebb_offload_args args = args_for(*from.back(), "whole");
            args.storage_id = 100 * (static_cast<uint64_t>(step) + 1) + l;
            saved.push_back(offload(args));
            const ebb_placement whole = info_.placement;
            args.name = "part";
            args.deleter = nullptr;
            args.size_bytes = k_size / 2;
            saved.push_back(offload(args));
            apart += info_.placement == whole ? 0 : 1;
        }
        while (!saved.empty()) {
            for (int save = 0; save < 2; ++save) {
                const ebb_reload_info info = reload(saved.back());
                EBB_EXPECT_OK(ebb_return(runtime_, info.claim, compute_));
                EBB_EXPECT_OK(ebb_release(runtime_, saved.back()));
                saved.pop_back();
            }
        }
        EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, compute_));  // times are read once they are there
        text.clear();
        if (ebb_plan_export(runtime_, collect, &text) == EBB_OK) {
            ++planned_steps;
            EXPECT_EQ(apart, 0) << "in step " << step;
            EXPECT_EQ(json::parse(text)["tensors"].size(), 16U) << text;
            EBB_EXPECT_OK(ebb_plan_import(runtime_, text.data(), text.size()));
        }
    }
    EXPECT_EQ(planned_steps, 3);
}

TEST_F(plans, a_plan_is_imported_and_followed_from_the_next_step_on) {
    open();
    EBB_EXPECT_REFUSED(ebb_plan_import(runtime_, "{}", 2), EBB_WRONG_STATE, "no step is recorded");
    train(1);
    json wanted;
    wanted["ebb_plan"] = 1;
    wanted["staging_bytes"] = 2 * k_size;
    for (int l = 0; l < 8; ++l) {
        wanted["tensors"].push_back({"layer." + std::to_string(l), 0, 0, l % 2 == 0 ? "offload" : "keep"});
    }
    const std::string text = wanted.dump();
    EBB_ASSERT_OK(ebb_plan_import(runtime_, text.data(), text.size()));
    train(2);
    std::string out;
    EBB_ASSERT_OK(ebb_plan_export(runtime_, collect, &out));
    EXPECT_EQ(json::parse(out), wanted);
    train(6);
    out.clear();
    EBB_ASSERT_OK(ebb_plan_export(runtime_, collect, &out));
    EXPECT_EQ(json::parse(out), wanted) << "what was given is not planned again";
    const ebb_statistics before = stats();
    train(1);
    EXPECT_EQ(stats().kept_count - before.kept_count, 4U);
}

TEST_F(plans, a_plan_for_another_step_is_refused_and_names_what_is_wrong) {
    open();
    train(1, 2);
    const auto refused = [this](const std::string &text, const char *words) {
        EBB_EXPECT_REFUSED(ebb_plan_import(runtime_, text.data(), text.size()), EBB_INVALID_ARGUMENT, words);
    };
    refused("{", "text");
    refused(R"({"ebb_plan": 1, "staging_bytes": 0, "tensors": [["layer.0", 0, 0, "offload"]]})", "layer.1");
    refused(R"({"ebb_plan": 1, "staging_bytes": 0, "tensors": [["layer.0", 0, 0, "hide"], ["layer.1", 0, 0, "keep"]]})",
            "hide");
    refused(R"({"ebb_plan": 1, "staging_bytes": 0, "tensors": [["layer.0", 0, 0, "keep"], ["other", 0, 0, "keep"]]})",
            "other");
    EBB_EXPECT_REFUSED(ebb_plan_import(runtime_, nullptr, 0), EBB_INVALID_ARGUMENT, "text is null");
    EBB_EXPECT_REFUSED(ebb_plan_export(runtime_, nullptr, nullptr), EBB_INVALID_ARGUMENT, "sink is null");
    EBB_EXPECT_REFUSED(ebb_record_export(runtime_, nullptr, nullptr), EBB_INVALID_ARGUMENT, "sink is null");
}

// Through the exported create: it reads the option.
class record_file : public ::testing::Test {
protected:
    // Trains on the null device and closes.
    static void run(const char *path, std::vector<std::string> &log) {
        ebb_runtime_options o = zeroed<ebb_runtime_options>();
        o.device = "null";
        o.record = path;
        o.min_offload_bytes = 1;
        o.log = [](void *context, ebb_log_level, const char *line) {
            static_cast<std::vector<std::string> *>(context)->emplace_back(line);
        };
        o.log_context = &log;
        ebb_runtime *r = nullptr;
        EBB_ASSERT_OK(ebb_runtime_create(&o, &r));
        const ebb_stream stream = EBB_STREAM_DEFAULT;
        for (int s = 0; s < 2; ++s) {
            EBB_ASSERT_OK(ebb_step(r, EBB_PHASE_TRAIN));
            ebb_offload_args a = zeroed<ebb_offload_args>();
            ebb_offload_info info = zeroed<ebb_offload_info>();
            a.name = "only";
            a.data = &a;
            a.size_bytes = 64;
            a.producers = &stream;
            a.producer_count = 1;
            EBB_ASSERT_OK(ebb_offload(r, &a, &info));
            EBB_ASSERT_OK(ebb_release(r, info.activation));
        }
        EBB_ASSERT_OK(ebb_runtime_close(r, EBB_CLOSE_DEFAULT));
    }
};

TEST_F(record_file, is_written_at_close_at_the_latest) {
    const std::string path = ::testing::TempDir() + "ebb_record_" + std::to_string(::getpid()) + ".json";
    std::vector<std::string> log;
    run(path.c_str(), log);
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    EXPECT_EQ(json::parse(text.str())["tensors"][0]["name"], "only");
    std::remove(path.c_str());
}

TEST_F(record_file, that_cannot_be_written_is_a_line_in_the_log) {
    std::vector<std::string> log;
    run("/there/is/no/such/folder.json", log);
    ASSERT_EQ(log.size(), 1U);
    EXPECT_THAT(log[0], ::testing::HasSubstr("/there/is/no/such/folder.json"));
    EXPECT_THAT(log[0], ::testing::HasSubstr("EBB_RECORD"));
}

}  // namespace
}  // namespace ebb::test
