// How far each stream has got by a certain point, as far as an order was made: what tells work that is ordered from
// work that only happened to come in that order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

namespace ebb::test {

class progress_clock {
public:
    [[nodiscard]] uint64_t of(uint32_t stream) const {
        const auto found = passed_.find(stream);
        return found == passed_.end() ? 0 : found->second;
    }
    void reach(uint32_t stream, uint64_t count) {
        uint64_t &passed = passed_[stream];
        passed = std::max(passed, count);
    }
    void merge(const progress_clock &other) {
        for (const auto &[stream, count] : other.passed_) {
            reach(stream, count);
        }
    }

private:
    std::map<uint32_t, uint64_t> passed_;
};

}  // namespace ebb::test
