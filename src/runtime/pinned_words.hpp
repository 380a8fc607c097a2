// Words of pinned memory that the device writes: the sums of verify mode. They live as long as this object.
#pragma once

#include <cstdint>
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
            result<void *> page = device_.map_host(k_page_words * sizeof(uint64_t));
            if (!page.ok()) {
                return page.why();
            }
            next_ = static_cast<uint64_t *>(page.value());
            pages_.push_back(next_);
            left_ = k_page_words;
        }
        uint64_t *words = next_;
        next_ += count;
        left_ -= count;
        return words;
    }

private:
    static constexpr uint32_t k_page_words = 8192;

    device &device_;
    std::vector<uint64_t *> pages_;
    uint64_t *next_ = nullptr;
    uint32_t left_ = 0;
};

}  // namespace ebb
