#include "device/module/automatic_device.hpp"

#include <fmt/core.h>

namespace ebb {

status check_driver(const device_module &module) {
    module_driver found{};
    if (const int32_t why = module.probe(module.context, &found); why != 0) {
        return {static_cast<code>(why), module.last_text()};
    }
    if (found.driver_version == 0) {
        return {
            code::unsupported,
            "device \"cuda\": no NVIDIA driver is installed (libcuda.so.1 was not found); install one, or set device "
            "to \"host\""};
    }
    return {};
}

result<const device_module *> choose_automatic(const result<const device_module *> &module,
                                               bool (*driver_is_installed)()) {
    const device_module *none = nullptr;
    if (!module.ok()) {
        if (!driver_is_installed()) {
            return none;
        }
        return status{module.why().code(),
                      fmt::format("an NVIDIA driver is installed, so device \"auto\" means the GPU, but {}",
                                  module.why().text())};
    }
    module_driver found{};
    if (const int32_t why = module.value()->probe(module.value()->context, &found); why != 0) {
        return status{static_cast<code>(why), module.value()->last_text()};
    }
    return found.driver_version == 0 ? none : module.value();
}

}  // namespace ebb
