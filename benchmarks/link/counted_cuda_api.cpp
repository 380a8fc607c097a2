#include "link/counted_cuda_api.hpp"

#include <chrono>
#include <type_traits>

namespace ebb::link {

namespace {

cuda_api g_inner;
cuda_api g_counted;
thread_local call_totals t_totals;

class timed_call {
public:
    timed_call() : begin_(std::chrono::steady_clock::now()) {}
    [[nodiscard]] uint64_t ns() const {
        return static_cast<uint64_t>(
            std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin_).count());
    }

private:
    std::chrono::steady_clock::time_point begin_;
};

template <auto Member>
struct counting;

template <class Result, class... Arguments, Result (*cuda_api::*Member)(Arguments...)>
struct counting<Member> {
    static Result call(Arguments... arguments) {
        const timed_call timed;
        const Result returned = (g_inner.*Member)(arguments...);
        const uint64_t ns = timed.ns();
        // Asking whether a stream is part of a capture, or a thread has a context, enqueues nothing; its time is CUDA's
        // all the same.
        constexpr bool asks = std::is_same_v<counting, counting<&cuda_api::stream_get_capture_info>> ||
                              std::is_same_v<counting, counting<&cuda_api::has_context>>;
        t_totals.calls += asks ? 0 : 1;
        t_totals.ns += ns;
        if constexpr (std::is_same_v<counting, counting<&cuda_api::memcpy_async>>) {
            ++t_totals.copy_calls;
            t_totals.copy_ns += ns;
        }
        return returned;
    }
};

// What the runtime does not have stays missing.
template <auto... Members>
void count_all() {
    static_assert(sizeof...(Members) * sizeof(void (*)()) == sizeof(cuda_api),
                  "a function of the table is not counted");
    const auto count_one = [](auto member, auto call) {
        if (g_inner.*member != nullptr) {
            g_counted.*member = call;
        }
    };
    (count_one(Members, &counting<Members>::call), ...);
}

}  // namespace

const cuda_api &count_cuda_calls(const cuda_api &inner) {
    g_inner = inner;
    g_counted = {};
    count_all<&cuda_api::driver_get_version, &cuda_api::runtime_get_version, &cuda_api::get_device_count,
              &cuda_api::push_device, &cuda_api::pop_device, &cuda_api::device_in_use, &cuda_api::has_context,
              &cuda_api::device_get_attribute, &cuda_api::device_get_name, &cuda_api::device_get_pci_bus_id,
              &cuda_api::peek_at_last_error, &cuda_api::get_last_error, &cuda_api::get_error_name,
              &cuda_api::get_error_string, &cuda_api::mem_get_info, &cuda_api::malloc, &cuda_api::free,
              &cuda_api::host_alloc, &cuda_api::free_host, &cuda_api::host_register, &cuda_api::host_unregister,
              &cuda_api::stream_create_with_flags, &cuda_api::stream_destroy, &cuda_api::stream_wait_event,
              &cuda_api::stream_get_capture_info, &cuda_api::thread_exchange_stream_capture_mode,
              &cuda_api::event_create_with_flags, &cuda_api::event_destroy, &cuda_api::event_record,
              &cuda_api::event_query, &cuda_api::event_synchronize, &cuda_api::event_elapsed_time,
              &cuda_api::memcpy_async, &cuda_api::memcpy_batch_async, &cuda_api::launch_checksum>();
    return g_counted;
}

call_totals counted_cuda_calls() noexcept {
    return t_totals;
}

}  // namespace ebb::link
