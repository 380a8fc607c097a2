// What streams hold in virtual time: pieces of work for the engines, waits, marks and gates, each stream in its order.
// A stream's first operation is either running on an engine, waiting for a mark, standing at a gate, or queued for its
// engine; operations that take no time are done at once when they come first.
#pragma once

#include <cstdint>
#include <vector>

#include "device/sim/sim_checker.hpp"
#include "device/sim/sim_engines.hpp"

namespace ebb {

class sim_streams {
public:
    using index = uint32_t;
    static constexpr index k_none = ~index{0};

    // With a checker, work runs at its times instead of the machine's, and is looked at.
    explicit sim_streams(const sim_machine &machine, sim_checker *checker = nullptr)
        : engines_(machine), checker_(checker) {}

    [[nodiscard]] const sim_engines &engines() const noexcept { return engines_; }
    void set_link_rates(double d2h_bytes_per_second, double h2d_bytes_per_second) noexcept {
        engines_.set_link_rates(d2h_bytes_per_second, h2d_bytes_per_second);
    }
    [[nodiscard]] sim_time_ps now() const noexcept { return checker_ == nullptr ? engines_.now() : checker_->now(); }
    [[nodiscard]] bool idle() const noexcept { return checker_ == nullptr ? engines_.idle() : checker_->idle(); }

    index create();
    // Behind what is on it.
    void destroy(index stream);

    void work(index stream, const sim_work &work);
    // Checking mode: done when the stream gets there, in no time.
    void at_once(index stream, sim_checker::access_id access);
    // A mark is a recorded point: held once for the caller, and by what waits for it.
    index mark(index stream);
    void wait(index stream, index mark);
    void hold(index mark) noexcept { ++marks_[mark].holds; }
    void release(index mark);
    [[nodiscard]] bool passed(index mark) const noexcept { return marks_[mark].passed; }
    [[nodiscard]] sim_time_ps passed_at(index mark) const noexcept { return marks_[mark].at; }
    // The stream goes no further until the gate is opened; a gate is used once.
    index gate(index stream);
    void open(index gate);

    // Goes on to that time; not back.
    void run_until(sim_time_ps time);
    // Until the mark is passed. False when nothing that runs will get there.
    bool run_until_passed(index mark);
    // Until no engine has work.
    void run_until_idle();

    // Over what was done, in its order and with its times: two runs that do the same have the same.
    [[nodiscard]] uint64_t log_hash() const noexcept { return log_hash_; }
    [[nodiscard]] uint64_t operation_count() const noexcept { return operation_count_; }

private:
    enum class kind : uint8_t { work, mark, wait, gate, at_once };
    struct operation {
        kind what = kind::work;
        bool submitted = false;
        index stream = 0;
        index next = k_none;  // on the stream, or of those not in use
        index mark = 0;       // mark, wait; the number of a gate is its operation's
        sim_work work;
    };
    struct stream {
        index first = k_none, last = k_none;
        index next = k_none;  // of those that wait for one mark
        bool ending = false;
    };
    struct mark_record {
        uint32_t holds = 0;
        bool passed = false;
        sim_time_ps at = 0;
        index first_waiter = k_none;  // streams; or the next mark not in use
    };

    index add(index stream, kind what);
    index new_mark();
    void proceed(index stream);
    bool step(index stream, operation &first);
    void finish_first(index stream);
    void pass(index mark);
    bool advance(sim_time_ps limit);
    bool advance_checked(sim_time_ps limit);
    void finish_work(index piece, sim_time_ps began);
    void note(const operation &done, sim_time_ps began);

    sim_engines engines_;
    sim_checker *checker_;
    std::vector<operation> operations_;
    std::vector<stream> streams_;
    std::vector<mark_record> marks_;
    index free_operation_ = k_none, free_mark_ = k_none;
    std::vector<index> free_streams_;
    std::vector<index> ready_;  // streams that a passed mark lets go on
    uint64_t log_hash_ = 0xCBF29CE484222325ULL;
    uint64_t operation_count_ = 0;
};

}  // namespace ebb
