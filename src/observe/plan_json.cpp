#include "observe/plan_json.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "observe/json_fields.hpp"

namespace ebb {

namespace {

constexpr std::string_view k_placement_names[] = {"keep", "offload", "recompute"};
constexpr auto k_first_placement = static_cast<size_t>(tensor_placement::keep);

using plan_tensor_key = std::tuple<std::string, uint64_t, uint64_t>;

// Tensors of a key in the order of their production, and how many of them the file has named.
struct plan_tensor_list {
    std::vector<uint32_t> tensors;
    size_t named = 0;
};

std::map<plan_tensor_key, plan_tensor_list> tensors_by_key(const step_model &model) {
    std::map<plan_tensor_key, plan_tensor_list> lists;
    for (uint32_t t = 0; t < model.tensors.size(); ++t) {
        const step_tensor &tensor = model.tensors[t];
        lists[{tensor.name, tensor.micro_batch, tensor.stage}].tensors.push_back(t);
    }
    return lists;
}

// Whether the model allows it.
bool is_allowed(const step_tensor &tensor, tensor_placement placement) {
    switch (placement) {
        case tensor_placement::keep:
            return tensor.can_keep;
        case tensor_placement::offload:
            return tensor.can_offload;
        case tensor_placement::recompute:
            return tensor.can_recompute;
    }
    return false;
}

void read_plan_tensor(const json_value &at, const step_model &model, std::map<plan_tensor_key, plan_tensor_list> &lists,
                      plan &to) {
    constexpr size_t k_entries = 4;
    if (at.size("a tensor's name, micro-batch, stage and placement") != k_entries) {
        at.fail("must have four entries: name, micro-batch, stage, placement");
        return;
    }
    plan_tensor_key key{at.item(0).text(), at.item(1).count(), at.item(2).count()};
    const auto placement = static_cast<tensor_placement>(
        k_first_placement + at.item(3).word({k_placement_names[0], k_placement_names[1], k_placement_names[2]}));
    const auto found = lists.find(key);
    if (found == lists.end() || found->second.named == found->second.tensors.size()) {
        at.fail(fmt::format("names \"{}\" of micro-batch {} and stage {}, of which the step has {}", std::get<0>(key),
                            std::get<1>(key), std::get<2>(key),
                            found == lists.end() ? "none" : fmt::format("only {}", found->second.named)));
        return;
    }
    const uint32_t t = found->second.tensors[found->second.named++];
    if (!is_allowed(model.tensors[t], placement)) {
        at.item(3).fail(fmt::format("is \"{}\", which \"{}\" cannot be", placement_name(placement), std::get<0>(key)));
    }
    to.placement[t] = placement;
}

}  // namespace

std::string_view placement_name(tensor_placement placement) noexcept {
    return k_placement_names[static_cast<size_t>(placement) - k_first_placement];
}

std::string plan_to_json(const plan &p, const step_model &model) {
    std::string text = fmt::format("{{\"ebb_plan\": 1,\n\"staging_bytes\": {},\n\"tensors\": [", p.staging_bytes);
    for (size_t t = 0; t < p.placement.size() && t < model.tensors.size(); ++t) {
        const step_tensor &tensor = model.tensors[t];
        const nlohmann::ordered_json line{tensor.name, tensor.micro_batch, tensor.stage,
                                          placement_name(p.placement[t])};
        text += t == 0 ? "\n" : ",\n";
        text += line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    }
    return text + "]}\n";
}

result<plan> plan_from_json(std::string_view text, const step_model &model, std::string called) {
    json_file file(std::move(called), text);
    json_object top = file.root().object();
    plan read;
    (void)top.count("ebb_plan", 1, 1);
    read.staging_bytes = top.count("staging_bytes");
    const json_value tensors = top.field("tensors");
    const size_t count = tensors.size("tensors");
    read.placement.assign(model.tensors.size(), tensor_placement::keep);
    std::map<plan_tensor_key, plan_tensor_list> lists = tensors_by_key(model);
    for (size_t i = 0; i < count && !file.failed(); ++i) {
        read_plan_tensor(tensors.item(i), model, lists, read);
    }
    for (const auto &entry : lists) {
        if (entry.second.named != entry.second.tensors.size()) {
            tensors.fail(fmt::format("has no placement for \"{}\" of micro-batch {} and stage {}",
                                     std::get<0>(entry.first), std::get<1>(entry.first), std::get<2>(entry.first)));
            break;
        }
    }
    top.end();
    EBB_TRY(file.outcome());
    return read;
}

}  // namespace ebb
