// Exported: offload, reload, return, release, and the two functions that wait.

#include <fmt/format.h>

#include <algorithm>

#include "capi/activation_calls.hpp"
#include "capi/session.hpp"
#include "capi/struct_io.hpp"

using namespace ebb;        // NOLINT(google-build-using-namespace): this file is the C ABI of that namespace
using namespace ebb::capi;  // NOLINT(google-build-using-namespace)

namespace ebb::capi {

namespace {

constexpr size_t k_first_offload_args = 144;
constexpr size_t k_first_offload_info = 48;
constexpr size_t k_first_reload_info = 32;
static_assert(sizeof(ebb_offload_args) == k_first_offload_args);
static_assert(sizeof(ebb_offload_info) == k_first_offload_info);
static_assert(sizeof(ebb_reload_info) == k_first_reload_info);

constexpr uint64_t k_most_streams = 64;

status check_device(const device_info &info, const ebb_offload_args &a) {
    if (a.device_type == 0) {
        return {};
    }
    if (a.device_type != static_cast<int32_t>(info.type) || a.device_ordinal != info.ordinal) {
        return {code::invalid_argument,
                fmt::format("args->device_type is {} and device_ordinal {}, but this runtime serves type {} ordinal {} "
                            "(DLPack's numbers): offload on the runtime of that device",
                            a.device_type, a.device_ordinal, static_cast<int32_t>(info.type), info.ordinal)};
    }
    return {};
}

status check_args(const ebb_offload_args &a) {
    if (a.data == nullptr && a.size_bytes != 0) {
        return {code::invalid_argument, fmt::format("args->data is null, but size_bytes is {}", a.size_bytes)};
    }
    if (a.size_bytes > (uint64_t{1} << 48U)) {
        return {code::invalid_argument,
                fmt::format("args->size_bytes is {}, more than any address space", a.size_bytes)};
    }
    if (a.producers == nullptr || a.producer_count == 0 || a.producer_count > k_most_streams) {
        return {code::invalid_argument,
                fmt::format("args->producers must name 1 to {} streams, producer_count is {}{}", k_most_streams,
                            a.producer_count, a.producers == nullptr ? " and producers is null" : "")};
    }
    if ((a.flags & ~static_cast<uint32_t>(EBB_OFFLOAD_CAN_RECOMPUTE)) != 0) {
        return {code::invalid_argument, fmt::format("args->flags is {:#x}: unknown bits", a.flags)};
    }
    if (a.placement < EBB_PLACE_BY_POLICY || a.placement > EBB_PLACE_RECOMPUTE) {
        return {code::invalid_argument, fmt::format("args->placement is {}: not an ebb_placement", a.placement)};
    }
    if (a.recompute_from == nullptr && a.recompute_from_count != 0) {
        return {code::invalid_argument,
                fmt::format("args->recompute_from is null, but recompute_from_count is {}", a.recompute_from_count)};
    }
    return {};
}

status check_stream(const device &dev, ebb_stream stream, const char *argument) {
    const status s = stream == EBB_STREAM_CALLING_THREAD ? status() : dev.check_stream(stream_id{stream});
    return s.ok() ? status() : status{s.code(), fmt::format("{}: {}", argument, s.text())};
}

// As the core checks them: here before the allocator is asked for anything.
status check_streams(const device &dev, const ebb_offload_args &a) {
    for (uint64_t p = 0; p < a.producer_count; ++p) {
        EBB_TRY(check_stream(dev, a.producers[p], "producers"));
    }
    return a.home == nullptr ? status() : check_stream(dev, *a.home, "home");
}

// Every field is named: what is left to its default is cleared first, which costs more than setting it.
offload_request to_request(const ebb_offload_args &a, name_table::node scope, name_table::node name, bool staged) {
    static_assert(sizeof(ebb_stream) == sizeof(stream_id));
    return {.scope = scope,
            .name = name,
            .data = a.data,
            .size_bytes = a.size_bytes,
            .producers = reinterpret_cast<const stream_id *>(a.producers),
            .producer_count = a.producer_count,
            .home = stream_id{a.home == nullptr ? a.producers[0] : *a.home},
            .deleter = a.deleter,
            .deleter_context = a.deleter_context,
            .micro_batch = a.micro_batch,
            .stage = a.stage,
            .storage_id = a.storage_id,
            .storage_version = a.storage_version,
            .can_recompute = (a.flags & EBB_OFFLOAD_CAN_RECOMPUTE) != 0,
            .recompute_cost_ns = a.recompute_cost_ns,
            .wish = static_cast<placement>(a.placement),
            .recompute_from = a.recompute_from,
            .recompute_from_count = a.recompute_from_count,
            .staged = staged};
}

}  // namespace

status read_offload_args(const ebb_offload_args *args, ebb_offload_args &copy, const ebb_offload_args *&known) {
    return read_struct(args, "args", k_first_offload_args, copy, known);
}

status offload_checked(entry &e, ebb_runtime &r, const ebb_offload_args &args, bool staged, ebb_offload_info *info) {
    EBB_TRY(check_out_struct(info, "info", k_first_offload_info));
    EBB_TRY(check_args(args));
    EBB_TRY(check_device(r.device->info(), args));
    name_table::node scope = current_scope(r);
    name_table::node name = name_table::k_root;
    EBB_TRY(find_name(e.core().names(), args.name, "args->name", scope, name));
    const offload_request request = to_request(args, scope, name, staged);
    offload_outcome outcome;
    if (staged && r.has_allocator && args.size_bytes != 0) {
        EBB_TRY(check_streams(*r.device, args));
        e.supply_now(staging::slot_footprint_bytes(args.size_bytes, args.data), request.home);
    }
    status s = e.core().offload(request, outcome);
    e.core().discard_supply();
    EBB_TRY(std::move(s));
    r.activation_records = std::max(r.activation_records, record_of(outcome.activation) + 1);
    fill_struct(info, [&outcome](ebb_offload_info &i) {
        i.activation = outcome.activation;
        i.placement = static_cast<ebb_placement>(outcome.where);
        i.reason = static_cast<ebb_reason>(outcome.reason);
        i.wanted_bytes = outcome.wanted_bytes;
        i.held_bytes = outcome.held_bytes;
        i.cap_bytes = outcome.cap_bytes;
    });
    return {};
}

// With a lent allocator the slot's memory is asked for first, with no lock held; if it refuses, prefetches that nobody
// has claimed make room, once.
status reload_checked(entry &e, ebb_runtime &r, uint64_t activation, stream_id consumer, reload_outcome &outcome) {
    if (r.has_allocator) {
        const runtime::memory_wish wish = e.core().reload_wish(activation);
        if (wish.footprint_bytes != 0) {
            e.supply_now(wish.footprint_bytes, wish.home);
        }
    }
    status s = e.core().reload(activation, consumer, outcome);
    e.core().discard_supply();
    return s;
}

}  // namespace ebb::capi

ebb_status ebb_offload(ebb_runtime *runtime, const ebb_offload_args *args, ebb_offload_info *info) {
    return on_runtime(runtime, [&](entry &e) -> status {
        ebb_offload_args copy;
        const ebb_offload_args *known = nullptr;
        EBB_TRY(read_offload_args(args, copy, known));
        return offload_checked(e, *runtime, *known, false, info);
    });
}

ebb_status ebb_offload_staged(ebb_runtime *runtime, const ebb_offload_args *args, ebb_offload_info *info) {
    return on_runtime(runtime, [&](entry &e) -> status {
        ebb_offload_args copy;
        const ebb_offload_args *known = nullptr;
        EBB_TRY(read_offload_args(args, copy, known));
        if (known->deleter != nullptr || known->deleter_context != nullptr) {
            return {code::invalid_argument,
                    "args->deleter must be null in the staged form: the memory stays the caller's"};
        }
        if (known->producers != nullptr && known->producer_count != 0 &&
            known->producers[0] == EBB_STREAM_CALLING_THREAD) {
            return {code::invalid_argument,
                    "args->producers[0] is the calling thread: the staged copy needs a stream to run on"};
        }
        return offload_checked(e, *runtime, *known, true, info);
    });
}

ebb_status ebb_reload(ebb_runtime *runtime, ebb_activation activation, ebb_stream consumer, ebb_reload_info *info) {
    return on_runtime_reporting(runtime, [&](entry &e) -> status {
        EBB_TRY(check_out_struct(info, "info", k_first_reload_info));
        reload_outcome outcome;
        EBB_TRY(reload_checked(e, *runtime, activation, stream_id{consumer}, outcome));
        fill_struct(info, [&outcome](ebb_reload_info &i) {
            i.claim = outcome.claim;
            i.data = outcome.data;
            i.size_bytes = outcome.size_bytes;
        });
        return {};
    });
}

ebb_status ebb_reload_into(ebb_runtime *runtime, ebb_activation activation, void *data, uint64_t size_bytes,
                           ebb_stream consumer) {
    return on_runtime_reporting(runtime, [&](entry &e) -> status {
        if (data == nullptr && size_bytes != 0) {
            return {code::invalid_argument, fmt::format("data is null, but size_bytes is {}", size_bytes)};
        }
        return e.core().reload_into(activation, data, size_bytes, stream_id{consumer});
    });
}

ebb_status ebb_use(ebb_runtime *runtime, ebb_claim claim, ebb_stream stream) {
    return on_runtime(runtime, [&](entry &e) { return e.core().use(claim, stream_id{stream}); });
}

ebb_status ebb_return(ebb_runtime *runtime, ebb_claim claim, ebb_stream last) {
    return on_runtime(runtime, [&](entry &e) { return e.core().give_back(claim, stream_id{last}); });
}

ebb_status ebb_release(ebb_runtime *runtime, ebb_activation activation) {
    return on_runtime(runtime, [&](entry &e) { return e.core().release(activation); });
}

// Takes no lock but the queue's own: garbage collectors call it wherever they happen to be.
ebb_status ebb_drop(ebb_runtime *runtime, ebb_activation activation) {
    return guarded([&]() -> status {
        if (runtime == nullptr) {
            return {code::invalid_argument, "runtime is null"};
        }
        if (activation == 0) {
            return {code::stale_handle, "activation is 0, which is never one"};
        }
        runtime->queue->push({activation, false});
        return {};
    });
}

// Both wait with the lock released, on an event that is pinned meanwhile so that nobody re-records it.
ebb_status ebb_wait(ebb_runtime *runtime, ebb_activation activation) {
    return on_runtime_reporting(runtime, [&](entry &e) -> status {
        for (;;) {
            runtime::thread_wait wait;
            EBB_TRY(e.core().wait_begin(activation, wait));
            if (!wait.event.needed) {
                EBB_TRY(e.core().progress());
                return e.take_failure();
            }
            status waited;
            e.unlocked([&] { waited = runtime->device->synchronize_event(wait.event.event); });
            EBB_TRY(e.core().wait_end(wait));
            EBB_TRY(std::move(waited));
        }
    });
}

ebb_status ebb_wait_room(ebb_runtime *runtime) {
    return on_runtime_reporting(runtime, [&](entry &e) -> status {
        for (;;) {
            runtime::thread_wait wait;
            EBB_TRY(e.core().room_begin(wait));
            if (!wait.event.needed) {
                return e.take_failure();
            }
            status waited;
            e.unlocked([&] { waited = runtime->device->synchronize_event(wait.event.event); });
            EBB_TRY(e.core().wait_end(wait));
            EBB_TRY(std::move(waited));
        }
    });
}
