// The numbers of the layers below, which do not see the header, are the header's. Nothing here but comparisons.

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "device/device.hpp"
#include "ebb/ebb.h"
#include "runtime/runtime.hpp"
#include "schedule/policy.hpp"

namespace ebb::capi {

namespace {

template <class Enum>
constexpr bool same(Enum ours, int64_t theirs) noexcept {
    return static_cast<int64_t>(ours) == theirs;
}

static_assert(same(code::ok, EBB_OK));
static_assert(same(code::invalid_argument, EBB_INVALID_ARGUMENT));
static_assert(same(code::stale_handle, EBB_STALE_HANDLE));
static_assert(same(code::wrong_state, EBB_WRONG_STATE));
static_assert(same(code::no_slot, EBB_NO_SLOT));
static_assert(same(code::recompute, EBB_RECOMPUTE));
static_assert(same(code::out_of_device_memory, EBB_OUT_OF_DEVICE_MEMORY));
static_assert(same(code::out_of_host_memory, EBB_OUT_OF_HOST_MEMORY));
static_assert(same(code::busy, EBB_BUSY));
static_assert(same(code::device_error, EBB_DEVICE_ERROR));
static_assert(same(code::data_mismatch, EBB_DATA_MISMATCH));
static_assert(same(code::unsupported, EBB_UNSUPPORTED));
static_assert(same(code::internal, EBB_INTERNAL));

static_assert(same(placement::by_policy, EBB_PLACE_BY_POLICY));
static_assert(same(placement::keep, EBB_PLACE_KEEP) && same(policy_placement::keep, EBB_PLACE_KEEP));
static_assert(same(placement::offload, EBB_PLACE_OFFLOAD) && same(policy_placement::offload, EBB_PLACE_OFFLOAD));
static_assert(same(placement::recompute, EBB_PLACE_RECOMPUTE) &&
              same(policy_placement::recompute, EBB_PLACE_RECOMPUTE));

static_assert(same(keep_reason::none, EBB_REASON_NONE));
static_assert(same(keep_reason::policy, EBB_REASON_POLICY));
static_assert(same(keep_reason::floor, EBB_REASON_FLOOR));
static_assert(same(keep_reason::last, EBB_REASON_LAST));
static_assert(same(keep_reason::not_recomputable, EBB_REASON_NOT_RECOMPUTABLE));
static_assert(same(keep_reason::host_cap, EBB_REASON_HOST_CAP));
static_assert(same(keep_reason::pinning, EBB_REASON_PINNING));
static_assert(same(keep_reason::copy_error, EBB_REASON_COPY_ERROR));
static_assert(same(keep_reason::larger_than_slot, EBB_REASON_LARGER_THAN_SLOT));
static_assert(same(keep_reason::integrated, EBB_REASON_INTEGRATED));
static_assert(same(keep_reason::evaluation, EBB_REASON_EVALUATION));
static_assert(same(keep_reason::plan, EBB_REASON_PLAN));
static_assert(same(keep_reason::capture, EBB_REASON_CAPTURE));

static_assert(same(phase::train, EBB_PHASE_TRAIN) && same(phase::evaluate, EBB_PHASE_EVALUATE));

static_assert(same(log_level::error, EBB_LOG_ERROR) && same(log_level::warning, EBB_LOG_WARNING));
static_assert(same(log_level::info, EBB_LOG_INFO) && same(log_level::debug, EBB_LOG_DEBUG));

static_assert(k_off == EBB_OFF && k_on == EBB_ON);
static_assert(k_auto == EBB_PREFETCH_AUTO && k_auto == EBB_SOURCES_AUTO && k_automatic == k_auto);
static_assert(k_prefetch_none == EBB_PREFETCH_NONE && k_none_bytes == EBB_PREFETCH_NONE);
static_assert(k_prefetch_layer == EBB_PREFETCH_LAYER && k_one_layer == EBB_PREFETCH_LAYER);
static_assert(k_sources_none == EBB_SOURCES_NONE && k_none_bytes == EBB_SOURCES_NONE);

static_assert(k_default_stream == stream_id{EBB_STREAM_DEFAULT});
static_assert(k_calling_thread == stream_id{EBB_STREAM_CALLING_THREAD});

}  // namespace

}  // namespace ebb::capi
