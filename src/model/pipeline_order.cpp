#include "model/pipeline_order.hpp"

#include <algorithm>
#include <cstddef>

namespace ebb {

namespace {

// The k-th forward (or backward, from the last chunk on) of any stage: micro-batches go in groups as large as the
// pipeline, a group through all chunks before the next.
pipeline_pass nth_pass(const pipeline_shape &shape, uint64_t k, bool backward) {
    const uint64_t round = shape.stages * shape.chunks;
    const uint64_t chunk = k % round / shape.stages;
    pipeline_pass pass;
    pass.backward = backward;
    pass.chunk = static_cast<uint32_t>(backward ? shape.chunks - 1 - chunk : chunk);
    pass.micro_batch = shape.chunks == 1 ? k : k / round * shape.stages + k % shape.stages;
    return pass;
}

uint64_t warm_up_passes(const pipeline_shape &shape, uint64_t stage, uint64_t all) {
    const uint64_t below = shape.stages - 1 - stage;
    const uint64_t wanted = shape.chunks == 1 ? below : 2 * below + (shape.chunks - 1) * shape.stages;
    return std::min(wanted, all);
}

// All stages at once, each pass as soon as its device and what it needs are there.
class pipeline_run {
public:
    pipeline_run(const pipeline_shape &shape, const std::vector<pipeline_time> &times)
        : shape_(shape), times_(times), parts_(shape.stages * shape.chunks), free_ns_(shape.stages, 0.0) {
        ends_ns_.assign(2 * parts_ * shape.micro_batches, k_not_yet);
        for (uint64_t s = 0; s < shape.stages; ++s) {
            orders_.push_back(pipeline_order(shape, s));
        }
        next_.assign(shape.stages, 0);
    }

    std::vector<pipeline_pass> run(uint64_t stage) {
        for (bool moved = true; moved;) {
            moved = false;
            for (uint64_t s = 0; s < shape_.stages; ++s) {
                while (next_[s] < orders_[s].size() && step(s)) {
                    moved = true;
                }
            }
        }
        return orders_[stage];
    }

private:
    static constexpr double k_not_yet = -1;

    double &end_of(bool backward, uint64_t part, uint64_t micro_batch) {
        return ends_ns_[((backward ? 1 : 0) * parts_ + part) * shape_.micro_batches + micro_batch];
    }

    bool step(uint64_t stage) {
        pipeline_pass &pass = orders_[stage][next_[stage]];
        const uint64_t part = pass.chunk * shape_.stages + stage;
        double ready_ns = 0;
        if (pass.backward) {
            ready_ns =
                part + 1 == parts_ ? end_of(false, part, pass.micro_batch) : end_of(true, part + 1, pass.micro_batch);
        } else if (part != 0) {
            ready_ns = end_of(false, part - 1, pass.micro_batch);
        }
        if (ready_ns == k_not_yet) {
            return false;
        }
        pass.wait_ns = std::max(0.0, ready_ns - free_ns_[stage]);
        const double time_ns = pass.backward ? times_[part].backward_ns : times_[part].forward_ns;
        free_ns_[stage] += pass.wait_ns + time_ns;
        end_of(pass.backward, part, pass.micro_batch) = free_ns_[stage];
        ++next_[stage];
        return true;
    }

    const pipeline_shape &shape_;
    const std::vector<pipeline_time> &times_;
    uint64_t parts_;
    std::vector<double> free_ns_;
    std::vector<double> ends_ns_;
    std::vector<std::vector<pipeline_pass>> orders_;
    std::vector<size_t> next_;
};

}  // namespace

std::vector<pipeline_pass> pipeline_order(const pipeline_shape &shape, uint64_t stage) {
    const uint64_t all = shape.micro_batches * shape.chunks;
    const uint64_t warm_up = warm_up_passes(shape, stage, all);
    std::vector<pipeline_pass> order;
    order.reserve(2 * all);
    for (uint64_t k = 0; k < all + warm_up; ++k) {
        if (k < all) {
            order.push_back(nth_pass(shape, k, false));
        }
        if (k >= warm_up) {
            order.push_back(nth_pass(shape, k - warm_up, true));
        }
    }
    return order;
}

std::vector<pipeline_pass> pipeline_schedule(const pipeline_shape &shape, uint64_t stage,
                                             const std::vector<pipeline_time> &times) {
    return pipeline_run(shape, times).run(stage);
}

}  // namespace ebb
