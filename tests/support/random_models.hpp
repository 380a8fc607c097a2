// Random sequences of micro-batches: a chain, gradient accumulation, or 1F1B with some in flight; several tensors per
// layer, recompute dependences and places, collectives, second uses.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "support/chain_models.hpp"

namespace ebb {

namespace sequences {

inline void forward(chains::population &draw, step_model &m, uint32_t layers, uint32_t tensors, bool inputs) {
    for (uint32_t l = 0; l < layers; ++l) {
        const auto first = static_cast<uint32_t>(m.tensors.size());
        for (uint32_t k = 0; k < tensors; ++k) {
            step_tensor t;
            t.name = "t" + std::to_string(k);
            t.layer = l;
            t.size_bytes = draw.whole(1, 1000);
            t.can_recompute = draw.whole(0, 3) != 0;
            t.recompute_ns = draw.between(0, 400);
            if (inputs && k > 0 && draw.whole(0, 1) == 0) {
                t.recompute_from.push_back(first + static_cast<uint32_t>(draw.whole(0, k - 1)));
            }
            m.events.push_back(chains::work(draw.between(0, 500)));
            m.events.push_back(chains::call(step_event_kind::produce, static_cast<uint32_t>(m.tensors.size())));
            m.tensors.push_back(t);
        }
        if (draw.whole(0, 3) == 0) {
            step_event c = chains::call(step_event_kind::collective_begin);
            c.time_ns = draw.between(0, 400);
            m.events.push_back(c);
            m.events.push_back(chains::work(draw.between(0, 200)));
            m.events.push_back(chains::call(step_event_kind::collective_end));
        }
    }
}

// Of layers that begin at a tensor, the last one first. What a layer holds is released at its end.
inline void backward(chains::population &draw, step_model &m, uint32_t begin, uint32_t layers, uint32_t tensors,
                     bool places) {
    for (uint32_t l = layers; l-- > 0;) {
        const auto place = static_cast<uint32_t>(m.events.size());
        m.events.push_back(chains::work(draw.between(0, 100)));
        for (uint32_t k = tensors; k-- > 0;) {
            const uint32_t t = begin + l * tensors + k;
            if (places) {
                m.tensors[t].recompute_at = place;
            }
            m.events.push_back(chains::call(step_event_kind::use, t));
            m.events.push_back(chains::work(draw.between(0, 500)));
            if (draw.whole(0, 3) == 0) {
                m.events.push_back(chains::call(step_event_kind::done, t));
                m.events.push_back(chains::work(draw.between(0, 500)));
                m.events.push_back(chains::call(step_event_kind::use, t));
            }
        }
        for (uint32_t k = 0; k < tensors; ++k) {
            m.events.push_back(chains::call(step_event_kind::release, begin + l * tensors + k));
        }
    }
}

}  // namespace sequences

inline step_model random_sequence(chains::population &draw) {
    step_model m;
    const auto layers = static_cast<uint32_t>(draw.whole(1, 6));
    const auto tensors = static_cast<uint32_t>(draw.whole(1, 4));
    const auto micro_batches = static_cast<uint32_t>(draw.whole(1, 5));
    const auto in_flight = static_cast<uint32_t>(draw.whole(1, micro_batches));
    const bool inputs = draw.whole(0, 1) == 0;
    const bool places = draw.whole(0, 1) == 0;
    std::deque<uint32_t> waiting;  // first tensors of micro-batches without their backward
    for (uint32_t b = 0; b < micro_batches; ++b) {
        waiting.push_back(static_cast<uint32_t>(m.tensors.size()));
        sequences::forward(draw, m, layers, tensors, inputs);
        for (uint32_t t = waiting.back(); t < m.tensors.size(); ++t) {
            m.tensors[t].micro_batch = b;
        }
        if (waiting.size() == in_flight) {
            sequences::backward(draw, m, waiting.front(), layers, tensors, places);
            waiting.pop_front();
        }
    }
    for (; !waiting.empty(); waiting.pop_front()) {
        sequences::backward(draw, m, waiting.front(), layers, tensors, places);
    }
    return m;
}

inline plan_budget random_budget(chains::population &draw, const step_model &m) {
    uint64_t total_bytes = 0;
    for (const step_tensor &t : m.tensors) {
        total_bytes += t.size_bytes;
    }
    plan_budget b;
    b.mode = draw.whole(0, 1) == 0 ? memory_mode::one_pool : memory_mode::staging;
    b.device_bytes = static_cast<uint64_t>(draw.between(0.2, 1.2) * static_cast<double>(total_bytes)) + 1;
    b.d2h.bytes_per_second = draw.log_between(0.2, 20) * 1e9;
    b.h2d.bytes_per_second = draw.log_between(0.2, 20) * 1e9;
    b.h2d.latency_ns = draw.whole(0, 1) == 0 ? 0 : draw.between(0, 100);
    return b;
}

}  // namespace ebb
