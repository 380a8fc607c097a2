// Leaks and memory: faults that were reported against systems that move activations. Each test is named after its
// entry.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "capi/dlpack_abi.hpp"
#include "fault_session.hpp"

namespace ebb::test {
namespace {

class memory : public on_every_machine {};

using ::testing::HasSubstr;

// ------------------------------------------------------------------------------------------------------- M1 --

// Half of them are released and half dropped from elsewhere; none was ever reloaded, and no copy has begun.
TEST_P(memory, M1_an_activation_dies_with_its_handle) {
    for (const bool stays : {false, true}) {
        runtime_options core = stays ? sources_stay() : copies_always();
        session s(core);
        const ebb_stream compute = s.stream();
        const uint64_t before_bytes = s.machine().used_bytes();
        s.hold(copy_direction::d2h);
        constexpr size_t k_count = 100;
        std::vector<session::saved> all;
        for (size_t i = 0; i < k_count; ++i) {
            all.push_back(s.save(compute, "x"));
        }
        EXPECT_EQ(s.stats().pinned_used_bytes, k_count * k_unit_bytes);
        for (size_t i = 0; i < k_count / 2; ++i) {
            s.release(all[2 * i]);
        }
        EXPECT_EQ(s.stats().pinned_used_bytes, k_count / 2 * k_unit_bytes);
        for (size_t i = 0; i < k_count / 2; ++i) {
            EBB_EXPECT_OK(ebb_drop(s.runtime(), all[2 * i + 1].activation));
        }
        const ebb_statistics after = s.stats();
        EXPECT_EQ(after.live_activations, 0U);
        EXPECT_EQ(after.pinned_used_bytes, 0U);
        EXPECT_EQ(after.source_bytes, 0U);
        EXPECT_EQ(after.kept_bytes, 0U);
        EXPECT_EQ(after.staging_used_bytes, 0U);
        EXPECT_EQ(s.deleted(), k_count);
        EXPECT_EQ(s.machine().used_bytes(), before_bytes);
        // What was freed serves the next ones: nothing more is pinned.
        for (size_t i = 0; i < k_count; ++i) {
            s.release(s.save(compute, "x"));
        }
        EXPECT_EQ(s.stats().pinned_bytes, after.pinned_bytes);
        s.let_go(copy_direction::d2h);
        s.drain();
    }
}

// ------------------------------------------------------------------------------------------------------- M2 --

rig::options small_rig() {
    rig::options o;
    o.host.capacity_bytes = 64ULL << 20U;
    o.core.min_offload_bytes = 1;
    o.core.device_budget_bytes = 10 * k_unit_bytes;
    return o;
}

TEST_P(memory, M2_no_assumption_of_one_forward_and_one_backward_in_a_step) {
    rig r(small_rig());
    constexpr int k_layers = 5;
    const auto name = [](int l) { return "layer." + std::to_string(l); };
    const auto forward = [&] {
        for (int l = 0; l < k_layers; ++l) {
            r.forward(name(l), "input", k_unit_bytes);
        }
    };
    const auto backward = [&] {
        for (int l = k_layers; l-- > 0;) {
            r.backward(name(l), "input");
        }
    };
    const auto forget = [&] {  // a graph that nobody runs backward
        for (auto &[key, stack] : r.live()) {
            while (!stack.empty()) {
                EBB_ASSERT_OK(ebb_release(r.runtime(), stack.back().activation));
                stack.pop_back();
            }
        }
    };
    const std::vector<std::function<void()>> steps = {
        [&] { forward(), backward(); }, [&] { forward(), forward(), forward(), backward(), backward(), backward(); },
        [&] { forward(), forget(); },   [&] { forward(), backward(), forward(), forget(), forward(), backward(); },
        [&] { forward(), backward(); },
    };
    for (int round = 0; round < 3; ++round) {
        for (const auto &step : steps) {
            r.step();
            step();
            const ebb_statistics s = r.stats();
            EXPECT_EQ(s.live_activations, 0U);
            EXPECT_EQ(s.pinned_used_bytes, 0U);
            EXPECT_EQ(s.source_bytes + s.kept_bytes, 0U);
        }
    }
    // A forward whose backward comes in the next step.
    r.step();
    forward();
    r.step();
    backward();
    r.synchronize();
    EXPECT_EQ(r.stats().live_activations, 0U);
    EXPECT_EQ(r.stats().pinned_used_bytes, 0U);
    EXPECT_EQ(r.wrong(), 0);
}

// ------------------------------------------------------------------------------------------- M3, M4, M5 --

TEST_P(memory, M3_sizes_just_above_powers_of_two_waste_little) {
    session s(copies_always(1, 2 << 20U));
    const ebb_stream compute = s.stream();
    for (int step = 0; step < 3; ++step) {
        std::vector<session::saved> live;
        for (int layer = 0; layer < 6; ++layer) {
            for (uint32_t k = 14; k <= 20; ++k) {
                const auto size_bytes = static_cast<uint64_t>(1.05 * static_cast<double>(uint64_t{1} << k));
                live.push_back(s.save(compute, "x", size_bytes));
            }
        }
        const ebb_statistics now = s.stats();
        EXPECT_EQ(now.pinned_bytes, now.pinned_peak_bytes);
        EXPECT_GT(now.pinned_used_bytes, 0U);
        EXPECT_LE(static_cast<double>(now.pinned_bytes - now.pinned_used_bytes),
                  0.125 * static_cast<double>(now.pinned_bytes))
            << now.pinned_used_bytes << " of " << now.pinned_bytes << " bytes are used, in step " << step;
        while (!live.empty()) {
            s.read_back(live.back(), compute);
            s.release(live.back());
            live.pop_back();
        }
    }
    s.drain();
    EXPECT_EQ(s.wrong(), 0);
}

struct placed {
    uint32_t region;
    uint64_t first, end;
};

// What the copies to host memory that were traced since the last clear wrote, in order.
std::vector<placed> written_blocks(session &s) {
    std::vector<placed> all;
    for (const trace_entry &e : s.device().entries(call_kind::copy)) {
        if (e.direction == copy_direction::d2h) {
            all.push_back(
                {e.destination.region, e.destination.offset_bytes, e.destination.offset_bytes + e.size_bytes});
        }
    }
    return all;
}

std::map<uint32_t, uint64_t> registrations(session &s) {
    std::map<uint32_t, uint64_t> sizes;
    for (const trace_entry &e : s.device().entries(call_kind::map_host)) {
        if (e.result == code::ok) {
            sizes[e.source.region] = e.size_bytes;
        }
    }
    return sizes;
}

// Sizes that fall into one class of any list of free blocks, be its classes powers of two or finer, and none of them
// rounded; what was freed last is often the smallest. A block holds all that was asked for, and nobody else's bytes.
TEST_P(memory, M4_a_block_is_never_smaller_than_the_request) {
    constexpr uint64_t k_class_bytes = 4 * k_unit_bytes;
    runtime_options core = copies_always(1, 4 * k_class_bytes);
    core.host_bytes = 24 * k_class_bytes;
    session s(core);
    const ebb_stream compute = s.stream();
    std::mt19937_64 random(17);
    struct item {
        session::saved saved;
        std::vector<placed> places;
    };
    std::vector<item> live;
    std::map<uint32_t, uint64_t> mapped;
    uint64_t last_freed_bytes = 0;
    int larger_than_last_freed = 0;
    const auto end_one = [&](size_t at) {
        s.read_back(live[at].saved, compute);
        s.release(live[at].saved);
        last_freed_bytes = live[at].saved.size_bytes;
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
    };
    for (int round = 0; round < 800; ++round) {
        if (live.size() > 4 && random() % 5 < 2) {
            end_one(random() % live.size());
            continue;
        }
        const uint64_t smallest_bytes = k_class_bytes << random() % 2;
        const uint64_t size_bytes =
            smallest_bytes + 1 + random() % (random() % 2 == 0 ? smallest_bytes / 32 : smallest_bytes - 1);
        s.device().clear();
        item made{s.save(compute, "x", size_bytes), {}};
        for (const auto &[region, bytes] : registrations(s)) {
            mapped[region] = bytes;
        }
        if (made.saved.info.placement == EBB_PLACE_KEEP) {
            ASSERT_EQ(made.saved.info.reason, EBB_REASON_HOST_CAP);
            s.release(made.saved);
            end_one(random() % live.size());
            continue;
        }
        larger_than_last_freed += size_bytes > last_freed_bytes && size_bytes < 2 * last_freed_bytes ? 1 : 0;
        made.places = written_blocks(s);
        uint64_t held_bytes = 0;
        for (const placed &p : made.places) {
            held_bytes += p.end - p.first;
            ASSERT_EQ(mapped.count(p.region), 1U) << "written outside of pinned memory";
            ASSERT_LE(p.end, mapped.at(p.region));
            for (const item &other : live) {
                for (const placed &o : other.places) {
                    ASSERT_TRUE(o.region != p.region || o.end <= p.first || p.end <= o.first) << "shared bytes";
                }
            }
        }
        ASSERT_EQ(held_bytes, size_bytes);
        live.push_back(std::move(made));
    }
    EXPECT_GT(larger_than_last_freed, 100) << "the test shows nothing";
    EXPECT_LE(s.stats().pinned_peak_bytes, core.host_bytes);
    while (!live.empty()) {
        end_one(live.size() - 1);
    }
    s.drain();
    EXPECT_EQ(s.wrong(), 0);
}

TEST_P(memory, M5_growing_does_not_hold_old_and_new_at_once) {
    constexpr uint64_t k_first_bytes = 8 << 20U;
    constexpr uint64_t k_next_bytes = k_first_bytes + k_first_bytes / 10;
    session s(copies_always(1, k_next_bytes));
    const ebb_stream compute = s.stream();
    for (const uint64_t size_bytes : {k_first_bytes, k_next_bytes}) {
        const session::saved x = s.save(compute, "x", size_bytes);
        ASSERT_EQ(x.info.placement, EBB_PLACE_OFFLOAD);
        s.read_back(x, compute);
        s.release(x);
    }
    s.drain();
    EXPECT_LT(s.stats().pinned_peak_bytes, k_first_bytes + k_first_bytes / 5);
    EXPECT_EQ(s.wrong(), 0);
}

// ------------------------------------------------------------------------------------------------------- M6 --

// A source whose last reader stands still, and a thousand that come after it: they are freed as soon as their own
// copies are done, and their blocks serve again.
TEST_P(memory, M6_one_slow_event_does_not_hold_back_the_others) {
    session s(copies_always());
    const ebb_stream slow_reader = s.stream();
    stream_gate &slow = s.gate();
    const ebb_stream thread = EBB_STREAM_CALLING_THREAD;
    ebb_offload_args kept{};
    kept.name = "slow";
    kept.placement = EBB_PLACE_KEEP;
    kept.producers = &thread;
    kept.producer_count = 1;
    kept.data = s.alloc(k_unit_bytes);
    kept.size_bytes = k_unit_bytes;
    fill_pattern(kept.data, k_unit_bytes, 99);
    const session::saved first = s.offload(kept, 99, static_cast<std::byte *>(kept.data));
    const ebb_reload_info info = s.reload(first, slow_reader);
    s.stand(slow_reader, slow);
    s.check(slow_reader, info.data, first);
    s.give_back(info, slow_reader);
    s.release(first);
    EXPECT_EQ(s.deleted(), 0U);

    for (uint64_t i = 0; i < 1000; ++i) {
        ebb_offload_args args{};
        args.name = "fast";
        args.producers = &thread;
        args.producer_count = 1;
        args.data = s.alloc(k_unit_bytes);
        args.size_bytes = k_unit_bytes;
        fill_pattern(args.data, k_unit_bytes, i);
        const session::saved x = s.offload(args, i, static_cast<std::byte *>(args.data));
        s.device().wait_for_our_streams();
        EBB_ASSERT_OK(ebb_progress(s.runtime()));
        ASSERT_EQ(s.deleted(), i + 1) << "the sources of the fast ones do not wait for the slow one";
        s.release(x);
    }
    EXPECT_LE(s.stats().pinned_peak_bytes, 2 * k_unit_bytes);
    slow.let();
    s.drain();
    EBB_ASSERT_OK(ebb_progress(s.runtime()));
    EXPECT_EQ(s.deleted(), 1001U);
}

// ------------------------------------------------------------------------------------------------------- M7 --

struct chain_link {
    session *owner = nullptr;
    ebb_activation next = 0;
    std::byte *data = nullptr;
    int runs = 0;
};

// Deleters that end other activations and free memory; each runs once and everything is gone at the end.
TEST_P(memory, M7_deleters_may_end_other_activations) {
    session s(sources_stay());
    const ebb_stream compute = s.stream();
    constexpr size_t k_links = 50;
    std::vector<chain_link> links(k_links);
    ebb_activation youngest = 0;
    for (chain_link &link : links) {
        link.owner = &s;
        link.next = youngest;
        link.data = s.alloc(k_unit_bytes);
        ebb_offload_args args{};
        args.struct_size = sizeof(args);
        args.name = "link";
        args.data = link.data;
        args.size_bytes = k_unit_bytes;
        args.producers = &compute;
        args.producer_count = 1;
        args.deleter = [](void *context) {
            auto *self = static_cast<chain_link *>(context);
            ++self->runs;
            self->owner->free(self->data);
            if (self->next != 0) {
                EBB_EXPECT_OK(ebb_release(self->owner->runtime(), self->next));
                EXPECT_EQ(ebb_release(self->owner->runtime(), self->next), EBB_STALE_HANDLE);
            }
        };
        args.deleter_context = &link;
        ebb_offload_info info{};
        info.struct_size = sizeof(info);
        EBB_ASSERT_OK(ebb_offload(s.runtime(), &args, &info));
        youngest = info.activation;
    }
    EBB_ASSERT_OK(ebb_release(s.runtime(), youngest));
    for (const chain_link &link : links) {
        EXPECT_EQ(link.runs, 1);
    }
    EXPECT_EQ(s.stats().live_activations, 0U);
    EXPECT_EQ(s.stats().pinned_used_bytes, 0U);
}

// A tensor that is freed on a stream's thread: the claim ends there, and the device is not called from there.
TEST_P(memory, M7_nothing_is_freed_on_a_streams_thread) {
    session s(copies_always());
    const ebb_stream compute = s.stream();
    const ebb_stream consumer = s.stream();
    const session::saved x = s.save(compute, "x");
    for (int round = 0; round < 20; ++round) {
        DLManagedTensorVersioned *t = nullptr;
        EBB_ASSERT_OK(ebb_reload_dlpack(s.runtime(), x.activation, consumer, &t));
        size_t before = 0;
        size_t after = 1;
        s.check(consumer, t->tensor.data, x);
        s.launch(consumer, [&] {
            before = s.device().entries().size();
            t->deleter(t);
            after = s.device().entries().size();
        });
        s.sync(consumer);
        EXPECT_EQ(after, before) << "device calls from a stream's thread";
        EXPECT_EQ(s.device().entries(call_kind::unmap_host).size(), 0U);
    }
    s.release(x);
    EXPECT_EQ(s.stats().staging_used_bytes, 0U);
}

// The trace outlives the runtime in a device that keeps its books elsewhere: every registration and allocation ends
// once.
class bookkeeping_device : public device_decorator {
public:
    struct books {
        std::map<void *, int> mapped, allocated;
        int strange = 0;
    };
    bookkeeping_device(std::unique_ptr<test_machine> machine, books &to)
        : device_decorator(machine->dev()), machine_(std::move(machine)), to_(to) {}
    result<void *> map_host(uint64_t size_bytes) override { return open(to_.mapped, inner().map_host(size_bytes)); }
    status unmap_host(void *data, uint64_t size_bytes) override {
        end(to_.mapped, data);
        return inner().unmap_host(data, size_bytes);
    }
    result<void *> alloc_device(uint64_t size_bytes) override {
        return open(to_.allocated, inner().alloc_device(size_bytes));
    }
    status free_device(void *data, uint64_t size_bytes) override {
        end(to_.allocated, data);
        return inner().free_device(data, size_bytes);
    }

private:
    static result<void *> open(std::map<void *, int> &book, result<void *> made) {
        if (made.ok()) {
            ++book[made.value()];
        }
        return made;
    }
    void end(std::map<void *, int> &book, void *data) { to_.strange += --book[data] == 0 ? 0 : 1; }

    std::unique_ptr<test_machine> machine_;
    books &to_;
};

TEST_P(memory, M7_each_registration_is_undone_once) {
    bookkeeping_device::books books;
    auto owned = make_machine({});
    test_machine &machine = *owned;
    runtime_options core;
    core.min_offload_bytes = 1;
    result<ebb_runtime *> made = capi::make_runtime(std::make_unique<bookkeeping_device>(std::move(owned), books),
                                                    machine.host(), core, logger(), nullptr);
    ASSERT_TRUE(made.ok()) << made.why().text();
    ebb_runtime *runtime = made.value();
    void *bytes = machine.alloc(8 * k_unit_bytes).value();
    const ebb_stream thread = EBB_STREAM_CALLING_THREAD;
    for (int step = 0; step < 4; ++step) {
        EBB_ASSERT_OK(ebb_step(runtime, EBB_PHASE_TRAIN));
        std::vector<ebb_activation> live;
        for (uint64_t i = 1; i <= 8; ++i) {
            ebb_offload_args args{};
            args.struct_size = sizeof(args);
            args.name = "x";
            args.data = bytes;
            args.size_bytes = i * k_unit_bytes;
            args.producers = &thread;
            args.producer_count = 1;
            ebb_offload_info info{};
            info.struct_size = sizeof(info);
            EBB_ASSERT_OK(ebb_offload(runtime, &args, &info));
            live.push_back(info.activation);
        }
        while (!live.empty()) {
            ebb_reload_info info{};
            info.struct_size = sizeof(info);
            EBB_ASSERT_OK(ebb_reload(runtime, live.back(), thread, &info));
            EBB_ASSERT_OK(ebb_wait(runtime, live.back()));
            EBB_ASSERT_OK(ebb_return(runtime, info.claim, thread));
            EBB_ASSERT_OK(ebb_release(runtime, live.back()));
            live.pop_back();
        }
    }
    EXPECT_GT(books.mapped.size(), 0U);
    EXPECT_GT(books.allocated.size(), 0U);
    EBB_ASSERT_OK(ebb_runtime_close(runtime, EBB_CLOSE_DEFAULT));
    EXPECT_EQ(books.strange, 0);
    for (const auto *book : {&books.mapped, &books.allocated}) {
        for (const auto &[data, open] : *book) {
            EXPECT_EQ(open, 0) << data;
        }
    }
}

// ------------------------------------------------------------------------------------------- M8, M9 --

constexpr uint64_t k_pinnable_bytes = 4 * k_unit_bytes;

TEST_P(memory, M8_refused_pinning_is_named_and_the_run_goes_on) {
    session s(copies_always(1, 4 * k_unit_bytes));
    s.fault().refuse_pinning_above(k_pinnable_bytes);
    const ebb_stream compute = s.stream();
    for (int step = 0; step < 3; ++step) {
        std::vector<session::saved> live;
        uint64_t kept = 0;
        for (int i = 0; i < 8; ++i) {
            live.push_back(s.save(compute, "wide"));
            const ebb_offload_info &info = live.back().info;
            if (info.placement == EBB_PLACE_KEEP) {
                ++kept;
                EXPECT_EQ(info.reason, EBB_REASON_PINNING);
                EXPECT_EQ(info.wanted_bytes, k_unit_bytes);
                EXPECT_EQ(info.held_bytes, k_pinnable_bytes);
            }
        }
        EXPECT_EQ(kept, 4U) << "the smaller pool is used";
        EXPECT_EQ(s.stats().pinned_bytes, k_pinnable_bytes);
        while (!live.empty()) {
            s.read_back(live.back(), compute);
            s.release(live.back());
            live.pop_back();
        }
    }
    s.drain();
    EXPECT_EQ(s.wrong(), 0);
    EXPECT_EQ(s.stats().kept_bytes, 0U);
    ASSERT_EQ(s.log().size(), 1U);
    EXPECT_THAT(s.log()[0], HasSubstr("'wide'"));
    EXPECT_THAT(s.log()[0], HasSubstr("refused to pin host memory"));
    EXPECT_THAT(s.log()[0], HasSubstr(std::to_string(k_unit_bytes) + " bytes wanted"));
    EXPECT_THAT(s.log()[0], HasSubstr(std::to_string(k_pinnable_bytes) + " held"));
    // By the number of refusals that it names per name, in the report.
    const nlohmann::json report = nlohmann::json::parse(s.report(EBB_REPORT_JSON));
    EXPECT_EQ(report["names"][0]["kept_by_reason"]["pinning"], 12);
}

TEST_P(memory, M9_running_out_of_host_memory_says_how_much_and_how_to_raise_it) {
    runtime_options core = copies_always();
    core.host_bytes = k_pinnable_bytes + k_unit_bytes / 2;
    session s(core);
    const ebb_stream compute = s.stream();
    std::vector<session::saved> live;
    for (int i = 0; i < 6; ++i) {
        live.push_back(s.save(compute, "wide"));
    }
    const ebb_offload_info &info = live.back().info;
    EXPECT_EQ(info.placement, EBB_PLACE_KEEP);
    EXPECT_EQ(info.reason, EBB_REASON_HOST_CAP);
    EXPECT_EQ(info.wanted_bytes, k_unit_bytes);
    EXPECT_EQ(info.held_bytes, k_pinnable_bytes);
    EXPECT_EQ(info.cap_bytes, core.host_bytes);
    EXPECT_LE(s.stats().pinned_peak_bytes, core.host_bytes);
    ASSERT_EQ(s.log().size(), 1U);
    EXPECT_THAT(s.log()[0], HasSubstr("host memory"));
    EXPECT_THAT(s.log()[0], HasSubstr(std::to_string(k_unit_bytes) + " bytes wanted"));
    EXPECT_THAT(s.log()[0], HasSubstr("cap " + std::to_string(core.host_bytes)));
    EXPECT_THAT(s.log()[0], HasSubstr("EBB_HOST_BYTES"));
    while (!live.empty()) {
        s.read_back(live.back(), compute);
        s.release(live.back());
        live.pop_back();
    }
    // With room again, it is offloaded again.
    bool again = false;
    for (int i = 0; i < 8 && !again; ++i) {
        const session::saved x = s.save(compute, "wide");
        again = x.info.placement == EBB_PLACE_OFFLOAD;
        s.release(x);
    }
    EXPECT_TRUE(again);
    s.drain();
    EXPECT_EQ(s.wrong(), 0);
}

// ------------------------------------------------------------------------------------------------------ M10 --

// Blocks larger than any registration can be, which lie side by side: a block is made of parts of several, and no copy
// of it, out or back, runs from one into the next.
TEST_P(memory, M10_no_copy_straddles_two_registrations) {
    constexpr uint64_t k_slab_bytes = 2 * k_unit_bytes;
    constexpr uint64_t k_largest_bytes = 6 * k_slab_bytes;
    runtime_options core = copies_always(1, k_largest_bytes);
    core.host_bytes = 60 * k_slab_bytes;
    session s(core, {}, k_slab_bytes);
    const side_by_side_device &slabs = s.device().slabs();
    const ebb_stream compute = s.stream();
    std::mt19937_64 random(23);
    std::vector<session::saved> live;
    const auto end_one = [&](size_t at) {
        s.read_back(live[at], compute);
        ASSERT_EQ(slabs.copies_across(), 0U) << "back";
        s.release(live[at]);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
    };
    for (int round = 0; round < 500; ++round) {
        if (live.size() > 3 && random() % 2 == 0) {
            end_one(random() % live.size());
            continue;
        }
        live.push_back(s.save(compute, "x", k_slab_bytes + 1 + random() % (k_largest_bytes - k_slab_bytes)));
        ASSERT_EQ(slabs.copies_across(), 0U) << "out";
        if (live.back().info.placement == EBB_PLACE_KEEP) {
            end_one(live.size() - 1);
        }
    }
    while (!live.empty()) {
        end_one(live.size() - 1);
    }
    EXPECT_GE(slabs.registrations(), 20U);
    EXPECT_GT(slabs.copies_in_next(), 50U) << "no two parts of a block were neighbours: the test shows nothing";
    s.drain();
    EXPECT_EQ(s.wrong(), 0);
}

// ------------------------------------------------------------------------------------------------------ M11 --

uint64_t reported(session &s, const char *name, const char *field) {
    const nlohmann::json report = nlohmann::json::parse(s.report(EBB_REPORT_JSON));
    for (const auto &entry : report["names"]) {
        if (entry["name"] == name) {
            return entry[field].get<uint64_t>();
        }
    }
    ADD_FAILURE() << name << " is not in the report";
    return 0;
}

// One more reference to the storage: its bytes were copied, and not freed until that reference went.
TEST_P(memory, M11_bytes_copied_against_bytes_really_freed) {
    session s(copies_always());
    const ebb_stream compute = s.stream();
    ebb_offload_args key{};
    key.storage_id = 41;
    key.storage_version = 1;
    const session::saved saved = s.save(compute, "saved", k_unit_bytes, key);
    EXPECT_EQ(reported(s, "saved", "given_up_bytes"), k_unit_bytes);

    key.storage_id = 42;
    std::byte *data = s.alloc(k_unit_bytes);
    ebb_offload_args extra = key;
    extra.name = "extra";
    extra.data = data;
    extra.size_bytes = k_unit_bytes / 2;
    extra.producers = &compute;
    extra.producer_count = 1;
    extra.placement = EBB_PLACE_KEEP;
    const session::saved survivor = s.offload(extra, 0, nullptr);
    ebb_offload_args whole = key;
    whole.name = "held";
    whole.data = data;
    whole.size_bytes = k_unit_bytes;
    whole.producers = &compute;
    whole.producer_count = 1;
    const session::saved held = s.offload(whole, 0, nullptr);
    EXPECT_EQ(held.info.placement, EBB_PLACE_OFFLOAD);
    EXPECT_EQ(reported(s, "held", "offloaded_bytes"), k_unit_bytes);
    EXPECT_EQ(reported(s, "held", "given_up_bytes"), 0U);
    EXPECT_EQ(s.stats().d2h_bytes, 2 * k_unit_bytes);
    EXPECT_EQ(s.stats().given_up_bytes, k_unit_bytes);
    EXPECT_THAT(s.report(EBB_REPORT_TEXT), HasSubstr("really given up"));
    s.release(survivor);
    EXPECT_EQ(reported(s, "held", "given_up_bytes"), k_unit_bytes);
    EXPECT_EQ(s.stats().given_up_bytes, 2 * k_unit_bytes);
    s.release(held);
    s.release(saved);
    s.free(data);
}

EBB_ON_EVERY_MACHINE(memory);

}  // namespace
}  // namespace ebb::test
