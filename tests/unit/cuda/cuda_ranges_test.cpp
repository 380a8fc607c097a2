// Ranges arrive at a tool, which is this program: NVTX takes a statically linked tool by a pointer.
#include "device/cuda/cuda_ranges.hpp"

#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

namespace {

struct seen_range {
    std::string domain;
    std::string message;
    uint64_t payload;
};
std::vector<seen_range> ranges;
int ended = 0;
std::string domain_name;

nvtxDomainHandle_t create_domain(const char *name) {
    domain_name = name;
    return reinterpret_cast<nvtxDomainHandle_t>(&domain_name);
}
int push_range(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes) {
    ranges.push_back(
        {*reinterpret_cast<const std::string *>(domain), attributes->message.ascii, attributes->payload.ullValue});
    return 0;
}
int pop_range(nvtxDomainHandle_t) {
    ++ended;
    return 0;
}

int take_functions(NvtxGetExportTableFunc_t get_table) {
    const auto *callbacks = static_cast<const NvtxExportTableCallbacks *>(get_table(NVTX_ETID_CALLBACKS));
    NvtxFunctionTable table = nullptr;
    unsigned size = 0;
    if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) {
        return 0;
    }
    *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(&create_domain);
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(&push_range);
    *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(&pop_range);
    return 1;
}

}  // namespace

namespace ebb {
namespace {

TEST(cuda_ranges, arrive_in_our_domain_with_name_and_bytes_when_they_are_on) {
    InitializeInjectionNvtx2_fnptr = &take_functions;  // before the first use of NVTX in this process
    const cuda_ranges off(false);
    off.begin("offload", "layer.0/gate", 5);
    off.end();
    EXPECT_TRUE(ranges.empty());
    EXPECT_EQ(ended, 0);
    const cuda_ranges on(true);
    on.begin("offload", "layer.0/gate", 123456789012);
    on.begin("wait", std::string(1000, 'n').c_str(), 0);
    on.end();
    on.end();
    ASSERT_EQ(ranges.size(), 2U);
    EXPECT_EQ(ranges[0].domain, "ebb");
    EXPECT_EQ(ranges[0].message, "offload layer.0/gate");
    EXPECT_EQ(ranges[0].payload, 123456789012U);
    EXPECT_EQ(ranges[1].message, "wait " + std::string(250, 'n'));
    EXPECT_EQ(ended, 2);
}

}  // namespace
}  // namespace ebb
