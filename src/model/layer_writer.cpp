#include "model/layer_writer.hpp"

#include <cmath>
#include <utility>

namespace ebb {

layer_work layer_writer::gemm(const product &p) const {
    const double rows = shape_.tokens * p.rows_per_token;
    return {p.name, work_rate::gemm, 2 * rows * p.in * p.out,
            rows * (p.in + p.out) * shape_.activation_bytes + p.matrices * p.in * p.out * shape_.weight_bytes, 0};
}

layer_work layer_writer::input_gradient(const product &p) const {
    layer_work work = gemm(p);
    work.name += "_input_gradient";
    return work;
}

layer_work layer_writer::weight_gradient(const product &p) const {
    layer_work work = gemm(p);
    work.name += "_weight_gradient";
    work.hbm_bytes += p.matrices * p.in * p.out * (shape_.gradient_bytes - shape_.weight_bytes);
    return work;
}

layer_work layer_writer::memory(std::string name, double numbers_per_token) const {
    return {std::move(name), work_rate::memory, 0, shape_.tokens * numbers_per_token * shape_.activation_bytes, 0};
}

uint32_t layer_writer::produce(saved tensor) {
    const auto index = static_cast<uint32_t>(graph_.tensors.size());
    layer_tensor &t = graph_.tensors.emplace_back();
    t.name = std::move(tensor.name);
    t.aliases = std::move(tensor.aliases);
    t.size_bytes = static_cast<uint64_t>(std::llround(tensor.bytes_per_token * shape_.tokens));
    t.role = tensor.role;
    t.can_recompute = tensor.role != tensor_role::always_kept && !tensor.from.empty();
    t.recompute = std::move(tensor.recompute);
    t.from = std::move(tensor.from);
    add(layer_step_kind::produce, {}, index);
    return index;
}

double layer_writer::exchanged_bytes(double numbers_per_token) const noexcept {
    return shape_.tokens * numbers_per_token * shape_.activation_bytes * (1 - 1 / shape_.expert_shards);
}

void layer_writer::exchange_begin(std::string name, double numbers_per_token) {
    if (shape_.expert_shards > 1) {
        add(layer_step_kind::exchange_begin,
            {std::move(name), work_rate::memory, 0, 0, exchanged_bytes(numbers_per_token)}, 0);
    }
}

void layer_writer::exchange_end() {
    if (shape_.expert_shards > 1) {
        add(layer_step_kind::exchange_end, {}, 0);
    }
}

}  // namespace ebb
