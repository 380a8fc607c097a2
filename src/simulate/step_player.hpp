// Plays a step model on a simulated machine through the real runtime: the same calls that a training loop would make,
// with kernels of the model's times in between. What comes out is what the runtime does, not what a model of it would.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.hpp"
#include "device/sim/sim_device.hpp"
#include "ebb/ebb.h"
#include "runtime/runtime.hpp"
#include "schedule/plan.hpp"
#include "schedule/step_model.hpp"

namespace ebb {

// Sizes that change from step to step, as routing makes them do. The first step has the model's; each later one draws
// every tensor's anew, a multiple of 512 bytes between these parts of the model's.
struct redrawn_sizes {
    bool wanted = false;
    uint64_t seed = 0;
    double least = 1;
    double most = 1;
};

struct play_options {
    sim_machine machine;
    runtime_options core;
    memory_mode mode = memory_mode::staging;  // one_pool: slots come from the caller's allocator
    const plan *fixed = nullptr;              // placements to ask for; null: the runtime decides
    redrawn_sizes sizes;
    std::function<void()> after_event;  // for who watches memory; may be empty
};

class step_player {
public:
    // The model must live as long. Device memory is accounted by the runtime's budget: the simulated device gives
    // addresses.
    static result<std::unique_ptr<step_player>> make(const step_model &model, const play_options &options);
    ~step_player();
    step_player(const step_player &) = delete;
    step_player &operator=(const step_player &) = delete;

    struct step_result {
        double step_ns = 0;    // of the compute stream
        uint64_t no_slot = 0;  // reloads that found no room and went into the caller's memory
        std::array<uint64_t, EBB_REASON_CAPTURE + 1> kept{};  // how many tensors, by reason
    };
    // One training step.
    result<step_result> play();

    // All times of the model's work are multiplied by that: a first step that is slower than the others.
    void slow_down(double factor) noexcept { factor_ = factor; }

    [[nodiscard]] ebb_statistics statistics();
    // Of tensors that were computed again and are in use: the caller's memory, a part of what the runtime counts.
    [[nodiscard]] uint64_t recomputed_bytes() const noexcept { return recomputed_bytes_; }
    [[nodiscard]] sim_device &device() noexcept { return *device_; }
    [[nodiscard]] ebb_runtime *runtime() noexcept { return runtime_; }

private:
    struct live_tensor {
        ebb_activation activation = 0;
        ebb_claim claim = 0;
        bool here = false;  // claimed, copied into the caller's memory, or computed again
        bool recomputed = false;
        ebb_placement placement = EBB_PLACE_KEEP;
    };

    step_player(const step_model &model, const play_options &options);
    status init();
    void redraw_sizes();
    [[nodiscard]] uint64_t most_bytes(const step_tensor &tensor) const noexcept;
    void place_recomputes();
    status compute(double time_ns, double hbm_fraction);
    status begin_collective(const step_event &e);
    status begin_hold(const step_event &e);
    status end_collective();
    status produce(uint32_t tensor);
    status in_scopes(const std::string &name, ebb_offload_args &args, ebb_offload_info &info);
    status use(uint32_t tensor);
    status done(uint32_t tensor);
    status release(uint32_t tensor);
    status bring(uint32_t tensor, bool &recompute);
    [[nodiscard]] std::vector<uint32_t> needed_again(uint32_t tensor) const;
    status recompute(uint32_t tensor);
    status compute_again(uint32_t tensor);
    status recompute_due(uint32_t event);
    status play_event(uint32_t event);
    status play_events();
    [[nodiscard]] uint64_t lent_bytes(uint64_t size_bytes) const noexcept;
    static void *lend(void *context, uint64_t size_bytes, uint64_t alignment, ebb_stream home);
    static void take_back(void *context, void *data, uint64_t size_bytes, ebb_stream home);

    const step_model &model_;
    play_options options_;
    double factor_ = 1;
    sim_device *device_ = nullptr;  // the runtime's
    ebb_runtime *runtime_ = nullptr;
    stream_id compute_{};
    stream_id collective_{};
    event_id begin_{}, end_{}, joined_{};
    std::byte *memory_ = nullptr;
    std::vector<uint64_t> offset_;      // by tensor, in memory_
    std::vector<uint64_t> size_bytes_;  // by tensor, in this step
    std::mt19937_64 random_;
    uint64_t steps_played_ = 0;
    std::vector<std::vector<uint32_t>> recompute_at_;  // by event: tensors that the plan recomputes before it
    std::vector<live_tensor> live_;
    std::unordered_map<uint64_t, std::vector<void *>> lent_;  // given back, by size
    uint64_t recomputed_bytes_ = 0;
    step_result result_;
};

}  // namespace ebb
