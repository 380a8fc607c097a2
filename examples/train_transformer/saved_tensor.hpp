// One activation saved for the backward pass, through Ebb's C ABI:
//
//     save            ebb_offload: Ebb owns the array from here on and lets go of it when it likes
//     fetch           ebb_reload (or ebb_reload_into where there is no slot): the array, or null if the caller
//                     has to compute it again
//     finish          ebb_return and ebb_release, after the last kernel that reads it was launched
#pragma once

#include <cstdint>
#include <vector>

#include "device.hpp"

namespace train {

class saved_tensor {
public:
    saved_tensor(const char *name, int64_t elements) : name_(name), elements_(elements) {}
    ~saved_tensor() { discard(); }
    saved_tensor(const saved_tensor &) = delete;
    saved_tensor &operator=(const saved_tensor &) = delete;
    saved_tensor(saved_tensor &&other) noexcept;
    saved_tensor &operator=(saved_tensor &&) = delete;

    // `sources` are what computing this again would read; empty: it cannot be computed again.
    void save(training_device &device, device_array array, int64_t micro_batch,
              const std::vector<const saved_tensor *> &sources);
    float *fetch();
    void set_computed(device_array array) { own_ = std::move(array); }
    void finish();

    [[nodiscard]] int64_t elements() const { return elements_; }
    // Kept on the device although it was to be offloaded: no pinned memory, no pinning, or a failed copy.
    [[nodiscard]] bool kept_by_necessity() const { return kept_by_necessity_; }

private:
    void discard() noexcept;

    const char *name_;
    int64_t elements_;
    training_device *device_ = nullptr;
    ebb_activation activation_ = 0;
    ebb_claim claim_ = 0;
    float *claimed_ = nullptr;
    device_array own_;  // reloaded into memory of ours, or computed again
    bool kept_by_necessity_ = false;
};

}  // namespace train
