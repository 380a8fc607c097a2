// Memory that CUDA knows: device allocations, pinned ones and registered ranges of the program's own. Remembers which
// stream used which bytes last, to tell streams that are not ordered, and memory freed under its users.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cuda_double/progress_clock.hpp"
#include "cuda_double/stream_work.hpp"
#include "device/host/host_pages.hpp"

namespace ebb::test {

enum class memory_place : uint8_t { pageable, pinned, device };
enum class cuda_caller : uint8_t { backend, user };

struct memory_use {
    memory_access access;
    uint32_t stream = 0;
    uint64_t count = 0;  // of the stream's work, with this
    std::string what;
};

struct memory_block {
    uintptr_t first = 0;
    uint64_t size_bytes = 0;
    memory_place place = memory_place::pageable;
    int device = 0;
    cuda_caller owner = cuda_caller::backend;
    uint64_t serial = 0;
    unsigned flags = 0;
    bool registered = false;  // the program's own pages
    host_pages pages;
    std::vector<memory_use> uses;

    [[nodiscard]] uintptr_t end() const { return first + size_bytes; }
    [[nodiscard]] bool contains(const void *data, uint64_t bytes) const {
        const auto at = reinterpret_cast<uintptr_t>(data);
        return at >= first && at <= end() && bytes <= end() - at;
    }
};

class memory_map {
public:
    memory_map() = default;
    ~memory_map();
    memory_map(const memory_map &) = delete;
    memory_map &operator=(const memory_map &) = delete;

    // Fills in address, pages and serial. False where the system has no memory.
    [[nodiscard]] bool allocate(memory_block block, void **data);
    // Null where the range touches one that is registered.
    memory_block *add_registered(void *data, memory_block block);
    // Its pages go back to the system, or stay until the end where they are still in use.
    void remove(const memory_block &block, bool in_use);

    [[nodiscard]] memory_block *containing(const void *data);
    [[nodiscard]] memory_block *starting_at(const void *data);
    // Whether a range that no block contains touches one all the same.
    [[nodiscard]] bool touches_a_block(const void *data, uint64_t size_bytes) const;
    [[nodiscard]] bool is_live(uint64_t serial) const { return live_.count(serial) != 0; }
    [[nodiscard]] const std::map<uintptr_t, memory_block> &blocks() const { return blocks_; }

    // Writes the work's accesses down. What an earlier one, of a stream that it is not ordered behind, makes of them.
    std::optional<std::string> use(const stream_work &work, uint32_t stream, uint64_t count,
                                   const progress_clock &behind, const progress_clock &known);
    // The work on the block that the host has not seen the end of.
    [[nodiscard]] static std::optional<std::string> in_flight(const memory_block &block, const progress_clock &known);

private:
    static void forget_covered(memory_block &block, const memory_use &newer, const progress_clock &behind,
                               const progress_clock &known);

    std::map<uintptr_t, memory_block> blocks_;
    std::map<uint64_t, uintptr_t> live_;  // by serial
    std::vector<host_pages> in_use_;
    uint64_t next_serial_ = 1;
};

}  // namespace ebb::test
