// The baseline of hot_path: what one writes first, in good faith. The same operations and the same calls to the
// device as Ebb makes for them: a mutex around every call, activations in an unordered_map, best-fit allocators on
// std::map for host blocks and staging slots, a std::function as deleter, events from a pool.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/device.hpp"

namespace ebb::bench {

// Best fit with merging neighbours; a free block carries the event of its last use.
class map_allocator {
public:
    void add(std::byte *data, uint64_t size_bytes) { insert(data, size_bytes, {}); }

    struct block {
        std::byte *data;
        uint64_t size_bytes;
        std::vector<event_id> behind;
    };

    bool allocate(uint64_t size_bytes, block &out) {
        const auto fit = by_size_.lower_bound(size_bytes);
        if (fit == by_size_.end()) {
            return false;
        }
        std::byte *data = fit->second;
        const auto at = by_address_.find(data);
        out = {data, size_bytes, at->second.behind};
        const uint64_t rest = at->second.size_bytes - size_bytes;
        std::vector<event_id> behind = std::move(at->second.behind);
        by_size_.erase(fit);
        by_address_.erase(at);
        if (rest != 0) {
            insert(data + size_bytes, rest, std::move(behind));
        }
        return true;
    }

    void free(std::byte *data, uint64_t size_bytes, event_id last) {
        std::vector<event_id> behind{last};
        auto next = by_address_.lower_bound(data);
        if (next != by_address_.end() && data + size_bytes == next->first) {
            size_bytes += next->second.size_bytes;
            merge(behind, next->second.behind);
            erase_size(next->first, next->second.size_bytes);
            next = by_address_.erase(next);
        }
        if (next != by_address_.begin()) {
            const auto previous = std::prev(next);
            if (previous->first + previous->second.size_bytes == data) {
                data = previous->first;
                size_bytes += previous->second.size_bytes;
                merge(behind, previous->second.behind);
                erase_size(previous->first, previous->second.size_bytes);
                by_address_.erase(previous);
            }
        }
        insert(data, size_bytes, std::move(behind));
    }

private:
    struct range {
        uint64_t size_bytes;
        std::vector<event_id> behind;
    };
    static constexpr size_t k_remembered = 4;  // older events of a merged range are long over

    static void merge(std::vector<event_id> &into, const std::vector<event_id> &from) {
        for (const event_id e : from) {
            if (into.size() < k_remembered) {
                into.push_back(e);
            }
        }
    }
    void insert(std::byte *data, uint64_t size_bytes, std::vector<event_id> behind) {
        by_size_.emplace(size_bytes, data);
        by_address_.emplace(data, range{size_bytes, std::move(behind)});
    }
    void erase_size(std::byte *data, uint64_t size_bytes) {
        for (auto [at, end] = by_size_.equal_range(size_bytes); at != end; ++at) {
            if (at->second == data) {
                by_size_.erase(at);
                return;
            }
        }
    }

    std::multimap<uint64_t, std::byte *> by_size_;
    std::map<std::byte *, range> by_address_;
};

class plain_offloader {
public:
    plain_offloader(device &dev, uint64_t host_bytes, uint64_t staging_bytes, uint64_t pending_cap_bytes)
        : device_(dev), pending_cap_bytes_(pending_cap_bytes) {
        d2h_ = dev.create_stream(stream_role::d2h).value();
        h2d_ = dev.create_stream(stream_role::h2d).value();
        host_.add(static_cast<std::byte *>(dev.map_host(host_bytes).value()), host_bytes);
        slots_.add(static_cast<std::byte *>(dev.alloc_device(staging_bytes).value()), staging_bytes);
    }

    uint64_t offload(const std::string &name, uint64_t micro_batch, std::byte *data, uint64_t size_bytes,
                     stream_id producer, std::function<void()> deleter) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const uint64_t id = ++last_id_;
        info &a = live_[id];
        a.name = name;
        a.micro_batch = micro_batch;
        a.size_bytes = size_bytes;
        a.deleter = std::move(deleter);
        a.home = producer;
        map_allocator::block block;
        if (!host_.allocate(size_bytes, block)) {
            throw std::runtime_error("host memory is too small for the baseline");
        }
        a.block = block.data;
        const event_id produced = record(producer);
        check(device_.wait_event(d2h_, produced));
        recycle(produced);
        for (const event_id e : block.behind) {
            check(device_.wait_event(d2h_, e));
        }
        check(device_.copy(d2h_, copy_direction::d2h, a.block, data, size_bytes));
        a.copied_out = record(d2h_);
        pending_.push_back(id);
        pending_bytes_ += size_bytes;
        while (pending_bytes_ > pending_cap_bytes_) {
            give_up_oldest();
        }
        return id;
    }

    std::byte *reload(uint64_t id, stream_id consumer) {
        const std::lock_guard<std::mutex> lock(mutex_);
        info &a = live_.at(id);
        while (!a.given_up) {
            give_up_oldest();
        }
        map_allocator::block slot;
        if (!slots_.allocate(a.size_bytes, slot)) {
            throw std::runtime_error("staging is too small for the baseline");
        }
        a.slot = slot.data;
        check(device_.wait_event(h2d_, a.copied_out));
        for (const event_id e : slot.behind) {
            check(device_.wait_event(h2d_, e));
        }
        check(device_.copy(h2d_, copy_direction::h2d, a.slot, a.block, a.size_bytes));
        a.copied_in = record(h2d_);
        check(device_.wait_event(consumer, a.copied_in));
        return a.slot;
    }

    void give_back(uint64_t id, stream_id last) {
        const std::lock_guard<std::mutex> lock(mutex_);
        info &a = live_.at(id);
        const event_id used = record(last);
        slots_.free(a.slot, a.size_bytes, used);
        recycle(used);
    }

    void release(uint64_t id) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto at = live_.find(id);
        host_.free(at->second.block, at->second.size_bytes, at->second.copied_in);
        recycle(at->second.copied_out);
        recycle(at->second.copied_in);
        live_.erase(at);
    }

private:
    struct info {
        std::string name;
        uint64_t micro_batch = 0;
        uint64_t size_bytes = 0;
        std::function<void()> deleter;
        stream_id home{};
        std::byte *block = nullptr;
        std::byte *slot = nullptr;
        event_id copied_out{}, copied_in{};
        bool given_up = false;
    };

    static void check(const status &s) {
        if (!s.ok()) {
            throw std::runtime_error(s.text());
        }
    }
    event_id record(stream_id stream) {
        if (events_.empty()) {
            events_.push_back(device_.create_event(event_kind::plain).value());
        }
        const event_id e = events_.back();
        events_.pop_back();
        check(device_.record_event(e, stream));
        return e;
    }
    void recycle(event_id e) { events_.push_back(e); }
    void give_up_oldest() {
        info &a = live_.at(pending_.front());
        pending_.pop_front();
        check(device_.wait_event(a.home, a.copied_out));
        a.deleter();
        a.given_up = true;
        pending_bytes_ -= a.size_bytes;
    }

    device &device_;
    std::mutex mutex_;
    stream_id d2h_{}, h2d_{};
    map_allocator host_, slots_;
    std::unordered_map<uint64_t, info> live_;
    std::deque<uint64_t> pending_;
    uint64_t pending_bytes_ = 0;
    uint64_t pending_cap_bytes_;
    uint64_t last_id_ = 0;
    std::vector<event_id> events_;
};

}  // namespace ebb::bench
