// Machines and models by name (those of profiles/, which are in the program) or by the path of a file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "model/machine_profile.hpp"
#include "model/model_profile.hpp"

namespace ebb {

[[nodiscard]] std::vector<std::string_view> machine_names();
[[nodiscard]] std::vector<std::string_view> model_names();

// A path is what has a '/' in it or ends in ".json"; anything else is a name.
[[nodiscard]] bool is_profile_path(std::string_view name_or_path) noexcept;

[[nodiscard]] result<machine_profile> find_machine(const std::string &name_or_path);
[[nodiscard]] result<model_profile> find_model(const std::string &name_or_path);

// The file itself, to print or to start an own one from.
[[nodiscard]] result<std::string> machine_text(const std::string &name_or_path);
[[nodiscard]] result<std::string> model_text(const std::string &name_or_path);

}  // namespace ebb
