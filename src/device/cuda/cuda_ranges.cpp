#include "device/cuda/cuda_ranges.hpp"

#include <nvtx3/nvToolsExt.h>

#include <cstdio>

namespace ebb {
namespace {

nvtxDomainHandle_t domain() noexcept {
    static const nvtxDomainHandle_t ours = nvtxDomainCreateA("ebb");
    return ours;
}

}  // namespace

void cuda_ranges::push(const char *what, const char *name, uint64_t size_bytes) noexcept {
    // Tools copy the text; a name that is longer is cut.
    char text[256];
    std::snprintf(text, sizeof text, "%s %s", what, name);
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = text;
    attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    attributes.payload.ullValue = size_bytes;
    nvtxDomainRangePushEx(domain(), &attributes);
}

void cuda_ranges::pop() noexcept {
    nvtxDomainRangePop(domain());
}

}  // namespace ebb
