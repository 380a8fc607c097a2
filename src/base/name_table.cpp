#include "base/name_table.hpp"

#include <cstring>

namespace ebb {

namespace {

constexpr size_t k_first_buckets = 256;

uint64_t mix(uint64_t h, uint64_t word) noexcept {
    h = (h ^ word) * 0x9E3779B97F4A7C15ULL;
    return h ^ (h >> 32U);
}

// Eight bytes at a time, the last eight overlapping those before: names are short and hashed in every offload. The last
// round brings what differs only in a word's highest bytes (the layer's number, mostly) down to the bits of the bucket.
uint64_t hash_of(name_table::node parent, std::string_view text) noexcept {
    uint64_t h = mix(uint64_t{parent} + 1, text.size());
    uint64_t word = 0;
    if (text.size() < sizeof(word)) {
        for (const char c : text) {
            word = word << 8U | static_cast<unsigned char>(c);
        }
        return mix(mix(h, word), 0);
    }
    for (size_t at = 0; at + sizeof(word) < text.size(); at += sizeof(word)) {
        std::memcpy(&word, text.data() + at, sizeof(word));
        h = mix(h, word);
    }
    std::memcpy(&word, text.data() + text.size() - sizeof(word), sizeof(word));
    return mix(mix(h, word), 0);
}

}  // namespace

name_table::name_table() : buckets_(k_first_buckets, k_root) {
    nodes_.push_back({k_root, 0, "", ""});
}

size_t name_table::bucket_of(node parent, std::string_view text, uint64_t hash) const noexcept {
    const size_t mask = buckets_.size() - 1;
    size_t i = hash & mask;
    while (buckets_[i] != k_root) {
        const entry &e = nodes_[buckets_[i]];
        if (e.hash == hash && e.parent == parent && e.text == text) {
            break;
        }
        i = (i + 1) & mask;
    }
    return i;
}

name_table::node name_table::find(node parent, std::string_view text) const noexcept {
    return buckets_[bucket_of(parent, text, hash_of(parent, text))];
}

name_table::node name_table::intern(node parent, std::string_view text) {
    const uint64_t hash = hash_of(parent, text);
    const size_t i = bucket_of(parent, text, hash);
    if (buckets_[i] != k_root) {
        return buckets_[i];
    }
    const auto fresh = static_cast<node>(nodes_.size());
    std::string path = nodes_[parent].path;
    if (!path.empty()) {
        path += '/';
    }
    path += text;
    nodes_.push_back({parent, hash, std::string(text), std::move(path)});
    buckets_[i] = fresh;
    if (nodes_.size() * 2 > buckets_.size()) {
        rehash(buckets_.size() * 2);
    }
    return fresh;
}

void name_table::rehash(size_t bucket_count) {
    buckets_.assign(bucket_count, k_root);
    const size_t mask = bucket_count - 1;
    for (node n = 1; n < nodes_.size(); ++n) {
        size_t i = nodes_[n].hash & mask;
        while (buckets_[i] != k_root) {
            i = (i + 1) & mask;
        }
        buckets_[i] = n;
    }
}

}  // namespace ebb
