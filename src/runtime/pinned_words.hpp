// Words that the device writes: the sums of verify mode. They live as long as this object, in pinned memory, or in any
// where the device's own is the CPU's, too.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"

namespace ebb {

class pinned_words {
public:
    explicit pinned_words(device &dev) : device_(dev) {}
    // The caller has waited for whatever writes them.
    ~pinned_words() {
        for (uint64_t *page : pages_) {
            static_cast<void>(device_.unmap_host(page, k_page_words * sizeof(uint64_t)));
        }
    }
    pinned_words(const pinned_words &) = delete;
    pinned_words &operator=(const pinned_words &) = delete;

    // That many side by side.
    result<uint64_t *> take(uint32_t count) {
        if (left_ < count) {
            EBB_TRY(add_page());
        }
        uint64_t *words = next_;
        next_ += count;
        left_ -= count;
        return words;
    }

private:
    static constexpr uint32_t k_page_words = 8192;

    status add_page() {
        if (device_.info().type == memory_type::cpu) {
            heap_pages_.push_back(std::make_unique<uint64_t[]>(k_page_words));
            next_ = heap_pages_.back().get();
        } else {
            result<void *> page = device_.map_host(k_page_words * sizeof(uint64_t));
            EBB_TRY(page.why());
            next_ = static_cast<uint64_t *>(page.value());
            pages_.push_back(next_);
        }
        left_ = k_page_words;
        return {};
    }

    device &device_;
    std::vector<uint64_t *> pages_;
    std::vector<std::unique_ptr<uint64_t[]>> heap_pages_;
    uint64_t *next_ = nullptr;
    uint32_t left_ = 0;
};

}  // namespace ebb
