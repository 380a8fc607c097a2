// Room for the arguments of the kernels of one step, reused when that step is over.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace train {

class argument_arena {
public:
    void *take(size_t bytes, size_t alignment);
    void clear();  // only when no launched kernel reads from it any more

private:
    struct block {
        std::unique_ptr<std::byte[]> memory;
        size_t bytes = 0;
        size_t used = 0;
    };
    std::vector<block> blocks_;
    size_t current_ = 0;
};

}  // namespace train
