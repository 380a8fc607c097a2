// A CUDA double for a test: whatever rule was broken and not taken by the test fails it.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>

#include "cuda_double/cuda_double.hpp"

namespace ebb::test {

class checked_cuda : public cuda_double {
public:
    explicit checked_cuda(const cuda_double_options &options = {}) : cuda_double(options) {}
    ~checked_cuda() { verify(); }
    checked_cuda(const checked_cuda &) = delete;
    checked_cuda &operator=(const checked_cuda &) = delete;

    // At the end, when the backend is gone.
    void verify() {
        if (!may_leave_behind_) {
            check_all_is_given_back();
        }
        for (const misuse &found : take_misuses()) {
            ADD_FAILURE() << "misuse of CUDA: " << entry_of(found.rule).name << " (" << entry_of(found.rule).text
                          << "): " << found.text;
        }
    }
    // What the backend has made stays for the system to take.
    void may_leave_behind() { may_leave_behind_ = true; }
    // The program broke that rule, as it was meant to.
    void expect_misuse(cuda_rule rule) { EXPECT_GT(take_misuses(rule), 0U) << "not found: " << entry_of(rule).name; }

private:
    bool may_leave_behind_ = false;
};

}  // namespace ebb::test
