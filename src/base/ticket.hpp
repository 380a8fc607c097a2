// A ticket names a point on a timeline: "everything enqueued on that stream up to here". Timelines are the
// copy lanes and the caller's streams; each numbers its points upwards, so of two tickets of one timeline
// the larger covers the smaller. That is what makes "behind its last reader" a value that a free block can
// carry: waiting for a ticket is a stream wait, never a host wait.
#pragma once

#include <array>
#include <cstdint>

#include "base/check.hpp"

namespace ebb {

struct ticket {
    uint64_t timeline : 16 = 0;
    uint64_t sequence : 48 = 0;  // 0: no point, nothing to wait for

    [[nodiscard]] bool empty() const noexcept { return sequence == 0; }
    friend bool operator==(const ticket &a, const ticket &b) noexcept {
        return a.timeline == b.timeline && a.sequence == b.sequence;
    }
};

// Tickets of different timelines, at most one (the latest) of each.
class ticket_set {
public:
    static constexpr uint32_t k_capacity = 4;

    // False when the set is full of other timelines: join them first (transfer/timelines.hpp).
    [[nodiscard]] bool add(ticket t) noexcept {
        if (t.empty()) {
            return true;
        }
        for (uint32_t i = 0; i < size_; ++i) {
            if (tickets_[i].timeline == t.timeline) {
                if (tickets_[i].sequence < t.sequence) {
                    tickets_[i] = t;
                }
                return true;
            }
        }
        if (size_ == k_capacity) {
            return false;
        }
        tickets_[size_++] = t;
        return true;
    }

    void clear() noexcept { size_ = 0; }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] uint32_t size() const noexcept { return size_; }
    [[nodiscard]] const ticket *begin() const noexcept { return tickets_.data(); }
    [[nodiscard]] const ticket *end() const noexcept { return tickets_.data() + size_; }

private:
    uint32_t size_ = 0;  // beside the first, which mostly is the only one
    std::array<ticket, k_capacity> tickets_{};
};

}  // namespace ebb
