// Best fit on std::map, for the baseline of hot_path. Free neighbours are merged. A free range owns the points that
// its next user must be behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "event_pool.hpp"

namespace ebb::bench {

class map_allocator {
public:
    // Null when nothing fits. Otherwise wait(p) was called for each point p that the memory must be used behind.
    template <class Wait>
    std::byte *allocate(uint64_t size_bytes, Wait &&wait) {
        const auto fit = by_size_.lower_bound(size_bytes);
        if (fit == by_size_.end()) {
            return nullptr;
        }
        const auto at = by_address_.find(fit->second);
        range &r = at->second;
        for (const point &p : r.behind) {
            wait(p);
        }
        by_size_.erase(fit);
        r.size_bytes -= size_bytes;
        std::byte *data = at->first + r.size_bytes;  // cut from the end: the rest keeps its address
        if (r.size_bytes == 0) {
            by_address_.erase(at);
        } else {
            r.in_by_size = by_size_.emplace(r.size_bytes, at->first);
        }
        return data;
    }

    // Also for memory that is new.
    void free(std::byte *data, uint64_t size_bytes, std::vector<point> behind) {
        const auto next = by_address_.lower_bound(data);
        auto at = next;
        if (next != by_address_.begin() && end_of(std::prev(next)) == data) {
            at = std::prev(next);
            absorb(at->second, size_bytes, std::move(behind));
            by_size_.erase(at->second.in_by_size);
        } else {
            at = by_address_.emplace_hint(next, data, range{size_bytes, std::move(behind), {}});
        }
        if (next != by_address_.end() && end_of(at) == next->first) {
            absorb(at->second, next->second.size_bytes, std::move(next->second.behind));
            by_size_.erase(next->second.in_by_size);
            by_address_.erase(next);
        }
        at->second.in_by_size = by_size_.emplace(at->second.size_bytes, at->first);
    }

private:
    struct range {
        uint64_t size_bytes;
        std::vector<point> behind;
        std::multimap<uint64_t, std::byte *>::iterator in_by_size;
    };

    static std::byte *end_of(std::map<std::byte *, range>::iterator r) { return r->first + r->second.size_bytes; }
    static void absorb(range &into, uint64_t size_bytes, std::vector<point> behind) {
        into.size_bytes += size_bytes;
        for (point &p : behind) {
            add_latest(into.behind, std::move(p));
        }
    }

    std::multimap<uint64_t, std::byte *> by_size_;
    std::map<std::byte *, range> by_address_;
};

}  // namespace ebb::bench
