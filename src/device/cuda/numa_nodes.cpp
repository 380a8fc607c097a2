#include "device/cuda/numa_nodes.hpp"

#include <fmt/core.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <sstream>

namespace ebb {
namespace {

constexpr int32_t k_most_nodes = 1024;
constexpr unsigned k_word_bits = 64;
// The kernel takes one bit less than it is told.
constexpr unsigned long k_mask_bits = k_most_nodes + 1;

std::string first_line(const std::string &path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

std::string nodes_folder(const std::string &system_root) {
    return system_root + "/sys/devices/system/node/";
}

std::vector<int> cpus_of(const std::string &system_root, int32_t node) {
    return parse_number_list(first_line(fmt::format("{}node{}/cpulist", nodes_folder(system_root), node)));
}

int32_t node_of_pci_device(const std::string &system_root, std::string bus_id) {
    std::transform(bus_id.begin(), bus_id.end(), bus_id.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const std::string line = first_line(fmt::format("{}/sys/bus/pci/devices/{}/numa_node", system_root, bus_id));
    int32_t node = k_no_node;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), node);
    return error == std::errc{} && node >= 0 ? node : k_no_node;
}

// The file lists the distances to the online nodes, in their order.
int32_t nearest_with_cpus(const std::string &system_root, const std::vector<int> &online, int32_t from) {
    std::istringstream distances(first_line(fmt::format("{}node{}/distance", nodes_folder(system_root), from)));
    int32_t nearest = k_no_node;
    int shortest = 0;
    int distance = 0;
    for (size_t i = 0; i < online.size() && distances >> distance; ++i) {
        if ((nearest == k_no_node || distance < shortest) && !cpus_of(system_root, online[i]).empty()) {
            nearest = online[i];
            shortest = distance;
        }
    }
    return nearest;
}

void set_node(unsigned long *mask, int32_t node) noexcept {
    mask[static_cast<unsigned>(node) / k_word_bits] |= 1UL << (static_cast<unsigned>(node) % k_word_bits);
}

}  // namespace

std::vector<int> parse_number_list(const std::string &text) {
    constexpr int k_most = 1 << 16;
    std::vector<int> numbers;
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) {
        int first = -1;
        const char *end = part.data() + part.size();
        const auto [at, error] = std::from_chars(part.data(), end, first);
        int last = first;
        if (error == std::errc{} && at != end && *at == '-') {
            std::from_chars(at + 1, end, last);
        }
        for (int number = std::max(first, 0); error == std::errc{} && number <= std::min(last, k_most); ++number) {
            numbers.push_back(number);
        }
    }
    return numbers;
}

node_choice choose_host_node(const std::string &system_root, int32_t device_node, const std::string &pci_bus_id) {
    const std::string root =
        !system_root.empty() && system_root.back() == '/' ? system_root.substr(0, system_root.size() - 1) : system_root;
    const std::vector<int> online = parse_number_list(first_line(nodes_folder(root) + "online"));
    if (online.size() < 2) {
        return {k_no_node, "the system has one NUMA node", {}};
    }
    node_choice choice{device_node, "CUDA names it the GPU's host node", {}};
    if (device_node < 0) {
        choice = {node_of_pci_device(root, pci_bus_id), fmt::format("PCI device {} is on it", pci_bus_id), {}};
    }
    if (choice.node < 0 || choice.node >= k_most_nodes ||
        std::find(online.begin(), online.end(), choice.node) == online.end()) {
        return {k_no_node, "neither CUDA nor the PCI device names a NUMA node that there is", {}};
    }
    choice.cpus = cpus_of(root, choice.node);
    if (choice.cpus.empty()) {
        const int32_t without_cpus = choice.node;
        choice.node = nearest_with_cpus(root, online, without_cpus);
        choice.reason = fmt::format("it is the nearest to node {}, which has no CPUs", without_cpus);
        choice.cpus = choice.node < 0 ? std::vector<int>{} : cpus_of(root, choice.node);
    }
    return choice;
}

int prefer_node(void *data, uint64_t size_bytes, int32_t node) noexcept {
    if (node < 0 || node >= k_most_nodes) {
        return EINVAL;
    }
    // Preferred and not bound: on a full node a binding ends in the kernel's killer, a preference on the next node.
    unsigned long mask[k_most_nodes / k_word_bits] = {};
    set_node(mask, node);
    return syscall(SYS_mbind, data, size_bytes, MPOL_PREFERRED, mask, k_mask_bits, 0) == 0 ? 0 : errno;
}

int32_t node_of_page(const void *data) noexcept {
    int node = k_no_node;
    return syscall(SYS_get_mempolicy, &node, nullptr, 0, data, MPOL_F_NODE | MPOL_F_ADDR) == 0 ? node : k_no_node;
}

thread_node_scope::thread_node_scope(int32_t node) noexcept {
    static_assert(k_mask_words * k_word_bits == k_most_nodes);
    if (node < 0 || node >= k_most_nodes) {
        refusal_ = EINVAL;
        return;
    }
    unsigned long mask[k_mask_words] = {};
    set_node(mask, node);
    if (syscall(SYS_get_mempolicy, &mode_, mask_, k_mask_bits, nullptr, 0) != 0 ||
        syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, k_mask_bits) != 0) {
        refusal_ = errno;
    }
}

thread_node_scope::~thread_node_scope() {
    if (refusal_ == 0) {
        syscall(SYS_set_mempolicy, mode_, mask_, k_mask_bits);
    }
}

}  // namespace ebb
