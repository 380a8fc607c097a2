// The baseline of hot_path: what one writes first, in good faith, for the same operations and the same calls to the
// device as Ebb makes. A mutex around every call, activations, claims, names and the record's keys in unordered_maps,
// best fit on std::map for host blocks and staging slots, a std::function as deleter, events from a pool.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/device.hpp"
#include "event_pool.hpp"
#include "map_allocator.hpp"

namespace ebb::bench {

// Misuse (an unknown id, a stream that is none) throws and has done nothing. So does a lack of memory. A call that the
// device refuses throws, too; the offloader is of no use after that.
class plain_offloader {
public:
    struct statistics {
        uint64_t offload_calls = 0, handed_back = 0;
        uint64_t reloads_prefetched = 0, reloads_on_demand = 0, prefetches_dropped = 0;
        uint64_t d2h_bytes = 0, h2d_bytes = 0, given_up_bytes = 0;
        uint64_t device_peak_bytes = 0, source_peak_bytes = 0;
        uint64_t staging_used_bytes = 0, staging_peak_bytes = 0;
        uint64_t pinned_used_bytes = 0, pinned_peak_bytes = 0;
        uint64_t order_mismatches = 0;
        uint64_t live_activations = 0, live_claims = 0;
    };
    struct name_statistics {
        uint64_t calls = 0, handed_back = 0, prefetched = 0, on_demand = 0;
        uint64_t saved_bytes = 0, offloaded_bytes = 0, reloaded_bytes = 0, given_up_bytes = 0;
    };
    struct reloaded {
        uint64_t claim;
        std::byte *data;
    };

    // The budget is for staging, sources that are not given up, and those that were handed back.
    plain_offloader(device &dev, uint64_t host_bytes, uint64_t staging_bytes, uint64_t device_budget_bytes)
        : device_(dev),
          events_(dev),
          host_bytes_(host_bytes),
          staging_bytes_(staging_bytes),
          device_budget_bytes_(device_budget_bytes) {
        d2h_.stream = value_of(dev.create_stream(stream_role::d2h));
        h2d_.stream = value_of(dev.create_stream(stream_role::h2d));
        host_memory_ = static_cast<std::byte *>(value_of(dev.map_host(host_bytes)));
        staging_memory_ = static_cast<std::byte *>(value_of(dev.alloc_device(staging_bytes)));
        host_.free(host_memory_, host_bytes, {});
        slots_.free(staging_memory_, staging_bytes, {});
    }
    // Every activation was released before, and every claim returned.
    ~plain_offloader() {
        for (const lane *l : {&d2h_, &h2d_}) {
            static_cast<void>(device_.synchronize_event(record(l->stream).event()));
            static_cast<void>(device_.destroy_stream(l->stream));
        }
        static_cast<void>(device_.free_device(staging_memory_, staging_bytes_));
        static_cast<void>(device_.unmap_host(host_memory_, host_bytes_));
    }
    plain_offloader(const plain_offloader &) = delete;
    plain_offloader &operator=(const plain_offloader &) = delete;

    // The first step is recorded, later ones are expected to be like it.
    void begin_step() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!unclaimed_.empty()) {
            drop_last_prefetch();
        }
        ++step_;
        recording_ = events_of_step_.empty();
        position_ = 0;
        window_ = 0;
        settle(lock);
    }

    uint64_t offload(const std::string &name, uint64_t micro_batch, uint64_t stage, std::byte *data,
                     uint64_t size_bytes, std::span<const stream_id> producers, stream_id home,
                     std::function<void()> deleter) {
        std::unique_lock<std::mutex> lock(mutex_);
        if (size_bytes == 0 || producers.empty()) {
            throw std::invalid_argument("'" + name + "': bytes and a producer are needed");
        }
        for (const stream_id producer : producers) {
            check(device_.check_stream(producer));
        }
        check(device_.check_stream(home));
        std::byte *block = host_.allocate(rounded(size_bytes), [this](const point &p) { wait(d2h_, p); });
        if (block == nullptr) {
            throw std::runtime_error("'" + name + "': " + std::to_string(size_bytes) +
                                     " bytes of host memory wanted, " + std::to_string(statistics_.pinned_used_bytes) +
                                     " of " + std::to_string(host_bytes_) + " held");
        }
        const uint64_t id = ++last_id_;
        activation &a = live_[id];
        a.id = id;
        a.name = &names_[name];
        a.data = data;
        a.size_bytes = size_bytes;
        a.home = home;
        a.deleter = std::move(deleter);
        a.block = block;
        a.produced.reserve(producers.size());
        for (const stream_id producer : producers) {
            a.produced.push_back(record(producer));
            wait(d2h_, a.produced.back());
        }
        check(device_.copy(d2h_.stream, copy_direction::d2h, block, data, size_bytes));
        a.copied_out = record(d2h_.stream);
        pending_.push_back(&a);
        pending_bytes_ += size_bytes;
        largest_bytes_ = std::max(largest_bytes_, size_bytes);
        count_offload(a);
        match_produce(a, {a.name, micro_batch, stage});
        settle(lock);
        return id;
    }

    reloaded reload(uint64_t id, stream_id consumer) {
        std::unique_lock<std::mutex> lock(mutex_);
        activation &a = find(id);
        check(device_.check_stream(consumer));
        std::byte *data = a.data;
        if (a.source == source_state::given_up) {
            claim_slot(a);
            wait(consumer, a.copied_in);
            data = a.slot + offset_of(a);
        } else {
            if (a.source == source_state::pending) {
                hand_back(a);
            }
            for (const point &p : a.produced) {
                wait(consumer, p);
            }
        }
        const uint64_t claim_id = ++last_claim_;
        claims_[claim_id].of = &a;
        ++a.claims;
        match_use(a);
        settle(lock);
        return {claim_id, data};
    }

    // A further stream that reads what the claim gave.
    void use(uint64_t claim_id, stream_id stream) {
        const std::lock_guard<std::mutex> lock(mutex_);
        claim &c = claims_.at(claim_id);
        check(device_.check_stream(stream));
        if (std::find(c.further.begin(), c.further.end(), stream) != c.further.end()) {
            return;
        }
        wait(stream, c.of->copied_in);
        for (const point &p : c.of->produced) {
            wait(stream, p);
        }
        c.further.push_back(stream);
    }

    void give_back(uint64_t claim_id, stream_id last) {
        std::unique_lock<std::mutex> lock(mutex_);
        const auto at = claims_.find(claim_id);
        if (at == claims_.end()) {
            throw std::out_of_range("no such claim");
        }
        check(device_.check_stream(last));
        activation &a = *at->second.of;
        add_latest(a.readers, record(last));
        for (const stream_id further : at->second.further) {
            add_latest(a.readers, record(further));
        }
        claims_.erase(at);
        if (--a.claims == 0) {
            if (a.released) {
                end(a);
            } else if (a.slot != nullptr) {
                if (used_again_soon(a)) {
                    unclaimed_.push_front(&a);
                } else {
                    free_slot(a);
                }
            }
        }
        settle(lock);
    }

    // With claims still out it ends with the last of them.
    void release(uint64_t id) {
        std::unique_lock<std::mutex> lock(mutex_);
        activation &a = find(id);
        a.released = true;
        if (a.entry != k_none && entries_[a.entry].bound == &a) {
            entries_[a.entry].bound = nullptr;
        }
        if (a.claims == 0) {
            if (a.slot != nullptr) {
                remove_unclaimed(a);
            }
            end(a);
        }
        settle(lock);
    }

    [[nodiscard]] statistics stats() const {
        const std::lock_guard<std::mutex> lock(mutex_);
        statistics s = statistics_;
        s.live_activations = live_.size();
        s.live_claims = claims_.size();
        return s;
    }
    [[nodiscard]] name_statistics stats_of(const std::string &name) const {
        const std::lock_guard<std::mutex> lock(mutex_);
        return names_.at(name);
    }

private:
    static constexpr uint32_t k_none = ~uint32_t{0};
    static constexpr uint64_t k_alignment = 512;

    // Where the source is: not given up yet, given to the caller again until release, or only in the block.
    enum class source_state : uint8_t { pending, handed_back, given_up };

    struct activation {
        uint64_t id = 0;
        name_statistics *name = nullptr;
        std::byte *data = nullptr;
        uint64_t size_bytes = 0;
        stream_id home{};
        std::function<void()> deleter;
        source_state source = source_state::pending;
        bool released = false;
        uint32_t claims = 0;
        std::byte *block = nullptr;
        std::byte *slot = nullptr;
        std::vector<point> produced;  // until the source is given up
        std::vector<point> readers;   // last uses of the slot, or of the source
        point copied_out, copied_in;
        uint64_t step = 0;  // in which it was produced
        uint32_t entry = k_none;
        uint32_t next_use = k_none;  // event
    };
    struct claim {
        activation *of = nullptr;
        std::vector<stream_id> further;
    };
    struct lane {
        stream_id stream{};
        std::unordered_map<stream_id, uint64_t> waited;  // the latest point of each stream that it is behind
    };

    // The record: the produce and use events of the first step, in order.
    struct event {
        bool use = false;
        uint32_t entry = 0;
        uint32_t next_use = k_none;  // of the same entry
    };
    struct entry {
        uint64_t size_bytes = 0;
        uint32_t produced_at = 0;
        uint32_t first_use = k_none, last_use = k_none;
        uint32_t next_occurrence = k_none;  // of the same key
        bool handed_back = false;           // when it was used last
        activation *bound = nullptr;        // the last that was matched to it
    };
    struct call_key {
        const name_statistics *name;
        uint64_t micro_batch, stage;
        bool operator==(const call_key &) const = default;
    };
    struct call_key_hash {
        size_t operator()(const call_key &k) const {
            return (std::hash<const void *>()(k.name) * 31 + k.micro_batch) * 31 + k.stage;
        }
    };
    struct series {  // the entries of one key
        uint32_t first = k_none, last = k_none;
        uint32_t next = k_none;  // expected in step `step`; in a later one it is the first again
        uint64_t step = 0;
    };

    // ------------------------------------------------------------------------------------- device and streams --

    template <class T>
    static T value_of(result<T> made) {
        check(made.why());
        return std::move(made).value();
    }
    point record(stream_id stream) {
        point p(events_, stream, events_.take(), ++last_point_);
        check(device_.record_event(p.event(), stream));
        return p;
    }
    void wait(stream_id stream, const point &p) {
        if (!p.empty() && p.stream() != stream) {
            check(device_.wait_event(stream, p.event()));
        }
    }
    // A lane does not wait again for what it is behind already.
    void wait(lane &l, const point &p) {
        if (p.empty() || p.stream() == l.stream) {
            return;
        }
        uint64_t &waited = l.waited[p.stream()];
        if (waited < p.number()) {
            check(device_.wait_event(l.stream, p.event()));
            waited = p.number();
        }
    }

    // ------------------------------------------------------------------------------------------------ sources --

    [[nodiscard]] uint64_t held_bytes() const { return pending_bytes_ + handed_back_bytes_ + staging_bytes_; }

    [[nodiscard]] uint64_t next_produced_bytes() const {
        if (!following()) {
            return largest_bytes_;
        }
        if (position_ == events_of_step_.size() || events_of_step_[position_].use) {
            return 0;
        }
        return entries_[events_of_step_[position_].entry].size_bytes;
    }
    void make_room() {
        const uint64_t next_bytes = next_produced_bytes();
        while (!pending_.empty() && held_bytes() + next_bytes > device_budget_bytes_) {
            activation &a = *pending_.front();
            pending_.pop_front();
            give_up(a);
        }
        statistics_.device_peak_bytes = std::max(statistics_.device_peak_bytes, held_bytes());
        statistics_.source_peak_bytes = std::max(statistics_.source_peak_bytes, pending_bytes_);
    }
    void give_up(activation &a) {
        pending_bytes_ -= a.size_bytes;
        statistics_.given_up_bytes += a.size_bytes;
        a.name->given_up_bytes += a.size_bytes;
        free_source(a);
    }
    // Backward asks for it before it was given up.
    void hand_back(activation &a) {
        remove_pending(a);
        pending_bytes_ -= a.size_bytes;
        handed_back_bytes_ += a.size_bytes;
        a.source = source_state::handed_back;
        ++statistics_.handed_back;
        ++a.name->handed_back;
    }
    // What the home stream runs next may write over the source.
    void free_source(activation &a) {
        wait(a.home, a.copied_out);
        for (const point &p : a.readers) {
            wait(a.home, p);
        }
        a.readers.clear();
        a.produced = std::vector<point>();  // its memory, too: it may be long until the release
        a.source = source_state::given_up;
        if (a.deleter) {
            due_.push_back(std::move(a.deleter));
        }
    }
    // Backward begins with the youngest.
    void remove_pending(const activation &a) {
        pending_.erase(std::prev(std::find(pending_.rbegin(), pending_.rend(), &a).base()));
    }

    // -------------------------------------------------------------------------------------------------- slots --

    // A slot keeps the source's address modulo the alignment.
    static uint64_t rounded(uint64_t size_bytes) { return (size_bytes + k_alignment - 1) / k_alignment * k_alignment; }
    static uint64_t offset_of(const activation &a) { return reinterpret_cast<uintptr_t>(a.data) % k_alignment; }
    static uint64_t footprint(const activation &a) { return rounded(offset_of(a) + a.size_bytes); }

    bool take_slot(activation &a) {
        a.slot = slots_.allocate(footprint(a), [this](const point &p) { wait(h2d_, p); });
        if (a.slot == nullptr) {
            return false;
        }
        statistics_.staging_used_bytes += footprint(a);
        statistics_.staging_peak_bytes = std::max(statistics_.staging_peak_bytes, statistics_.staging_used_bytes);
        return true;
    }
    void copy_in(activation &a) {
        wait(h2d_, a.copied_out);
        check(device_.copy(h2d_.stream, copy_direction::h2d, a.slot + offset_of(a), a.block, a.size_bytes));
        a.copied_in = record(h2d_.stream);
        statistics_.h2d_bytes += a.size_bytes;
        a.name->reloaded_bytes += a.size_bytes;
    }
    // The next copy into it is on the same lane as the last one, so only the readers are waited for.
    void free_slot(activation &a) {
        statistics_.staging_used_bytes -= footprint(a);
        slots_.free(a.slot, footprint(a), std::exchange(a.readers, {}));
        a.slot = nullptr;
    }
    void claim_slot(activation &a) {
        if (a.slot != nullptr) {
            if (a.claims == 0) {
                remove_unclaimed(a);
            }
            ++statistics_.reloads_prefetched;
            ++a.name->prefetched;
            return;
        }
        while (!take_slot(a)) {
            if (unclaimed_.empty()) {
                throw std::runtime_error(std::to_string(footprint(a)) + " bytes of staging wanted, " +
                                         std::to_string(statistics_.staging_used_bytes) + " of " +
                                         std::to_string(staging_bytes_) + " held by claims");
            }
            drop_last_prefetch();
        }
        copy_in(a);
        ++statistics_.reloads_on_demand;
        ++a.name->on_demand;
    }
    void remove_unclaimed(const activation &a) {
        unclaimed_.erase(std::find(unclaimed_.begin(), unclaimed_.end(), &a));
    }
    // The one that is needed last; the window will come to it again.
    void drop_last_prefetch() {
        activation &a = *unclaimed_.back();
        unclaimed_.pop_back();
        window_ = std::min(window_, a.next_use);
        free_slot(a);
        ++statistics_.prefetches_dropped;
    }

    // Nothing uses it any more.
    void end(activation &a) {
        if (a.source == source_state::pending) {
            remove_pending(a);
            give_up(a);
        } else if (a.source == source_state::handed_back) {
            handed_back_bytes_ -= a.size_bytes;
            free_source(a);
        } else if (a.slot != nullptr) {
            free_slot(a);
        }
        // The next copy into the block is on the same lane as the one that filled it.
        std::vector<point> behind;
        if (!a.copied_in.empty()) {
            behind.push_back(std::move(a.copied_in));
        }
        statistics_.pinned_used_bytes -= rounded(a.size_bytes);
        host_.free(a.block, rounded(a.size_bytes), std::move(behind));
        live_.erase(live_.find(a.id));
    }

    // ------------------------------------------------------------------------------------- record and prefetch --

    [[nodiscard]] bool following() const { return step_ != 0 && !recording_; }

    void match_produce(activation &a, const call_key &key) {
        if (step_ == 0) {
            return;
        }
        a.step = step_;
        if (recording_) {
            a.entry = static_cast<uint32_t>(entries_.size());
            series &s = series_[key];
            (s.last == k_none ? s.first : entries_[s.last].next_occurrence) = a.entry;
            s.last = a.entry;
            entry e;
            e.size_bytes = a.size_bytes;
            e.produced_at = static_cast<uint32_t>(events_of_step_.size());
            entries_.push_back(e);
            events_of_step_.push_back({false, a.entry, k_none});
            return;
        }
        const auto found = series_.find(key);
        if (found == series_.end()) {
            ++statistics_.order_mismatches;
            return;
        }
        series &s = found->second;
        if (s.step != step_) {
            s.step = step_;
            s.next = s.first;
        }
        if (s.next == k_none) {
            ++statistics_.order_mismatches;
            return;
        }
        a.entry = s.next;
        entry &e = entries_[a.entry];
        s.next = e.next_occurrence;
        e.size_bytes = std::max(e.size_bytes, a.size_bytes);
        e.bound = &a;
        a.next_use = e.first_use;
        follow(e.produced_at);
    }

    void match_use(activation &a) {
        if (a.step != step_ || a.entry == k_none) {
            return;
        }
        entry &e = entries_[a.entry];
        e.handed_back = a.source == source_state::handed_back;
        if (recording_) {
            const auto at = static_cast<uint32_t>(events_of_step_.size());
            (e.last_use == k_none ? e.first_use : events_of_step_[e.last_use].next_use) = at;
            e.last_use = at;
            events_of_step_.push_back({true, a.entry, k_none});
            return;
        }
        if (a.next_use == k_none) {
            ++statistics_.order_mismatches;
            return;
        }
        const uint32_t used = a.next_use;
        a.next_use = events_of_step_[used].next_use;
        follow(used);
    }

    // What lies between is missing from this step: what was prefetched for it makes room.
    void follow(uint32_t at) {
        if (at < position_) {
            ++statistics_.order_mismatches;
            return;
        }
        for (; position_ < at; ++position_) {
            const event &skipped = events_of_step_[position_];
            activation *a = skipped.use ? bound_in_step(entries_[skipped.entry]) : nullptr;
            if (a != nullptr && a->next_use == position_ && a->slot != nullptr && a->claims == 0) {
                remove_unclaimed(*a);
                free_slot(*a);
                ++statistics_.prefetches_dropped;
            }
        }
        position_ = at + 1;
    }

    // Null: not produced in this step, or ended.
    [[nodiscard]] activation *bound_in_step(const entry &e) const {
        return e.bound != nullptr && e.bound->step == step_ ? e.bound : nullptr;
    }
    // The window has passed that use, counting on these bytes.
    [[nodiscard]] bool used_again_soon(const activation &a) const {
        return a.step == step_ && a.next_use >= position_ && a.next_use < window_;
    }

    // Prefetches never overtake: the window stops at the first use that cannot be served yet.
    void pump() {
        if (!following()) {
            return;
        }
        window_ = std::max(window_, position_);
        while (window_ < events_of_step_.size() && pass(window_)) {
            ++window_;
        }
    }
    bool pass(uint32_t at) {
        const event &next = events_of_step_[at];
        if (!next.use) {
            return true;
        }
        const entry &e = entries_[next.entry];
        activation *a = bound_in_step(e);
        if (a == nullptr) {
            return e.produced_at < position_;  // missing or ended; else not produced yet
        }
        if (a->source == source_state::pending) {
            return e.handed_back;  // as it was in the step before
        }
        if (a->source == source_state::handed_back || a->slot != nullptr || a->next_use > at) {
            return true;
        }
        if (!take_slot(*a)) {
            return false;
        }
        copy_in(*a);
        unclaimed_.push_back(a);
        return true;
    }

    // ------------------------------------------------------------------------------------------- small things --

    activation &find(uint64_t id) {
        const auto at = live_.find(id);
        if (at == live_.end() || at->second.released) {
            throw std::out_of_range("no such activation");
        }
        return at->second;
    }

    void count_offload(const activation &a) {
        ++statistics_.offload_calls;
        statistics_.d2h_bytes += a.size_bytes;
        statistics_.pinned_used_bytes += rounded(a.size_bytes);
        statistics_.pinned_peak_bytes = std::max(statistics_.pinned_peak_bytes, statistics_.pinned_used_bytes);
        ++a.name->calls;
        a.name->saved_bytes += a.size_bytes;
        a.name->offloaded_bytes += a.size_bytes;
    }

    // The end of every call. Deleters run without the lock: they may call in again.
    void settle(std::unique_lock<std::mutex> &lock) {
        make_room();
        pump();
        if (due_.empty()) {
            return;
        }
        std::vector<std::function<void()>> due;
        due.swap(due_);
        lock.unlock();
        for (const std::function<void()> &deleter : due) {
            deleter();
        }
    }

    device &device_;
    mutable std::mutex mutex_;
    event_pool events_;
    lane d2h_, h2d_;
    uint64_t host_bytes_, staging_bytes_, device_budget_bytes_;
    std::byte *host_memory_ = nullptr, *staging_memory_ = nullptr;
    map_allocator host_, slots_;

    std::unordered_map<uint64_t, activation> live_;
    std::unordered_map<uint64_t, claim> claims_;
    std::unordered_map<std::string, name_statistics> names_;
    std::deque<activation *> pending_;    // sources not given up, oldest first
    std::deque<activation *> unclaimed_;  // prefetched and not claimed, first needed first
    std::vector<std::function<void()>> due_;
    uint64_t pending_bytes_ = 0, handed_back_bytes_ = 0, largest_bytes_ = 0;
    uint64_t last_id_ = 0, last_claim_ = 0, last_point_ = 0;
    statistics statistics_;

    std::vector<event> events_of_step_;
    std::vector<entry> entries_;
    std::unordered_map<call_key, series, call_key_hash> series_;
    uint64_t step_ = 0;
    bool recording_ = false;
    uint32_t position_ = 0;  // the next event expected
    uint32_t window_ = 0;    // the next event that prefetching looks at
};

}  // namespace ebb::bench
