// A plan as JSON, readable beside the step that it is for: tensors by name, micro-batch and stage.
//
//   {"ebb_plan": 1, "staging_bytes": 0, "tensors": [["layer.0/gate", 0, 0, "offload"], ...]}
//
// Keys and tensors are always in the same order, that of production; a tensor is a line. A save that shares the bytes
// of another one has a fifth entry, "view".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "schedule/plan.hpp"
#include "schedule/step_model.hpp"

namespace ebb {

[[nodiscard]] std::string_view placement_name(tensor_placement placement) noexcept;

// view_of: by tensor, whose bytes it shares, or none; may be left out where no tensor is a view.
[[nodiscard]] std::string plan_to_json(const plan &p, const step_model &model,
                                       const std::vector<uint32_t> &view_of = {});

// The plan must be for all tensors of the model and for no others, views aside; the n-th one of equal name, micro-batch
// and stage is the model's n-th. `called` is how messages name the text.
[[nodiscard]] result<plan> plan_from_json(std::string_view text, const step_model &model, std::string called,
                                          const std::vector<uint32_t> &view_of = {});

}  // namespace ebb
