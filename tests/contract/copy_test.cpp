#include "contract_fixture.hpp"

namespace ebb {
namespace {

using copy_contract = contract;

TEST_P(copy_contract, bytes_come_back_whatever_the_size_and_alignment) {
    const stream_id out = new_stream(stream_role::h2d);
    const stream_id home = new_stream(stream_role::d2h);
    const event_id there_now = new_event();
    constexpr uint64_t k_largest = (16ULL << 20U) + 3;
    const unsigned char *source = new_filled(k_largest + 64, 1);
    unsigned char *there = new_device_memory(k_largest + 64);
    unsigned char *back = new_host_memory(k_largest + 64);
    for (const uint64_t size_bytes : {uint64_t{1}, uint64_t{7}, uint64_t{4095}, (uint64_t{1} << 20U) + 3, k_largest}) {
        for (const uint64_t shift : {uint64_t{0}, uint64_t{5}, uint64_t{64}}) {
            ok(dev().copy(out, copy_direction::h2d, there + 64 - shift, source + shift, size_bytes));
            ok(dev().record_event(there_now, out));
            ok(dev().wait_event(home, there_now));
            ok(dev().copy(home, copy_direction::d2h, back, there + 64 - shift, size_bytes));
            finish(home);
            EXPECT_TRUE(same(back, source + shift, size_bytes)) << size_bytes << " bytes, shifted by " << shift;
        }
    }
}

TEST_P(copy_contract, nothing_beside_the_destination_is_touched) {
    const stream_id stream = new_stream();
    const unsigned char *source = new_filled(4096, 2);
    unsigned char *there = new_device_memory(4096);
    unsigned char *back = new_filled(4096, 3);
    const unsigned char *untouched = new_filled(4096, 3);
    ok(dev().copy(stream, copy_direction::h2d, there, source, 4096));
    ok(dev().copy(stream, copy_direction::d2h, back + 100, there + 100, 1000));
    finish(stream);
    EXPECT_TRUE(same(back, untouched, 100));
    EXPECT_TRUE(same(back + 100, source + 100, 1000));
    EXPECT_TRUE(same(back + 1100, untouched + 1100, 4096 - 1100));
}

TEST_P(copy_contract, both_directions_at_once_on_several_streams) {
    constexpr uint64_t k_chunk = 1ULL << 20U;
    constexpr uint64_t k_chunks = 16;
    constexpr uint64_t k_all = k_chunk * k_chunks;
    const unsigned char *source = new_filled(2 * k_all, 4);
    unsigned char *there = new_device_memory(2 * k_all);
    unsigned char *back = new_host_memory(2 * k_all);
    const stream_id setup = new_stream();
    ok(dev().copy(setup, copy_direction::h2d, there, source, k_all));
    finish(setup);
    const stream_id out[] = {new_stream(stream_role::d2h), new_stream(stream_role::d2h)};
    const stream_id in[] = {new_stream(stream_role::h2d), new_stream(stream_role::h2d)};
    for (uint64_t chunk = 0; chunk < k_chunks; ++chunk) {
        const uint64_t at = chunk * k_chunk;
        ok(dev().copy(out[chunk % 2], copy_direction::d2h, back + at, there + at, k_chunk));
        ok(dev().copy(in[chunk % 2], copy_direction::h2d, there + k_all + at, source + k_all + at, k_chunk));
    }
    for (const stream_id stream : {out[0], out[1], in[0], in[1]}) {
        finish(stream);
    }
    ok(dev().copy(setup, copy_direction::d2h, back + k_all, there + k_all, k_all));
    finish(setup);
    EXPECT_TRUE(same(back, source, 2 * k_all));
}

TEST_P(copy_contract, a_copy_of_nothing_needs_no_memory) {
    const stream_id stream = new_stream();
    for (const copy_direction direction : {copy_direction::d2h, copy_direction::h2d, copy_direction::d2d}) {
        ok(dev().copy(stream, direction, nullptr, nullptr, 0));
    }
    finish(stream);
}

TEST_P(copy_contract, arguments_that_cannot_be_right_are_refused) {
    if (!checks_arguments()) {
        ok(dev().copy(new_stream(), copy_direction::d2h, nullptr, nullptr, 16));
        return;
    }
    const stream_id stream = new_stream();
    unsigned char *there = new_device_memory(4096);
    unsigned char *here = new_host_memory(4096);
    uint64_t *sum = new_sums(1, 0);
    for (const status &answer :
         {dev().copy(stream, copy_direction::d2h, nullptr, there, 16),
          dev().copy(stream, copy_direction::d2h, here, nullptr, 16),
          dev().copy(stream, copy_direction::d2h, here, there, ~uint64_t{0}),
          dev().copy(stream, copy_direction::d2d, there, there, 16),
          dev().copy(stream, copy_direction::d2d, there + 15, there, 16),
          dev().copy(stream, copy_direction::d2d, there, there + 15, 16), dev().checksum(stream, nullptr, 16, sum),
          dev().checksum(stream, here, ~uint64_t{0}, sum), dev().checksum(stream, here, 16, nullptr)}) {
        refused(answer, code::invalid_argument);
    }
    ok(dev().copy(stream, copy_direction::d2d, there + 16, there, 16));
    finish(stream);
    EXPECT_EQ(*sum, 0U);
}

TEST_P(copy_contract, pieces_come_back_however_many_and_small) {
    const stream_id stream = new_stream();
    constexpr uint64_t k_bytes = 4ULL << 20U;
    const unsigned char *source = new_filled(k_bytes, 8);
    unsigned char *there = new_device_memory(k_bytes);
    unsigned char *back = new_filled(k_bytes, 9);
    const unsigned char *untouched = new_filled(k_bytes, 9);
    for (const uint32_t count : {0U, 1U, 2U, 7U, 64U, 65U, 200U}) {
        std::vector<copy_piece> in;
        std::vector<copy_piece> out;
        const uint64_t apart = count == 0 ? k_bytes : k_bytes / count;
        for (uint32_t i = 0; i < count; ++i) {
            const uint64_t at = i * apart;
            const uint64_t size_bytes = (1 + 37 * uint64_t{i} * i) % apart;  // one of them is empty, or not
            in.push_back({there + at, source + at, size_bytes});
            out.push_back({back + at, there + at, size_bytes});
        }
        ok(dev().copy_pieces(stream, copy_direction::h2d, in.data(), count));
        ok(dev().copy_pieces(stream, copy_direction::d2h, out.data(), count));
        finish(stream);
        for (const copy_piece &piece : out) {
            const uint64_t at = static_cast<uint64_t>(static_cast<unsigned char *>(piece.destination) - back);
            ASSERT_TRUE(same(back + at, source + at, piece.size_bytes)) << count << " pieces, at " << at;
            ASSERT_TRUE(same(back + at + piece.size_bytes, untouched + at + piece.size_bytes, 1));
        }
        fill(back, k_bytes, 9);
    }
}

TEST_P(copy_contract, a_thread_copies_by_itself_where_device_memory_is_the_cpus) {
    constexpr uint64_t k_bytes = 5000;
    const unsigned char *source = new_filled(k_bytes, 8);
    unsigned char *there = new_device_memory(k_bytes);
    unsigned char *back = new_filled(k_bytes, 9);
    if (!dev().info().threads_copy) {
        refused(dev().copy_by_thread(copy_direction::h2d, there, source, k_bytes, nullptr), code::unsupported);
        return;
    }
    uint64_t time_ns = 0;
    ok(dev().copy_by_thread(copy_direction::h2d, there, source, k_bytes, nullptr));
    ok(dev().copy_by_thread(copy_direction::d2h, back, there, k_bytes, &time_ns));
    EXPECT_TRUE(same(back, source, k_bytes));
    ok(dev().copy_by_thread(copy_direction::d2h, nullptr, nullptr, 0, nullptr));
    if (checks_arguments()) {
        refused(dev().copy_by_thread(copy_direction::d2h, nullptr, there, 1, nullptr), code::invalid_argument);
    }
}

TEST_P(copy_contract, pieces_that_cannot_be_right_are_refused) {
    if (!checks_arguments()) {
        return;
    }
    const stream_id stream = new_stream();
    unsigned char *there = new_device_memory(4096);
    unsigned char *here = new_host_memory(4096);
    for (const copy_piece &bad :
         {copy_piece{nullptr, there, 16}, copy_piece{here, nullptr, 16}, copy_piece{here, there, ~uint64_t{0}}}) {
        const copy_piece pieces[] = {{here + 1024, there + 1024, 16}, bad};
        refused(dev().copy_pieces(stream, copy_direction::d2h, pieces, 2), code::invalid_argument);
    }
    const copy_piece fine[] = {{here, there, 16}, {here + 16, there + 16, 16}};
    for (const uint64_t number : GetParam().bad_streams) {
        refused(dev().copy_pieces(stream_id{number}, copy_direction::d2h, fine, 2), code::invalid_argument);
    }
    finish(stream);
}

TEST_P(copy_contract, checksums_are_taken_where_the_stream_is) {
    constexpr uint64_t k_bytes = (1ULL << 20U) + 5;
    const stream_id stream = new_stream();
    const unsigned char *first = new_filled(k_bytes, 5);
    const unsigned char *second = new_filled(k_bytes, 6);
    unsigned char *there = new_device_memory(k_bytes);
    uint64_t *sums = new_sums(3, 42);
    ok(dev().copy(stream, copy_direction::h2d, there, first, k_bytes));
    ok(dev().checksum(stream, there, k_bytes, &sums[0]));
    ok(dev().copy(stream, copy_direction::h2d, there, second, k_bytes));
    ok(dev().checksum(stream, there, k_bytes, &sums[1]));
    // In two extents.
    ok(dev().checksum(stream, there, 4096, &sums[2]));
    ok(dev().checksum(stream, there + 4096, k_bytes - 4096, &sums[2]));
    ok(dev().checksum(stream, nullptr, 0, &sums[2]));
    finish(stream);
    if (moves_bytes()) {
        EXPECT_EQ(sums[0], checksum_bytes(42, first, k_bytes));
        EXPECT_EQ(sums[1], checksum_bytes(42, second, k_bytes));
        EXPECT_EQ(sums[2], sums[1]);
        EXPECT_NE(sums[0], sums[1]);
    } else {
        EXPECT_THAT(std::vector<uint64_t>(sums, sums + 3), ::testing::Each(42U));
    }
}

EBB_CONTRACT_FOR_ALL_DEVICES(copy_contract);

}  // namespace
}  // namespace ebb
