#include "device/host/host_limits.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

namespace ebb {
namespace {

constexpr uint64_t k_no_limit = std::numeric_limits<uint64_t>::max();
constexpr uint64_t k_margin_divisor = 20;  // 5 %

std::string below(const std::string &system_root, const std::string &path) {
    const bool slash = !system_root.empty() && system_root.back() == '/';
    return (slash ? system_root.substr(0, system_root.size() - 1) : system_root) + path;
}

// A number with nothing but white space behind it. A number too large for 64 bits limits nothing either.
std::optional<uint64_t> parse_number(std::string_view text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
    if (error != std::errc{} || rest.find_first_not_of(" \t\r\n") != std::string_view::npos) {
        return std::nullopt;
    }
    return value;
}

std::optional<uint64_t> read_number(const std::string &path) {
    std::ifstream file(path);
    std::string line;
    return std::getline(file, line) ? parse_number(line) : std::nullopt;
}

// The number behind the word that a line starts with: "MemAvailable:  123 kB", "inactive_file 456".
std::optional<uint64_t> read_field(const std::string &path, std::string_view word) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
        if (line.compare(0, word.size(), word) != 0) {
            continue;
        }
        std::string_view rest = std::string_view(line).substr(word.size());
        if (rest.empty() || (rest.front() != ' ' && rest.front() != '\t')) {
            continue;
        }
        rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
        return parse_number(rest.substr(0, rest.find_first_of(" \t")));
    }
    return std::nullopt;
}

struct controller {
    std::string mount;  // where the hierarchy is mounted
    std::string group;  // this process's group in it: "/a/b"
    const char *limit_file;
    const char *use_file;
    const char *reclaimable_word;  // in memory.stat: page cache that the kernel takes back before it kills
};

controller version_2(std::string mount, std::string group) {
    return {std::move(mount), std::move(group), "memory.max", "memory.current", "inactive_file"};
}

controller version_1(std::string group) {
    return {"/sys/fs/cgroup/memory", std::move(group), "memory.limit_in_bytes", "memory.usage_in_bytes",
            "total_inactive_file"};
}

bool names_memory(std::string_view controllers) {
    while (!controllers.empty()) {
        const size_t comma = std::min(controllers.find(','), controllers.size());
        if (controllers.substr(0, comma) == "memory") {
            return true;
        }
        controllers.remove_prefix(std::min(comma + 1, controllers.size()));
    }
    return false;
}

// The smaller room; the limit and the file go with it.
void narrow(host_room &room, const host_room &other) {
    if (other.room_bytes < room.room_bytes) {
        room = other;
    }
}

uint64_t room_of(uint64_t limit_bytes, uint64_t used_bytes) {
    const uint64_t taken = used_bytes + limit_bytes / k_margin_divisor;
    return taken >= used_bytes && taken < limit_bytes ? limit_bytes - taken : 0;
}

// The group's limit is that of itself and of every group above it, each with its own use. In a container the path
// may name groups that are not mounted here: those are passed over up to the mounted root.
void narrow_by_groups(host_room &room, const std::string &system_root, const controller &memory) {
    std::string group = memory.group == "/" ? "" : memory.group;
    while (true) {
        const std::string folder = memory.mount + group + "/";
        const auto limit = read_number(below(system_root, folder + memory.limit_file));
        const auto use = read_number(below(system_root, folder + memory.use_file));
        if (limit.has_value() && use.has_value()) {
            const uint64_t cache =
                read_field(below(system_root, folder + "memory.stat"), memory.reclaimable_word).value_or(0);
            const uint64_t used = *use - std::min(cache, *use);
            narrow(room,
                   {room_of(*limit, used), memory_limiter::control_group, *limit, used, folder + memory.limit_file});
        }
        if (group.empty()) {
            return;
        }
        const size_t slash = group.rfind('/');
        group.resize(slash == std::string::npos ? 0 : slash);
    }
}

// Lines of /proc/self/cgroup are "id:controllers:path"; version 2 has id 0 and no controllers.
void narrow_by_line(host_room &room, const std::string &system_root, const std::string &line) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
        return;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
        narrow_by_groups(room, system_root, version_2("/sys/fs/cgroup", group));
        narrow_by_groups(room, system_root, version_2("/sys/fs/cgroup/unified", group));
    } else if (names_memory(controllers)) {
        narrow_by_groups(room, system_root, version_1(group));
    }
}

void narrow_by_system(host_room &room, const std::string &system_root) {
    constexpr uint64_t k_unit_bytes = 1024;
    const std::string meminfo = below(system_root, "/proc/meminfo");
    const auto available = read_field(meminfo, "MemAvailable:");
    if (!available.has_value() || *available > k_no_limit / k_unit_bytes) {
        return;
    }
    const uint64_t total =
        std::clamp(read_field(meminfo, "MemTotal:").value_or(0), *available, k_no_limit / k_unit_bytes);
    const uint64_t used = (total - *available) * k_unit_bytes;
    narrow(room, {room_of(total * k_unit_bytes, used), memory_limiter::system, total * k_unit_bytes, used, ""});
}

}  // namespace

host_room read_host_room(const std::string &system_root) {
    host_room room;
    room.room_bytes = k_no_limit;
    std::ifstream groups(below(system_root, "/proc/self/cgroup"));
    std::string line;
    while (std::getline(groups, line)) {
        narrow_by_line(room, system_root, line);
    }
    narrow_by_system(room, system_root);
    return room;
}

std::string explain(const host_room &room) {
    switch (room.limiter) {
        case memory_limiter::control_group:
            return fmt::format(
                "the control group's limit of {} bytes ({}), of which {} are in use and 5 % stay free; raise "
                "that limit (a container's --memory), or lower host_bytes",
                room.limit_bytes, room.limit_file, room.used_bytes);
        case memory_limiter::system:
            return fmt::format(
                "the system's memory of {} bytes, of which {} are in use and 5 % stay free; free some, or "
                "lower host_bytes",
                room.limit_bytes, room.used_bytes);
        case memory_limiter::none:
            break;
    }
    return "no limit that could be read";
}

}  // namespace ebb
