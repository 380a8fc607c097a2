// Verify mode: three checksums per activation, all computed by the device in stream order.
//   1 on the home stream in the offload call: what the producers wrote;
//   2 on the lane when the copy ends: the block, and the source once more, so that a tensor changed in place
//     before its copy ended is found even if the copy itself was lucky;
//   3 on the lane after a reload: the slot.
// They are compared when the device is done; a mismatch names the activation and which of the three it was.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "base/ticket.hpp"
#include "device/device.hpp"
#include "runtime/pinned_words.hpp"
#include "transfer/timelines.hpp"

namespace ebb {

class verifier {
public:
    verifier(device &dev, timelines &lines) : device_(dev), lines_(lines), words_(dev) {}

    using record_id = uint32_t;
    // Fails where there is no pinned memory for its sums.
    result<record_id> open(std::string who);
    // The activation is over; the record is recycled once its checks are.
    void close(record_id record);

    status sum_source(record_id record, stream_id home, const void *data, uint64_t size_bytes);
    // Each is enqueued on `stream` piece by piece (block extents), then check_*() with the point after it.
    status sum_source_again(record_id record, stream_id lane, const void *data, uint64_t size_bytes);
    status sum_block(record_id record, stream_id lane, const void *data, uint64_t size_bytes);
    void summed_at(record_id id, ticket at_home) { records_[id].at_home = at_home; }
    void check_copy(record_id record, ticket on_lane);
    // There is no copy after all.
    void check_nothing(record_id record);
    // Where the sum of the source is there: before that no reload can be judged.
    [[nodiscard]] ticket at_home(record_id id) const noexcept { return records_[id].at_home; }
    // The copy failed half-way: the device may still write the sums, so the record is never used again.
    void abandon(record_id record);
    // A fresh sum for each reload.
    status sum_reload(stream_id lane, const void *data, uint64_t size_bytes, uint32_t &sum);
    void check_reload(record_id record, uint32_t sum, ticket on_lane);

    // Compares what is done; the first mismatch is returned.
    status poll();

private:
    struct record {
        std::string who;
        uint64_t *sums = nullptr;  // of the source, of the source again, of the block
        ticket at_home;            // where `source` is there
        uint32_t open_checks = 0;
        bool closed = false;
    };
    struct check {
        record_id record;
        uint32_t reload_sum;  // index, or one of the two below
        ticket first, second;
    };
    static constexpr uint32_t k_copy = ~uint32_t{0};
    static constexpr uint32_t k_nothing = k_copy - 1;
    enum sum_index : uint32_t { k_source, k_source_again, k_block, k_sums };

    status compare(const check &c) const;
    void finish(const check &c);

    device &device_;
    timelines &lines_;
    pinned_words words_;
    std::deque<record> records_;
    std::vector<record_id> free_records_;
    std::vector<uint64_t *> reload_sums_;
    std::vector<uint32_t> free_sums_;
    std::vector<check> checks_;
};

}  // namespace ebb
