#include "model/profile_library.hpp"

#include <fmt/format.h>

#include "base/edit_distance.hpp"
#include "base/text_file.hpp"
#include "model/embedded_profiles.hpp"

namespace ebb {

namespace {

constexpr std::string_view k_machines = "machines";
constexpr std::string_view k_models = "models";

std::vector<std::string_view> names_in(std::string_view folder) {
    std::vector<std::string_view> names;
    for (size_t i = 0; i < k_embedded_profile_count; ++i) {
        if (k_embedded_profiles[i].folder == folder) {
            names.push_back(k_embedded_profiles[i].name);
        }
    }
    return names;
}

status no_such_profile(std::string_view folder, std::string_view name) {
    std::string listed;
    std::string_view nearest;
    size_t least = name.size() / 2 + 1;
    for (const std::string_view known : names_in(folder)) {
        listed += (listed.empty() ? "" : ", ") + std::string(known);
        const size_t distance = edit_distance(name, known);
        if (distance < least) {
            least = distance;
            nearest = known;
        }
    }
    const std::string_view one = folder.substr(0, folder.size() - 1);
    const std::string meant = nearest.empty() ? "" : fmt::format(" Did you mean {}?", nearest);
    return {
        code::invalid_argument,
        fmt::format("There is no {} \"{}\".{} Known: {}; or give the path of a file (with a '/' or ending in .json).",
                    one, name, meant, listed)};
}

result<std::string> profile_text(std::string_view folder, const std::string &name_or_path) {
    if (is_profile_path(name_or_path)) {
        return read_text_file(name_or_path);
    }
    for (size_t i = 0; i < k_embedded_profile_count; ++i) {
        const embedded_profile &p = k_embedded_profiles[i];
        if (p.folder == folder && p.name == name_or_path) {
            return std::string(p.text);
        }
    }
    return no_such_profile(folder, name_or_path);
}

}  // namespace

std::vector<std::string_view> machine_names() {
    return names_in(k_machines);
}

std::vector<std::string_view> model_names() {
    return names_in(k_models);
}

bool is_profile_path(std::string_view name_or_path) noexcept {
    constexpr std::string_view k_extension = ".json";
    const bool has_extension = name_or_path.size() >= k_extension.size() &&
                               name_or_path.substr(name_or_path.size() - k_extension.size()) == k_extension;
    return has_extension || name_or_path.find('/') != std::string_view::npos;
}

result<std::string> machine_text(const std::string &name_or_path) {
    return profile_text(k_machines, name_or_path);
}

result<std::string> model_text(const std::string &name_or_path) {
    return profile_text(k_models, name_or_path);
}

result<machine_profile> find_machine(const std::string &name_or_path) {
    const result<std::string> text = machine_text(name_or_path);
    return text.ok() ? parse_machine_profile(text.value(), name_or_path) : text.why();
}

result<model_profile> find_model(const std::string &name_or_path) {
    const result<std::string> text = model_text(name_or_path);
    return text.ok() ? parse_model_profile(text.value(), name_or_path) : text.why();
}

}  // namespace ebb
