// The largest of a row of numbers between two places, at a constant cost where both only move on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ebb {

class sliding_maximum {
public:
    void reserve(size_t count) { falling_.reserve(count); }
    void reset() noexcept {
        falling_.clear();
        head_ = 0;
        end_ = 0;
        after_ = 0;
    }

    // Of values[after + 1 .. until]; 0 when that is empty. Going back is allowed, and costs a new look at the range.
    [[nodiscard]] uint64_t over(const std::vector<uint64_t> &values, uint32_t after, uint32_t until) {
        if (end_ <= after || end_ > until + 1 || after < after_) {
            falling_.clear();
            head_ = 0;
            end_ = after + 1;
        }
        after_ = after;
        for (; end_ <= until; ++end_) {
            while (falling_.size() > head_ && values[falling_.back()] <= values[end_]) {
                falling_.pop_back();
            }
            falling_.push_back(end_);
        }
        while (head_ < falling_.size() && falling_[head_] <= after) {
            ++head_;
        }
        return head_ < falling_.size() ? values[falling_[head_]] : 0;
    }

private:
    std::vector<uint32_t> falling_;  // places of falling values
    size_t head_ = 0;
    uint32_t end_ = 0;    // places before it were looked at
    uint32_t after_ = 0;  // places up to it were given up
};

}  // namespace ebb
