// The checking mode of the simulated device: work runs at shuffled times, memory holds tags, and each piece of work
// looks at what it touches. A copy poisons its destination from its begin to its end and takes its source at random
// instants between, part by part; a kernel poisons what it writes and looks at what it reads at its begin, twice
// between, and at its end. What is not as it must be is a violation.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "device/sim/shadow_memory.hpp"
#include "device/sim/shuffled_timing.hpp"
#include "device/sim/sim_access.hpp"

namespace ebb {

class sim_checker {
public:
    using access_id = uint32_t;

    explicit sim_checker(uint64_t seed) : timing_(seed) {}

    // By the host, now.
    void allocated(const void *data, uint64_t size_bytes);
    void freed(const void *data, uint64_t size_bytes);

    // What a piece of work will touch; it ends with the piece, or with at_once().
    access_id add(sim_action action, uint64_t stream, std::span<const sim_read> reads,
                  std::span<const sim_write> writes);
    void submit(uint32_t piece, access_id touched, uint32_t stream);
    // Memory that a stream frees or gets when it is there.
    void at_once(access_id touched);

    [[nodiscard]] sim_time_ps now() const noexcept { return timing_.now(); }
    [[nodiscard]] bool idle() const noexcept { return timing_.idle(); }
    struct progress {
        bool any = false;
        bool ended = false;  // a piece, whose number follows
        uint32_t piece = 0;
        sim_time_ps began_ps = 0;
    };
    progress advance(sim_time_ps limit);

    // The first ones, each operation once per kind of fault; and how many there were.
    [[nodiscard]] const std::vector<sim_violation> &violations() const noexcept { return violations_; }
    [[nodiscard]] uint64_t violation_count() const noexcept { return violation_count_; }

private:
    struct span_of_memory {
        uint64_t begin = 0, end = 0;
        uint64_t tag = 0, position_bytes = 0;
    };
    struct access {
        sim_operation who;
        std::vector<span_of_memory> reads, writes;
        uint32_t reported = 0;  // a bit per fault
        // Copies: which part of the source is taken at which instant, and what was there.
        std::array<uint8_t, shuffled_timing::k_instants> part_at{};
        std::vector<shadow_memory::range> taken;
    };

    [[nodiscard]] static bool copies(const access &a) noexcept {
        return a.who.action == sim_action::copy_d2h || a.who.action == sim_action::copy_h2d ||
               a.who.action == sim_action::copy_d2d;
    }
    void begin(access_id id);
    void look(access &a);
    void look_at(access &a, const span_of_memory &read);
    void take_part(access &a, uint32_t instant);
    void end(access_id id);
    void land_copy(const access &a);
    void check_against_active(access &a, sim_fault with_readers, sim_fault with_writers);
    void report_overlaps(access &a, const sim_operation &other, const std::vector<span_of_memory> &touched,
                         sim_fault fault);
    void check_is_memory(access &a, const span_of_memory &range);
    [[nodiscard]] sim_operation active_operation(uint64_t number) const noexcept;
    void finish(access_id id);
    void report(access &a, sim_violation violation);

    shuffled_timing timing_;
    shadow_memory memory_;
    std::vector<access> accesses_;
    std::vector<access_id> unused_;
    std::vector<access_id> by_piece_;
    std::vector<access_id> active_;
    std::vector<shadow_memory::range> found_;
    uint64_t operation_count_ = 0;
    std::vector<sim_violation> violations_;
    uint64_t violation_count_ = 0;
};

}  // namespace ebb
