// A handler that does nothing: what a call from XLA costs by itself. Compiled by ffi_cost.py.
#include "xla_ffi_table.hpp"

using namespace ebb_jax::xla;

extern "C" error *nothing(call_frame *frame) {
    if (frame->extensions != nullptr && frame->extensions->type == k_metadata_extension) {
        metadata &asked = *reinterpret_cast<metadata_extension *>(frame->extensions)->data;
        asked.api_version.major = k_major;
        asked.api_version.minor = k_oldest_minor;
        asked.traits = 0;
    }
    return nullptr;
}
