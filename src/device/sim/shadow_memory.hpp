// What lies at each address of a simulated machine: ranges with a tag instead of bytes, so that terabytes cost as much
// as there are different things in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace ebb {

class shadow_memory {
public:
    enum class state : uint8_t {
        none,       // no memory: freed, or never given out
        undefined,  // never written
        tagged,
        poisoned,  // being written
    };
    struct content {
        state what = state::none;
        uint64_t tag = 0;             // tagged: what its writer called it; poisoned: its writer's number
        uint64_t position_bytes = 0;  // tagged: of the first byte within what was written
    };
    struct range {
        uint64_t begin = 0, end = 0;
        content holds;
    };

    // From here on that lies there, whatever did before. state::none frees.
    void set(uint64_t begin, uint64_t end, const content &holds);
    // What lies there, in order and without gaps, appended.
    void look(uint64_t begin, uint64_t end, std::vector<range> &found) const;
    [[nodiscard]] size_t ranges() const noexcept { return ranges_.size(); }

private:
    struct part {
        uint64_t end;
        content holds;
    };
    using map = std::map<uint64_t, part>;

    void split(uint64_t at);
    void join_with_next(map::iterator left);
    [[nodiscard]] static content shifted(content holds, uint64_t by_bytes) noexcept;

    map ranges_;  // by begin; state::none is not in it
};

}  // namespace ebb
