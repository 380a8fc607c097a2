// A queue of activations through their own links: pending sources (oldest first) or unclaimed prefetches
// (first expected first). Constant time, no memory of its own.
#pragma once

#include <cstdint>

#include "base/check.hpp"
#include "runtime/activation.hpp"
#include "runtime/handle_table.hpp"

namespace ebb {

class activation_list {
public:
    explicit activation_list(handle_table<activation> &table) : table_(table) {}

    [[nodiscard]] bool empty() const noexcept { return head_ == k_no_index; }
    [[nodiscard]] uint32_t front() const noexcept { return head_; }
    [[nodiscard]] uint32_t back() const noexcept { return tail_; }

    void push_back(uint32_t i) noexcept {
        activation &a = table_[i];
        a.queue_previous = tail_;
        a.queue_next = k_no_index;
        (tail_ == k_no_index ? head_ : table_[tail_].queue_next) = i;
        tail_ = i;
    }
    void push_front(uint32_t i) noexcept {
        activation &a = table_[i];
        a.queue_previous = k_no_index;
        a.queue_next = head_;
        (head_ == k_no_index ? tail_ : table_[head_].queue_previous) = i;
        head_ = i;
    }
    void remove(uint32_t i) noexcept {
        activation &a = table_[i];
        (a.queue_previous == k_no_index ? head_ : table_[a.queue_previous].queue_next) = a.queue_next;
        (a.queue_next == k_no_index ? tail_ : table_[a.queue_next].queue_previous) = a.queue_previous;
        a.queue_previous = k_no_index;
        a.queue_next = k_no_index;
    }

private:
    handle_table<activation> &table_;
    uint32_t head_ = k_no_index;
    uint32_t tail_ = k_no_index;
};

}  // namespace ebb
