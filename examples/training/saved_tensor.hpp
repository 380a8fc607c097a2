// One activation saved for the backward pass, through Ebb's C ABI:
//
//     save            ebb_offload: Ebb owns the array from here on and lets go of it when it likes
//     fetch           ebb_reload (or ebb_reload_into where there is no slot): the array, or null if the caller
//                     has to compute it again
//     finish          ebb_return and ebb_release, after the last kernel that reads it was launched
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "training_device.hpp"

namespace train {

class saved_tensor {
public:
    saved_tensor(const char *name, uint64_t size_bytes) : name_(name), size_bytes_(size_bytes) {}
    ~saved_tensor() { discard(); }
    saved_tensor(const saved_tensor &) = delete;
    saved_tensor &operator=(const saved_tensor &) = delete;
    saved_tensor(saved_tensor &&other) noexcept;
    saved_tensor &operator=(saved_tensor &&) = delete;

    // `sources` are what computing this again would read; empty: it cannot be computed again.
    void save(training_device &device, std::shared_ptr<void> array, int64_t micro_batch,
              const std::vector<const saved_tensor *> &sources, ebb_placement placement = EBB_PLACE_BY_POLICY);
    void *fetch();
    void set_computed(std::shared_ptr<void> array) { own_ = std::move(array); }
    void finish();

    // Whether it is not on the device and will not come: it must be computed again.
    [[nodiscard]] bool must_be_computed() const { return recompute_ && own_ == nullptr; }
    [[nodiscard]] bool finished() const { return activation_ == 0; }
    [[nodiscard]] uint64_t size_bytes() const { return size_bytes_; }
    // Kept on the device although it was to be offloaded: no pinned memory, no pinning, or a failed copy.
    [[nodiscard]] bool kept_by_necessity() const { return kept_by_necessity_; }

private:
    void discard() noexcept;

    const char *name_;
    uint64_t size_bytes_;
    training_device *device_ = nullptr;
    ebb_activation activation_ = 0;
    ebb_claim claim_ = 0;
    void *claimed_ = nullptr;
    std::shared_ptr<void> own_;  // reloaded into memory of ours, or computed again
    bool recompute_ = false;
    bool kept_by_necessity_ = false;
};

}  // namespace train
