#include "model/published_tables.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace ebb {

std::string_view published_placement_name(published_placement placement) noexcept {
    constexpr std::string_view k_names[] = {"offload", "recompute", "save on device"};
    return k_names[static_cast<size_t>(placement)];
}

const std::vector<published_row> &published_rows() {
    using p = published_placement;
    constexpr std::string_view k_deepseek = "deepseek-v3-671b";
    constexpr std::string_view k_llama = "llama-3.1-405b";
    static const std::vector<published_row> rows{
        {1, 1, k_deepseek, p::offload, true, true, 8, 1024, 908.2, 165.2, 145.1, true},
        {1, 2, k_deepseek, p::recompute, true, false, 8, 1024, 578.3, 151.3, 0, false},
        {1, 3, k_deepseek, p::offload, false, false, 8, 1024, 541.6, 145.6, 145.1, false},
        {1, 4, k_deepseek, p::keep, true, false, 2, 256, 425.3, 113.3, 0, true},
        {1, 5, k_deepseek, p::keep, true, false, 8, 1024, 0, 0, 0, false},
        {2, 1, k_llama, p::recompute, true, false, 2, 256, 2669, 149.6, 0, false},
        {2, 2, k_llama, p::offload, true, false, 2, 256, 2746, 149.9, 70.9, true},
        {2, 3, k_llama, p::offload, false, false, 2, 256, 2569, 139.7, 70.9, false},
        {2, 4, k_llama, p::offload, true, true, 2, 256, 2718, 151.0, 70.9, false},
    };
    return rows;
}

const published_row &published_row_of(uint32_t table, uint32_t row) {
    const std::vector<published_row> &rows = published_rows();
    const auto found = std::find_if(rows.begin(), rows.end(),
                                    [&](const published_row &r) { return r.table == table && r.row == row; });
    EBB_CHECK(found != rows.end());
    return *found;
}

}  // namespace ebb
