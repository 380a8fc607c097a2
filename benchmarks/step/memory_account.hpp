// What device memory is used for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace step {

enum class memory_kind : uint8_t {
    activations,          // saved ones, and those in the making
    staging,              // Ebb's own
    attention_workspace,  // cuDNN's, or that of our own kernels
    collectives,          // what NCCL takes
    weights,              // with gradients and the optimizer's state
    scratch,              // arrays that live within a layer, tokens, routing tables
    count
};

constexpr size_t k_memory_kinds = static_cast<size_t>(memory_kind::count);
constexpr std::array<const char *, k_memory_kinds> k_memory_names = {"activations", "staging", "attention_workspace",
                                                                     "collectives", "weights", "scratch"};

using bytes_by_kind = std::array<uint64_t, k_memory_kinds>;

[[nodiscard]] inline uint64_t sum_of(const bytes_by_kind &bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
}

// Counts what is held, and keeps what was held when most was since the last time that one looked.
class memory_account {
public:
    void add(memory_kind kind, uint64_t size_bytes) {
        held_[static_cast<size_t>(kind)] += size_bytes;
        if (sum_of(held_) > sum_of(peak_)) {
            peak_ = held_;
        }
    }
    void remove(memory_kind kind, uint64_t size_bytes) { held_[static_cast<size_t>(kind)] -= size_bytes; }
    // For what is not counted by add and remove.
    void set(memory_kind kind, uint64_t size_bytes) {
        remove(kind, held_[static_cast<size_t>(kind)]);
        add(kind, size_bytes);
    }
    [[nodiscard]] const bytes_by_kind &held() const { return held_; }
    // The peak since then.
    bytes_by_kind take_peak() {
        const bytes_by_kind peak = peak_;
        peak_ = held_;
        return peak;
    }

private:
    bytes_by_kind held_{};
    bytes_by_kind peak_{};
};

}  // namespace step
