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
constexpr std::string_view k_view = "view";
constexpr auto k_first_placement = static_cast<size_t>(tensor_placement::keep);

using plan_tensor_key = std::tuple<std::string, uint64_t, uint64_t>;

// Tensors of a key in the order of their production, and what the text says of that key.
struct plan_tensor_list {
    struct line {
        json_value at;
        tensor_placement placement;
        bool is_view;
    };
    std::vector<uint32_t> tensors, bodies;  // with and without views
    std::vector<line> lines;
};
using plan_tensor_lists = std::map<plan_tensor_key, plan_tensor_list>;

bool is_view(const std::vector<uint32_t> &view_of, size_t tensor) {
    return tensor < view_of.size() && view_of[tensor] != k_no_index;
}

plan_tensor_lists tensors_by_key(const step_model &model, const std::vector<uint32_t> &view_of) {
    plan_tensor_lists lists;
    for (uint32_t t = 0; t < model.tensors.size(); ++t) {
        const step_tensor &tensor = model.tensors[t];
        plan_tensor_list &list = lists[{tensor.name, tensor.micro_batch, tensor.stage}];
        list.tensors.push_back(t);
        if (!is_view(view_of, t)) {
            list.bodies.push_back(t);
        }
    }
    return lists;
}

std::string described(const plan_tensor_key &key) {
    return fmt::format("\"{}\" of micro-batch {} and stage {}", std::get<0>(key), std::get<1>(key), std::get<2>(key));
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

void read_plan_line(const json_value &at, plan_tensor_lists &lists) {
    const size_t entries = at.size("a tensor's name, micro-batch, stage and placement");
    if (entries != 4 && entries != 5) {
        at.fail("must have four entries: name, micro-batch, stage, placement; and a fifth, \"view\", where it is one");
        return;
    }
    plan_tensor_key key{at.item(0).text(), at.item(1).count(), at.item(2).count()};
    const auto placement = static_cast<tensor_placement>(
        k_first_placement + at.item(3).word({k_placement_names[0], k_placement_names[1], k_placement_names[2]}));
    if (entries == 5) {
        (void)at.item(4).word({k_view});
    }
    const auto found = lists.find(key);
    if (found == lists.end() && entries == 4) {
        at.fail("names " + described(key) + ", of which the step has none");
    } else if (found != lists.end()) {
        found->second.lines.push_back({at, placement, entries == 5});
    }
}

// Which of the saves of a key share the bytes of others follows from what is kept, so the plan of another run may take
// for views what are none here: its lines are either for all of the key or for those that are none.
bool says_all(const plan_tensor_list &list) {
    return list.lines.size() == list.tensors.size();
}

void check_surplus(const plan_tensor_key &key, const plan_tensor_list &list) {
    size_t left = list.bodies.size();
    for (const plan_tensor_list::line &line : list.lines) {
        if (says_all(list) || line.is_view) {
            continue;
        }
        if (left-- == 0) {
            line.at.fail(fmt::format("names {}, of which the step has only {}", described(key), list.bodies.size()));
            return;
        }
    }
}

void place_key(const plan_tensor_key &key, const plan_tensor_list &list, const step_model &model,
               const json_value &tensors, plan &to) {
    const std::vector<uint32_t> &placed = says_all(list) ? list.tensors : list.bodies;
    size_t n = 0;
    for (const plan_tensor_list::line &line : list.lines) {
        if (line.is_view && !says_all(list)) {
            continue;
        }
        const uint32_t t = placed[n++];
        if (!is_allowed(model.tensors[t], line.placement)) {
            line.at.item(3).fail(
                fmt::format("is \"{}\", which \"{}\" cannot be", placement_name(line.placement), std::get<0>(key)));
        }
        to.placement[t] = line.placement;
    }
    if (n < placed.size()) {
        tensors.fail("has no placement for " + described(key));
    }
}

}  // namespace

std::string_view placement_name(tensor_placement placement) noexcept {
    return k_placement_names[static_cast<size_t>(placement) - k_first_placement];
}

std::string plan_to_json(const plan &p, const step_model &model, const std::vector<uint32_t> &view_of) {
    std::string text = fmt::format("{{\"ebb_plan\": 1,\n\"staging_bytes\": {},\n\"tensors\": [", p.staging_bytes);
    for (size_t t = 0; t < p.placement.size() && t < model.tensors.size(); ++t) {
        const step_tensor &tensor = model.tensors[t];
        nlohmann::ordered_json line{tensor.name, tensor.micro_batch, tensor.stage, placement_name(p.placement[t])};
        if (is_view(view_of, t)) {
            line.push_back(k_view);
        }
        text += t == 0 ? "\n" : ",\n";
        text += line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    }
    return text + "]}\n";
}

result<plan> plan_from_json(std::string_view text, const step_model &model, std::string called,
                            const std::vector<uint32_t> &view_of) {
    json_file file(std::move(called), text);
    json_object top = file.root().object();
    plan read;
    (void)top.count("ebb_plan", 1, 1);
    read.staging_bytes = top.count("staging_bytes");
    const json_value tensors = top.field("tensors");
    const size_t count = tensors.size("tensors");
    read.placement.assign(model.tensors.size(), tensor_placement::keep);
    plan_tensor_lists lists = tensors_by_key(model, view_of);
    for (size_t i = 0; i < count && !file.failed(); ++i) {
        read_plan_line(tensors.item(i), lists);
    }
    for (auto list = lists.begin(); list != lists.end() && !file.failed(); ++list) {
        check_surplus(list->first, list->second);
    }
    for (auto list = lists.begin(); list != lists.end() && !file.failed(); ++list) {
        place_key(list->first, list->second, model, tensors, read);
    }
    top.end();
    EBB_TRY(file.outcome());
    return read;
}

}  // namespace ebb
