#include "jax_attributes.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>

namespace ebb_jax {
namespace {

std::int64_t number_in(const void *value) {
    const auto &content = *static_cast<const xla::scalar *>(value);
    std::int64_t number = 0;
    if (content.type == xla::k_s64) {
        std::memcpy(&number, content.value, sizeof number);
    }
    return number;
}

std::string_view view_of(const xla::span &text) {
    return {text.data, text.size};
}

std::string_view text_in(const void *value) {
    return view_of(*static_cast<const xla::span *>(value));
}

template <typename word>
bool same_word(const char *left, const char *right) {
    word of_left, of_right;
    std::memcpy(&of_left, left, sizeof of_left);
    std::memcpy(&of_right, right, sizeof of_right);
    return of_left == of_right;
}

// All are compared at every call, and most are shorter than calling memcmp is worth.
bool same(std::string_view left, std::string_view right) {
    const std::size_t size = left.size();
    if (size != right.size()) {
        return false;
    }
    if (size - 4 <= 4) {
        return same_word<std::uint32_t>(left.data(), right.data()) &&
               same_word<std::uint32_t>(left.data() + size - 4, right.data() + size - 4);
    }
    if (size < 4) {
        return std::equal(left.begin(), left.end(), right.begin());
    }
    return std::memcmp(left.data(), right.data(), size) == 0;
}

// One attribute as it came; of kinds that nobody reads there is no content.
struct raw_attribute {
    std::int32_t kind = 0;
    std::int64_t number = 0;
    std::string key, text;

    raw_attribute(const xla::attributes &block, std::int64_t i) : kind(block.kinds[i]), key(view_of(*block.names[i])) {
        if (kind == xla::k_string_attribute) {
            text = text_in(block.values[i]);
        } else if (kind == xla::k_scalar_attribute) {
            number = number_in(block.values[i]);
        }
    }
    [[nodiscard]] bool is(const xla::attributes &block, std::int64_t i) const {
        return block.kinds[i] == kind && same(view_of(*block.names[i]), key) &&
               (kind != xla::k_string_attribute || same(text_in(block.values[i]), text)) &&
               (kind != xla::k_scalar_attribute || number_in(block.values[i]) == number);
    }
    auto operator<=>(const raw_attribute &) const = default;
};

using raw_attributes = std::vector<raw_attribute>;

bool are(const raw_attributes &then, const xla::attributes &now) {
    for (std::size_t i = 0; i < then.size(); ++i) {
        if (!then[i].is(now, static_cast<std::int64_t>(i))) {
            return false;
        }
    }
    return true;
}

std::vector<std::string> lines(const std::string &text) {
    std::vector<std::string> all;
    std::size_t from = 0;
    while (from < text.size()) {
        const std::size_t to = std::min(text.find('\n', from), text.size());
        all.push_back(text.substr(from, to - from));
        from = to + 1;
    }
    return all;
}

call_attributes parsed(const raw_attributes &raw) {
    call_attributes made;
    for (const raw_attribute &one : raw) {
        if (one.kind == xla::k_string_attribute) {
            if (one.key == "scope") {
                made.scope = one.text;
            } else if (one.key == "layout") {
                made.layout = one.text;
            } else if (one.key == "names") {
                made.names = lines(one.text);
            }
        } else if (one.kind == xla::k_scalar_attribute) {
            if (one.key == "site") {
                made.site = one.number;
            } else if (one.key == "reloads") {
                made.reloads = static_cast<std::uint64_t>(one.number);
            } else if (one.key == "stays") {
                made.stays = one.number != 0;
            }
        }
    }
    return made;
}

// All that were ever seen, by what they say; and those of the last calls, by where they lie. XLA keeps a call's
// attributes at one address, and may put others there later: so what is found by address is compared with what lies
// there now.
class known_attributes {
public:
    const call_attributes &find(const xla::attributes &block) {
        std::atomic<const entry *> &recent = recent_[index_of(block.values)];
        const entry *known = recent.load(std::memory_order_acquire);
        if (known == nullptr || known->first.size() != static_cast<std::size_t>(block.size) ||
            !are(known->first, block)) {
            known = add(block);
            recent.store(known, std::memory_order_release);
        }
        return known->second;
    }

private:
    using by_content = std::map<raw_attributes, call_attributes>;
    using entry = by_content::value_type;
    static constexpr unsigned k_index_bits = 12;

    static std::size_t index_of(const void *address) {
        constexpr std::uint64_t k_golden = 0x9e3779b97f4a7c15;
        const std::uint64_t mixed = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(address)) * k_golden;
        return static_cast<std::size_t>(mixed >> (64 - k_index_bits));
    }

    const entry *add(const xla::attributes &block) {
        raw_attributes raw;
        for (std::int64_t i = 0; i < block.size; ++i) {
            raw.emplace_back(block, i);
        }
        call_attributes made = parsed(raw);
        const std::lock_guard<std::mutex> lock(mutex_);
        return &*all_.try_emplace(std::move(raw), std::move(made)).first;
    }

    std::mutex mutex_;
    by_content all_;
    std::array<std::atomic<const entry *>, std::size_t{1} << k_index_bits> recent_{};
};

}  // namespace

const call_attributes &attributes_of(const xla::attributes &block) {
    static auto *const known = new known_attributes;  // never destroyed: XLA's threads may outlive static objects
    return known->find(block);
}

}  // namespace ebb_jax
