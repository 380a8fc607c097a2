#include "link/host_pattern.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "link/pattern.hpp"

namespace ebb::link {

namespace {

// body(begin, end) over all words, in parts.
template <class Body>
void in_parts(uint64_t word_count, const Body &body) {
    constexpr uint64_t k_words_per_thread = (8ULL << 20U) / sizeof(uint64_t);
    constexpr uint64_t k_most_threads = 8;
    const uint64_t useful = std::min<uint64_t>(k_most_threads, std::max(1U, std::thread::hardware_concurrency()));
    const uint64_t count = std::clamp<uint64_t>(word_count / k_words_per_thread, 1, useful);
    std::vector<std::thread> others;
    for (uint64_t i = 1; i < count; ++i) {
        others.emplace_back([&, i] { body(word_count * i / count, word_count * (i + 1) / count); });
    }
    body(uint64_t{0}, word_count / count);
    for (std::thread &other : others) {
        other.join();
    }
}

}  // namespace

void fill_pattern(void *data, uint64_t size_bytes, uint64_t seed) {
    auto *words = static_cast<uint64_t *>(data);
    in_parts(size_bytes / sizeof(uint64_t), [=](uint64_t begin, uint64_t end) {
        for (uint64_t i = begin; i < end; ++i) {
            words[i] = pattern_word(seed, i);
        }
    });
}

uint64_t count_wrong_words(const void *data, uint64_t size_bytes, uint64_t seed) {
    const auto *words = static_cast<const uint64_t *>(data);
    std::atomic<uint64_t> wrong{0};
    in_parts(size_bytes / sizeof(uint64_t), [&](uint64_t begin, uint64_t end) {
        uint64_t here = 0;
        for (uint64_t i = begin; i < end; ++i) {
            here += words[i] != pattern_word(seed, i) ? 1 : 0;
        }
        wrong += here;
    });
    return wrong;
}

}  // namespace ebb::link
