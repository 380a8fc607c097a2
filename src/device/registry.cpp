#include "device/registry.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>

#include "device/host/host_device.hpp"
#include "device/host/host_limits.hpp"
#include "device/module/automatic_device.hpp"
#include "device/module/cuda_module_loader.hpp"
#include "device/module/module_device.hpp"
#include "device/sim/sim_device.hpp"
#include "device/sim/sim_settings.hpp"

namespace ebb {
namespace {

status check_only_ordinal(std::string_view name, int32_t ordinal) {
    if (ordinal == 0) {
        return {};
    }
    return {code::invalid_argument,
            fmt::format("device_ordinal {}: there is one {} device, and its ordinal is 0", ordinal, name)};
}

// A capacity that does not fit would end in the kernel's killer as the memory fills, long after anyone could
// say why.
result<uint64_t> host_capacity(const device_options &options) {
    constexpr uint64_t k_default_bytes = 1ULL << 30U;
    const host_room room = read_host_room(options.host_system_root);
    if (!options.host_capacity_bytes.has_value()) {
        return std::min(k_default_bytes, room.room_bytes / 2);
    }
    if (*options.host_capacity_bytes > room.room_bytes) {
        return status{
            code::out_of_host_memory,
            fmt::format("host_device_bytes {}: the host device's memory is host memory, and there is room for {} "
                        "bytes; limited by {}; lower host_device_bytes",
                        *options.host_capacity_bytes, room.room_bytes, explain(room))};
    }
    return *options.host_capacity_bytes;
}

result<std::unique_ptr<device>> make_host(const device_options &options) {
    const result<uint64_t> capacity = host_capacity(options);
    if (!capacity.ok()) {
        return capacity.why();
    }
    host_device_options host;
    host.capacity_bytes = capacity.value();
    host.d2h_bytes_per_second = options.host_d2h_bytes_per_second;
    host.h2d_bytes_per_second = options.host_h2d_bytes_per_second;
    host.system_root = options.host_system_root;
    host.prefault_threads = options.host_prefault_threads;
    return std::unique_ptr<device>(std::make_unique<host_device>(host));
}

result<std::unique_ptr<device>> make_sim(std::string_view settings) {
    const result<sim_machine> machine = parse_sim_machine(settings);
    if (!machine.ok()) {
        return machine.why();
    }
    return std::unique_ptr<device>(std::make_unique<sim_device>(machine.value()));
}

result<std::unique_ptr<device>> make_cuda(const device_module &module, int32_t ordinal, const device_options &options) {
    const module_options wanted{options.host_system_root.c_str(), options.host_prefault_threads, ordinal,
                                options.calibrate ? 1 : 0, options.nvtx ? 1 : 0};
    return module_device::make(module, "cuda", wanted, [&](const char *note) {
        if (options.log != nullptr) {
            options.log->write(log_level::warning, note);
        }
    });
}

result<std::unique_ptr<device>> make_cuda(int32_t ordinal, const device_options &options) {
    const result<const device_module *> module = load_cuda_module(options.cuda_library);
    if (!module.ok()) {
        return status{module.why().code(), "device \"cuda\": " + module.why().text()};
    }
    EBB_TRY(check_driver(*module.value()));
    return make_cuda(*module.value(), ordinal, options);
}

void say_once_that_there_is_no_gpu(const logger *log) {
    static std::atomic<bool> said{false};
    if (log != nullptr && !said.exchange(true)) {
        log->write(
            log_level::warning,
            "device \"auto\": no NVIDIA driver is installed, so the host device is taken: copies run on the CPU; "
            "set device to \"host\" where that is meant");
    }
}

result<std::unique_ptr<device>> make_automatic(int32_t ordinal, const device_options &options) {
    const result<const device_module *> module =
        choose_automatic(load_cuda_module(options.cuda_library), nvidia_driver_is_installed);
    if (!module.ok()) {
        return module.why();
    }
    if (module.value() != nullptr) {
        return make_cuda(*module.value(), ordinal, options);
    }
    EBB_TRY(check_only_ordinal("host", ordinal));
    say_once_that_there_is_no_gpu(options.log);
    return make_host(options);
}

}  // namespace

std::string device_names(const std::string &cuda_library) {
    return load_cuda_module(cuda_library).ok() ? "host null sim cuda" : "host null sim";
}

result<std::unique_ptr<device>> make_device(std::string_view name, int32_t ordinal, const device_options &options) {
    if (name == "auto") {
        return make_automatic(ordinal, options);
    }
    if (name == "cuda") {
        return make_cuda(ordinal, options);
    }
    if (name == "host") {
        EBB_TRY(check_only_ordinal("host", ordinal));
        return make_host(options);
    }
    if (name == "null") {
        EBB_TRY(check_only_ordinal("null", ordinal));
        return std::unique_ptr<device>(std::make_unique<null_device>(options.null));
    }
    constexpr std::string_view k_sim = "sim";
    if (name.substr(0, name.find(':')) == k_sim) {
        EBB_TRY(check_only_ordinal(k_sim, ordinal));
        return make_sim(name.substr(std::min(name.size(), k_sim.size() + 1)));
    }
    return status{
        code::invalid_argument,
        fmt::format("device \"{}\": there is no such device; there are \"cuda\", \"host\", \"null\", \"sim\" (with "
                    "settings: \"sim:key=value,...\") and \"auto\"",
                    name)};
}

}  // namespace ebb
