// Pinned memory in registrations of a limited size that lie side by side in address space, as a system likes to place
// them: what looks like one range there is many to a driver, which takes no copy across two of them. Counts such
// copies.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>

#include "base/check.hpp"
#include "device/decorator.hpp"
#include "test_machine.hpp"

namespace ebb::test {

class side_by_side_device : public device_decorator {
public:
    side_by_side_device(test_machine &machine, uint64_t largest_bytes)
        : device_decorator(machine.dev()), machine_(machine), largest_bytes_(largest_bytes) {
        void *data =
            ::mmap(nullptr, k_range_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        EBB_CHECK(data != MAP_FAILED);
        range_ = {static_cast<std::byte *>(data), [](std::byte *range) { ::munmap(range, k_range_bytes); }};
    }
    side_by_side_device(const side_by_side_device &) = delete;
    side_by_side_device &operator=(const side_by_side_device &) = delete;

    // Of the copies out of or into host memory: those within one registration, and all others.
    [[nodiscard]] uint64_t copies_within() const { return copies_within_; }
    [[nodiscard]] uint64_t copies_across() const { return copies_across_; }
    // Those that go on where the copy before ended, in the registration next to its own.
    [[nodiscard]] uint64_t copies_in_next() const { return copies_in_next_; }
    [[nodiscard]] size_t registrations() const { return registered_.size(); }
    // The address space, for whoever may still use it when this is gone.
    [[nodiscard]] std::shared_ptr<std::byte> range() const { return range_; }

    result<void *> map_host(uint64_t size_bytes) override {
        if (size_bytes > largest_bytes_) {
            return status(code::out_of_host_memory, "so large a registration is refused");
        }
        std::byte *data = range_.get();  // the first gap
        for (const auto &[other, other_bytes] : registered_) {
            if (other - data >= static_cast<std::ptrdiff_t>(size_bytes)) {
                break;
            }
            data = other + round_up(other_bytes);
        }
        EBB_CHECK(data + size_bytes <= range_.get() + k_range_bytes);
        registered_[data] = size_bytes;
        machine_.registered(data, size_bytes);
        return data;
    }
    status unmap_host(void *data, uint64_t size_bytes) override {
        const auto found = registered_.find(static_cast<std::byte *>(data));
        EBB_CHECK(found != registered_.end() && found->second == size_bytes);
        registered_.erase(found);
        machine_.unregistered(data);
        return {};
    }
    status copy(stream_id stream, copy_direction direction, void *destination, const void *source,
                uint64_t size_bytes) override {
        if (direction != copy_direction::d2d && size_bytes != 0) {
            look_at(static_cast<const std::byte *>(direction == copy_direction::d2h ? destination : source),
                    size_bytes);
        }
        return inner().copy(stream, direction, destination, source, size_bytes);
    }

private:
    static constexpr uint64_t k_range_bytes = uint64_t{256} << 20U;
    static constexpr uint64_t k_page_bytes = 4096;
    static uint64_t round_up(uint64_t bytes) { return (bytes + k_page_bytes - 1) / k_page_bytes * k_page_bytes; }

    void look_at(const std::byte *first, uint64_t size_bytes) {
        auto holds = registered_.upper_bound(const_cast<std::byte *>(first));
        const bool within =
            holds != registered_.begin() && first + size_bytes <= std::prev(holds)->first + std::prev(holds)->second;
        ++(within ? copies_within_ : copies_across_);
        if (within && first == last_end_ && first == std::prev(holds)->first) {
            ++copies_in_next_;
        }
        last_end_ = first + size_bytes;
    }

    test_machine &machine_;
    uint64_t largest_bytes_;
    std::shared_ptr<std::byte> range_;
    std::map<std::byte *, uint64_t> registered_;
    uint64_t copies_within_ = 0, copies_across_ = 0, copies_in_next_ = 0;
    const std::byte *last_end_ = nullptr;
};

}  // namespace ebb::test
