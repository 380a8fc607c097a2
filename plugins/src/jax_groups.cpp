#include "jax_groups.hpp"

#include <algorithm>

namespace ebb_jax {
namespace {

// A device takes so many runs before the first is over (PJRT's limit of computations in flight).
constexpr std::uint64_t k_runs_in_flight = 32;
// The same for groups that were reloaded, but nobody knows whether for the last time: they had come to their backward.
constexpr std::uint64_t k_runs_behind = 2;
constexpr std::size_t k_remembered_ends = 4096;

}  // namespace

bool recent_runs::begins(std::int64_t run) {
    if (std::find(seen_.rbegin(), seen_.rend(), run) != seen_.rend()) {
        return false;
    }
    seen_.push_back(run);
    if (seen_.size() > 2 * k_runs_in_flight) {
        seen_.pop_front();
    }
    return true;
}

place::~place() {
    if (runtime != nullptr) {
        ebb_runtime_close(runtime, EBB_CLOSE_FORCE);
    }
}

group::~group() {
    for (const part &one : parts) {
        ebb_release(home->runtime, one.activation);
    }
}

void groups::end(groups_by_age::iterator which, const char *why, std::vector<std::shared_ptr<group>> &ended) {
    group &one = *which->second;
    live_bytes_ -= one.size_bytes;
    one.home->live_groups--;
    ended_.emplace_back(which->first, why);
    if (ended_.size() > k_remembered_ends) {
        ended_.pop_front();
    }
    ended.push_back(std::move(which->second));
    live_.erase(which);
}

bool groups::is_over(const group &one, const site_record &site) const {
    if (one.own_reloads > 0 && one.own_reloads == one.site.reloads && !site.in_loops) {
        return true;
    }
    const bool only_own = site.own_reloads > 0 && site.other_reloads == 0;
    return only_own && site.run_number >= one.run_number + (one.own_reloads > 0 ? k_runs_behind : k_runs_in_flight);
}

void groups::sweep(const place &home, std::int64_t run, std::vector<std::shared_ptr<group>> &ended) {
    for (auto at = live_.begin(); at != live_.end();) {
        const auto here = at++;
        const group &one = *here->second;
        if (one.home.get() != &home || one.run == run || one.stays) {
            continue;
        }
        if (is_over(one, sites_[one.site])) {
            end(here, "another run began after its last reload", ended);
        }
    }
}

// What the newest run of a site holds is not left behind, at least not yet.
bool groups::is_left(const group &one) {
    return !one.stays && one.run != sites_[one.site].runs.newest();
}

void groups::sweep_to_cap(std::vector<std::shared_ptr<group>> &ended) {
    std::uint64_t left_bytes = 0;
    for (const auto &[handle, one] : live_) {
        left_bytes += is_left(*one) ? one->size_bytes : 0;
    }
    for (auto at = live_.begin(); at != live_.end() && left_bytes > cap_bytes_;) {
        const auto here = at++;
        if (is_left(*here->second)) {
            left_bytes -= here->second->size_bytes;
            end(here, "newer ones that were not reloaded in their own run took its place (survivor_memory)", ended);
        }
    }
}

bool groups::begin_run(place &home, const site_key &site, std::int64_t run) {
    std::vector<std::shared_ptr<group>> ended;  // outlives the lock: ending activations calls Ebb
    const std::lock_guard<std::mutex> lock(mutex_);
    site_record &record = sites_[site];
    if (record.runs.begins(run)) {
        record.run_number++;
        sweep_to_cap(ended);
    }
    if (!home.runs.begins(run)) {
        return false;
    }
    sweep(home, run, ended);
    return home.live_groups == 0;
}

std::uint64_t groups::add(std::shared_ptr<group> made) {
    const std::lock_guard<std::mutex> lock(mutex_);
    made->run_number = sites_[made->site].run_number;
    live_bytes_ += made->size_bytes;
    made->home->live_groups++;
    const std::uint64_t handle = ++last_handle_;
    live_.emplace(handle, std::move(made));
    return handle;
}

std::shared_ptr<group> groups::find(std::uint64_t handle) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = live_.find(handle);
    return found == live_.end() ? nullptr : found->second;
}

const char *groups::why_gone(std::uint64_t handle) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto ended = std::find_if(ended_.begin(), ended_.end(), [&](const auto &one) { return one.first == handle; });
    if (ended != ended_.end()) {
        return ended->second;
    }
    return handle <= last_handle_ ? "it ended long ago" : "this process never offloaded it";
}

void groups::reloaded(std::uint64_t handle, std::int64_t run) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = live_.find(handle);
    if (found == live_.end()) {
        return;
    }
    group &one = *found->second;
    site_record &site = sites_[one.site];
    if (one.run != run) {
        one.other_reloads++;
        site.other_reloads++;
        return;
    }
    one.own_reloads++;
    site.own_reloads++;
    site.in_loops |= one.own_reloads > one.site.reloads;
}

void groups::end_one(std::uint64_t handle, const char *why) {
    std::vector<std::shared_ptr<group>> ended;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = live_.find(handle); found != live_.end()) {
        end(found, why, ended);
    }
}

std::uint64_t groups::release_all(const char *why) {
    std::vector<std::shared_ptr<group>> ended;
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto at = live_.begin(); at != live_.end();) {
        const auto here = at++;
        if (!here->second->stays) {
            end(here, why, ended);
        }
    }
    return ended.size();
}

void groups::forget_all(const char *why) {
    std::vector<std::shared_ptr<group>> ended;
    const std::lock_guard<std::mutex> lock(mutex_);
    while (!live_.empty()) {
        end(live_.begin(), why, ended);
    }
    sites_.clear();
}

void groups::set_cap(std::uint64_t size_bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    cap_bytes_ = size_bytes;
}

std::uint64_t groups::live_count() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return live_.size();
}

std::uint64_t groups::live_bytes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return live_bytes_;
}

}  // namespace ebb_jax
