#include "device/host/retired_pages.hpp"

#include <algorithm>

namespace ebb {

retired_pages::~retired_pages() {
    for (const entry &left : entries_) {
        unmap_pages(left.pages);
    }
}

void retired_pages::add(const host_pages &pages) {
    std::vector<stream_point> behind = streams_.points();
    const std::lock_guard lock(mutex_);
    entries_.push_back({pages, std::move(behind)});
    bytes_.fetch_add(pages.size_bytes, std::memory_order_relaxed);
}

void retired_pages::collect() {
    const std::lock_guard lock(mutex_);
    const auto passed = [](const stream_point &point) { return point.stream->reached(point.enqueued); };
    const auto is_over = [&](const entry &candidate) {
        return std::all_of(candidate.behind.begin(), candidate.behind.end(), passed);
    };
    const auto first_over =
        std::partition(entries_.begin(), entries_.end(), [&](const entry &e) { return !is_over(e); });
    for (auto over = first_over; over != entries_.end(); ++over) {
        unmap_pages(over->pages);
        bytes_.fetch_sub(over->pages.size_bytes, std::memory_order_relaxed);
    }
    entries_.erase(first_over, entries_.end());
}

}  // namespace ebb
