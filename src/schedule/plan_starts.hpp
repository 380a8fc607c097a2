// Plans to start a search from: the cheapest recomputes per byte, then the tensors that are used again soonest kept up
// to what fits, the rest offloaded. And which tensors of a model are alike.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/plan.hpp"
#include "schedule/step_model.hpp"

namespace ebb {

struct plan_start {
    uint32_t recomputed = 0;        // how many of the order by recompute time per byte
    uint32_t order = 0;             // among equal ones: k_orders
    uint64_t kept_first_bytes = 0;  // so much is kept before it is chosen what is recomputed
    bool kept_spread = false;       // kept over the whole step instead of the latest
    uint64_t kept_limit_bytes = 0;
    uint64_t staging_bytes = 0;
    bool may_offload = true;
};

class plan_starts {
public:
    static constexpr uint32_t k_orders = 3;  // latest first, earliest first, alternating

    explicit plan_starts(const step_model &model);

    void build(const plan_start &start, plan &p) const;
    // The most that kept and recomputed tensors hold at once, with what is in the making.
    [[nodiscard]] uint64_t fixed_peak_bytes(const plan &p) const;
    // The most bytes of offloaded tensors that are in use at once: staging cannot be less.
    [[nodiscard]] uint64_t used_at_once_bytes(const plan &p) const;

    [[nodiscard]] uint32_t recomputable() const noexcept { return static_cast<uint32_t>(by_density_[0].size()); }
    // Of the first ones of the order by density.
    [[nodiscard]] uint64_t recomputed_bytes(uint32_t count) const { return density_bytes_[count]; }
    [[nodiscard]] uint64_t largest_bytes() const noexcept { return largest_bytes_; }
    // Of the largest layer: what its backward may hold.
    [[nodiscard]] uint64_t layer_bytes() const noexcept { return layer_bytes_; }
    // Tensors at the same place of their layers with the same size and recompute time, within a tolerance; in the
    // order of their production.
    [[nodiscard]] const std::vector<std::vector<uint32_t>> &classes() const noexcept { return classes_; }

private:
    void find_classes();
    void sort_by_density();
    void find_lives();
    void keep(const plan_start &start, uint64_t limit_bytes, std::vector<uint64_t> &kept, plan &p) const;
    [[nodiscard]] bool keep_within(uint32_t tensor, uint64_t limit_bytes, std::vector<uint64_t> &kept) const;

    const step_model &model_;
    std::vector<std::vector<uint32_t>> classes_;
    std::vector<uint32_t> by_density_[k_orders];
    std::vector<uint64_t> density_bytes_;
    std::vector<uint32_t> place_;  // by tensor: event of its recompute
    std::vector<uint32_t> by_place_;
    std::vector<uint32_t> by_reuse_;                // shortest time until its use first
    std::vector<uint32_t> by_spread_;               // any first part of it lies evenly over the step
    std::vector<uint32_t> first_span_, last_span_;  // by tensor: the parts of the step in which it is alive
    uint32_t spans_ = 1;
    uint64_t largest_bytes_ = 0;
    uint64_t layer_bytes_ = 0;
};

}  // namespace ebb
