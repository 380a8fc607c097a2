#include "device/cuda/pinned_slabs.hpp"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "device/host/host_limits.hpp"

namespace ebb {
namespace {

constexpr uint64_t k_slab_alignment = 4096;  // of what is mapped, at least
constexpr unsigned k_register_flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
constexpr unsigned k_allocate_flags = cudaHostAllocPortable | cudaHostAllocMapped;

// Windows' kernel for Linux programs names its maker.
bool is_wsl(const std::string &system_root) {
    std::ifstream file(system_root + "/proc/sys/kernel/osrelease");
    std::string release;
    std::getline(file, release);
    return release.find("icrosoft") != std::string::npos;
}

}  // namespace

pinned_slabs::pinned_slabs(cuda_context &context, std::string system_root, uint32_t prefault_threads)
    : context_(context), system_root_(std::move(system_root)), prefault_threads_(prefault_threads) {}

// What give_back_all did not come to: on a device that is lost or in a process that ends nothing writes to the pages
// any more, else they stay.
pinned_slabs::~pinned_slabs() {
    for (const auto &[data, mapped] : slabs_) {
        if (!context_.errors.usable()) {
            unmap_own(mapped);
        }
    }
}

status pinned_slabs::open() {
    int host_node = k_no_node;
    // Older drivers do not know the question: then the PCI device answers.
    if (const cudaError_t error =
            context_.api.device_get_attribute(&host_node, cudaDevAttrHostNumaId, context_.ordinal);
        error != cudaSuccess) {
        context_.errors.forget(error);
        host_node = k_no_node;
    }
    char bus_id[32] = "";
    EBB_TRY(context_.errors.check(context_.api.device_get_pci_bus_id(bus_id, sizeof bus_id, context_.ordinal),
                                  "cudaDeviceGetPCIBusId", [] { return std::string("asking where the device is"); }));
    choice_ = choose_host_node(system_root_, host_node, bus_id);
    int uses_page_tables = 0;
    EBB_TRY(context_.errors.check(
        context_.api.device_get_attribute(&uses_page_tables, cudaDevAttrPageableMemoryAccessUsesHostPageTables,
                                          context_.ordinal),
        "cudaDeviceGetAttribute", [] { return std::string("asking how the device reads host memory"); }));
    allocated_by_cuda_ = uses_page_tables != 0;
    if (choice_.node == k_no_node) {
        return {};
    }
    // Known before the first slab, so that it is said once and by the call that makes the device.
    if (allocated_by_cuda_) {
        placing_refusal_ = thread_node_scope(choice_.node).refusal();
        return {};
    }
    const result<host_pages> probe = reserve_pages(k_slab_alignment);
    if (probe.ok()) {
        placing_refusal_ = prefer_node(probe.value().data, probe.value().size_bytes, choice_.node);
        unmap_pages(probe.value());
    }
    return {};
}

std::string pinned_slabs::note() const {
    if (placing_refusal_ == 0) {
        return {};
    }
    return fmt::format(
        "pinned memory of CUDA device {} belongs on NUMA node {} ({}), and the system refused to place it there ({}): "
        "it "
        "lies where it is touched first. Copies are slower from another node; give the container CAP_SYS_NICE, or run "
        "the process on that node (numactl)",
        context_.ordinal, choice_.node, choice_.reason, std::strerror(placing_refusal_));
}

uint64_t pinned_slabs::room_bytes() const {
    return read_host_room(system_root_).room_bytes;
}

pinned_statistics pinned_slabs::statistics() const {
    const std::lock_guard lock(mutex_);
    pinned_statistics all;
    all.mapped_bytes = mapped_bytes_;
    all.maps = maps_;
    all.numa_node = choice_.node;
    all.node_reason = choice_.reason;
    all.placing_refusal = placing_refusal_;
    all.far_bytes = far_bytes_;
    all.allocated_by_cuda = allocated_by_cuda_;
    return all;
}

// -------------------------------------------------------------------------------------------------- mapping --

result<void *> pinned_slabs::map(uint64_t size_bytes) {
    if (size_bytes == 0) {
        return status{code::invalid_argument, "map_host: 0 bytes wanted; ask for at least 1"};
    }
    if (!context_.errors.usable()) {
        return context_.errors.refusal();
    }
    constexpr uint64_t k_absurd_bytes = 1ULL << 62U;  // no address space is larger, and sums must not wrap
    if (const host_room room = read_host_room(system_root_); size_bytes > std::min(room.room_bytes, k_absurd_bytes)) {
        return status{code::out_of_host_memory,
                      fmt::format("pinned host memory: {} bytes wanted, {} bytes pinned for this device before, room "
                                  "for {} bytes more; limited by {}",
                                  size_bytes, statistics().mapped_bytes, room.room_bytes, explain(room))};
    }
    void *data = nullptr;
    result<slab> made = reserve(size_bytes, data);
    if (!made.ok()) {
        return made.why();
    }
    made.value().size_bytes = size_bytes;
    made.value().far_bytes = far_bytes(data, size_bytes);
    const std::lock_guard lock(mutex_);
    slabs_[data] = made.value();
    ++maps_;
    mapped_bytes_ += size_bytes;
    far_bytes_ += made.value().far_bytes;
    return data;
}

result<pinned_slabs::slab> pinned_slabs::reserve(uint64_t size_bytes, void *&data) {
    return allocated_by_cuda_ ? allocate(size_bytes, data) : take_pages(size_bytes, data);
}

result<pinned_slabs::slab> pinned_slabs::take_pages(uint64_t size_bytes, void *&data) {
    slab made;
    const result<host_pages> pages = reserve_pages(size_bytes);
    if (!pages.ok()) {
        return status{pages.why().code(), fmt::format("pinned host memory: {}", pages.why().text())};
    }
    made.pages = pages.value();
    data = made.pages.data;
    // A forked child (a data loader's worker) would share the pages copy-on-write: the GPU would go on writing to those
    // of one of the two, and nobody knows whose.
    madvise(data, made.pages.size_bytes, MADV_DONTFORK);
    const bool placed = choice_.node != k_no_node && prefer_node(data, made.pages.size_bytes, choice_.node) == 0;
    const std::vector<int> anywhere;
    status touched = touch_pages(made.pages, prefault_threads_, placed ? anywhere : choice_.cpus);
    if (touched.ok()) {
        const allocation_scope scope(context_);
        const cudaError_t error =
            scope.why().ok() ? context_.api.host_register(data, made.pages.size_bytes, k_register_flags) : cudaSuccess;
        touched = error == cudaSuccess ? scope.why() : refused(error, "cudaHostRegister", size_bytes);
    }
    if (!touched.ok()) {
        unmap_pages(made.pages);
        return touched;
    }
    return made;
}

result<pinned_slabs::slab> pinned_slabs::allocate(uint64_t size_bytes, void *&data) {
    slab made;
    // CUDA does not say how it aligns what it allocates.
    const uint64_t wanted_bytes = whole_pages(size_bytes) + k_slab_alignment;
    const allocation_scope scope(context_);
    EBB_TRY(scope.why());
    cudaError_t error = cudaSuccess;
    {
        const thread_node_scope placed(choice_.node);
        error = context_.api.host_alloc(&made.allocation, wanted_bytes, k_allocate_flags);
    }
    if (error != cudaSuccess) {
        return refused(error, "cudaHostAlloc", size_bytes);
    }
    const uintptr_t misfit = reinterpret_cast<uintptr_t>(made.allocation) % k_slab_alignment;
    data = static_cast<char *>(made.allocation) + (k_slab_alignment - misfit) % k_slab_alignment;
    std::memset(data, 0, size_bytes);
    return made;
}

status pinned_slabs::refused(cudaError_t error, const char *function, uint64_t size_bytes) {
    status failed = context_.errors.failure(error, function, fmt::format("pinning {} bytes", size_bytes));
    if (!context_.errors.usable()) {
        return failed;
    }
    const char *advice = is_wsl(system_root_)
                             ? "Windows gives WSL little memory to pin (1 to 2 GB), whatever is free: lower host_bytes "
                               "(EBB_HOST_BYTES) to what it gives"
                             : "the driver refuses what the system has free: lower host_bytes (EBB_HOST_BYTES), or end "
                               "what pins memory beside this process";
    return {code::out_of_host_memory,
            fmt::format("pinned host memory: {} bytes wanted, {} bytes pinned for this device before, the limits leave "
                        "{} bytes, and pinning was refused: {} failed with {}; {}",
                        size_bytes, statistics().mapped_bytes, room_bytes(), function, context_.errors.name(error),
                        advice)};
}

// Some pages stand for all of them.
uint64_t pinned_slabs::far_bytes(const void *data, uint64_t size_bytes) const {
    constexpr uint64_t k_samples = 64;
    if (choice_.node == k_no_node) {
        return 0;
    }
    const uint64_t step_bytes = std::max(size_bytes / k_samples, k_slab_alignment);
    uint64_t known = 0;
    uint64_t far = 0;
    for (uint64_t at = 0; at < size_bytes; at += step_bytes) {
        const int32_t node = node_of_page(static_cast<const char *>(data) + at);
        known += node == k_no_node ? 0 : 1;
        far += node == k_no_node || node == choice_.node ? 0 : 1;
    }
    return known == 0 ? 0
                      : static_cast<uint64_t>(static_cast<double>(size_bytes) * static_cast<double>(far) /
                                              static_cast<double>(known));
}

// -------------------------------------------------------------------------------------------------- giving back --

status pinned_slabs::unmap(void *data, uint64_t size_bytes) {
    std::optional<allocation_scope> scope;
    if (context_.errors.usable()) {
        scope.emplace(context_);
        EBB_TRY(scope->why());  // while it is mapped still
    }
    slab unmapped;
    {
        const std::lock_guard lock(mutex_);
        const auto found = slabs_.find(data);
        if (found == slabs_.end()) {
            return {code::invalid_argument,
                    fmt::format("unmap_host: {} was not mapped by this device, or was unmapped before", data)};
        }
        if (found->second.size_bytes != size_bytes) {
            return {code::invalid_argument, fmt::format("unmap_host: the mapping at {} has {} bytes, not {}", data,
                                                        found->second.size_bytes, size_bytes)};
        }
        unmapped = found->second;
        slabs_.erase(found);
        mapped_bytes_ -= size_bytes;
        far_bytes_ -= unmapped.far_bytes;
    }
    status given_back;
    if (scope) {
        given_back = give_back(data, unmapped);
    }
    if (given_back.ok() || !context_.errors.usable()) {
        unmap_own(unmapped);
    }
    return given_back;
}

void pinned_slabs::unmap_own(const slab &unmapped) noexcept {
    if (unmapped.pages.data != nullptr) {
        unmap_pages(unmapped.pages);
    }
}

// Pages that CUDA does not let go of stay: the GPU may still write to them. When the device is lost, it does not.
status pinned_slabs::give_back(void *data, const slab &mapped) {
    const auto what = [&] { return fmt::format("giving back {} bytes of pinned memory", mapped.size_bytes); };
    return mapped.allocation != nullptr
               ? context_.errors.check(context_.api.free_host(mapped.allocation), "cudaFreeHost", what)
               : context_.errors.check(context_.api.host_unregister(data), "cudaHostUnregister", what);
}

void pinned_slabs::give_back_all() {
    for (const auto &[data, mapped] : slabs_) {
        if (give_back(data, mapped).ok() || !context_.errors.usable()) {
            unmap_own(mapped);
        }
    }
    slabs_.clear();
}

}  // namespace ebb
