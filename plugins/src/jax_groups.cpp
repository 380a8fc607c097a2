#include "jax_groups.hpp"

#include <algorithm>
#include <new>

namespace ebb_jax {
namespace {

// A device takes so many runs before the first is over (PJRT's limit of computations in flight).
constexpr std::uint64_t k_runs_in_flight = 32;
// The same for groups that were reloaded, but nobody knows whether for the last time: they had come to their backward.
constexpr std::uint64_t k_runs_behind = 2;
constexpr std::size_t k_remembered_ends = 4096;
constexpr const char *k_called_again =
    "the call that offloaded it was made again in its run, after as many reloads as the program has: a loop has more. "
    "From the next run on that is known";

// A handle: above the index of its group, how often that was used. At a million a second that comes round after days,
// for a single group.
constexpr unsigned k_index_bits = 24;
constexpr std::uint64_t k_most_groups = std::uint64_t{1} << k_index_bits;
constexpr std::uint64_t index_of(std::uint64_t handle) {
    return handle & (k_most_groups - 1);
}

// Where no other run of its site can need it.
bool is_over(const call_attributes &of, const site_record &site, std::uint64_t own_reloads, std::uint64_t run_number) {
    if (own_reloads > 0 && own_reloads == of.reloads && !site.in_loops) {
        return true;
    }
    const bool only_own = site.own_reloads > 0 && site.other_reloads == 0;
    return only_own && site.run_number >= run_number + (own_reloads > 0 ? k_runs_behind : k_runs_in_flight);
}

// What the newest run of a site holds is not left behind, at least not yet.
bool is_left(const group &one, const site_record &site) {
    return !one.of->stays && one.run != site.runs.newest();
}

}  // namespace

bool recent_runs::begins(std::int64_t run) {
    if (newest() == run && !seen_.empty()) {
        return false;  // as at almost all calls
    }
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

// Groups that nobody uses any more. Outlives the lock under which it is filled: ending activations calls Ebb.
class ended_groups {
public:
    explicit ended_groups(groups &owner) : owner_(owner) {}
    ended_groups(const ended_groups &) = delete;
    ended_groups &operator=(const ended_groups &) = delete;
    ~ended_groups() {
        if (first_ == nullptr) {
            return;
        }
        for (group *one = first_; one != nullptr; one = one->newer) {
            for (const part &each : one->parts) {
                ebb_release(one->home->runtime, each.activation);
            }
            one->parts.clear();
            one->size_bytes = 0;
            one->home.reset();
        }
        const std::lock_guard<std::mutex> lock(owner_.mutex_);
        last_->newer = owner_.unused_;
        owner_.unused_ = first_;
    }
    void add(group &one) {
        one.newer = nullptr;
        (first_ == nullptr ? first_ : last_->newer) = &one;
        last_ = &one;
    }

private:
    groups &owner_;
    group *first_ = nullptr, *last_ = nullptr;
};

groups::~groups() {
    close("its owner is gone");
}

void give_back::operator()(group *one) const noexcept {
    ended_groups ended(*owner);
    if (!one->is_whole) {
        owner->end_one(one->handle, "not all of it was offloaded");
    }
    owner->drop(*one, ended);
}

void groups::reserve_unused() {
    if (unused_ != nullptr) {
        return;
    }
    if (all_.size() == k_most_groups) {
        throw std::bad_alloc();
    }
    all_.push_back(std::make_unique<group>());
    unused_ = all_.back().get();
    unused_->handle = all_.size() - 1;
}

group *groups::living(std::uint64_t handle) const {
    const std::uint64_t index = index_of(handle);
    group *const one = index < all_.size() ? all_[index].get() : nullptr;
    return one != nullptr && one->lives && one->handle == handle ? one : nullptr;
}

void groups::drop(group &one, ended_groups &ended) {
    if (one.users.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        ended.add(one);
    }
}

void groups::end(group &one, const char *why, ended_groups &ended) {
    live_count_--;
    live_bytes_ -= one.size_bytes;
    one.home->live_groups--;
    one.lives = false;
    set_finished(one, false);
    (one.older == nullptr ? oldest_ : one.older->newer) = one.newer;
    (one.newer == nullptr ? newest_ : one.newer->older) = one.older;
    endings_[ended_count_++ % k_remembered_ends] = {one.handle, why, {one.of, one.ordinal}};
    drop(one, ended);
}

void groups::set_finished(group &one, bool is_finished) {
    if (one.is_finished == is_finished) {
        return;
    }
    one.is_finished = is_finished;
    group *&newest = one.by->finished;
    if (is_finished) {
        one.finished_newer = nullptr;
        one.finished_older = newest;
        (newest == nullptr ? newest : newest->finished_newer) = &one;
        newest = &one;
        return;
    }
    (one.finished_newer == nullptr ? newest : one.finished_newer->finished_older) = one.finished_older;
    if (one.finished_older != nullptr) {
        one.finished_older->finished_newer = one.finished_newer;
    }
}

void groups::sweep_finished(const offload_record &by, std::int64_t run, ended_groups &ended) {
    if (by.site->in_loops) {
        return;
    }
    for (group *at = by.finished; at != nullptr;) {
        group &one = *std::exchange(at, at->finished_older);
        if (one.run == run) {
            end(one, k_called_again, ended);
        }
    }
}

void groups::sweep(const place &home, std::int64_t run, ended_groups &ended) {
    for (group *at = oldest_; at != nullptr;) {
        group &one = *std::exchange(at, at->newer);
        if (one.home.get() != &home || one.run == run || one.of->stays) {
            continue;
        }
        if (is_over(*one.of, *one.by->site, one.own_reloads, one.run_number)) {
            end(one, "another run began after its last reload", ended);
        }
    }
}

void groups::sweep_to_cap(ended_groups &ended) {
    if (live_bytes_ <= cap_bytes_) {
        return;
    }
    std::uint64_t left_bytes = 0;
    for (const group *one = oldest_; one != nullptr; one = one->newer) {
        left_bytes += is_left(*one, *one->by->site) ? one->size_bytes : 0;
    }
    for (group *at = oldest_; at != nullptr && left_bytes > cap_bytes_;) {
        group &one = *std::exchange(at, at->newer);
        if (is_left(one, *one.by->site)) {
            left_bytes -= one.size_bytes;
            end(one, "newer ones that were not reloaded in their own run took its place (survivor_memory)", ended);
        }
    }
}

std::shared_ptr<place> groups::place_of(const place_key &key) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = places_.find(key);
    return found == places_.end() ? nullptr : found->second;
}

void groups::open_place(std::shared_ptr<place> opened) {
    const std::lock_guard<std::mutex> lock(mutex_);
    places_[opened->key] = std::move(opened);
}

std::vector<std::shared_ptr<place>> groups::places() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::shared_ptr<place>> found;
    for (const auto &[key, one] : places_) {
        found.push_back(one);
    }
    return found;
}

groups::begun groups::begin(const place_key &where, const call_attributes &of, std::int32_t ordinal, std::int64_t run,
                            std::uint64_t size_bytes) {
    ended_groups ended(*this);
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = places_.find(where);
    if (found == places_.end()) {
        return {};
    }
    place &home = *found->second;
    offload_record &by = home.offloads[{&of, ordinal}];
    if (by.site == nullptr) {
        by.site = &home.sites[{of.site, ordinal, of.reloads}];
    }
    site_record &site = *by.site;
    reserve_unused();
    endings_.resize(k_remembered_ends);
    bool first_of_step = false;
    if (site.runs.begins(run)) {
        site.run_number++;
        sweep_to_cap(ended);
    }
    if (home.runs.begins(run)) {
        sweep(home, run, ended);
        first_of_step = home.live_groups == 0;
    } else {
        sweep_finished(by, run, ended);
    }
    group &made = *std::exchange(unused_, unused_->newer);  // the newest that was freed: it is in the caches
    made.home = found->second;
    made.of = &of;
    made.ordinal = ordinal;
    made.run = run;
    made.by = &by;
    made.run_number = site.run_number;
    made.size_bytes = size_bytes;
    made.own_reloads = made.other_reloads = 0;
    made.users.store(2, std::memory_order_relaxed);
    made.is_whole = false;
    made.handle += k_most_groups;
    link_newest(made);
    return {used_group(&made, {this}), first_of_step};
}

void groups::link_newest(group &one) {
    one.lives = true;
    one.newer = nullptr;
    one.older = newest_;
    (newest_ == nullptr ? oldest_ : newest_->newer) = &one;
    newest_ = &one;
    live_count_++;
    live_bytes_ += one.size_bytes;
    one.home->live_groups++;
}

used_group groups::find(std::uint64_t handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    group *const one = living(handle);
    if (one != nullptr) {
        one->users.fetch_add(1, std::memory_order_relaxed);
    }
    return used_group(one, {this});
}

used_group groups::find_to_reload(std::uint64_t handle, std::int64_t run) {
    const std::lock_guard<std::mutex> lock(mutex_);
    group *const one = living(handle);
    if (one == nullptr) {
        learn_of_loop(handle);
        return used_group(nullptr, {this});
    }
    one->users.fetch_add(1, std::memory_order_relaxed);
    site_record &site = *one->by->site;
    if (one->run == run) {
        one->own_reloads++;
        site.own_reloads++;
        site.in_loops |= one->own_reloads > one->of->reloads;
        set_finished(*one, one->own_reloads == one->of->reloads);
    } else {
        one->other_reloads++;
        site.other_reloads++;
    }
    return used_group(one, {this});
}

void groups::not_reloaded(group &what, std::int64_t run) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool own = what.run == run;
    site_record &site = *what.by->site;
    (own ? what.own_reloads : what.other_reloads)--;
    (own ? site.own_reloads : site.other_reloads)--;
    set_finished(what, what.lives && what.own_reloads > 0 && what.own_reloads == what.of->reloads);
}

const groups::ending *groups::ending_of(std::uint64_t handle) const {
    const auto found =
        std::find_if(endings_.begin(), endings_.end(), [&](const ending &one) { return one.handle == handle; });
    return handle == 0 || found == endings_.end() ? nullptr : &*found;
}

// One more reload came than the traced program has: next time it finds what it asks for.
void groups::learn_of_loop(std::uint64_t handle) {
    const ending *const ended = ending_of(handle);
    if (ended == nullptr || ended->why != k_called_again) {
        return;
    }
    for (const auto &[key, one] : places_) {
        if (const auto found = one->offloads.find(ended->what); found != one->offloads.end()) {
            found->second.site->in_loops = true;
        }
    }
}

const char *groups::why_gone(std::uint64_t handle) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const ending *const ended = ending_of(handle); ended != nullptr) {
        return ended->why;
    }
    const std::uint64_t index = index_of(handle);
    const bool was = handle >= k_most_groups && index < all_.size() && handle <= all_[index]->handle;
    return was ? "it ended long ago" : "this process never offloaded it";
}

void groups::end_one(std::uint64_t handle, const char *why) {
    ended_groups ended(*this);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (group *const one = living(handle); one != nullptr) {
        end(*one, why, ended);
    }
}

std::uint64_t groups::release_all(const char *why) {
    ended_groups ended(*this);
    const std::lock_guard<std::mutex> lock(mutex_);
    std::uint64_t count = 0;
    for (group *at = oldest_; at != nullptr;) {
        group &one = *std::exchange(at, at->newer);
        if (!one.of->stays) {
            end(one, why, ended);
            count++;
        }
    }
    return count;
}

void groups::close(const char *why) {
    std::map<place_key, std::shared_ptr<place>> closed;  // outlives the lock, and what is ended the place
    ended_groups ended(*this);
    const std::lock_guard<std::mutex> lock(mutex_);
    while (oldest_ != nullptr) {
        end(*oldest_, why, ended);
    }
    closed.swap(places_);
}

void groups::set_cap(std::uint64_t size_bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    cap_bytes_ = size_bytes;
}

std::uint64_t groups::live_count() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return live_count_;
}

std::uint64_t groups::live_bytes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return live_bytes_;
}

}  // namespace ebb_jax
