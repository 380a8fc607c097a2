// A step_model as JSON: what a recorded step is exported as, and what every command reads as a model of its own.
//
//   {"ebb_record": 1, "fixed_bytes": 0, "operations": ["work", ...],
//    "tensors": [{"name": "layer.0/gate", "bytes": 1, "micro_batch": 0, "stage": 0, "layer": 0, "keep": true,
//                 "offload": true, "recompute": {"ns": 1.5, "from": [0], "at": 7}}, ...],
//    "events": [["work", 0, 1.5, 0.25], ["collective_begin", 0, 2.5], ["collective_end"], ["produce", 0], ...]}
//
// An event is its kind and then: work the operation, ns and the fraction of HBM's rate; collective_begin the operation
// and ns, hold_begin likewise; produce, use, done and release the tensor. "recompute" is absent where a tensor cannot
// be; "at" where it is recomputed at its first use. Keys are always in this order, an event or a tensor is a line, and
// numbers are written so that they are read back exactly.
#pragma once

#include <string>
#include <string_view>

#include "base/status.hpp"
#include "schedule/step_model.hpp"

namespace ebb {

[[nodiscard]] std::string step_model_to_json(const step_model &model);

// `called` is how messages name the text. Indices are checked to lie inside; whether the events are in an order that
// makes sense is for evaluator::check.
[[nodiscard]] result<step_model> step_model_from_json(std::string_view text, std::string called);

// Whether a text is meant to be one, so that a command can tell it from a model's dimensions.
[[nodiscard]] bool looks_like_step_model(std::string_view text);

}  // namespace ebb
