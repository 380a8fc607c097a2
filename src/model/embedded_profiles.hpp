// The files of profiles/, in the program: made at build time by cmake/ebb_embed_profiles.cmake.
#pragma once

#include <cstddef>
#include <string_view>

namespace ebb {

struct embedded_profile {
    std::string_view folder;  // machines, models
    std::string_view name;    // of the file, without .json
    std::string_view text;
};

extern const embedded_profile k_embedded_profiles[];
extern const size_t k_embedded_profile_count;

}  // namespace ebb
