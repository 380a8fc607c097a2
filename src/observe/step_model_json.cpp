#include "observe/step_model_json.hpp"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "observe/json_fields.hpp"

namespace ebb {

namespace {

constexpr std::string_view k_event_names[] = {
    "work", "collective_begin", "collective_end", "hold_begin", "hold_end", "produce", "use", "done", "release"};

nlohmann::ordered_json event_to_json(const step_event &e) {
    nlohmann::ordered_json event = nlohmann::ordered_json::array();
    event.push_back(k_event_names[static_cast<size_t>(e.what)]);
    switch (e.what) {
        case step_event_kind::work:
            event.push_back(e.operation);
            event.push_back(e.time_ns);
            event.push_back(e.hbm_fraction);
            break;
        case step_event_kind::collective_begin:
        case step_event_kind::hold_begin:
            event.push_back(e.operation);
            event.push_back(e.time_ns);
            break;
        case step_event_kind::collective_end:
        case step_event_kind::hold_end:
            break;
        default:
            event.push_back(e.tensor);
            break;
    }
    return event;
}

nlohmann::ordered_json step_tensor_to_json(const step_tensor &t) {
    nlohmann::ordered_json tensor{{"name", t.name},          {"bytes", t.size_bytes}, {"micro_batch", t.micro_batch},
                                  {"stage", t.stage},        {"layer", t.layer},      {"keep", t.can_keep},
                                  {"offload", t.can_offload}};
    if (t.can_recompute) {
        nlohmann::ordered_json recompute{{"ns", t.recompute_ns}, {"from", t.recompute_from}};
        if (t.recompute_at != k_no_index) {
            recompute["at"] = t.recompute_at;
        }
        tensor["recompute"] = std::move(recompute);
    }
    return tensor;
}

// One line for each, so that files can be compared and read.
template <class T, class F>
void append_lines(std::string &text, const char *name, const std::vector<T> &all, F to_json) {
    text += ",\n\"";
    text += name;
    text += "\": [";
    for (size_t i = 0; i < all.size(); ++i) {
        text += i == 0 ? "\n" : ",\n";
        text += to_json(all[i]).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    }
    text += "]";
}

bool has_time(step_event_kind what) {
    return what == step_event_kind::work || what == step_event_kind::collective_begin ||
           what == step_event_kind::hold_begin;
}

step_event read_event(const json_value &at, size_t operations, size_t tensors) {
    step_event e;
    const size_t size = at.size("an event's kind and its numbers");
    if (size == 0) {
        at.fail("is no event: its kind is missing");
        return e;
    }
    e.what = static_cast<step_event_kind>(
        at.item(0).word({k_event_names[0], k_event_names[1], k_event_names[2], k_event_names[3], k_event_names[4],
                         k_event_names[5], k_event_names[6], k_event_names[7], k_event_names[8]}));
    constexpr size_t k_sizes[] = {4, 3, 1, 3, 1, 2, 2, 2, 2};
    const size_t wanted = k_sizes[static_cast<size_t>(e.what)];
    if (size != wanted) {
        at.fail("has " + std::to_string(size) + " entries; allowed for " +
                std::string(k_event_names[static_cast<size_t>(e.what)]) + ": " + std::to_string(wanted));
        return e;
    }
    if (has_time(e.what)) {
        e.operation = at.item(1).index(operations, "operations");
        e.time_ns = at.item(2).number();
    }
    if (e.what == step_event_kind::work) {
        e.hbm_fraction = at.item(3).number(k_fraction);
    } else if (e.what >= step_event_kind::produce) {
        e.tensor = at.item(1).index(tensors, "tensors");
    }
    return e;
}

step_tensor read_tensor(const json_value &at, size_t tensors, size_t events) {
    json_object o = at.object();
    step_tensor t;
    t.name = o.text("name");
    t.size_bytes = o.count("bytes");
    t.micro_batch = o.count("micro_batch");
    t.stage = o.count("stage");
    t.layer = static_cast<uint32_t>(o.count("layer", 0, k_no_index - 1));
    t.can_keep = o.field("keep").boolean();
    t.can_offload = o.field("offload").boolean();
    if (const std::optional<json_value> recompute = o.optional_field("recompute")) {
        json_object r = recompute->object();
        t.can_recompute = true;
        t.recompute_ns = r.number("ns");
        const json_value from = r.field("from");
        const size_t count = from.size("indices of tensors");
        for (size_t i = 0; i < count; ++i) {
            t.recompute_from.push_back(from.item(i).index(tensors, "tensors"));
        }
        if (const std::optional<json_value> place = r.optional_field("at")) {
            t.recompute_at = place->index(events, "events");
        }
        r.end();
    }
    o.end();
    return t;
}

}  // namespace

std::string step_model_to_json(const step_model &model) {
    std::string text = "{\"ebb_record\": 1,\n\"fixed_bytes\": " + std::to_string(model.fixed_bytes);
    append_lines(text, "operations", model.operation_names,
                 [](const std::string &n) { return nlohmann::ordered_json(n); });
    append_lines(text, "tensors", model.tensors, step_tensor_to_json);
    append_lines(text, "events", model.events, event_to_json);
    return text + "}\n";
}

result<step_model> step_model_from_json(std::string_view text, std::string called) {
    json_file file(std::move(called), text);
    json_object top = file.root().object();
    step_model model;
    (void)top.count("ebb_record", 1, 1);
    model.fixed_bytes = top.count("fixed_bytes");
    const json_value operations = top.field("operations");
    const size_t operation_count = operations.size("names of operations");
    model.operation_names.clear();
    for (size_t i = 0; i < operation_count; ++i) {
        model.operation_names.push_back(operations.item(i).text());
    }
    const json_value tensors = top.field("tensors");
    const json_value events = top.field("events");
    const size_t tensor_count = tensors.size("tensors");
    const size_t event_count = events.size("events");
    for (size_t i = 0; i < tensor_count && !file.failed(); ++i) {
        model.tensors.push_back(read_tensor(tensors.item(i), tensor_count, event_count));
    }
    for (size_t i = 0; i < event_count && !file.failed(); ++i) {
        model.events.push_back(read_event(events.item(i), operation_count, tensor_count));
    }
    top.end();
    EBB_TRY(file.outcome());
    return model;
}

bool looks_like_step_model(std::string_view text) {
    // The key is the first one in every file that we write, and no other kind of file has it.
    constexpr size_t k_look = 4096;
    return text.substr(0, k_look).find("\"ebb_record\"") != std::string_view::npos;
}

}  // namespace ebb
