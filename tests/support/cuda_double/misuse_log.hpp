// Rules that a program broke, in the order in which it did. What a test expects it takes; what is left at the end fails
// it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda_double/rules.hpp"

namespace ebb::test {

struct misuse {
    cuda_rule rule;
    std::string text;
};

class misuse_log {
public:
    void add(cuda_rule rule, std::string text) {
        const std::lock_guard lock(mutex_);
        entries_.push_back({rule, std::move(text)});
    }
    [[nodiscard]] std::vector<misuse> take_all() {
        const std::lock_guard lock(mutex_);
        return std::exchange(entries_, {});
    }
    // How often that rule was broken.
    [[nodiscard]] size_t take(cuda_rule rule) {
        const std::lock_guard lock(mutex_);
        const auto taken = std::remove_if(entries_.begin(), entries_.end(),
                                          [rule](const misuse &entry) { return entry.rule == rule; });
        const auto count = static_cast<size_t>(entries_.end() - taken);
        entries_.erase(taken, entries_.end());
        return count;
    }

private:
    std::mutex mutex_;
    std::vector<misuse> entries_;
};

}  // namespace ebb::test
