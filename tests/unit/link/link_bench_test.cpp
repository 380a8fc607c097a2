// The benchmark of the link, on the host device: what it measures, and that it sees what goes wrong. No time is
// compared with anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>

#include "device/fault/fault_device.hpp"
#include "link/call_cost.hpp"
#include "link/host_link_kernels.hpp"
#include "link/link_devices.hpp"
#include "link/link_report.hpp"
#include "link/measure_cell.hpp"
#include "link/traffic.hpp"

namespace ebb::link {
namespace {

constexpr uint64_t k_mib = 1ULL << 20U;

TEST(link_cells, the_chosen_ones_are_twelve_and_cover_both_ways_at_16_mib_and_above) {
    const std::vector<link_cell> cells = chosen_cells();
    EXPECT_LE(cells.size(), 12U);
    for (const way w : {way::d2h, way::h2d}) {
        for (const bool together : {false, true}) {
            EXPECT_TRUE(std::any_of(cells.begin(), cells.end(),
                                    [&](const link_cell &c) {
                                        return c.measured == w && c.together == together && c.size_bytes >= 16 * k_mib;
                                    }))
                << way_name(w) << together;
        }
    }
}

TEST(link_cells, all_of_them_go_from_4_kib_to_4_gib) {
    const std::vector<link_cell> cells = all_cells({load::none, load::compute});
    EXPECT_EQ(cells.size(), 2U * 2U * 2U * 11U);
    const auto [least, most] = std::minmax_element(
        cells.begin(), cells.end(), [](const link_cell &a, const link_cell &b) { return a.size_bytes < b.size_bytes; });
    EXPECT_EQ(least->size_bytes, 4096U);
    EXPECT_EQ(most->size_bytes, 4096 * k_mib);
}

TEST(link_cells, small_copies_are_many_and_large_ones_few) {
    EXPECT_EQ(copies_of({way::d2h, false, load::none, 4096}), 16U);
    EXPECT_EQ(copies_of({way::d2h, false, load::none, 256 * k_mib}), 4U);
    EXPECT_EQ(copies_of({way::d2h, false, load::none, 4096 * k_mib}), 2U);
}

// A host device under a fault device, as one.
struct host_ground {
    explicit host_ground(uint64_t capacity_bytes) : host(options(capacity_bytes)) {}
    static host_device_options options(uint64_t capacity_bytes) {
        host_device_options o;
        o.capacity_bytes = capacity_bytes;
        return o;
    }
    host_device host;
};
class faulty_host : public host_ground, public fault_device {
public:
    explicit faulty_host(uint64_t capacity_bytes) : host_ground(capacity_bytes), fault_device(host) {}
};

struct faulty_rig {
    explicit faulty_rig(const link_cell &cell) {
        auto dev = std::make_unique<faulty_host>(memory_of(cell).device_bytes);
        faults = dev.get();
        link_device on;
        on.host = &dev->host;
        on.kernels = std::move(host_link_kernels::make(dev->host)).value();
        on.dev = std::move(dev);
        result<std::unique_ptr<link_rig>> made = link_rig::make(std::move(on), {cell});
        EXPECT_TRUE(made.ok()) << made.why().text();
        rig = std::move(made).value();
    }
    faulty_host *faults = nullptr;
    std::unique_ptr<link_rig> rig;
};

class link_every_cell : public ::testing::TestWithParam<link_cell> {};

TEST_P(link_every_cell, is_measured) {
    faulty_rig on(GetParam());
    const result<cell_times> times = measure_cell(*on.rig, GetParam(), 2);
    ASSERT_TRUE(times.ok()) << times.why().text();
    for (const side_times *side : {&times.value().plain, &times.value().ebb}) {
        EXPECT_EQ(side->ns.size(), 2U);
        EXPECT_GT(times.value().bytes_per_second(*side), 0);
    }
    ebb_statistics after{};
    after.struct_size = sizeof after;
    ASSERT_EQ(ebb_stats(on.rig->runtime(), &after), EBB_OK);
    EXPECT_EQ(after.live_activations, 0U);
    EXPECT_EQ(after.kept_count, 0U);
    EXPECT_EQ(after.forwarded_count, 0U);
    // Three repetitions, each of them brought back whole; and as much again the other way, twice.
    const uint64_t moved = 3 * copies_of(GetParam()) * GetParam().size_bytes * (GetParam().together ? 3 : 1);
    EXPECT_EQ(after.d2h_bytes, moved);
    EXPECT_EQ(after.h2d_bytes, moved);
}

INSTANTIATE_TEST_SUITE_P(cells, link_every_cell,
                         ::testing::Values(link_cell{way::d2h, false, load::none, 8},
                                           link_cell{way::d2h, false, load::none, 4096},
                                           link_cell{way::h2d, false, load::none, 4096},
                                           link_cell{way::d2h, true, load::none, 65536},
                                           link_cell{way::h2d, true, load::compute, 65536},
                                           link_cell{way::d2h, false, load::none, k_mib + 8}),
                         [](const auto &tested) {
                             std::string name = tested.param.name();
                             std::replace_if(
                                 name.begin(), name.end(), [](char c) { return c == ' ' || c == '.'; }, '_');
                             return name;
                         });

// Copies are counted from the rig's making on; a repetition of a cell makes `copies_of` plain ones, then as many of
// Ebb's.
struct damaged_copy {
    way measured;
    copy_direction direction;
    uint64_t nth;
    const char *named;
};

class link_damage : public ::testing::TestWithParam<damaged_copy> {};

TEST_P(link_damage, of_one_bit_is_seen_and_the_copy_named) {
    const link_cell cell{GetParam().measured, false, load::none, 4096};
    faulty_rig on(cell);
    ASSERT_TRUE(on.faults->damage_copy(GetParam().direction, GetParam().nth, 4095).ok());
    const result<cell_times> times = measure_cell(*on.rig, cell, 1);
    EXPECT_EQ(times.why().code(), code::data_mismatch);
    EXPECT_THAT(times.why().text(), ::testing::HasSubstr(GetParam().named));
}

INSTANTIATE_TEST_SUITE_P(ways, link_damage,
                         ::testing::Values(damaged_copy{way::d2h, copy_direction::d2h, 3, "plain copy 3 of 16"},
                                           damaged_copy{way::d2h, copy_direction::d2h, 16 + 3, "activation d2h2:"},
                                           damaged_copy{way::h2d, copy_direction::h2d, 16, "plain copy 16 of 16"},
                                           damaged_copy{way::h2d, copy_direction::h2d, 16 + 16, "activation h2d15:"}));

TEST(link_gate, nothing_is_copied_before_it_opens) {
    const link_cell cell{way::d2h, false, load::none, 4096};
    faulty_rig on(cell);
    link_kernels &kernels = on.rig->kernels();
    const stream_id stream = on.rig->new_stream().value();
    ASSERT_TRUE(kernels.fill(stream, on.rig->device_memory(), 4096, 7).ok());
    ASSERT_TRUE(on.rig->finish(stream).ok());
    on.rig->pinned_memory()[0] = 42;
    ASSERT_TRUE(kernels.close_gate().ok());
    ASSERT_TRUE(kernels.hold(stream).ok());
    device &dev = on.rig->dev();
    ASSERT_TRUE(dev.copy(stream, copy_direction::d2h, on.rig->pinned_memory(), on.rig->device_memory(), 4096).ok());
    const event_id copied = dev.create_event(event_kind::plain).value();
    ASSERT_TRUE(dev.record_event(copied, stream).ok());
    EXPECT_FALSE(dev.event_done(copied).value());
    EXPECT_EQ(on.rig->pinned_memory()[0], 42);
    ASSERT_TRUE(kernels.open_gate().ok());
    ASSERT_TRUE(on.rig->finish(stream).ok());
    EXPECT_TRUE(dev.event_done(copied).value());
    EXPECT_EQ(std::memcmp(on.rig->pinned_memory(), on.rig->device_memory(), 4096), 0);
    EXPECT_TRUE(dev.destroy_event(copied).ok());
}

// Ebb takes the slots behind the home stream, which is held.
TEST(link_gate, holds_reloads_of_ebb_back) {
    const link_cell cell{way::h2d, false, load::none, 4096};
    faulty_rig on(cell);
    const uint64_t count = copies_of(cell);
    const uint64_t slots_bytes = count * slot_pool::slot_bytes(4096);
    char *slots = on.rig->device_memory() + slots_bytes;
    std::memset(slots, 42, slots_bytes);
    on.rig->slots().reset(slots, count, slot_pool::slot_bytes(4096));
    const std::unique_ptr<traffic> reloads =
        std::move(make_ebb_traffic(*on.rig, way::h2d, {4096, count}, {on.rig->device_memory(), nullptr})).value();
    ASSERT_TRUE(reloads->prepare(1).ok());
    ASSERT_TRUE(on.rig->kernels().close_gate().ok());
    ASSERT_TRUE(on.rig->kernels().hold(reloads->held_stream()).ok());
    for (uint64_t i = 0; i < count; ++i) {
        ASSERT_TRUE(reloads->enqueue(i).ok());
    }
    // Whatever could have been copied before this was: one engine copies in the order in which copies become ready.
    const stream_id behind = on.rig->new_stream().value();
    ASSERT_TRUE(
        on.rig->dev().copy(behind, copy_direction::h2d, on.rig->device_memory(), on.rig->pinned_memory(), 8).ok());
    ASSERT_TRUE(on.rig->finish(behind).ok());
    EXPECT_EQ(std::count(slots, slots + slots_bytes, 42), static_cast<std::ptrdiff_t>(slots_bytes));
    ASSERT_TRUE(on.rig->kernels().open_gate().ok());
    ASSERT_TRUE(on.rig->finish(reloads->last_stream()).ok());
    EXPECT_TRUE(reloads->verify().ok());
}

// A call that fails with the gate closed must not leave streams standing: the rig could not be taken down.
TEST(link_gate, opens_when_enqueueing_fails) {
    const link_cell cell{way::d2h, false, load::none, 4096};
    faulty_rig on(cell);
    // The first repetition has no gate: 16 plain copies, then as many of Ebb's, there and back.
    on.faults->refuse(call_kind::copy, 3 * 16 + 5);
    const result<cell_times> times = measure_cell(*on.rig, cell, 1);
    EXPECT_EQ(times.why().code(), code::device_error);
}

TEST(link_calls, are_counted_per_activation) {
    link_device on = std::move(open_host(memory_of_call_cost(4096).device_bytes)).value();
    // Two calls between one question and the next, of 10 ns each.
    uint64_t calls = 0;
    on.cuda_calls = [&calls]() -> call_totals {
        calls += 2;
        return {calls, 10 * calls, calls, 7 * calls};
    };
    const result<call_cost> cost = measure_call_cost(std::move(on), 4096);
    ASSERT_TRUE(cost.ok()) << cost.why().text();
    EXPECT_EQ(cost.value().activations, 64U);
    EXPECT_EQ(cost.value().chunks, 1U);
    EXPECT_EQ(cost.value().promised_calls(), 5U);
    EXPECT_EQ(cost.value().cuda->d2h_calls, 2);
    // Asked before the step, twice for each offload, and behind the step: between the first question and the last there
    // are 129 pairs of calls.
    EXPECT_DOUBLE_EQ(cost.value().cuda->h2d_calls, 129 * 2 / 64.0 - 2);
    EXPECT_EQ(cost.value().cuda->memcpy_ns, 7);
    EXPECT_NEAR(cost.value().cuda->own_ns, cost.value().call_ns - 129 * 2 * 10 / 64.0, 1e-6);
}

TEST(link_report, has_each_cell_with_both_sides) {
    cell_times cell;
    cell.cell = {way::h2d, true, load::compute, 16 * k_mib};
    cell.copies = 2;
    cell.plain = {{1'000'000, 3'000'000, 2'000'000}, true};
    cell.ebb = {{2'000'000, 2'500'000, 1'900'000}, false};
    call_cost cost;
    cost.size_bytes = k_mib;
    cost.chunks = 1;
    cost.cuda = call_cost::cuda_share{250, 4.5, 5, 2300};
    call_cost on_host;
    on_host.size_bytes = 2 * k_mib;
    link_report report;
    report.context = {{"device", "a \"quoted\" name"}};
    report.cells = {cell};
    report.calls = {cost, on_host};
    const nlohmann::ordered_json json = link_json(report);
    EXPECT_EQ(json["context"]["device"], "a \"quoted\" name");
    const auto &first = json["cells"][0];
    EXPECT_EQ(first["name"], "h2d together under compute 16MiB");
    EXPECT_EQ(first["plain"]["median_ns"], 2'000'000);
    EXPECT_EQ(first["plain"]["most_ns"], 3'000'000);
    EXPECT_TRUE(first["plain"]["other_way_busy"]);
    EXPECT_FALSE(first["ebb"]["other_way_busy"]);
    EXPECT_DOUBLE_EQ(first["ratio"], 1.0);
    EXPECT_EQ(json["calls"][0]["promised_calls"], 5);
    EXPECT_EQ(json["calls"][0]["cuda"]["d2h_calls"], 4.5);
    EXPECT_TRUE(json["calls"][1]["cuda"].is_null());
    EXPECT_THAT(link_table(report), ::testing::HasSubstr("16.78"));
    EXPECT_THAT(link_table(report), ::testing::HasSubstr("the other way ended first"));
}

}  // namespace
}  // namespace ebb::link
