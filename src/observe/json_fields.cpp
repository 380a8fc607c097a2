#include "observe/json_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/edit_distance.hpp"

namespace ebb {

namespace {

const nlohmann::ordered_json k_json_nothing;

// As JSON pointers write it.
std::string json_child_path(const std::string &path, std::string_view name) {
    std::string child = path + '/';
    for (const char c : name) {
        if (c == '~') {
            child += "~0";
        } else if (c == '/') {
            child += "~1";
        } else {
            child += c;
        }
    }
    return child;
}

std::string json_shown(const nlohmann::ordered_json &value) {
    constexpr size_t k_longest = 60;
    if (value.is_object() || value.is_array()) {
        return value.is_object() ? "an object" : "an array";
    }
    std::string text = value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    return text.size() > k_longest ? text.substr(0, k_longest) + "..." : text;
}

std::string json_allowed_number(const number_limits &limits) {
    if (std::isinf(limits.high)) {
        return fmt::format("a number {} {}", limits.low_allowed ? "of at least" : "above", limits.low);
    }
    return fmt::format("a number {} {} and at most {}", limits.low_allowed ? "of at least" : "above", limits.low,
                       limits.high);
}

// A name is meant if a third of it or less is different.
std::string_view json_nearest(std::string_view name, const std::vector<std::string> &known) {
    std::string_view nearest;
    size_t least = std::max<size_t>(2, name.size() / 3) + 1;
    for (const std::string &k : known) {
        const size_t distance = edit_distance(name, k);
        if (distance < least) {
            least = distance;
            nearest = k;
        }
    }
    return nearest;
}

std::string json_listed(const std::vector<std::string> &names) {
    std::string text;
    for (const std::string &n : names) {
        text += (text.empty() ? "" : ", ") + n;
    }
    return text;
}

// Whole numbers may be written as 80e9 too.
std::optional<uint64_t> json_whole(const nlohmann::ordered_json &value) {
    constexpr double k_exact_below = 9007199254740992.0;
    if (value.is_number_unsigned()) {
        return value.get<uint64_t>();
    }
    if (value.is_number_float()) {
        const double number = value.get<double>();
        if (number >= 0 && number < k_exact_below && std::floor(number) == number) {
            return static_cast<uint64_t>(number);
        }
    }
    return std::nullopt;
}

}  // namespace

// -------------------------------------------------------------------------------------------------------- values --

void json_value::fail(std::string_view why) const {
    file_->fail(path_, why);
}

void json_value::refuse(std::string_view allowed) const {
    fail(fmt::format("is {}; allowed: {}", json_shown(*value_), allowed));
}

json_object json_value::object() const {
    if (!value_->is_object()) {
        refuse("an object");
    }
    return {*file_, *value_, path_};
}

size_t json_value::size(std::string_view of_what) const {
    if (!value_->is_array()) {
        refuse(fmt::format("an array of {}", of_what));
        return 0;
    }
    return value_->size();
}

json_value json_value::item(size_t index) const {
    const bool there = value_->is_array() && index < value_->size();
    json_value found(*file_, there ? (*value_)[index] : k_json_nothing, fmt::format("{}/{}", path_, index));
    if (!there) {
        found.fail("is missing");
    }
    return found;
}

double json_value::number(const number_limits &limits) const {
    const double number = value_->is_number() ? value_->get<double>() : std::nan("");
    const bool low = limits.low_allowed ? number >= limits.low : number > limits.low;
    if (!low || !(number <= limits.high) || !std::isfinite(number)) {
        refuse(json_allowed_number(limits));
        return 0;
    }
    return number;
}

uint64_t json_value::count(uint64_t low, uint64_t high) const {
    const std::optional<uint64_t> whole = json_whole(*value_);
    if (!whole || *whole < low || *whole > high) {
        refuse(high == ~uint64_t{0} ? fmt::format("a whole number of at least {}", low)
                                    : fmt::format("a whole number from {} to {}", low, high));
        return 0;
    }
    return *whole;
}

uint32_t json_value::index(size_t end, std::string_view of_what) const {
    if (end == 0) {
        refuse(fmt::format("nothing, since there are no {}", of_what));
        return 0;
    }
    const std::optional<uint64_t> whole = json_whole(*value_);
    if (!whole || *whole >= end) {
        refuse(fmt::format("the index of one of the {} {}, 0 to {}", end, of_what, end - 1));
        return 0;
    }
    return static_cast<uint32_t>(*whole);
}

bool json_value::boolean() const {
    if (!value_->is_boolean()) {
        refuse("true or false");
        return false;
    }
    return value_->get<bool>();
}

std::string json_value::text() const {
    if (!value_->is_string()) {
        refuse("a text");
        return {};
    }
    return value_->get<std::string>();
}

size_t json_value::word(std::initializer_list<std::string_view> words) const {
    if (value_->is_string()) {
        const auto found = std::find(words.begin(), words.end(), value_->get_ref<const std::string &>());
        if (found != words.end()) {
            return static_cast<size_t>(found - words.begin());
        }
    }
    std::vector<std::string> names;
    for (const std::string_view w : words) {
        names.push_back(fmt::format("\"{}\"", w));
    }
    refuse(json_listed(names));
    return 0;
}

// ------------------------------------------------------------------------------------------------------- objects --

const nlohmann::ordered_json *json_object::find(std::string_view name) {
    asked_.emplace_back(name);
    if (!value_->is_object()) {
        return nullptr;
    }
    const auto found = value_->find(std::string(name));
    return found == value_->end() ? nullptr : &*found;
}

json_value json_object::field(std::string_view name) {
    const nlohmann::ordered_json *found = find(name);
    json_value value(*file_, found == nullptr ? k_json_nothing : *found, json_child_path(path_, name));
    if (found == nullptr) {
        value.fail("is missing");
    }
    return value;
}

std::optional<json_value> json_object::optional_field(std::string_view name) {
    const nlohmann::ordered_json *found = find(name);
    if (found == nullptr) {
        return std::nullopt;
    }
    return json_value(*file_, *found, json_child_path(path_, name));
}

void json_object::end() {
    if (!value_->is_object()) {
        return;
    }
    for (const auto &item : value_->items()) {
        if (std::find(asked_.begin(), asked_.end(), item.key()) != asked_.end()) {
            continue;
        }
        const std::string_view nearest = json_nearest(item.key(), asked_);
        const std::string meant = nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest);
        file_->fail(json_child_path(path_, item.key()),
                    fmt::format("is not known{} allowed here: {}", meant.empty() ? ";" : meant, json_listed(asked_)));
    }
}

// ---------------------------------------------------------------------------------------------------------- files --

json_file::json_file(std::string called, std::string_view text) : called_(std::move(called)) {
    try {
        parse(text);
    } catch (const nlohmann::json::exception &e) {
        // Its texts start with a number of the library's own, in brackets.
        const std::string_view what = e.what();
        const size_t bracket = what.find("] ");
        outcome_ = {code::invalid_argument,
                    fmt::format("{}: not JSON: {}", called_,
                                bracket == std::string_view::npos ? what : what.substr(bracket + 2))};
    }
}

void json_file::parse(std::string_view text) {
    using json = nlohmann::ordered_json;
    // The second of two equal keys would silently win.
    std::vector<std::set<std::string>> keys;
    const auto look = [&](int, json::parse_event_t event, json &parsed) {
        if (event == json::parse_event_t::object_start) {
            keys.emplace_back();
        } else if (event == json::parse_event_t::object_end) {
            keys.pop_back();
        } else if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second &&
                   outcome_.ok()) {
            outcome_ = {code::invalid_argument,
                        fmt::format("{}: the key {} stands twice in one object", called_, json_shown(parsed))};
        }
        return true;
    };
    value_ = json::parse(text, look);
}

void json_file::fail(const std::string &path, std::string_view why) {
    if (outcome_.ok()) {
        outcome_ = {code::invalid_argument, fmt::format("{}: {} {}", called_, path.empty() ? "the whole" : path, why)};
    }
}

}  // namespace ebb
