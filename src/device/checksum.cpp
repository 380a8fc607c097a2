#include <cstring>

#include "device/checksum_parts.hpp"
#include "device/device.hpp"

namespace ebb {
namespace {

using checksum::k_base;
using checksum::mixed;

template <uint64_t Exponent>
constexpr uint64_t k_power = checksum::power(Exponent);

uint64_t word_at(const unsigned char *data) noexcept {
    uint64_t word = 0;
    std::memcpy(&word, data, sizeof word);
    return word;
}

// Eight words with one step of the chain.
uint64_t add_block(uint64_t accumulator, const unsigned char *data) noexcept {
    uint64_t even = mixed(word_at(data)) * k_power<7> + mixed(word_at(data + 16)) * k_power<5> +
                    mixed(word_at(data + 32)) * k_power<3> + mixed(word_at(data + 48)) * k_power<1>;
    uint64_t odd = mixed(word_at(data + 8)) * k_power<6> + mixed(word_at(data + 24)) * k_power<4> +
                   mixed(word_at(data + 40)) * k_power<2> + mixed(word_at(data + 56));
    return accumulator * k_power<8> + even + odd;
}

}  // namespace

uint64_t checksum_bytes(uint64_t accumulator, const void *data, uint64_t size_bytes) noexcept {
    const auto *bytes = static_cast<const unsigned char *>(data);
    for (; size_bytes >= 64; size_bytes -= 64, bytes += 64) {
        accumulator = add_block(accumulator, bytes);
    }
    for (; size_bytes >= 8; size_bytes -= 8, bytes += 8) {
        accumulator = accumulator * k_base + mixed(word_at(bytes));
    }
    if (size_bytes > 0) {
        uint64_t tail = 0;
        std::memcpy(&tail, bytes, size_bytes);
        accumulator = checksum::add_tail(accumulator, tail, size_bytes);
    }
    return accumulator;
}

}  // namespace ebb
