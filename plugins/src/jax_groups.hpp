// What wrapped calls moved: which group of activations a handle stands for, and how long it lives.
#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ebb/ebb.h"
#include "jax_attributes.hpp"

namespace ebb_jax {

// XLA numbers runs upwards from a hash of the program: a number tells runs apart, and says nothing of their order.
class recent_runs {
public:
    // Whether `run` was not seen before, among the last of them.
    bool begins(std::int64_t run);
    std::int64_t newest() const { return seen_.empty() ? 0 : seen_.back(); }

private:
    std::deque<std::int64_t> seen_;
};

// A wrapped call on one device, as the traced program has it.
struct site_key {
    std::int64_t id = 0;
    std::int32_t ordinal = 0;
    std::uint64_t reloads = 0;
    bool operator==(const site_key &) const = default;
};

struct site_hash {
    std::size_t operator()(const site_key &key) const {
        return static_cast<std::size_t>(key.id) ^ (static_cast<std::size_t>(key.ordinal) << 32) ^
               (static_cast<std::size_t>(key.reloads) << 48);
    }
};

// What was learned of it.
struct site_record {
    recent_runs runs;
    std::uint64_t run_number = 0;
    std::uint64_t own_reloads = 0, other_reloads = 0;
    bool in_loops = false;  // some had more reloads than the program has
};

struct group;

// An offload of the traced program: one call, that loops may make many times.
struct offload_record {
    site_record *site = nullptr;
    group *finished = nullptr;  // the newest of what it moved that had all its reloads
};

struct offload_key {
    const call_attributes *said = nullptr;
    std::int32_t ordinal = 0;
    bool operator==(const offload_key &) const = default;
};

struct offload_hash {
    std::size_t operator()(const offload_key &key) const {
        return std::hash<const void *>()(key.said) ^ (static_cast<std::size_t>(key.ordinal) << 32);
    }
};

// By platform, device, and whether it is for what stays: that comes in no order that a training step could be learned
// by.
struct place_key {
    const void *platform = nullptr;
    std::int32_t ordinal = 0;
    bool stays = false;
    auto operator<=>(const place_key &) const = default;
};

// One device's runtime; groups keep it alive.
struct place {
    place_key key;
    ebb_runtime *runtime = nullptr;
    std::string name;
    recent_runs runs;  // under the lock of groups, like what follows
    std::unordered_map<site_key, site_record, site_hash> sites;
    std::unordered_map<offload_key, offload_record, offload_hash> offloads;
    std::uint64_t live_groups = 0;

    place() = default;
    place(const place &) = delete;
    place &operator=(const place &) = delete;
    ~place();
};

struct part {
    ebb_activation activation = 0;
    std::uint64_t size_bytes = 0;
    bool is_by_thread = false;  // on the CPU: the thread copies it itself
};

// What one wrapped call moved. Ends its activations when the last user of it is gone; the object is then used again.
struct group {
    std::shared_ptr<place> home;
    const call_attributes *of = nullptr;
    std::int32_t ordinal = 0;
    std::int64_t run = 0;
    std::vector<part> parts;
    std::uint64_t size_bytes = 0;
    std::uint64_t handle = 0;  // is not 0
    bool is_whole = false;     // for the call that offloads to say; otherwise it ends with that call

    group() = default;
    group(const group &) = delete;
    group &operator=(const group &) = delete;

private:
    friend class groups;
    friend class ended_groups;
    offload_record *by = nullptr;  // of home
    std::uint64_t own_reloads = 0, other_reloads = 0;
    std::uint64_t run_number = 0;              // of the runs of its site
    std::atomic<std::uint32_t> users{0};       // calls that are at work on it, and one while it lives
    bool lives = false;                        // is found by its handle
    group *older = nullptr, *newer = nullptr;  // among those that live, or behind each other on another list
    bool is_finished = false;                  // had as many reloads as the traced program has
    group *finished_older = nullptr, *finished_newer = nullptr;  // of one offload of the program
};

class groups;
class ended_groups;

struct give_back {
    groups *owner = nullptr;
    void operator()(group *one) const noexcept;
};
// A group that a call is at work on: its activations do not end meanwhile.
using used_group = std::unique_ptr<group, give_back>;

// Thread-safe. Runs of one program may overlap, on the CPU also when one thread starts them, and nobody says when a run
// is over. So a group ends
// - when another run begins on its device, or its run makes the same call again (the next micro-batch of a loop), if it
//   had all the reloads that the traced program has. Not with the last of them: a trace does not show that what it
//   calls once is called in a loop;
// - when later runs of its site have begun, if reloads of that site only ever came in the run of their offload: what an
//   exception or a forward without backward left behind. So many of them that the first cannot be under way any more;
// - oldest first, when more than the cap was left behind;
// - by release_all.
class groups {
public:
    groups() = default;
    groups(const groups &) = delete;
    groups &operator=(const groups &) = delete;
    ~groups();

    // Null where none was opened.
    std::shared_ptr<place> place_of(const place_key &key) const;
    void open_place(std::shared_ptr<place> opened);
    std::vector<std::shared_ptr<place>> places() const;

    struct begun {
        used_group made;             // null: there is no such place
        bool first_of_step = false;  // another run, and nothing is live on the device
    };
    // A new group, whose parts are to be offloaded.
    begun begin(const place_key &where, const call_attributes &of, std::int32_t ordinal, std::int64_t run,
                std::uint64_t size_bytes);

    // Null where it is gone.
    used_group find(std::uint64_t handle);
    const char *why_gone(std::uint64_t handle) const;
    // What is found counts as reloaded in that run, until it is said that it was not.
    used_group find_to_reload(std::uint64_t handle, std::int64_t run);
    void not_reloaded(group &what, std::int64_t run);

    void end_one(std::uint64_t handle, const char *why);
    std::uint64_t release_all(const char *why);  // but what stays
    void close(const char *why);                 // all of it, and the places with what was learned there
    // What is left of earlier runs may take so much.
    void set_cap(std::uint64_t size_bytes);
    std::uint64_t live_count() const;
    std::uint64_t live_bytes() const;

private:
    friend class ended_groups;
    friend struct give_back;
    struct ending {
        std::uint64_t handle = 0;
        const char *why = nullptr;
        offload_key what;
    };

    void reserve_unused();
    void link_newest(group &one);
    group *living(std::uint64_t handle) const;
    const ending *ending_of(std::uint64_t handle) const;  // null: none that is remembered
    void end(group &one, const char *why, ended_groups &ended);
    void drop(group &one, ended_groups &ended);
    void sweep(const place &home, std::int64_t run, ended_groups &ended);
    void sweep_finished(const offload_record &by, std::int64_t run, ended_groups &ended);
    void set_finished(group &one, bool is_finished);
    void learn_of_loop(std::uint64_t handle);
    void sweep_to_cap(ended_groups &ended);

    mutable std::mutex mutex_;
    std::map<place_key, std::shared_ptr<place>> places_;
    std::vector<std::unique_ptr<group>> all_;  // a handle has the index in it
    group *unused_ = nullptr;
    group *oldest_ = nullptr, *newest_ = nullptr;  // of those that live
    std::vector<ending> endings_;                  // the last of them, for errors
    std::uint64_t ended_count_ = 0;
    std::uint64_t live_count_ = 0, live_bytes_ = 0;
    std::uint64_t cap_bytes_ = ~std::uint64_t{0};
};

}  // namespace ebb_jax
