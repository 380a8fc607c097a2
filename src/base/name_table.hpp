// Names of activations, nested: each node is a text under a parent node, its path is joined by '/'. Scopes and
// activations are nodes alike. Looking up a known name allocates nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ebb {

class name_table {
public:
    using node = uint32_t;
    static constexpr node k_root = 0;

    name_table();

    node intern(node parent, std::string_view text);
    // k_root when it is not known.
    [[nodiscard]] node find(node parent, std::string_view text) const noexcept;
    [[nodiscard]] const std::string &path(node n) const noexcept { return nodes_[n].path; }
    [[nodiscard]] uint32_t size() const noexcept { return static_cast<uint32_t>(nodes_.size()); }

private:
    struct entry {
        node parent;
        uint64_t hash;
        std::string text;
        std::string path;
    };

    // Of that name, or the empty one where it would go.
    [[nodiscard]] size_t bucket_of(node parent, std::string_view text, uint64_t hash) const noexcept;
    void rehash(size_t bucket_count);

    std::vector<entry> nodes_;
    std::vector<node> buckets_;  // open addressing, k_root means empty
};

}  // namespace ebb
