// The one function that libebb_cuda exports.
#include "device/cuda/cuda_module_table.hpp"
#include "device/cuda/cuda_runtime_table.hpp"

extern "C" __attribute__((visibility("default"))) const ebb::device_module *ebb_cuda_module() {
    static const ebb::device_module table = ebb::make_cuda_module_table(ebb::cuda_runtime_table());
    return &table;
}
