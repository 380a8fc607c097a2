// Small step models by hand. Links of 1e9 bytes/s times a factor, so that bytes and ns are the same numbers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "schedule/plan.hpp"
#include "schedule/step_model.hpp"

namespace ebb {

class step_builder {
public:
    step_builder &work(double time_ns) { return add(step_event_kind::work, k_no_index, time_ns); }
    step_builder &collective_begin(double time_ns) {
        return add(step_event_kind::collective_begin, k_no_index, time_ns);
    }
    step_builder &collective_end() { return add(step_event_kind::collective_end, k_no_index, 0); }
    step_builder &produce(uint64_t size_bytes) {
        step_tensor t;
        t.name = "t" + std::to_string(model.tensors.size());
        t.size_bytes = size_bytes;
        model.tensors.push_back(t);
        return add(step_event_kind::produce, static_cast<uint32_t>(model.tensors.size() - 1), 0);
    }
    step_builder &use(uint32_t tensor) { return add(step_event_kind::use, tensor, 0); }
    step_builder &done(uint32_t tensor) { return add(step_event_kind::done, tensor, 0); }
    step_builder &release(uint32_t tensor) { return add(step_event_kind::release, tensor, 0); }
    // Backward of a tensor's layer.
    step_builder &backward(uint32_t tensor, double time_ns) { return use(tensor).work(time_ns).release(tensor); }
    step_builder &recompute(uint32_t tensor, double time_ns, std::vector<uint32_t> from = {}) {
        model.tensors[tensor].can_recompute = true;
        model.tensors[tensor].recompute_ns = time_ns;
        model.tensors[tensor].recompute_from = std::move(from);
        return *this;
    }
    [[nodiscard]] uint32_t next_event() const { return static_cast<uint32_t>(model.events.size()); }

    step_model model;

private:
    step_builder &add(step_event_kind what, uint32_t tensor, double time_ns) {
        step_event e;
        e.what = what;
        e.tensor = tensor;
        e.time_ns = time_ns;
        model.events.push_back(e);
        return *this;
    }
};

// One letter for each tensor: k, o, r.
inline plan plan_of(const std::string &letters, uint64_t staging_bytes = 0) {
    plan p;
    for (const char c : letters) {
        p.placement.push_back(c == 'k'   ? tensor_placement::keep
                              : c == 'o' ? tensor_placement::offload
                                         : tensor_placement::recompute);
    }
    p.staging_bytes = staging_bytes;
    return p;
}

inline plan_budget budget_of(uint64_t device_bytes, double d2h_ns_per_byte = 1, double h2d_ns_per_byte = 1,
                             memory_mode mode = memory_mode::one_pool) {
    plan_budget b;
    b.d2h.bytes_per_second = 1e9 / d2h_ns_per_byte;
    b.h2d.bytes_per_second = 1e9 / h2d_ns_per_byte;
    b.device_bytes = device_bytes;
    b.mode = mode;
    return b;
}

}  // namespace ebb
