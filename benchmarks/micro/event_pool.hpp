// Events for the baseline of hot_path. A point owns its event and gives it back to the pool when nobody has to wait
// for it any more; waits that were enqueued before stay as they are.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "device/device.hpp"

namespace ebb::bench {

inline void check(const status &s) {
    if (!s.ok()) {
        throw std::runtime_error(s.text());
    }
}

class event_pool {
public:
    explicit event_pool(device &dev) : device_(dev) {}
    ~event_pool() {
        for (const event_id e : unused_) {
            static_cast<void>(device_.destroy_event(e));
        }
    }
    event_pool(const event_pool &) = delete;
    event_pool &operator=(const event_pool &) = delete;

    event_id take() {
        if (unused_.empty()) {
            result<event_id> made = device_.create_event(event_kind::plain);
            check(made.why());
            return made.value();
        }
        const event_id e = unused_.back();
        unused_.pop_back();
        return e;
    }
    void put(event_id e) { unused_.push_back(e); }

private:
    device &device_;
    std::vector<event_id> unused_;
};

// Everything enqueued on a stream up to the moment it was recorded. Of two points of one stream the one with the
// larger number covers the other.
class point {
public:
    point() = default;
    point(event_pool &pool, stream_id stream, event_id event, uint64_t number)
        : pool_(&pool), stream_(stream), event_(event), number_(number) {}
    ~point() {
        if (pool_ != nullptr) {
            pool_->put(event_);
        }
    }
    point(point &&other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)),
          stream_(other.stream_),
          event_(other.event_),
          number_(other.number_) {}
    point &operator=(point &&other) noexcept {
        std::swap(pool_, other.pool_);
        std::swap(stream_, other.stream_);
        std::swap(event_, other.event_);
        std::swap(number_, other.number_);
        return *this;
    }
    point(const point &) = delete;
    point &operator=(const point &) = delete;

    [[nodiscard]] bool empty() const { return pool_ == nullptr; }
    [[nodiscard]] stream_id stream() const { return stream_; }
    [[nodiscard]] event_id event() const { return event_; }
    [[nodiscard]] uint64_t number() const { return number_; }

private:
    event_pool *pool_ = nullptr;
    stream_id stream_{};
    event_id event_{};
    uint64_t number_ = 0;
};

// Adds to a list that has one point of each stream, the latest.
inline void add_latest(std::vector<point> &points, point p) {
    for (point &other : points) {
        if (other.stream() == p.stream()) {
            if (other.number() < p.number()) {
                other = std::move(p);
            }
            return;
        }
    }
    points.push_back(std::move(p));
}

}  // namespace ebb::bench
