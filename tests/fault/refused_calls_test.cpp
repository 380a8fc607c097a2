// Every device call may be refused. The first, the second, the third call of each kind is, until a small training run
// makes no more of them; then the device breaks for good after one call, two, three. Each time the run ends, every
// status is one that says what happened, each deleter runs once, and no activation comes back with wrong bytes: it
// comes back right, or it does not.

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "stubborn_run.hpp"

namespace ebb::test {
namespace {

class unmarked_reader : public on_every_machine {};
class undisturbed_run : public on_every_machine {};

constexpr uint64_t k_most_calls = 5000;  // far more than a run makes

// Which calls, with which options, and whether only the nth is refused or all from there on.
using refusal_case = std::tuple<size_t, size_t, bool>;
class refused_calls : public on_every_machine_with<refusal_case> {};

TEST_P(refused_calls, the_nth_for_every_n) {
    const auto kind = static_cast<call_kind>(std::get<0>(parameter()));
    const runtime_options core = option_sets()[std::get<1>(parameter())].core;
    const bool for_good = std::get<2>(parameter());
    const auto refused = [&](uint64_t nth) {
        const stubborn_run run(core, for_good, [&](rig_device &dev) {
            dev.fault().refuse(kind, nth, for_good ? fault_device::k_for_good : 1);
        });
        // One refused call, or pinning that is refused for good, costs nobody an activation.
        if (!for_good || kind == call_kind::map_host) {
            EXPECT_EQ(run.lost(), 0);
        }
        return run.any_refused();
    };
    uint64_t nth = 1;
    for (; nth < k_most_calls; ++nth) {
        SCOPED_TRACE("call " + std::to_string(nth) + (for_good ? " and all that follow" : ""));
        bool any = refused(nth);
        // A run in which all copies are over in time waits for no event.
        for (int again = 0; kind == call_kind::synchronize_event && nth == 1 && !any && again < 20; ++again) {
            any = refused(nth);
        }
        if (!any || HasFailure()) {
            break;
        }
    }
    EXPECT_LT(nth, k_most_calls);
    const bool makes_such_calls = kind != call_kind::checksum || core.verify;
    EXPECT_EQ(nth > 1, makes_such_calls) << "the first is refused, or there is none";
}

INSTANTIATE_TEST_SUITE_P(on, refused_calls,
                         ::testing::Combine(::testing::ValuesIn(machine_kinds()),
                                            ::testing::Combine(::testing::Range(size_t{0}, k_call_kinds),
                                                               ::testing::Range(size_t{0}, option_sets().size()),
                                                               ::testing::Bool())),
                         [](const auto &at) {
                             const refusal_case &c = std::get<1>(at.param);
                             return ::testing::PrintToString(std::get<0>(at.param)) + "_" +
                                    call_kind_name(static_cast<call_kind>(std::get<0>(c))) + "_" +
                                    option_sets()[std::get<1>(c)].name + (std::get<2>(c) ? "_for_good" : "_once");
                         });

class broken_device : public on_every_machine_with<size_t> {};

TEST_P(broken_device, after_each_number_of_calls) {
    const runtime_options core = option_sets()[parameter()].core;
    uint64_t calls = 0;
    for (; calls < k_most_calls; ++calls) {
        SCOPED_TRACE("broken after " + std::to_string(calls) + " calls");
        const stubborn_run run(core, true, [&](rig_device &dev) { dev.fault().break_after(calls); });
        if (!run.any_refused() || HasFailure()) {
            break;
        }
    }
    EXPECT_LT(calls, k_most_calls);
    EXPECT_GT(calls, 20U);
}

INSTANTIATE_TEST_SUITE_P(on, broken_device,
                         ::testing::Combine(::testing::ValuesIn(machine_kinds()),
                                            ::testing::Range(size_t{0}, option_sets().size())),
                         [](const auto &at) {
                             return ::testing::PrintToString(std::get<0>(at.param)) + "_" +
                                    option_sets()[std::get<1>(at.param)].name;
                         });

// A copy on the device whose end the device refuses to mark may read its slot (or source) at any later time: that
// memory is not used again before close, when everything is idle.
TEST_P(unmarked_reader, keeps_its_slot_until_close) {
    session s(copies_always());
    const ebb_stream compute = s.stream();
    const ebb_stream late = s.stream();
    std::byte *own = s.alloc(k_unit_bytes);  // never a source: `late` is not behind their home
    const session::saved first = s.prefetched(compute, "first");
    const session::saved second = s.save(compute, "second");

    s.stand(late, s.gate());
    s.fault().refuse(call_kind::record_event, 2);  // the first marks where the memory is free
    EXPECT_EQ(ebb_reload_into(s.runtime(), first.activation, own, k_unit_bytes, late), EBB_DEVICE_ERROR);
    EXPECT_NE(std::string(ebb_last_error()).find("'first'"), std::string::npos) << ebb_last_error();
    EXPECT_NE(std::string(ebb_last_error()).find("until the runtime is closed"), std::string::npos) << ebb_last_error();
    s.check(late, own, first);  // the copy was enqueued, and reads the slot once the gate opens

    s.release(first);
    ebb_reload_info info{};
    info.struct_size = sizeof(info);
    EXPECT_EQ(ebb_reload(s.runtime(), second.activation, compute, &info), EBB_NO_SLOT) << "the only slot is still read";
    s.release(second);
    s.close();
}

TEST_P(unmarked_reader, keeps_its_source_until_close) {
    session s(sources_stay());
    const ebb_stream compute = s.stream();
    const ebb_stream late = s.stream();
    std::byte *own = s.alloc(k_unit_bytes);
    const session::saved kept = s.save(compute, "kept");

    s.stand(late, s.gate());
    s.fault().refuse(call_kind::record_event, 2);
    EXPECT_EQ(ebb_reload_into(s.runtime(), kept.activation, own, k_unit_bytes, late), EBB_DEVICE_ERROR);
    s.check(late, own, kept);

    s.release(kept);
    EXPECT_EQ(s.deleted(), 0U) << "its source is still read";
    s.close();
    EXPECT_EQ(s.deleted(), 1U);
}

// The run itself is right: with no fault, every activation comes back and no call fails.
TEST_P(undisturbed_run, brings_everything_back) {
    for (const named_options &each : option_sets()) {
        const stubborn_run run(each.core, false, [](rig_device &) {});
        EXPECT_FALSE(run.any_refused());
        EXPECT_GT(run.read_back(), 20);
        EXPECT_EQ(run.lost(), 0);
        EXPECT_EQ(run.statuses().count(EBB_DEVICE_ERROR), 0U);
    }
}

EBB_ON_EVERY_MACHINE(unmarked_reader);
EBB_ON_EVERY_MACHINE(undisturbed_run);

}  // namespace
}  // namespace ebb::test
