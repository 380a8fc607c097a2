#include "routing.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "random_values.hpp"
#include "step_device.hpp"

namespace step {
namespace {

constexpr size_t k_tables = 8;
// The most popular expert of a table is wanted that many times as often as the least popular one.
constexpr double k_skew = 3;

class random_stream {
public:
    explicit random_stream(uint64_t seed) : seed_(seed) {}
    double next() { return random_unit(seed_, index_++); }

private:
    uint64_t seed_;
    uint64_t index_ = 0;
};

// Sums of the experts' popularity up to each of them.
std::vector<double> draw_popularity(random_stream &random, int64_t experts) {
    std::vector<double> sums(static_cast<size_t>(experts));
    double sum = 0;
    for (double &s : sums) {
        sum += 1 + (k_skew - 1) * random.next();
        s = sum;
    }
    return sums;
}

// Different ones.
void draw_experts(random_stream &random, const std::vector<double> &popularity, int32_t *chosen, int64_t top_k) {
    for (int64_t k = 0; k < top_k;) {
        const double at = random.next() * popularity.back();
        const auto found = std::upper_bound(popularity.begin(), popularity.end() - 1, at);
        chosen[k] = static_cast<int32_t>(found - popularity.begin());
        k += std::find(chosen, chosen + k, chosen[k]) == chosen + k ? 1 : 0;
    }
}

void place_rows(const step_shape &shape, routing &r) {
    const auto experts = static_cast<size_t>(shape.experts);
    std::vector<int64_t> counts(experts, 0);
    for (size_t slot = 0; slot < r.expert_of_slot.size(); ++slot) {
        int64_t &count = counts[static_cast<size_t>(r.expert_of_slot[slot])];
        r.row_of_slot[slot] = count < shape.expert_capacity() ? static_cast<int32_t>(count++) : -1;
    }
    r.first_row.assign(experts + 1, 0);
    std::partial_sum(counts.begin(), counts.end(), r.first_row.begin() + 1);
    r.token_of_row.resize(static_cast<size_t>(r.rows()));
    r.slot_of_row.resize(static_cast<size_t>(r.rows()));
    for (size_t slot = 0; slot < r.expert_of_slot.size(); ++slot) {
        if (r.row_of_slot[slot] < 0) {
            continue;
        }
        const auto row =
            static_cast<size_t>(r.first_row[static_cast<size_t>(r.expert_of_slot[slot])] + r.row_of_slot[slot]);
        r.row_of_slot[slot] = static_cast<int32_t>(row);
        r.slot_of_row[row] = static_cast<int32_t>(slot);
        r.token_of_row[row] = static_cast<int32_t>(static_cast<int64_t>(slot) / shape.top_k);
    }
}

// The arrays of all tables behind each other, and where each begins.
class index_memory {
public:
    size_t add(const std::vector<int32_t> &array) {
        const size_t first = all_.size();
        all_.insert(all_.end(), array.begin(), array.end());
        return first;
    }
    [[nodiscard]] const std::vector<int32_t> &all() const { return all_; }

private:
    std::vector<int32_t> all_;
};

}  // namespace

routing draw_routing(const step_shape &shape, uint64_t seed) {
    random_stream random(seed);
    const std::vector<double> popularity = draw_popularity(random, shape.experts);
    routing r;
    r.expert_of_slot.resize(static_cast<size_t>(shape.slots()));
    r.row_of_slot.resize(r.expert_of_slot.size());
    for (int64_t t = 0; t < shape.tokens(); ++t) {
        draw_experts(random, popularity, r.expert_of_slot.data() + t * shape.top_k, shape.top_k);
    }
    place_rows(shape, r);
    return r;
}

routing_tables::routing_tables(step_device &device, const step_shape &shape, uint64_t seed) : seed_(seed) {
    if (!shape.has_experts()) {
        return;
    }
    index_memory indices;
    std::vector<std::array<size_t, 4>> begins;
    for (size_t i = 0; i < k_tables; ++i) {
        routing r = draw_routing(shape, random_bits(seed, i));
        begins.push_back({indices.add(r.expert_of_slot), indices.add(r.row_of_slot), indices.add(r.token_of_row),
                          indices.add(r.slot_of_row)});
        tables_.emplace_back().first_row = std::move(r.first_row);
    }
    const uint64_t size_bytes = indices.all().size() * sizeof(int32_t);
    memory_ = device.allocate(memory_kind::scratch, size_bytes);
    device.upload(memory_.get(), indices.all().data(), size_bytes);
    const auto *const first = static_cast<const int32_t *>(memory_.get());
    for (size_t i = 0; i < k_tables; ++i) {
        tables_[i].expert_of_slot = first + begins[i][0];
        tables_[i].row_of_slot = first + begins[i][1];
        tables_[i].token_of_row = first + begins[i][2];
        tables_[i].slot_of_row = first + begins[i][3];
    }
}

const device_routing *routing_tables::of(int64_t step, int64_t micro_batch, int64_t layer) const {
    if (tables_.empty()) {
        return nullptr;
    }
    const auto number = static_cast<uint64_t>((step * 1024 + micro_batch) * 1024 + layer);
    return &tables_[random_bits(~seed_, number) % k_tables];
}

}  // namespace step
