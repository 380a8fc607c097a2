#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <utility>

#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_runtime_table.hpp"
#include "link/counted_cuda_api.hpp"
#include "link/cuda_launches.hpp"
#include "link/cuda_link_kernels.hpp"
#include "link/link_devices.hpp"
#include "link/nccl_load.hpp"

namespace ebb::link {

namespace {

std::string version_text(int version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::vector<std::pair<std::string, std::string>> context_of(const cuda_device &dev) {
    const cuda_api &api = cuda_runtime_table();
    int driver = 0;
    int runtime = 0;
    std::array<char, 32> bus{};
    static_cast<void>(api.driver_get_version(&driver));
    static_cast<void>(api.runtime_get_version(&runtime));
    static_cast<void>(api.device_get_pci_bus_id(bus.data(), static_cast<int>(bus.size()), dev.info().ordinal));
    return {{"device", dev.statistics().model},
            {"device_bytes", fmt::format("{}", dev.memory().capacity_bytes)},
            {"pci_bus_id", bus.data()},
            {"cuda_driver", version_text(driver)},
            {"cuda_runtime", version_text(runtime)}};
}

}  // namespace

bool has_cuda() noexcept {
    return true;
}

const link_cuda &real_link_cuda() {
    static const link_cuda table = [] {
        link_cuda made{};
        made.host_alloc = &cudaHostAlloc;
        made.free_host = &cudaFreeHost;
        made.stream_create_with_flags = &cudaStreamCreateWithFlags;
        made.stream_destroy = &cudaStreamDestroy;
        made.stream_synchronize = &cudaStreamSynchronize;
        made.stream_wait_event = &cudaStreamWaitEvent;
        made.event_create_with_flags = &cudaEventCreateWithFlags;
        made.event_destroy = &cudaEventDestroy;
        made.event_record = &cudaEventRecord;
        made.launch_fill = &launch_fill;
        made.launch_compare = &launch_compare;
        made.launch_gate = &launch_gate;
        made.launch_load = &launch_load;
        return made;
    }();
    return table;
}

result<link_device> open_cuda(int32_t ordinal) {
    // Streams that share a queue of the GPU wait for each other: none may wait for the load, which ends last.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    result<std::unique_ptr<cuda_device>> dev =
        cuda_device::make(count_cuda_calls(cuda_runtime_table()), ordinal, cuda_device_options{});
    EBB_TRY(dev.why());
    for (const cudaError_t error : {cudaSetDevice(ordinal), load_kernels()}) {
        if (error != cudaSuccess) {
            return status{code::device_error, fmt::format("CUDA device {}: {}: {}", ordinal, cudaGetErrorName(error),
                                                          cudaGetErrorString(error))};
        }
    }
    result<std::unique_ptr<cuda_link_kernels>> kernels =
        cuda_link_kernels::make(real_link_cuda(), *dev.value(), nccl_collectives());
    EBB_TRY(kernels.why());
    link_device made;
    made.context = context_of(*dev.value());
    made.kernels = std::move(kernels).value();
    made.dev = std::move(dev).value();
    made.cuda_calls = &counted_cuda_calls;
    return made;
}

}  // namespace ebb::link
