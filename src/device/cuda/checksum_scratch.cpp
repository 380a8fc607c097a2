#include "device/cuda/checksum_scratch.hpp"

#include <fmt/core.h>

namespace ebb {

status checksum_scratch::take() {
    const auto what = [] { return fmt::format("{} bytes of scratch memory", k_areas * k_checksum_scratch_bytes); };
    EBB_TRY(
        context_.errors.check(context_.api.malloc(&memory_, k_areas * k_checksum_scratch_bytes), "cudaMalloc", what));
    for (area &each : areas_) {
        EBB_TRY(context_.errors.check(context_.api.event_create_with_flags(&each.free_again, cudaEventDisableTiming),
                                      "cudaEventCreateWithFlags", what));
    }
    return {};
}

void checksum_scratch::give_back() {
    for (area &each : areas_) {
        if (each.free_again != nullptr) {
            context_.errors.ignore(context_.api.event_destroy(each.free_again));
        }
        each = {};
    }
    if (memory_ != nullptr) {
        context_.errors.ignore(context_.api.free(memory_));
    }
    memory_ = nullptr;
}

checksum_scratch::area *checksum_scratch::next_area() {
    for (size_t tried = 0; tried < k_areas; ++tried) {
        area &candidate = areas_[next_];
        next_ = (next_ + 1) % k_areas;
        if (!candidate.lost) {
            return &candidate;
        }
    }
    return nullptr;
}

status checksum_scratch::launch(cudaStream_t stream, const void *data, uint64_t size_bytes, uint64_t *accumulator) {
    const auto what = [&] { return fmt::format("checksum of {} bytes", size_bytes); };
    const std::lock_guard lock(mutex_);
    area *found = next_area();
    if (found == nullptr) {
        return {code::device_error,
                fmt::format("{}: the ends of earlier ones could not be marked, and no scratch memory "
                            "is left",
                            what())};
    }
    area &mine = *found;
    void *scratch =
        static_cast<char *>(memory_) + static_cast<size_t>(found - areas_.data()) * k_checksum_scratch_bytes;
    if (mine.used) {
        EBB_TRY(context_.errors.check(context_.api.stream_wait_event(stream, mine.free_again, 0), "cudaStreamWaitEvent",
                                      what));
    }
    EBB_TRY(context_.errors.check(context_.api.launch_checksum(stream, data, size_bytes, accumulator, scratch),
                                  "the launch of the checksum kernel", what));
    mine.used = true;
    status marked = context_.errors.check(context_.api.event_record(mine.free_again, stream), "cudaEventRecord", what);
    mine.lost = !marked.ok();
    return marked;
}

}  // namespace ebb
