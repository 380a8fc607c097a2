#include <fmt/format.h>

#include <memory>
#include <thread>

#include "link/host_link_kernels.hpp"
#include "link/link_devices.hpp"

namespace ebb::link {

result<link_device> open_host(uint64_t device_bytes) {
    host_device_options options;
    options.capacity_bytes = device_bytes;
    auto dev = std::make_unique<host_device>(options);
    host_device &host = *dev;
    result<std::unique_ptr<host_link_kernels>> kernels = host_link_kernels::make(host);
    EBB_TRY(kernels.why());
    link_device made;
    made.dev = std::move(dev);
    made.host = &host;
    made.kernels = std::move(kernels).value();
    made.context = {{"device", "host"}, {"processors", fmt::format("{}", std::thread::hardware_concurrency())}};
    return made;
}

}  // namespace ebb::link
