// Wiring: faults that were reported against systems that move activations. Each test is named after its entry.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fault_session.hpp"

namespace ebb::test {
namespace {

class wiring : public on_every_machine {};

using ::testing::HasSubstr;

std::string layer(int l) {
    return "layer." + std::to_string(l);
}

rig::options small_rig() {
    rig::options o;
    o.host.capacity_bytes = 64ULL << 20U;
    o.core.min_offload_bytes = 1;
    o.core.device_budget_bytes = 12 * k_unit_bytes;
    return o;
}

// ------------------------------------------------------------------------------------------------------- G1 --

constexpr int k_layers = 6;

void train(rig &r) {
    for (int l = 0; l < k_layers; ++l) {
        r.forward(layer(l), "input", k_unit_bytes);
        r.forward(layer(l), "gate", 2 * k_unit_bytes);
    }
    for (int l = k_layers; l-- > 0;) {
        r.backward(layer(l), "gate");
        r.backward(layer(l), "input");
    }
}

// Other sizes, another order, and nothing like a backward pass.
void evaluate(rig &r) {
    for (int l = k_layers; l-- > 0;) {
        r.forward(layer(l), "gate", 3 * k_unit_bytes);
        r.forward(layer(l), "input", k_unit_bytes);
        r.backward(layer(l), "input");
    }
    for (int l = 0; l < k_layers; ++l) {
        r.backward(layer(l), "gate");
    }
}

// What each training step did.
using step_counts = std::vector<std::vector<uint64_t>>;
step_counts run_steps(bool with_evaluation) {
    rig r(small_rig());
    step_counts all;
    for (int step = 0; step < 6; ++step) {
        if (with_evaluation && step > 0) {
            r.step(EBB_PHASE_EVALUATE);
            evaluate(r);
        }
        r.step();
        const ebb_statistics before = r.stats();
        train(r);
        const ebb_statistics after = r.stats();
        all.push_back({after.reloads_prefetched - before.reloads_prefetched,
                       after.reloads_on_demand - before.reloads_on_demand,
                       after.forwarded_count - before.forwarded_count,
                       after.prefetches_dropped - before.prefetches_dropped, after.kept_count - before.kept_count,
                       after.offloaded_count - before.offloaded_count, after.d2h_bytes - before.d2h_bytes,
                       after.h2d_bytes - before.h2d_bytes, after.given_up_bytes - before.given_up_bytes});
    }
    r.step(EBB_PHASE_EVALUATE);
    r.synchronize();
    EXPECT_EQ(r.stats().order_mismatches, 0U);
    EXPECT_EQ(r.stats().steps, 6U);
    EXPECT_EQ(r.wrong(), 0);
    return all;
}

TEST_P(wiring, G1_evaluation_leaves_the_record_alone) {
    const step_counts without = run_steps(false);
    const step_counts with = run_steps(true);
    EXPECT_EQ(with, without);
    EXPECT_GT(without.back()[0], 0U) << "nothing was prefetched: the test shows nothing";
}

// ------------------------------------------------------------------------------------------------------- G2 --

TEST_P(wiring, G2_the_same_activation_is_reloaded_until_it_is_released) {
    rig r(small_rig());
    for (int step = 0; step < 5; ++step) {
        r.step();
        for (int l = 0; l < k_layers; ++l) {
            r.forward(layer(l), "input", k_unit_bytes);
        }
        for (const bool last : {false, false, true}) {  // the graph is kept twice
            for (int l = k_layers; l-- > 0;) {
                r.backward(layer(l), "input", 0, 0, last);
            }
        }
        for (int l = 0; l < k_layers; ++l) {
            r.forward(layer(l), "input", k_unit_bytes);
        }
        for (int l = k_layers; l-- > 0;) {  // the second use comes right behind the first
            r.backward(layer(l), "input", 0, 0, false);
            r.backward(layer(l), "input", 0, 0, true);
        }
    }
    r.synchronize();
    EXPECT_EQ(r.wrong(), 0);
    EXPECT_EQ(r.stats().live_activations, 0U);
    EXPECT_EQ(r.stats().staging_used_bytes, 0U);
}

TEST_P(wiring, G2_each_claim_is_returned_by_itself) {
    session s(copies_always(2));
    const ebb_stream compute = s.stream();
    const ebb_stream other = s.stream();
    const session::saved x = s.save(compute, "x");
    const ebb_reload_info first = s.reload(x, compute);
    const ebb_reload_info second = s.reload(x, other);
    EXPECT_NE(first.claim, second.claim);
    EXPECT_EQ(first.data, second.data) << "one copy serves both";
    s.check(compute, first.data, x);
    s.give_back(first, compute);
    EXPECT_EQ(ebb_return(s.runtime(), first.claim, compute), EBB_STALE_HANDLE);
    // Others come and go; the second claim keeps its memory, also beyond the release.
    const session::saved y = s.save(compute, "y");
    for (int i = 0; i < 10; ++i) {
        s.read_back(y, compute);
    }
    s.release(x);
    s.read_back(y, compute);
    s.sync(compute);
    s.check(other, second.data, x);
    s.give_back(second, other);
    EXPECT_EQ(ebb_return(s.runtime(), second.claim, other), EBB_STALE_HANDLE);
    s.release(y);
    s.drain();
    EXPECT_EQ(s.stats().staging_used_bytes, 0U);
    EXPECT_EQ(s.stats().pinned_used_bytes, 0U);
    EXPECT_EQ(s.wrong(), 0);
}

// ------------------------------------------------------------------------------------------------------- G4 --

// Layers of 1, 7, 2 and 9 units, whose gate is quantised and so has three parts: values, scales, and one that is empty.
// In later steps the scales of one layer are missing.
TEST_P(wiring, G4_layers_differ_in_size_and_tensors_have_parts) {
    rig::options o = small_rig();
    o.core.device_budget_bytes = 40 * k_unit_bytes;
    o.core.max_activation_bytes = 9 * k_unit_bytes;
    o.core.staging_bytes = 20 * k_unit_bytes;
    rig r(o);
    const std::vector<uint64_t> units = {1, 7, 2, 9};
    const auto count = static_cast<int>(units.size());
    const ebb_stream compute = r.compute();
    const auto step = [&](int without_scales) {
        r.step();
        std::vector<ebb_activation> empty;
        for (int l = 0; l < count; ++l) {
            const uint64_t size_bytes = units[static_cast<size_t>(l)] * k_unit_bytes;
            r.forward(layer(l), "input", size_bytes);
            r.forward(layer(l), "gate.values", size_bytes / 4);
            if (l != without_scales) {
                r.forward(layer(l), "gate.scales", size_bytes / 64 + 4);
            }
            ebb_offload_args args{};
            args.struct_size = sizeof(args);
            args.name = "gate.offsets";
            args.producers = &compute;
            args.producer_count = 1;
            ebb_offload_info info{};
            info.struct_size = sizeof(info);
            EBB_ASSERT_OK(ebb_offload(r.runtime(), &args, &info));
            empty.push_back(info.activation);
        }
        for (int l = count; l-- > 0;) {
            ebb_reload_info info{};
            info.struct_size = sizeof(info);
            EBB_ASSERT_OK(ebb_reload(r.runtime(), empty.back(), compute, &info));
            EXPECT_EQ(info.size_bytes, 0U);
            EBB_ASSERT_OK(ebb_return(r.runtime(), info.claim, compute));
            EBB_ASSERT_OK(ebb_release(r.runtime(), empty.back()));
            empty.pop_back();
            if (l != without_scales) {
                r.backward(layer(l), "gate.scales");
            }
            r.backward(layer(l), "gate.values");
            r.backward(layer(l), "input");
        }
        EXPECT_EQ(r.stats().live_activations, 0U);
        EXPECT_EQ(r.stats().pinned_used_bytes, 0U);
    };
    step(-1);
    r.step();
    const uint64_t on_demand = r.stats().reloads_on_demand;
    for (int i = 0; i < 6; ++i) {
        step(i % count);
    }
    r.step();
    r.synchronize();
    EXPECT_EQ(r.wrong(), 0);
    EXPECT_EQ(r.stats().reloads_on_demand, on_demand);
    EXPECT_GT(r.stats().reloads_prefetched, 0U);
    EXPECT_EQ(r.stats().order_mismatches, 0U);
}

// ------------------------------------------------------------------------------------------------------- G5 --

// Sizes that change with every step, within a bound: the calls are those of the record, so it stays, and what was
// prefetched before is prefetched still.
TEST_P(wiring, G5_the_record_survives_sizes_that_change_every_step) {
    constexpr uint64_t k_bound_bytes = 2 * k_unit_bytes;
    rig::options o = small_rig();
    o.core.max_activation_bytes = k_bound_bytes;
    o.core.staging_bytes = 3 * k_bound_bytes;
    o.core.device_budget_bytes = 6 * k_bound_bytes;
    rig r(o);
    std::mt19937_64 random(3);
    const auto step = [&](uint64_t largest_bytes) {
        r.step();
        for (int l = 0; l < k_layers; ++l) {
            r.forward(layer(l), "expert.0", 1 + random() % largest_bytes);
            r.forward(layer(l), "expert.1", 1 + random() % largest_bytes);
        }
        for (int l = k_layers; l-- > 0;) {
            r.backward(layer(l), "expert.1");
            r.backward(layer(l), "expert.0");
        }
    };
    step(k_bound_bytes / 8);  // what is recorded is small
    r.step();
    const uint64_t on_demand = r.stats().reloads_on_demand;
    for (int i = 0; i < 12; ++i) {
        step(i % 3 == 0 ? k_bound_bytes / 8 : k_bound_bytes);
    }
    r.step();
    r.synchronize();
    const ebb_statistics s = r.stats();
    EXPECT_EQ(r.wrong(), 0);
    EXPECT_EQ(s.order_mismatches, 0U);
    EXPECT_EQ(s.kept_count, 0U);
    EXPECT_EQ(s.reloads_on_demand, on_demand);
    EXPECT_GT(s.reloads_prefetched, 0U);
    EXPECT_LE(s.device_peak_bytes, o.core.device_budget_bytes);
}

// ------------------------------------------------------------------------------------------------------- G6 --

TEST_P(wiring, G6_what_was_offloaded_and_how_much_of_it_was_hidden_is_told_by_name) {
    runtime_options core;
    core.min_offload_bytes = 1;
    core.device_budget_bytes = 8 * k_unit_bytes;
    core.policy = "input=offload,gaet=offload";  // "gate" was meant
    core.sample_every = 1;
    host_device_options host;
    host.d2h_bytes_per_second = 200'000'000;
    host.h2d_bytes_per_second = 200'000'000;
    session s(core, host);
    const ebb_stream compute = s.stream();
    constexpr int k_steps = 4;
    for (int step = 0; step < k_steps; ++step) {
        EBB_ASSERT_OK(ebb_step(s.runtime(), EBB_PHASE_TRAIN));
        std::vector<session::saved> live;
        for (int l = 0; l < k_layers; ++l) {
            EBB_ASSERT_OK(ebb_scope_push(s.runtime(), layer(l).c_str()));
            live.push_back(s.save(compute, "input"));
            EBB_ASSERT_OK(ebb_scope_pop(s.runtime()));
        }
        live.push_back(s.save(compute, "gate"));
        EXPECT_EQ(live.back().info.reason, EBB_REASON_POLICY);
        while (!live.empty()) {
            s.read_back(live.back(), compute);
            s.release(live.back());
            live.pop_back();
        }
    }
    EBB_ASSERT_OK(ebb_step(s.runtime(), EBB_PHASE_EVALUATE));
    s.drain();
    ASSERT_EQ(s.log().size(), 1U);
    EXPECT_THAT(s.log()[0], HasSubstr("'gaet'"));

    const std::string text = s.report(EBB_REPORT_TEXT);
    EXPECT_THAT(text, HasSubstr("layer.*/input"));
    EXPECT_THAT(text, HasSubstr("'gaet' matched no activation"));
    EXPECT_THAT(text, HasSubstr("exposed"));
    const nlohmann::json report = nlohmann::json::parse(s.report(EBB_REPORT_JSON));
    EXPECT_EQ(report["unmatched_patterns"], nlohmann::json::array({"gaet"}));
    EXPECT_EQ(report["totals"]["sampled_steps"], k_steps - 1);
    uint64_t offloaded_bytes = 0;
    uint64_t given_up_bytes = 0;
    int inputs = 0;
    for (const auto &name : report["names"]) {
        if (name["name"] == "gate") {
            EXPECT_EQ(name["kept"], k_steps);
            EXPECT_EQ(name["kept_by_reason"]["policy"], k_steps);
            EXPECT_EQ(name["offloaded_bytes"], 0);
            EXPECT_EQ(name["saved_bytes"], k_steps * k_unit_bytes);
            continue;
        }
        ++inputs;
        EXPECT_THAT(name["name"].get<std::string>(), HasSubstr("/input"));
        EXPECT_EQ(name["offloaded_bytes"], k_steps * k_unit_bytes) << name["name"];
        EXPECT_GT(name["hidden_ns"].get<uint64_t>() + name["exposed_ns"].get<uint64_t>(), 0U) << name["name"];
        offloaded_bytes += name["offloaded_bytes"].get<uint64_t>();
        given_up_bytes += name["given_up_bytes"].get<uint64_t>();
    }
    EXPECT_EQ(inputs, k_layers);
    EXPECT_EQ(report["totals"]["d2h_bytes"], offloaded_bytes);
    EXPECT_EQ(report["totals"]["given_up_bytes"], given_up_bytes);
    EXPECT_GT(given_up_bytes, 0U);
}

// ------------------------------------------------------------------------------------------------------- G7 --

// Offloads three activations by name, damages what `damage` says, and reads them all back.
std::vector<std::string> mismatches(const std::function<void(session &)> &damage) {
    runtime_options core = copies_always(3);
    core.verify = true;
    session s(core);
    const ebb_stream compute = s.stream();
    damage(s);
    std::vector<session::saved> live;
    EBB_EXPECT_OK(ebb_scope_push(s.runtime(), "decoder"));
    for (const char *name : {"query", "key", "value"}) {
        live.push_back(s.save(compute, name));
    }
    EBB_EXPECT_OK(ebb_scope_pop(s.runtime()));
    std::vector<std::string> found;
    const auto look = [&] {
        s.drain();
        for (ebb_status status = ebb_progress(s.runtime()); status != EBB_OK; status = ebb_progress(s.runtime())) {
            EXPECT_EQ(status, EBB_DATA_MISMATCH);
            found.emplace_back(ebb_last_error());
        }
    };
    look();
    for (const session::saved &x : live) {
        const ebb_reload_info info = s.reload(x, compute);
        s.give_back(info, compute);
        s.release(x);
        look();
    }
    return found;
}

TEST_P(wiring, G7_nothing_is_found_where_nothing_was_damaged) {
    EXPECT_TRUE(mismatches([](session &) {}).empty());
}

TEST_P(wiring, G7_a_byte_flipped_on_the_way_to_host_memory_is_found_and_named) {
    for (const uint64_t offset_bytes : {uint64_t{0}, k_unit_bytes / 3, k_unit_bytes - 1}) {
        const std::vector<std::string> found = mismatches([offset_bytes](session &s) {
            EXPECT_TRUE(s.fault().damage_copy(copy_direction::d2h, 2, offset_bytes).ok());
        });
        ASSERT_EQ(found.size(), 2U);  // when the copy ends, and again when it comes back
        EXPECT_THAT(found[0], HasSubstr("'decoder/key'"));
        EXPECT_THAT(found[0], HasSubstr("checksum 2 of 3, block"));
        EXPECT_THAT(found[1], HasSubstr("'decoder/key'"));
        EXPECT_THAT(found[1], HasSubstr("checksum 3 of 3"));
    }
}

TEST_P(wiring, G7_a_byte_flipped_on_the_way_back_is_found_and_named) {
    for (const uint64_t offset_bytes : {uint64_t{0}, k_unit_bytes / 3, k_unit_bytes - 1}) {
        const std::vector<std::string> found = mismatches([offset_bytes](session &s) {
            EXPECT_TRUE(s.fault().damage_copy(copy_direction::h2d, 3, offset_bytes).ok());
        });
        ASSERT_EQ(found.size(), 1U);
        EXPECT_THAT(found[0], HasSubstr("'decoder/value'"));
        EXPECT_THAT(found[0], HasSubstr("checksum 3 of 3, after reload"));
    }
}

size_t first_checksum(const stream_order &order) {
    size_t at = 0;
    while (at < order.size() && order[at].kind != call_kind::checksum) {
        ++at;
    }
    return at;
}

TEST_P(wiring, G7_the_source_is_summed_behind_its_producer) {
    runtime_options core = copies_always();
    core.verify = true;
    session s(core);
    const ebb_stream compute = s.stream();
    const ebb_stream home = s.stream();
    stream_gate &slow = s.gate();
    s.stand(compute, slow);
    ebb_offload_args args{};
    args.home = &home;
    const session::saved x = s.save(compute, "x", k_unit_bytes, args);
    const stream_order order = s.order();
    const size_t summed = first_checksum(order);
    ASSERT_LT(summed, order.size());
    EXPECT_TRUE(order.behind(summed, order.records().at(0)));
    slow.let();
    s.drain();
    EBB_EXPECT_OK(ebb_progress(s.runtime()));
    s.release(x);
}

// A home stream that is far behind the lanes has not summed the source yet: that is no mismatch, and what it is going
// to read is not written before.
TEST_P(wiring, G7_no_alarm_while_the_home_stream_is_behind) {
    runtime_options core = copies_always();
    core.verify = true;
    session s(core);
    const ebb_stream compute = s.stream();
    const ebb_stream home = s.stream();
    const ebb_stream consumer = s.stream();
    stream_gate &slow = s.gate();
    std::byte *data = s.alloc(k_unit_bytes);  // not x's, which is free behind the home stream only
    s.stand(home, slow);
    ebb_offload_args args{};
    args.home = &home;
    const session::saved x = s.save(compute, "x", k_unit_bytes, args);
    s.read_back(x, consumer);
    s.sync(consumer);
    EBB_EXPECT_OK(ebb_progress(s.runtime()));

    // Staged: the source is a slot of ours, the only one, and wanted for the next reload.
    s.launch(compute, [data] { fill_pattern(data, k_unit_bytes, 77); });
    args.struct_size = sizeof(args);
    args.name = "staged";
    args.data = data;
    args.size_bytes = k_unit_bytes;
    args.producers = &compute;
    args.producer_count = 1;
    ebb_offload_info info{};
    info.struct_size = sizeof(info);
    s.device().clear();
    EBB_ASSERT_OK(ebb_offload_staged(s.runtime(), &args, &info));
    s.read_back(x, consumer);
    const stream_order order = s.order();
    const size_t summed = first_checksum(order);
    ASSERT_LT(summed, order.size());
    EXPECT_TRUE(order.behind(order.copies(copy_direction::h2d).at(0), summed));
    slow.let();
    s.drain();
    EBB_EXPECT_OK(ebb_progress(s.runtime()));
    EBB_EXPECT_OK(ebb_release(s.runtime(), info.activation));
    s.release(x);
    s.free(data);
}

// Before the bytes are used: who waits for them is told.
TEST_P(wiring, G7_who_waits_for_damaged_bytes_is_told) {
    runtime_options core = copies_always();
    core.verify = true;
    session s(core);
    const ebb_stream compute = s.stream();
    const session::saved x = s.save(compute, "x");
    ASSERT_TRUE(s.fault().damage_copy(copy_direction::h2d, 1, 5).ok());
    const ebb_reload_info info = s.reload(x, EBB_STREAM_CALLING_THREAD);
    EXPECT_EQ(ebb_wait(s.runtime(), x.activation), EBB_DATA_MISMATCH);
    EXPECT_THAT(ebb_last_error(), HasSubstr("'x'"));
    s.give_back(info, EBB_STREAM_CALLING_THREAD);
    s.release(x);
}

// The sum that the reload is compared with is made on the home stream, which may be far behind the lanes.
TEST_P(wiring, G7_who_waits_is_told_even_when_the_home_stream_is_late) {
    runtime_options core = copies_always();
    core.verify = true;
    session s(core);
    const ebb_stream producer = s.stream();
    const ebb_stream home = s.stream();
    stream_gate &late = s.gate();
    s.stand(home, late);
    ebb_offload_args args{};
    args.home = &home;
    const session::saved x = s.save(producer, "x", k_unit_bytes, args);
    ASSERT_TRUE(s.fault().damage_copy(copy_direction::h2d, 1, 5).ok());
    const ebb_reload_info info = s.reload(x, EBB_STREAM_CALLING_THREAD);
    s.device().wait_for_our_streams();  // the copy has arrived long before the sum
    std::thread opens([&late] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        late.let_all();
    });
    EXPECT_EQ(ebb_wait(s.runtime(), x.activation), EBB_DATA_MISMATCH);
    opens.join();
    s.give_back(info, EBB_STREAM_CALLING_THREAD);
    s.release(x);
}

EBB_ON_EVERY_MACHINE(wiring);

}  // namespace
}  // namespace ebb::test
