// Timing of sampled steps: pairs of timed events around a transfer on its lane, or around a wait of ours on a
// caller's stream (that is exposed time). Read when both are done, by polling.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"

namespace ebb {

enum class sample_kind : uint8_t { d2h, h2d, exposed_d2h, exposed_h2d, collective, span };

class time_samples {
public:
    explicit time_samples(device &dev) : device_(dev) {}
    ~time_samples();
    time_samples(const time_samples &) = delete;
    time_samples &operator=(const time_samples &) = delete;

    struct sample {
        sample_kind kind{};
        uint32_t name = 0;
        uint64_t size_bytes = 0;  // of transfers
        uint64_t step = 0;
        uint32_t place = 0;  // in the step: between which calls
        uint64_t time_ns = 0;
    };
    // Records the first event now; end() records the second on the same stream.
    using sample_id = uint32_t;
    result<sample_id> begin(stream_id stream, const sample &what);
    status end(sample_id id);
    void cancel(sample_id id) { free_.push_back(id); }
    [[nodiscard]] size_t open_count() const noexcept { return open_.size(); }

    // visit(sample) for each that is over.
    template <class Visit>
    status poll(Visit &&visit) {
        size_t kept = 0;
        status first_failure;
        for (size_t i = 0; i < open_.size(); ++i) {
            result<bool> over = is_over(open_[i]);
            if (!over.ok() || !over.value()) {
                if (!over.ok() && first_failure.ok()) {
                    first_failure = over.why();
                }
                open_[kept++] = open_[i];
                continue;
            }
            pair &p = pairs_[open_[i]];
            result<uint64_t> time = device_.elapsed_ns(p.start, p.end);
            if (time.ok()) {
                p.what.time_ns = time.value();
                visit(p.what);
            }
            free_.push_back(open_[i]);
        }
        open_.resize(kept);
        return first_failure;
    }

private:
    struct pair {
        event_id start{}, end{};
        stream_id stream{};
        sample what;
    };
    result<bool> is_over(sample_id id);

    device &device_;
    std::vector<pair> pairs_;
    std::vector<sample_id> free_;
    std::vector<sample_id> open_;
};

}  // namespace ebb
