// Finds live activations by storage key {id, version}. A hash table of chains through the activations, so
// that it allocates only when it grows. Addresses are never keys: ranges are compared only within one key.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/activation.hpp"
#include "runtime/handle_table.hpp"

namespace ebb {

class storage_index {
public:
    explicit storage_index(handle_table<activation> &table) : table_(table), heads_(k_first, k_no_index) {}

    void insert(uint32_t i) {
        if (count_ == heads_.size()) {
            grow();
        }
        ++count_;
        link(i);
    }

    void remove(uint32_t i) noexcept {
        uint32_t *at = &heads_[bucket(table_[i])];
        while (*at != i) {
            at = &table_[*at].storage_next;
        }
        *at = table_[i].storage_next;
        table_[i].storage_next = k_no_index;
        --count_;
    }

    // visit(index) for each live activation with that key; it returns true to stop there.
    template <class Visit>
    uint32_t find(uint64_t id, uint64_t version, Visit &&visit) const {
        for (uint32_t i = heads_[bucket(id, version)]; i != k_no_index; i = table_[i].storage_next) {
            const activation &a = table_[i];
            if (a.storage_id == id && a.storage_version == version && visit(i)) {
                return i;
            }
        }
        return k_no_index;
    }

private:
    static constexpr size_t k_first = 256;

    [[nodiscard]] size_t bucket(uint64_t id, uint64_t version) const noexcept {
        uint64_t h = (id * 0x9E3779B97F4A7C15ULL) ^ (version * 0xBF58476D1CE4E5B9ULL);
        h ^= h >> 29U;
        return h & (heads_.size() - 1);
    }
    [[nodiscard]] size_t bucket(const activation &a) const noexcept { return bucket(a.storage_id, a.storage_version); }
    void link(uint32_t i) noexcept {
        uint32_t &head = heads_[bucket(table_[i])];
        table_[i].storage_next = head;
        head = i;
    }
    void grow() {
        std::vector<uint32_t> all;
        for (uint32_t head : heads_) {
            for (; head != k_no_index; head = table_[head].storage_next) {
                all.push_back(head);
            }
        }
        heads_.assign(heads_.size() * 2, k_no_index);
        for (const uint32_t i : all) {
            link(i);
        }
    }

    handle_table<activation> &table_;
    std::vector<uint32_t> heads_;
    size_t count_ = 0;
};

}  // namespace ebb
