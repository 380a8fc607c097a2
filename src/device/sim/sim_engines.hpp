// The engines of a simulated GPU: compute, collectives and one copy engine per direction. Each does one piece of work
// at a time, in the order in which the pieces became ready; stream priorities do not exist. What is active at one time
// shares links, HBM and host memory, so rates change whenever a piece begins or ends: between two such instants they
// are constant.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "device/sim/sim_machine.hpp"

namespace ebb {

enum class sim_engine : uint8_t { compute, collective, d2h, h2d };
constexpr size_t k_sim_engines = 4;

struct sim_work {
    sim_engine engine = sim_engine::compute;
    uint32_t access = 0;          // checking mode: what it touches, by the checker's number
    sim_time_ps duration_ps = 0;  // compute, collective: alone on the machine
    double hbm_fraction = 0;      // compute: part of HBM's rate that it uses when alone
    uint64_t size_bytes = 0;      // copies
};

class sim_engines {
public:
    using piece_id = uint32_t;  // the caller's number for a piece of work

    // The machine has passed check_machine().
    explicit sim_engines(const sim_machine &machine) : machine_(machine) {}

    [[nodiscard]] sim_time_ps now() const noexcept { return now_; }
    [[nodiscard]] bool idle() const noexcept { return active_count_ == 0; }

    // Ready now: begins at once when its engine is free.
    void submit(piece_id piece, const sim_work &work);

    // Goes on to the next end of a piece, if that is not after `limit`; otherwise to `limit`, and there is no piece.
    struct ended {
        bool any = false;
        piece_id piece = 0;
        sim_time_ps began_ps = 0;
    };
    ended advance(sim_time_ps limit);

    // From now on, for copies that are under way too; both above 0.
    void set_link_rates(double d2h_bytes_per_second, double h2d_bytes_per_second) noexcept;

    // How long each engine has worked, latencies included.
    [[nodiscard]] sim_time_ps busy_ps(sim_engine engine) const noexcept;

private:
    static constexpr sim_time_ps k_never = std::numeric_limits<sim_time_ps>::max();

    struct queued {
        piece_id piece;
        sim_work work;
    };
    struct state {
        // First in, first out: a ring that grows.
        std::vector<queued> ring;
        size_t head = 0, count = 0;

        bool active = false;
        bool in_latency = false;
        queued current{};
        double fraction = 1;  // of the link's rate, at this size
        sim_time_ps began_ps = 0;
        sim_time_ps since_ps = 0;       // when the speed changed last
        double left = 0;                // at that time: picoseconds at full speed, or bytes
        double speed = 0;               // of `left` per picosecond
        sim_time_ps ends_ps = k_never;  // the latency, or the piece at this speed
        // An end falls on a whole picosecond. What it was late by, the next piece on the engine gets back if it
        // follows at once: otherwise a million chunks would be off by as many roundings.
        double late_ps = 0;
        sim_time_ps ended_ps = k_never;
        sim_time_ps busy_ps = 0;
    };

    [[nodiscard]] state &of(sim_engine e) noexcept { return engines_[static_cast<size_t>(e)]; }
    static void push(state &e, const queued &added);
    void begin(state &e, const queued &next);
    void end(state &e);
    void set_speeds() noexcept;
    void set_speed(state &e, double speed) noexcept;
    [[nodiscard]] double copy_rate(const sim_link &link, const state &e, bool both) const noexcept;

    sim_machine machine_;
    sim_time_ps now_ = 0;
    uint32_t active_count_ = 0;
    std::array<state, k_sim_engines> engines_;
    // The engine whose latency or piece ends first.
    sim_time_ps next_end_ps_ = k_never;
    state *next_ = nullptr;
};

}  // namespace ebb
