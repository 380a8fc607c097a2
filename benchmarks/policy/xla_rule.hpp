// How XLA's latency hiding scheduler places copies in a loop over layers: a fixed place in the program for the start of
// each and for the wait for it, inside one loop iteration, or with software pipelining one iteration apart. Shared by
// the two baselines of it.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "policy/baseline_player.hpp"

namespace ebb::baselines {

enum class xla_loop : uint8_t { own_iteration, pipelined };

class xla_rule : public baseline_rule {
public:
    // `most_going`: asynchronous copies at once in each direction; 0: no limit.
    xla_rule(baseline_player &on, xla_loop loop, size_t most_going);

    void begins(uint32_t iteration) override;
    void produced(uint32_t tensor) override;
    void needed(uint32_t tensor) override;
    void ends(uint32_t iteration) override;

private:
    void list_reloads();
    void wait_out(std::deque<uint32_t> &going);
    void reload_for(uint32_t iteration);
    void start_reloads();

    baseline_player &on_;
    const step_outline &what_;
    xla_loop loop_;
    size_t most_going_;
    std::vector<uint8_t> reloaded_;          // by iteration: its copies were asked for
    std::deque<uint32_t> out_, out_before_;  // tensors of this iteration and the one before it
    std::deque<uint32_t> to_come_;           // asked for, not started
    std::deque<uint32_t> coming_;            // started, not waited for
};

[[nodiscard]] std::vector<setting> xla_settings();

}  // namespace ebb::baselines
