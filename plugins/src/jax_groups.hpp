// What wrapped calls moved: which group of activations a handle stands for, and how long it lives.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ebb/ebb.h"

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

// One device's runtime; groups keep it alive.
struct place {
    ebb_runtime *runtime = nullptr;
    std::string name;
    recent_runs runs;  // under the lock of groups, like what follows
    std::uint64_t live_groups = 0;

    place() = default;
    place(const place &) = delete;
    place &operator=(const place &) = delete;
    ~place();
};

// A wrapped call on one device, as the traced program has it.
struct site_key {
    std::int64_t id = 0;
    const place *home = nullptr;
    std::int32_t ordinal = 0;
    std::uint64_t reloads = 0;  // of one offload, in the traced program; 0: it does not say
    bool operator<(const site_key &other) const {
        return std::tie(id, home, ordinal, reloads) < std::tie(other.id, other.home, other.ordinal, other.reloads);
    }
};

struct part {
    ebb_activation activation = 0;
    std::uint64_t size_bytes = 0;
};

// What one wrapped call moved. Ends its activations when the last user of it is gone.
struct group {
    std::shared_ptr<place> home;
    site_key site;
    std::string layout;  // how its shards lie, so that a reload under another sharding is refused
    std::vector<part> parts;
    std::uint64_t size_bytes = 0;
    std::int64_t run = 0;
    std::uint64_t own_reloads = 0, other_reloads = 0;
    bool stays = false;            // until it is ended by its handle, or with everything
    std::uint64_t run_number = 0;  // of the runs of its site

    group() = default;
    group(const group &) = delete;
    group &operator=(const group &) = delete;
    ~group();
};

// Thread-safe. Runs of one program may overlap, on the CPU also when one thread starts them, and nobody says when a run
// is over. So a group ends
// - when another run begins on its device, if it had all the reloads that the traced program has. Not with the last of
// them: a
//   trace does not show that what it calls once is called in a loop;
// - when later runs of its site have begun, if reloads of that site only ever came in the run of their offload: what an
//   exception or a forward without backward left behind. So many of them that the first cannot be under way any more;
// - oldest first, when more than the cap was left behind;
// - by release_all.
class groups {
public:
    // The handle of `made`, which is not 0.

    std::uint64_t add(std::shared_ptr<group> made);
    // To be called before the parts of a run's first group are offloaded. True: nothing is live on the device.
    bool begin_run(place &home, const site_key &site, std::int64_t run);

    // Null where it is gone.
    std::shared_ptr<group> find(std::uint64_t handle) const;
    const char *why_gone(std::uint64_t handle) const;
    void reloaded(std::uint64_t handle, std::int64_t run);

    void end_one(std::uint64_t handle, const char *why);
    std::uint64_t release_all(const char *why);  // but what stays
    void forget_all(const char *why);            // and what was learned of sites
    // What is left of earlier runs may take so much.
    void set_cap(std::uint64_t size_bytes);
    std::uint64_t live_count() const;
    std::uint64_t live_bytes() const;

private:
    using groups_by_age = std::map<std::uint64_t, std::shared_ptr<group>>;  // handles rise
    struct site_record {
        recent_runs runs;
        std::uint64_t run_number = 0;
        std::uint64_t own_reloads = 0, other_reloads = 0;
        bool in_loops = false;  // some had more reloads than the program has
    };

    void end(groups_by_age::iterator which, const char *why, std::vector<std::shared_ptr<group>> &ended);
    void sweep(const place &home, std::int64_t run, std::vector<std::shared_ptr<group>> &ended);
    void sweep_to_cap(std::vector<std::shared_ptr<group>> &ended);
    bool is_left(const group &one);
    bool is_over(const group &one, const site_record &site) const;

    mutable std::mutex mutex_;
    groups_by_age live_;
    std::map<site_key, site_record> sites_;
    std::deque<std::pair<std::uint64_t, const char *>> ended_;  // the last of them, for errors
    std::uint64_t last_handle_ = 0;
    std::uint64_t live_bytes_ = 0;
    std::uint64_t cap_bytes_ = ~std::uint64_t{0};
};

}  // namespace ebb_jax
