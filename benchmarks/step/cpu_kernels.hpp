// What each operation does, as functions for the CPU: element and real are both `scalar`, float or double.
#pragma once

#include "step_math.hpp"

namespace step {

#define EBB_STEP_COMPUTE(call) \
    template <class scalar>    \
    void compute(const call &c);
EBB_STEP_CALLS(EBB_STEP_COMPUTE)
#undef EBB_STEP_COMPUTE

}  // namespace step
