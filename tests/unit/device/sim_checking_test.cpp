// Checking mode: orders that nobody made are found, whichever they are, and programs that make them all are left alone.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device/sim/sim_device.hpp"

namespace ebb {
namespace {

constexpr uint64_t k_bytes = 1 << 20U;
constexpr uint64_t k_chunks = 4;
constexpr uint64_t k_rounds = 6;

sim_machine checking_machine() {
    sim_machine machine;
    machine.device_bytes = 1ULL << 34U;
    machine.host_bytes = 1ULL << 34U;
    return machine;
}

// The waits of a small offloader; each can be left out.
enum class wait_for : uint8_t {
    nothing,        // all are made
    producer,       // the copy out waits for what it copies
    block_reader,   // and for the copy that read the block's last content
    source_reader,  // who overwrites or frees the source waits for the copy out
    own_offload,    // the copy in waits for the copy out
    slot_reader,    // and for who read the slot's last content
    arrival,        // who reads the slot waits for the copy in
};
constexpr wait_for k_all_waits[] = {wait_for::producer,    wait_for::block_reader, wait_for::source_reader,
                                    wait_for::own_offload, wait_for::slot_reader,  wait_for::arrival};

class checked_offloader {
public:
    checked_offloader(uint64_t seed, wait_for left_out, bool frees_sources)
        : device_(checking_machine(), seed), left_out_(left_out), frees_sources_(frees_sources) {
        source_ = memory(device_.alloc_device(k_bytes));
        slot_ = memory(device_.alloc_device(k_bytes));
        block_ = memory(device_.map_host(k_bytes));
        for (stream_id *s : {&produce_, &consume_, &out_, &in_}) {
            *s = device_.create_stream(stream_role::compute).value();
        }
    }

    std::vector<sim_violation> run() {
        for (uint64_t round = 1; round <= k_rounds; ++round) {
            run_round(round);
        }
        device_.synchronize();
        EXPECT_EQ(device_.violation_count() == 0, device_.violations().empty());
        return device_.violations();
    }
    sim_device &device() { return device_; }

private:
    static std::byte *memory(const result<void *> &given) {
        EXPECT_TRUE(given.ok());
        return static_cast<std::byte *>(given.value());
    }
    void mark(std::optional<event_id> &event, stream_id on) {
        if (!event.has_value()) {
            event = device_.create_event(event_kind::plain).value();
        }
        EXPECT_TRUE(device_.record_event(*event, on).ok());
    }
    void wait(stream_id on, const std::optional<event_id> &event, wait_for what) {
        if (event.has_value() && what != left_out_) {
            EXPECT_TRUE(device_.wait_event(on, *event).ok());
        }
    }
    void copy(stream_id on, copy_direction direction, std::byte *to, const std::byte *from) {
        constexpr uint64_t k_chunk_bytes = k_bytes / k_chunks;
        for (uint64_t i = 0; i < k_chunks; ++i) {
            EXPECT_TRUE(
                device_.copy(on, direction, to + i * k_chunk_bytes, from + i * k_chunk_bytes, k_chunk_bytes).ok());
        }
    }

    void run_round(uint64_t tag) {
        wait(produce_, copied_out_, wait_for::source_reader);
        if (frees_sources_ && tag > 1) {
            EXPECT_TRUE(device_.free_on(produce_, source_, k_bytes).ok());
            EXPECT_TRUE(device_.alloc_on(produce_, source_, k_bytes).ok());
        }
        const sim_write produced{source_, k_bytes, tag};
        sim_kernel producer;
        producer.writes = {&produced, 1};
        EXPECT_TRUE(device_.launch(produce_, producer).ok());
        mark(produced_, produce_);

        wait(out_, produced_, wait_for::producer);
        wait(out_, copied_in_, wait_for::block_reader);
        copy(out_, copy_direction::d2h, block_, source_);
        mark(copied_out_, out_);

        wait(in_, copied_out_, wait_for::own_offload);
        wait(in_, consumed_, wait_for::slot_reader);
        copy(in_, copy_direction::h2d, slot_, block_);
        mark(copied_in_, in_);

        wait(consume_, copied_in_, wait_for::arrival);
        const sim_read consumed{slot_, k_bytes, tag};
        sim_kernel consumer;
        consumer.reads = {&consumed, 1};
        EXPECT_TRUE(device_.launch(consume_, consumer).ok());
        mark(consumed_, consume_);
    }

    sim_device device_;
    wait_for left_out_;
    bool frees_sources_;
    std::byte *source_ = nullptr, *slot_ = nullptr, *block_ = nullptr;
    stream_id produce_{}, consume_{}, out_{}, in_{};
    std::optional<event_id> produced_, copied_out_, copied_in_, consumed_;
};

TEST(sim_checking, a_program_with_all_waits_has_no_violation) {
    for (uint64_t seed = 0; seed < 1000; ++seed) {
        checked_offloader program(seed, wait_for::nothing, seed % 2 == 0);
        const std::vector<sim_violation> found = program.run();
        ASSERT_TRUE(found.empty()) << "seed " << seed << ": " << to_string(found.front());
    }
}

TEST(sim_checking, each_wait_that_is_left_out_is_found) {
    constexpr uint64_t k_seeds = 200;
    for (const wait_for left_out : k_all_waits) {
        for (const bool frees : {false, true}) {
            uint64_t found = 0;
            for (uint64_t seed = 0; seed < k_seeds; ++seed) {
                found += checked_offloader(seed, left_out, frees).run().empty() ? 0U : 1U;
            }
            // Not by each seed: a slot's reader is only late where its stream is the slowest of the four.
            EXPECT_GE(found, k_seeds / 4) << "wait " << static_cast<int>(left_out);
        }
    }
}

TEST(sim_checking, times_and_findings_are_those_of_the_seed) {
    std::set<uint64_t> hashes;
    for (uint64_t seed = 0; seed < 20; ++seed) {
        checked_offloader once(seed, wait_for::producer, true);
        checked_offloader again(seed, wait_for::producer, true);
        const std::vector<sim_violation> found = once.run();
        const std::vector<sim_violation> found_again = again.run();
        ASSERT_EQ(found.size(), found_again.size());
        for (size_t i = 0; i < found.size(); ++i) {
            EXPECT_EQ(found[i].time_ps, found_again[i].time_ps);
            EXPECT_EQ(found[i].who.number, found_again[i].who.number);
        }
        EXPECT_EQ(once.device().log_hash(), again.device().log_hash());
        hashes.insert(once.device().log_hash());
    }
    EXPECT_EQ(hashes.size(), 20U);
}

// ------------------------------------------------------------------------------------------- what is reported --

class sim_checking_reports : public ::testing::Test {
protected:
    static constexpr uint64_t k_seed = 3;

    std::byte *memory(uint64_t size_bytes = k_bytes) {
        return static_cast<std::byte *>(device_.alloc_device(size_bytes).value());
    }
    void launch(stream_id on, std::vector<sim_read> reads, std::vector<sim_write> writes) {
        sim_kernel kernel;
        kernel.reads = reads;
        kernel.writes = writes;
        EXPECT_TRUE(device_.launch(on, kernel).ok());
    }
    sim_violation only() {
        device_.synchronize();
        EXPECT_EQ(device_.violation_count(), 1U);
        return device_.violations().empty() ? sim_violation() : device_.violations().front();
    }

    sim_device device_{checking_machine(), k_seed};
    stream_id stream_ = device_.create_stream(stream_role::compute).value();
    stream_id other_ = device_.create_stream(stream_role::compute).value();
};

TEST_F(sim_checking_reports, wrong_content_with_what_was_expected) {
    std::byte *data = memory();
    launch(stream_, {}, {{data, k_bytes, 7}});
    launch(stream_, {{data + 4096, 8192, 9, 512}}, {});
    const sim_violation seen = only();
    EXPECT_EQ(seen.fault, sim_fault::wrong_content);
    EXPECT_EQ(seen.who.action, sim_action::kernel);
    EXPECT_EQ(seen.who.number, 2U);
    EXPECT_EQ(seen.who.stream, static_cast<uint64_t>(stream_));
    EXPECT_EQ(seen.address, reinterpret_cast<uintptr_t>(data) + 4096);
    EXPECT_EQ(seen.size_bytes, 8192U);
    EXPECT_EQ(seen.expected_tag, 9U);
    EXPECT_EQ(seen.expected_position_bytes, 512U);
    EXPECT_EQ(seen.found_tag, 7U);
    EXPECT_EQ(seen.found_position_bytes, 4096U);
    EXPECT_GT(seen.time_ps, 0U);
    const std::string text = to_string(seen);
    EXPECT_NE(text.find("kernel 2 on stream"), std::string::npos) << text;
    EXPECT_NE(text.find("finds tag 0x7 from byte 4096 where tag 0x9 from byte 512 is expected"), std::string::npos)
        << text;
}

TEST_F(sim_checking_reports, the_right_tag_at_the_wrong_place_is_wrong) {
    std::byte *data = memory();
    launch(stream_, {}, {{data, k_bytes, 7}});
    launch(stream_, {{data + 512, 512, 7, 512}}, {});
    launch(stream_, {{data + 512, 512, 7, 0}}, {});
    EXPECT_EQ(only().who.number, 3U);
}

TEST_F(sim_checking_reports, memory_that_was_never_written) {
    launch(stream_, {{memory(), k_bytes, 7}}, {});
    const sim_violation seen = only();
    EXPECT_EQ(seen.fault, sim_fault::wrong_content);
    EXPECT_EQ(seen.found_tag, k_any_tag);
    EXPECT_NE(to_string(seen).find("finds nothing that was written"), std::string::npos);
}

TEST_F(sim_checking_reports, memory_that_was_freed) {
    std::byte *data = memory();
    EXPECT_TRUE(device_.free_device(data, k_bytes).ok());
    launch(stream_, {}, {{data, k_bytes, 7}});
    EXPECT_EQ(only().fault, sim_fault::touches_no_memory);
}

TEST_F(sim_checking_reports, memory_that_is_freed_while_a_copy_reads_it) {
    std::byte *data = memory();
    std::byte *to = memory();
    launch(stream_, {}, {{data, k_bytes, 7}});
    EXPECT_TRUE(device_.copy(stream_, copy_direction::d2d, to, data, k_bytes).ok());
    // The host frees it at once, without looking whether the copy is done.
    EXPECT_TRUE(device_.free_device(data, k_bytes).ok());
    device_.synchronize();
    ASSERT_GE(device_.violation_count(), 1U);
    for (const sim_violation &each : device_.violations()) {
        EXPECT_TRUE(each.fault == sim_fault::touches_no_memory || each.fault == sim_fault::frees_what_is_used);
    }
}

// Two pieces of work on two streams that nothing orders: over seeds, both overlaps are seen.
TEST(sim_checking, a_reader_beside_a_writer_is_seen_from_either_side) {
    std::set<sim_fault> seen;
    for (uint64_t seed = 0; seed < 50; ++seed) {
        sim_device device(checking_machine(), seed);
        const stream_id a = device.create_stream(stream_role::compute).value();
        const stream_id b = device.create_stream(stream_role::compute).value();
        auto *data = static_cast<std::byte *>(device.alloc_device(k_bytes).value());
        const sim_write first{data, k_bytes, 7};
        const sim_read read{data, k_bytes, k_any_tag};
        sim_kernel writer;
        writer.writes = {&first, 1};
        sim_kernel reader;
        reader.reads = {&read, 1};
        EXPECT_TRUE(device.launch(a, writer).ok());
        EXPECT_TRUE(device.launch(b, reader).ok());
        EXPECT_TRUE(device.launch(b, writer).ok());
        device.synchronize();
        for (const sim_violation &each : device.violations()) {
            EXPECT_NE(each.other.number, 0U) << to_string(each);
            seen.insert(each.fault);
        }
    }
    EXPECT_EQ(seen, (std::set<sim_fault>{sim_fault::reads_what_is_written, sim_fault::writes_what_is_read,
                                         sim_fault::writes_what_is_written}));
}

TEST_F(sim_checking_reports, a_kernel_may_write_over_what_it_reads) {
    std::byte *data = memory();
    launch(stream_, {}, {{data, k_bytes, 7}});
    launch(stream_, {{data, k_bytes, 7}}, {{data, k_bytes, 8}});
    launch(stream_, {{data, k_bytes, 8}}, {});
    device_.synchronize();
    EXPECT_EQ(device_.violation_count(), 0U);
}

TEST_F(sim_checking_reports, an_operation_is_reported_once_per_kind_of_fault) {
    std::byte *data = memory();
    launch(stream_, {}, {{data, k_bytes / 2, 7}});
    launch(stream_, {{data, 512, 1}, {data + 1024, 512, 2}}, {});
    EXPECT_EQ(only().expected_tag, 1U);
}

TEST(sim_checking, is_off_unless_it_is_asked_for) {
    sim_device device(checking_machine());
    const stream_id stream = device.create_stream(stream_role::compute).value();
    auto *data = static_cast<std::byte *>(device.alloc_device(k_bytes).value());
    const sim_read read{data, k_bytes, 7};
    sim_kernel reader;
    reader.reads = {&read, 1};
    EXPECT_TRUE(device.launch(stream, reader).ok());
    EXPECT_TRUE(device.free_on(stream, data, k_bytes).ok());
    device.synchronize();
    EXPECT_EQ(device.violation_count(), 0U);
    EXPECT_TRUE(device.violations().empty());
}

}  // namespace
}  // namespace ebb
