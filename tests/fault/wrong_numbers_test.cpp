// Wrong numbers: faults that were reported against systems that move activations. Each test is named after its entry.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>

#include "capi/dlpack_abi.hpp"
#include "fault_session.hpp"

namespace ebb::test {
namespace {

class wrong_numbers : public on_every_machine {};

using ::testing::HasSubstr;

// ------------------------------------------------------------------------------------------------------- W1 --

enum class asked_by : int { slot, memory_for_all, memory_for_a_part };

// Whoever asks for the bytes, and however early: for a slot, or for memory of the caller's, of all or of a part.
TEST_P(wrong_numbers, W1_reload_waits_for_its_own_offload) {
    session s(copies_always());
    const ebb_stream compute = s.stream();
    const ebb_stream consumer = s.stream();
    constexpr uint64_t k_half = k_unit_bytes / 2;
    std::byte *own = s.alloc(k_unit_bytes);
    for (int round = 0; round < 90; ++round) {
        s.device().clear();
        s.hold(copy_direction::d2h);
        ebb_offload_args key{};
        key.storage_id = 7;
        key.storage_version = static_cast<uint64_t>(round);
        const session::saved x = s.save(compute, "x", k_unit_bytes, key);
        // A save of its second half, which shares the copy.
        ebb_offload_args part = key;
        part.name = "part";
        part.data = x.data + k_half;
        part.size_bytes = k_half;
        part.producers = &compute;
        part.producer_count = 1;
        const session::saved view = s.offload(part, x.seed, nullptr);

        ebb_reload_info info{};
        switch (static_cast<asked_by>(round % 3)) {
            case asked_by::slot:
                info = s.reload(x, consumer);
                s.check(consumer, info.data, x);
                break;
            case asked_by::memory_for_all:
                EBB_EXPECT_OK(ebb_reload_into(s.runtime(), x.activation, own, k_unit_bytes, consumer));
                s.check(consumer, own, x);
                break;
            case asked_by::memory_for_a_part:
                EBB_EXPECT_OK(ebb_reload_into(s.runtime(), view.activation, own, k_half, consumer));
                s.check(consumer, [own, x] {
                    std::vector<std::byte> all(k_unit_bytes);
                    fill_pattern(all.data(), k_unit_bytes, x.seed);
                    return std::memcmp(own, all.data() + k_half, k_half) == 0;
                });
                break;
        }
        const stream_order order = s.order();
        const std::vector<size_t> out = order.copies(copy_direction::d2h);
        const std::vector<size_t> in = order.copies(copy_direction::h2d);
        ASSERT_EQ(out.size(), 1U);
        ASSERT_EQ(in.size(), 1U);
        ASSERT_TRUE(order.behind(in[0], out[0])) << "asked by " << round % 3;
        s.let_go(copy_direction::d2h);
        if (info.claim != 0) {
            s.give_back(info, consumer);
        }
        s.release(view);
        s.release(x);
        s.drain();
    }
    s.free(own);
}

// ------------------------------------------------------------------------------------------------------- W2 --

rig::options silly_options(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto one_of = [&random](std::initializer_list<uint64_t> values) {
        return values.begin()[random() % values.size()];
    };
    rig::options o;
    o.host.capacity_bytes = 64ULL << 20U;
    o.host.d2h_bytes_per_second = one_of({0, 0, 300'000'000});
    o.host.h2d_bytes_per_second = one_of({0, 0, 300'000'000});
    o.core.min_offload_bytes = one_of({1, 1, k_unit_bytes + 1});
    o.core.lanes = static_cast<uint32_t>(one_of({1, 2, 3, 8}));
    o.core.chunk_bytes = one_of({0, 512, 4096, 10'000, k_unit_bytes});
    o.core.prefetch_bytes = one_of({k_automatic, k_none_bytes, k_one_layer, 1, 3 * k_unit_bytes});
    o.core.source_bytes = one_of({k_automatic, k_none_bytes, 1, 4 * k_unit_bytes});
    o.core.device_budget_bytes = one_of({0, 7 * k_unit_bytes, 12 * k_unit_bytes, 30 * k_unit_bytes});
    o.core.keep_last = one_of({0, 0, 3});
    o.core.sample_every = static_cast<uint32_t>(one_of({1, 16}));
    o.core.verify = one_of({0, 1}) != 0;
    return o;
}

class silly_schedules : public on_every_machine_with<uint64_t> {};

// The rig checks every byte that comes back, whatever the lookahead, the lanes, the chunks and the caps.
TEST_P(silly_schedules, W2_no_schedule_changes_a_byte) {
    rig r(silly_options(parameter()));
    std::mt19937_64 random(parameter());
    for (int step = 0; step < 4; ++step) {
        r.step();
        const uint64_t micro_batches = 1 + random() % 3;
        for (uint64_t m = 0; m < micro_batches; ++m) {
            for (int l = 0; l < 5; ++l) {
                r.forward("layer." + std::to_string(l), "input", k_unit_bytes, m);
                r.forward("layer." + std::to_string(l), "gate", k_unit_bytes + 8 * (random() % 5000), m);
            }
        }
        for (uint64_t m = micro_batches; m-- > 0;) {
            for (int l = 5; l-- > 0;) {
                r.backward("layer." + std::to_string(l), "gate", m);
                r.backward("layer." + std::to_string(l), "input", m);
            }
        }
    }
    r.synchronize();
    EXPECT_EQ(r.wrong(), 0);
    EXPECT_EQ(r.stats().live_activations, 0U);
    EXPECT_GT(r.stats().d2h_bytes, 0U) << "nothing moved: the test shows nothing";
}

INSTANTIATE_TEST_SUITE_P(on, silly_schedules,
                         ::testing::Combine(::testing::ValuesIn(machine_kinds()),
                                            ::testing::Range(uint64_t{1}, uint64_t{41})),
                         [](const auto &at) {
                             return ::testing::PrintToString(std::get<0>(at.param)) + "_seed_" +
                                    std::to_string(std::get<1>(at.param));
                         });

// ------------------------------------------------------------------------------------------------------- W3 --

// One slot, two patterns: a declared reader on a second stream still reads the one when the other is asked for.
TEST_P(wrong_numbers, W3_a_slot_is_reused_behind_its_last_reader) {
    session s(copies_always());
    const ebb_stream compute = s.stream();
    const ebb_stream consumer = s.stream();
    const ebb_stream reader = s.stream();
    const session::saved patterns[] = {s.save(compute, "a"), s.save(compute, "b")};
    stream_gate &slow = s.gate();
    constexpr int k_rounds = 1000;
    for (int round = 0; round < k_rounds; ++round) {
        const session::saved &x = patterns[round % 2];
        const ebb_reload_info info = s.reload(x, consumer);
        if (round > 0) {
            const stream_order order = s.order();
            ASSERT_TRUE(order.behind(order.copies(copy_direction::h2d).at(0), order.records()[1]));
            slow.let();  // the reader of the round before: the next copy into its slot has been enqueued
        }
        EBB_ASSERT_OK(ebb_use(s.runtime(), info.claim, reader));
        s.stand(reader, slow);
        s.check(reader, info.data, x);
        s.device().clear();
        s.give_back(info, consumer);
        ASSERT_EQ(s.order().records().size(), 2U) << "the consumer's last use, and the reader's";
    }
    slow.let();
    s.drain();
    EXPECT_EQ(s.wrong(), 0);
    EXPECT_EQ(s.stats().reloads_on_demand, static_cast<uint64_t>(k_rounds));
}

// The same for host memory: one block, whose next user comes while the last copy out of it has not begun.
TEST_P(wrong_numbers, W3_a_host_block_is_reused_behind_its_last_copy) {
    runtime_options core = copies_always(2);
    core.host_bytes = k_unit_bytes;
    session s(core);
    const ebb_stream compute = s.stream();
    const ebb_stream consumer = s.stream();
    for (int round = 0; round < 200; ++round) {
        s.device().clear();
        const session::saved a = s.save(compute, "a");
        s.sync(compute);
        s.hold(copy_direction::h2d);
        s.read_back(a, consumer);
        s.release(a);
        const session::saved b = s.save(compute, "b");
        ASSERT_EQ(b.info.placement, EBB_PLACE_OFFLOAD);
        const stream_order order = s.order();
        ASSERT_EQ(order.copies(copy_direction::d2h).size(), 2U);
        ASSERT_EQ(order.copies(copy_direction::h2d).size(), 1U);
        ASSERT_TRUE(order.behind(order.copies(copy_direction::d2h)[1], order.copies(copy_direction::h2d)[0]));
        s.let_go(copy_direction::h2d);
        s.read_back(b, consumer);
        s.release(b);
        s.drain();
    }
}

// A source that was handed back is the caller's to free behind every stream that read it (and behind more than that:
// source_reuse_test.cpp).
TEST_P(wrong_numbers, W3_a_source_is_reused_behind_its_readers) {
    session s(sources_stay());
    const ebb_stream compute = s.stream();
    const ebb_stream consumer = s.stream();
    const ebb_stream reader = s.stream();
    stream_gate &slow = s.gate();
    for (int round = 0; round < 100; ++round) {
        s.device().clear();
        s.hold(copy_direction::d2h);
        const session::saved x = s.save(compute, "x");
        const ebb_reload_info info = s.reload(x, consumer);
        ASSERT_EQ(info.data, x.data);
        EBB_ASSERT_OK(ebb_use(s.runtime(), info.claim, reader));
        s.stand(reader, slow);
        s.check(reader, info.data, x);
        const size_t marks_before = s.order().records().size();
        s.give_back(info, consumer);
        ASSERT_EQ(s.order().records().size(), marks_before + 2) << "the consumer's last use, and the reader's";
        const size_t returned = s.order().records().back();
        s.release(x);
        ASSERT_EQ(s.deleted(), 2 * static_cast<uint64_t>(round) + 1);  // freed for the host, and reused at once
        const session::saved y = s.save(compute, "y");
        ASSERT_EQ(y.data, x.data);
        const stream_order order = s.order();
        const std::vector<size_t> out = order.copies(copy_direction::d2h);
        ASSERT_EQ(out.size(), 2U);
        ASSERT_TRUE(order.behind(out[1], returned)) << "the next kernel on this memory waits for the reader";
        slow.let();
        s.let_go(copy_direction::d2h);
        s.read_back(y, consumer);
        s.release(y);
        s.drain();
    }
}

// ------------------------------------------------------------------------------------------------------- W4 --

// Every call under other streams, and the earlier ones are gone.
TEST_P(wrong_numbers, W4_streams_are_arguments_and_not_remembered) {
    session s(copies_always());
    for (int round = 0; round < 20; ++round) {
        const ebb_stream producer = s.stream();
        const ebb_stream home = s.stream();
        const ebb_stream consumer = s.stream();
        stream_gate &slow = s.gate();
        s.device().clear();
        s.stand(producer, slow);
        ebb_offload_args args{};
        args.home = &home;
        const session::saved x = s.save(producer, "x", k_unit_bytes, args);
        const stream_order order = s.order();
        ASSERT_FALSE(order.records().empty());
        ASSERT_TRUE(order.behind(order.copies(copy_direction::d2h).at(0), order.records()[0]));
        slow.let();
        s.read_back(x, consumer);
        s.release(x);
        s.drain();
        s.end_stream(producer);
        s.end_stream(home);
        s.end_stream(consumer);
    }
    EXPECT_EQ(s.wrong(), 0);
}

// ------------------------------------------------------------------------------------------------------- W5 --

// Each producer writes its part last, on a stream of its own; consumers on as many streams read the whole.
TEST_P(wrong_numbers, W5_several_producers_and_consumers) {
    constexpr size_t k_streams = 6;
    session s(copies_always());
    std::array<ebb_stream, k_streams> producers{};
    std::array<ebb_stream, k_streams> consumers{};
    for (size_t i = 0; i < k_streams; ++i) {
        producers[i] = s.stream();
        consumers[i] = s.stream();
    }
    for (int round = 0; round < 30; ++round) {
        s.device().clear();
        stream_gate &producing = s.gate();
        stream_gate &reading = s.gate();
        const uint64_t seed = 1000 + static_cast<uint64_t>(round);
        std::byte *data = s.alloc(k_unit_bytes);
        for (size_t i = 0; i < k_streams; ++i) {
            s.stand(producers[i], producing);
            s.launch(producers[i], [data, seed, i] {
                std::vector<std::byte> all(k_unit_bytes);
                fill_pattern(all.data(), k_unit_bytes, seed);
                const uint64_t first = i * k_unit_bytes / k_streams;
                const uint64_t end = (i + 1) * k_unit_bytes / k_streams;
                std::memcpy(data + first, all.data() + first, end - first);
            });
        }
        ebb_offload_args args{};
        args.name = "x";
        args.data = data;
        args.size_bytes = k_unit_bytes;
        args.producers = producers.data();
        args.producer_count = k_streams;
        const session::saved x = s.offload(args, seed, data);
        const stream_order order = s.order();
        const size_t copy = order.copies(copy_direction::d2h).at(0);
        std::set<uint32_t> marked;
        for (const size_t record : order.records()) {
            if (record < copy) {
                ASSERT_TRUE(order.behind(copy, record)) << to_string(order[record]);
                marked.insert(order[record].stream);
            }
        }
        ASSERT_GE(marked.size(), k_streams);
        producing.let_all();

        const ebb_reload_info info = s.reload(x, consumers[0]);
        for (size_t i = 0; i < k_streams; ++i) {
            if (i != 0) {
                EBB_ASSERT_OK(ebb_use(s.runtime(), info.claim, consumers[i]));
            }
            s.stand(consumers[i], reading);
            s.check(consumers[i], info.data, x);
        }
        s.device().clear();
        s.give_back(info, consumers[0]);
        const size_t last_uses = s.order().records().size();
        ASSERT_GE(last_uses, k_streams);
        // The one slot is wanted again while all of them stand.
        const session::saved y = s.save(producers[0], "y");
        const ebb_reload_info next = s.reload(y, producers[1]);
        const stream_order reused = s.order();
        for (size_t use = 0; use < last_uses; ++use) {
            ASSERT_TRUE(reused.behind(reused.copies(copy_direction::h2d).at(0), reused.records()[use]));
        }
        s.check(producers[1], next.data, y);
        s.give_back(next, producers[1]);
        reading.let_all();
        s.release(x);
        s.release(y);
        s.drain();
    }
    EXPECT_EQ(s.wrong(), 0);
}

// -------------------------------------------------------------------------------------------- DLPack tensors --

// A tensor to offload, and what its deleter has done.
class tensor {
public:
    tensor(session &s, void *data, std::vector<int64_t> shape, std::vector<int64_t> strides, uint64_t offset_bytes = 0)
        : shape_(std::move(shape)), strides_(std::move(strides)) {
        managed_.abi = {dl::k_major, 0};
        managed_.manager_ctx = this;
        managed_.deleter = [](DLManagedTensorVersioned *self) { ++static_cast<tensor *>(self->manager_ctx)->deleted; };
        managed_.tensor.data = data;
        managed_.tensor.where = {static_cast<int32_t>(s.device().info().type), 0};
        managed_.tensor.dimensions = static_cast<int32_t>(shape_.size());
        managed_.tensor.type = {2, 32, 1};  // float
        managed_.tensor.shape = shape_.data();
        managed_.tensor.strides = strides_.empty() ? nullptr : strides_.data();
        managed_.tensor.byte_offset = offset_bytes;
    }
    tensor(const tensor &) = delete;
    tensor &operator=(const tensor &) = delete;
    DLManagedTensorVersioned *get() { return &managed_; }
    int deleted = 0;

private:
    DLManagedTensorVersioned managed_{};
    std::vector<int64_t> shape_, strides_;
};

struct offloaded {
    ebb_status status = EBB_OK;
    std::string text;
    ebb_offload_info info{};
};

offloaded offload_tensor(session &s, tensor &t, ebb_stream producer, uint64_t storage = 0, uint64_t version = 0) {
    ebb_offload_args args{};
    args.struct_size = sizeof(args);
    args.name = "tensor";
    args.producers = &producer;
    args.producer_count = 1;
    args.storage_id = storage;
    args.storage_version = version;
    offloaded out;
    out.info.struct_size = sizeof(out.info);
    out.status = ebb_offload_dlpack(s.runtime(), &args, t.get(), &out.info);
    out.text = out.status == EBB_OK ? "" : ebb_last_error();
    return out;
}

DLManagedTensorVersioned *reload_tensor(session &s, ebb_activation activation, ebb_stream consumer) {
    DLManagedTensorVersioned *t = nullptr;
    EBB_EXPECT_OK(ebb_reload_dlpack(s.runtime(), activation, consumer, &t));
    return t;
}

std::vector<int64_t> strides_of(const DLManagedTensorVersioned &t) {
    return {t.tensor.strides, t.tensor.strides + t.tensor.dimensions};
}
std::vector<int64_t> shape_of(const DLManagedTensorVersioned &t) {
    return {t.tensor.shape, t.tensor.shape + t.tensor.dimensions};
}

// Elements 0, 1, 2, ... from `first` on, in address order.
void count_up(session &s, ebb_stream stream, void *data, uint64_t elements, float first) {
    s.launch(stream, [data, elements, first] {
        for (uint64_t i = 0; i < elements; ++i) {
            static_cast<float *>(data)[i] = first + static_cast<float>(i);
        }
    });
}
void check_counts(session &s, ebb_stream stream, const void *data, uint64_t elements, float first) {
    s.check(stream, [data, elements, first] {
        for (uint64_t i = 0; i < elements; ++i) {
            if (static_cast<const float *>(data)[i] != first + static_cast<float>(i)) {
                return false;
            }
        }
        return true;
    });
}

// ------------------------------------------------------------------------------------------------------- W6 --

TEST_P(wrong_numbers, W6_a_square_tensor_and_its_transpose) {
    constexpr int64_t k_side = 96;
    constexpr uint64_t k_elements = k_side * k_side;
    session s(copies_always(4));
    const ebb_stream compute = s.stream();
    std::byte *data = s.alloc(k_elements * sizeof(float));
    struct pair {
        std::unique_ptr<tensor> plain, transposed;
        offloaded a, t;
    };
    std::vector<pair> generations;
    for (uint64_t version = 1; version <= 2; ++version) {  // the second one is written in place
        count_up(s, compute, data, k_elements, static_cast<float>(version));
        pair p{std::make_unique<tensor>(s, data, std::vector<int64_t>{k_side, k_side}, std::vector<int64_t>{k_side, 1}),
               std::make_unique<tensor>(s, data, std::vector<int64_t>{k_side, k_side}, std::vector<int64_t>{1, k_side}),
               {},
               {}};
        p.a = offload_tensor(s, *p.plain, compute, 5, version);
        p.t = offload_tensor(s, *p.transposed, compute, 5, version);
        ASSERT_EQ(p.a.status, EBB_OK) << p.a.text;
        ASSERT_EQ(p.t.status, EBB_OK) << p.t.text;
        EXPECT_NE(p.a.info.activation, p.t.info.activation);
        EXPECT_EQ(p.plain->deleted, 1);
        EXPECT_EQ(p.transposed->deleted, 1);
        generations.push_back(std::move(p));
    }
    EXPECT_EQ(s.stats().d2h_bytes, 2 * k_elements * sizeof(float)) << "one copy for each generation";
    s.launch(compute, [data] { std::memset(data, 0xFF, k_elements * sizeof(float)); });

    for (uint64_t version = 1; version <= 2; ++version) {
        const pair &p = generations[version - 1];
        DLManagedTensorVersioned *a = reload_tensor(s, p.a.info.activation, compute);
        DLManagedTensorVersioned *t = reload_tensor(s, p.t.info.activation, compute);
        EXPECT_EQ(strides_of(*a), (std::vector<int64_t>{k_side, 1}));
        EXPECT_EQ(strides_of(*t), (std::vector<int64_t>{1, k_side}));
        s.check(compute, [a, t, version] {
            const auto at = [](const DLManagedTensorVersioned *x, int64_t i, int64_t j) {
                return static_cast<const float *>(x->tensor.data)[i * x->tensor.strides[0] + j * x->tensor.strides[1]];
            };
            for (int64_t i = 0; i < k_side; ++i) {
                for (int64_t j = 0; j < k_side; ++j) {
                    const float right = static_cast<float>(version) + static_cast<float>(i * k_side + j);
                    if (at(a, i, j) != right || at(t, j, i) != right) {
                        return false;
                    }
                }
            }
            return true;
        });
        s.sync(compute);
        a->deleter(a);
        t->deleter(t);
        EBB_EXPECT_OK(ebb_release(s.runtime(), p.a.info.activation));
        EBB_EXPECT_OK(ebb_release(s.runtime(), p.t.info.activation));
    }
    EXPECT_EQ(s.stats().pinned_used_bytes, 0U);
    s.free(data);
    s.drain();
    EXPECT_EQ(s.wrong(), 0);
}

// ------------------------------------------------------------------------------------------------------- W7 --

TEST_P(wrong_numbers, W7_an_address_reused_is_another_tensor) {
    session s(copies_always(2));
    const ebb_stream compute = s.stream();
    for (uint64_t round = 0; round < 50; ++round) {
        for (const bool keyed : {false, true}) {
            ebb_offload_args first{};
            ebb_offload_args second{};
            if (keyed) {
                first.storage_id = 2 * round + 1;
                second.storage_id = 2 * round + 2;
            }
            const session::saved x = s.save(compute, "x", k_unit_bytes, first);  // and freed
            const session::saved y = s.save(compute, "x", k_unit_bytes, second);
            ASSERT_EQ(x.data, y.data);
            ASSERT_NE(x.activation, y.activation);
            s.read_back(x, compute);
            s.read_back(y, compute);
            s.release(x);
            ebb_reload_info info{};
            info.struct_size = sizeof(info);
            EXPECT_EQ(ebb_reload(s.runtime(), x.activation, compute, &info), EBB_STALE_HANDLE);
            s.read_back(y, compute);
            s.release(y);
        }
    }
    s.drain();
    EXPECT_EQ(s.wrong(), 0);
    EXPECT_EQ(s.stats().live_activations, 0U);
}

// ------------------------------------------------------------------------------------------------------- W8 --

void add_one(session &s, ebb_stream stream, std::byte *data) {
    s.launch(stream, [data] {
        for (uint64_t i = 0; i < k_unit_bytes; ++i) {
            data[i] = static_cast<std::byte>(static_cast<unsigned>(data[i]) + 1U);
        }
    });
    s.sync(stream);
}

TEST_P(wrong_numbers, W8_a_change_in_place_before_the_copy_ends_is_detected) {
    runtime_options core = sources_stay();
    core.verify = true;
    session s(core);
    const ebb_stream compute = s.stream();
    s.hold(copy_direction::d2h);
    const session::saved x = s.save(compute, "layer_input");
    add_one(s, compute, x.data);
    s.let_go(copy_direction::d2h);
    s.drain();
    ASSERT_EQ(ebb_progress(s.runtime()), EBB_DATA_MISMATCH);
    EXPECT_THAT(ebb_last_error(), HasSubstr("layer_input"));
    EXPECT_THAT(ebb_last_error(), HasSubstr("changed in place"));
    EBB_EXPECT_OK(ebb_progress(s.runtime()));  // told once
    s.release(x);
}

// Backward passes write into what they saved.
TEST_P(wrong_numbers, W8_no_alarm_when_the_consumer_overwrites_what_it_was_handed) {
    runtime_options core = sources_stay();
    core.verify = true;
    session s(core);
    const ebb_stream compute = s.stream();
    const ebb_stream consumer = s.stream();
    s.hold(copy_direction::d2h);
    const session::saved x = s.save(compute, "workspace");
    const ebb_reload_info back = s.reload(x, consumer);
    ASSERT_EQ(back.data, x.data);
    std::atomic<bool> overwritten{false};
    s.launch(consumer, [data = x.data, &overwritten] {
        std::memset(data, 0xFF, k_unit_bytes);
        overwritten = true;
    });
    s.sync(compute);
    EXPECT_FALSE(overwritten);
    s.let_go(copy_direction::d2h);
    s.drain();
    EXPECT_TRUE(overwritten);
    EBB_EXPECT_OK(ebb_return(s.runtime(), back.claim, consumer));
    s.release(x);
    EBB_EXPECT_OK(ebb_progress(s.runtime()));
}

TEST_P(wrong_numbers, W8_no_alarm_when_it_is_changed_after_the_copy) {
    runtime_options core = sources_stay();
    core.verify = true;
    session s(core);
    const ebb_stream compute = s.stream();
    const session::saved x = s.save(compute, "layer_input");
    s.drain();
    add_one(s, compute, x.data);
    EBB_EXPECT_OK(ebb_progress(s.runtime()));
    s.release(x);
    s.drain();
    EBB_EXPECT_OK(ebb_progress(s.runtime()));
}

// ------------------------------------------------------------------------------------------------------- W9 --

struct dense_case {
    const char *name;
    std::vector<int64_t> shape, strides;
    uint64_t first_element;
};

class dense_tensors : public on_every_machine_with<dense_case> {};

TEST_P(dense_tensors, W9_round_trips_with_its_strides) {
    const dense_case &c = parameter();
    uint64_t elements = 1;
    for (const int64_t n : c.shape) {
        elements *= static_cast<uint64_t>(n);
    }
    session s(copies_always(2));
    const ebb_stream compute = s.stream();
    constexpr uint64_t k_elements = 4096;
    std::byte *data = s.alloc(k_elements * sizeof(float));
    count_up(s, compute, data, k_elements, 0);
    tensor t(s, elements == 0 ? nullptr : data, c.shape, c.strides, c.first_element * sizeof(float));
    const offloaded out = offload_tensor(s, t, compute);
    ASSERT_EQ(out.status, EBB_OK) << out.text;
    if (elements != 0) {
        EXPECT_EQ(out.info.placement, EBB_PLACE_OFFLOAD);
        EXPECT_EQ(t.deleted, 1);
        s.launch(compute, [data] { std::memset(data, 0xFF, k_elements * sizeof(float)); });
    }
    DLManagedTensorVersioned *back = reload_tensor(s, out.info.activation, compute);
    ASSERT_NE(back, nullptr);
    EXPECT_EQ(shape_of(*back), c.shape);
    if (!c.strides.empty()) {
        EXPECT_EQ(strides_of(*back), c.strides);
    }
    EXPECT_EQ(back->tensor.type.bits, 32);
    check_counts(s, compute, static_cast<std::byte *>(back->tensor.data) + back->tensor.byte_offset, elements,
                 static_cast<float>(c.first_element));
    s.sync(compute);
    back->deleter(back);
    EBB_EXPECT_OK(ebb_release(s.runtime(), out.info.activation));
    EXPECT_EQ(t.deleted, 1);
    EXPECT_EQ(s.stats().live_activations, 0U);
    s.free(data);
}

INSTANTIATE_TEST_SUITE_P(
    on, dense_tensors,
    ::testing::Combine(::testing::ValuesIn(machine_kinds()),
                       ::testing::Values(dense_case{"compact", {8, 4, 16}, {}, 0},
                                         dense_case{"permuted", {16, 8, 4}, {1, 64, 16}, 0},
                                         dense_case{"permuted_with_ones", {1, 16, 1, 8}, {7, 1, 3, 16}, 0},
                                         dense_case{"rows_of_a_slice", {5, 16}, {16, 1}, 48},
                                         dense_case{"one_element", {1}, {1}, 17}, dense_case{"scalar", {}, {}, 3},
                                         dense_case{"zero_size", {0, 5}, {5, 1}, 0})),
    [](const auto &at) { return ::testing::PrintToString(std::get<0>(at.param)) + "_" + std::get<1>(at.param).name; });

// What has bytes of others between its own is refused, and nothing is taken; its storage can be offloaded instead.
TEST_P(wrong_numbers, W9_expanded_and_strided_tensors_are_refused_and_their_storage_is_not) {
    session s(copies_always(4));
    const ebb_stream compute = s.stream();
    constexpr uint64_t k_elements = 1024;
    std::byte *data = s.alloc(k_elements * sizeof(float));
    count_up(s, compute, data, k_elements, 0);
    tensor expanded(s, data, {8, 16}, {0, 1});
    tensor column(s, data, {8, 4}, {16, 1});
    for (tensor *t : {&expanded, &column}) {
        const offloaded out = offload_tensor(s, *t, compute);
        EXPECT_EQ(out.status, EBB_INVALID_ARGUMENT);
        EXPECT_THAT(out.text, HasSubstr("stride"));
        EXPECT_THAT(out.text, HasSubstr("the storage it is a view of"));
        EXPECT_EQ(t->deleted, 0);
    }
    EXPECT_EQ(s.stats().live_activations, 0U);
    tensor storage(s, data, {k_elements}, {1});
    const offloaded out = offload_tensor(s, storage, compute, 3, 1);
    ASSERT_EQ(out.status, EBB_OK) << out.text;
    DLManagedTensorVersioned *back = reload_tensor(s, out.info.activation, compute);
    check_counts(s, compute, back->tensor.data, k_elements, 0);
    s.sync(compute);
    back->deleter(back);
    EBB_EXPECT_OK(ebb_release(s.runtime(), out.info.activation));
    s.free(data);
}

// A later save inside a range that is copied already comes back by its own offset and size.
TEST_P(wrong_numbers, W9_views_come_back_by_size_and_offset) {
    session s(copies_always(4));
    const ebb_stream compute = s.stream();
    constexpr uint64_t k_elements = 8192;
    constexpr uint64_t k_first = 1001;  // not aligned to anything
    constexpr uint64_t k_count = 777;
    std::byte *data = s.alloc(k_elements * sizeof(float));
    count_up(s, compute, data, k_elements, 0);
    tensor storage(s, data, {k_elements}, {1});
    tensor slice(s, data, {k_count}, {1}, k_first * sizeof(float));
    const offloaded whole = offload_tensor(s, storage, compute, 3, 1);
    const offloaded view = offload_tensor(s, slice, compute, 3, 1);
    ASSERT_EQ(whole.status, EBB_OK) << whole.text;
    ASSERT_EQ(view.status, EBB_OK) << view.text;
    EXPECT_EQ(s.stats().d2h_bytes, k_elements * sizeof(float)) << "the view has no copy of its own";
    s.launch(compute, [data] { std::memset(data, 0xFF, k_elements * sizeof(float)); });
    // The storage ends first: the view keeps what it needs.
    EBB_EXPECT_OK(ebb_release(s.runtime(), whole.info.activation));
    std::byte *own = s.alloc(k_count * sizeof(float));
    EBB_EXPECT_OK(ebb_reload_into(s.runtime(), view.info.activation, own, k_count * sizeof(float), compute));
    check_counts(s, compute, own, k_count, static_cast<float>(k_first));
    DLManagedTensorVersioned *back = reload_tensor(s, view.info.activation, compute);
    EXPECT_EQ(shape_of(*back), (std::vector<int64_t>{k_count}));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(back->tensor.data) % staging::k_alignment,
              (reinterpret_cast<uintptr_t>(data) + k_first * sizeof(float)) % staging::k_alignment);
    check_counts(s, compute, back->tensor.data, k_count, static_cast<float>(k_first));
    s.sync(compute);
    back->deleter(back);
    EBB_EXPECT_OK(ebb_release(s.runtime(), view.info.activation));
    EXPECT_EQ(s.stats().pinned_used_bytes, 0U);
    EXPECT_EQ(storage.deleted, 1);
    EXPECT_EQ(slice.deleted, 1);
    s.free(own);
    s.free(data);
    s.drain();
    EXPECT_EQ(s.wrong(), 0);
}

// ------------------------------------------------------------------------------------------------------ W11 --

TEST_P(wrong_numbers, W11_the_copy_waits_for_its_producer) {
    for (const bool stays : {false, true}) {
        session s(stays ? sources_stay() : copies_always());
        const ebb_stream compute = s.stream();
        const ebb_stream consumer = s.stream();
        for (int round = 0; round < 50; ++round) {
            s.device().clear();
            stream_gate &slow = s.gate();
            s.stand(compute, slow);
            const session::saved x = s.save(compute, "x");
            const stream_order order = s.order();
            ASSERT_TRUE(order.behind(order.copies(copy_direction::d2h).at(0), order.records().at(0)));
            // A source that is handed back has the same producer.
            const ebb_reload_info info = s.reload(x, consumer);
            s.check(consumer, info.data, x);
            slow.let();
            s.give_back(info, consumer);
            s.release(x);
            s.drain();
        }
        EXPECT_EQ(s.wrong(), 0);
    }
}

// ------------------------------------------------------------------------------------------------------ W12 --

// Two micro-batches in turn, layer by layer, of which one saves nothing, or each saves what the other does not: no
// queue that runs empty tells them apart.
TEST_P(wrong_numbers, W12_micro_batches_are_told_apart_by_their_ids) {
    rig::options o;
    o.host.capacity_bytes = 64ULL << 20U;
    o.core.min_offload_bytes = 1;
    o.core.device_budget_bytes = 10 * k_unit_bytes;
    rig r(o);
    constexpr int k_layers = 6;
    const auto layer = [](int l) { return "layer." + std::to_string(l); };
    const auto step = [&](const std::function<bool(uint64_t micro_batch, int layer)> &saves) {
        r.step();
        for (int l = 0; l < k_layers; ++l) {
            for (uint64_t m = 0; m < 2; ++m) {
                if (saves(m, l)) {
                    r.forward(layer(l), "input", k_unit_bytes, m);
                }
            }
        }
        for (uint64_t m = 2; m-- > 0;) {
            for (int l = k_layers; l-- > 0;) {
                if (saves(m, l)) {
                    r.backward(layer(l), "input", m);
                }
            }
        }
        EXPECT_EQ(r.stats().live_activations, 0U);
    };
    const auto both = [](uint64_t, int) { return true; };
    step(both);
    r.step();
    const uint64_t on_demand = r.stats().reloads_on_demand;
    EXPECT_GT(on_demand, 0U);
    for (int i = 0; i < 2; ++i) {
        step([](uint64_t m, int) { return m == 0; });
        step([](uint64_t m, int) { return m == 1; });
        step([](uint64_t m, int l) { return l % 2 == static_cast<int>(m); });
        step(both);
    }
    r.step();
    r.synchronize();
    EXPECT_EQ(r.wrong(), 0);
    EXPECT_EQ(r.stats().reloads_on_demand, on_demand) << "each one's reload was prefetched for itself";
    EXPECT_GT(r.stats().reloads_prefetched, 0U);
    EXPECT_EQ(r.stats().order_mismatches, 0U);
}

EBB_ON_EVERY_MACHINE(wrong_numbers);

}  // namespace
}  // namespace ebb::test
