// Exported: create, close, steps, progress, statistics.

#include <fmt/format.h>

#include "base/config.hpp"
#include "capi/record_file.hpp"
#include "capi/session.hpp"
#include "capi/struct_io.hpp"
#include "device/registry.hpp"

using namespace ebb;        // NOLINT(google-build-using-namespace): this file is the C ABI of that namespace
using namespace ebb::capi;  // NOLINT(google-build-using-namespace)

namespace {

constexpr size_t k_first_options = 176;
constexpr size_t k_first_statistics = 288;
static_assert(sizeof(ebb_runtime_options) == k_first_options + 2 * sizeof(const char *) +
                                                 2 * sizeof(ebb_switch));  // record, calibrate, nvtx, cuda_library
static_assert(sizeof(ebb_statistics) == k_first_statistics + 3 * sizeof(uint64_t));  // graphs and their memory

void override_number(config_overrides &overrides, option o, uint64_t value) {
    if (value != 0) {
        overrides.set(o, value);
    }
}

config_overrides explicit_fields(const ebb_runtime_options &o) {
    config_overrides set;
    if (o.device != nullptr) {
        set.set(option::device, std::string(o.device));
    }
    if (o.policy != nullptr) {
        set.set(option::policy, std::string(o.policy));
    }
    if (o.record != nullptr) {
        set.set(option::record, std::string(o.record));
    }
    if (o.cuda_library != nullptr) {
        set.set(option::cuda_library, std::string(o.cuda_library));
    }
    override_number(set, option::device_ordinal, static_cast<uint64_t>(o.device_ordinal));
    override_number(set, option::lanes, o.lanes);
    override_number(set, option::device_budget_bytes, o.device_budget_bytes);
    override_number(set, option::staging_bytes, o.staging_bytes);
    override_number(set, option::max_activation_bytes, o.max_activation_bytes);
    override_number(set, option::host_bytes, o.host_bytes);
    override_number(set, option::min_offload_bytes, o.min_offload_bytes);
    override_number(set, option::keep_last, o.keep_last);
    override_number(set, option::prefetch_bytes, o.prefetch_bytes);
    override_number(set, option::source_bytes, o.source_bytes);
    override_number(set, option::chunk_bytes, o.chunk_bytes);
    override_number(set, option::sample_every, o.sample_every);
    override_number(set, option::verify, static_cast<uint64_t>(o.verify));
    override_number(set, option::log_level, static_cast<uint64_t>(o.log_level));
    override_number(set, option::host_processes, o.host_processes);
    override_number(set, option::host_device_bytes, o.host_device_bytes);
    override_number(set, option::host_d2h_bytes_per_second, o.host_d2h_bytes_per_second);
    override_number(set, option::host_h2d_bytes_per_second, o.host_h2d_bytes_per_second);
    override_number(set, option::calibrate, static_cast<uint64_t>(o.calibrate));
    override_number(set, option::nvtx, static_cast<uint64_t>(o.nvtx));
    return set;
}

runtime_options core_options(const config &c, const ebb_runtime_options &o) {
    runtime_options r;
    r.lanes = c.lanes;
    r.device_budget_bytes = c.device_budget_bytes;
    r.staging_bytes = c.staging_bytes;
    r.max_activation_bytes = c.max_activation_bytes;
    r.host_bytes = c.host_bytes;
    r.host_processes = c.host_processes;
    r.min_offload_bytes = c.min_offload_bytes;
    r.policy = c.policy;
    r.keep_last = c.keep_last;
    r.prefetch_bytes = c.prefetch_bytes;
    r.source_bytes = c.source_bytes;
    r.chunk_bytes = c.chunk_bytes;
    r.sample_every = c.sample_every;
    r.verify = c.verify;
    r.staging_memory = o.staging_memory;
    r.lent_allocator = o.allocator != nullptr;
    r.profile_ranges = c.nvtx;
    r.measure_steps = c.record != "none";
    return r;
}

status check_pointers(const ebb_runtime_options &o) {
    if (o.device_ordinal < 0) {
        return {code::invalid_argument,
                fmt::format("options->device_ordinal is {}, must not be negative", o.device_ordinal)};
    }
    if (o.verify < 0 || o.log_level < 0 || o.calibrate < 0 || o.nvtx < 0) {
        return {code::invalid_argument,
                "options->verify, options->log_level, options->calibrate and options->nvtx must not be negative"};
    }
    // EBB_STAGING_BYTES is a cap; how large the block is only its owner knows.
    if (o.staging_memory != nullptr && o.staging_bytes == 0) {
        return {code::invalid_argument,
                "options->staging_memory is given without staging_bytes: say in that field how large it is"};
    }
    if (o.allocator != nullptr && (o.allocator->alloc == nullptr || o.allocator->free == nullptr)) {
        return {code::invalid_argument, "options->allocator needs both alloc and free"};
    }
    return {};
}

device_options wanted_device(const config &c, const logger &log) {
    device_options wanted;
    if (c.origins[static_cast<size_t>(option::host_device_bytes)] != option_origin::by_default) {
        wanted.host_capacity_bytes = c.host_device_bytes;
    }
    wanted.host_d2h_bytes_per_second = c.host_d2h_bytes_per_second;
    wanted.host_h2d_bytes_per_second = c.host_h2d_bytes_per_second;
    wanted.calibrate = c.calibrate;
    wanted.nvtx = c.nvtx;
    wanted.cuda_library = c.cuda_library == "auto" ? std::string() : c.cuda_library;
    wanted.log = &log;
    return wanted;
}

result<ebb_runtime *> create(const ebb_runtime_options &o) {
    EBB_TRY(check_pointers(o));
    logger log(o.log, o.log_context, log_level::warning);
    result<config> resolved = resolve_config(explicit_fields(o), log);
    if (!resolved.ok()) {
        return resolved.why();
    }
    const config &c = resolved.value();
    // Here, where it is known whether the field or the variable holds it.
    if (const result<policy> rules = policy::parse(c.policy, c.called(option::policy)); !rules.ok()) {
        return rules.why();
    }
    result<std::unique_ptr<device>> dev = make_device(c.device, c.device_ordinal, wanted_device(c, log));
    if (!dev.ok()) {
        return dev.why();
    }
    auto *host = dynamic_cast<host_device *>(dev.value().get());
    result<ebb_runtime *> made = make_runtime(std::move(dev).value(), host, core_options(c, o), log, o.allocator);
    if (made.ok()) {
        made.value()->record_path = c.record == "none" ? std::string() : c.record;
    }
    return made;
}

}  // namespace

ebb_status ebb_runtime_create(const ebb_runtime_options *options, ebb_runtime **runtime) {
    return guarded([&]() -> status {
        if (runtime == nullptr) {
            return {code::invalid_argument, "runtime is null: it is where the new runtime is written"};
        }
        ebb_runtime_options copy{};
        const ebb_runtime_options *known = &copy;
        if (options != nullptr) {
            EBB_TRY(read_struct(options, "options", k_first_options, copy, known));
        }
        result<ebb_runtime *> made = create(*known);
        if (!made.ok()) {
            return made.why();
        }
        *runtime = made.value();
        return {};
    });
}

ebb_status ebb_runtime_close(ebb_runtime *runtime, uint32_t flags) {
    return guarded([&]() -> status {
        if (runtime == nullptr) {
            return {};
        }
        if (outside::depth(*runtime) != 0) {
            return {code::wrong_state, "ebb_runtime_close from inside a callback of that runtime: close it afterwards"};
        }
        if ((flags & ~static_cast<uint32_t>(EBB_CLOSE_FORCE)) != 0) {
            return {code::invalid_argument, fmt::format("flags is {:#x}: only EBB_CLOSE_FORCE is known", flags)};
        }
        // Gone from here on, whatever happens, unless it is busy. Tensors that are still out only touch the queue,
        // which they share.
        std::unique_ptr<ebb_runtime> ended(runtime);
        entry e(*runtime);
        if (e.core().live_activations() != 0 && (flags & EBB_CLOSE_FORCE) == 0) {
            status busy = {code::busy, fmt::format("{} activations are live, one of them {}: release them, or close "
                                                   "with EBB_CLOSE_FORCE",
                                                   e.core().live_activations(), e.core().describe_a_live_one())};
            e.leave();
            static_cast<void>(ended.release());
            return busy;
        }
        if (e.core().graph_count() != 0 && (flags & EBB_CLOSE_FORCE) == 0) {
            status busy = {code::busy, fmt::format("{} captures or graphs were not released: give each to "
                                                   "ebb_graph_release, or close with EBB_CLOSE_FORCE",
                                                   e.core().graph_count())};
            e.leave();
            static_cast<void>(ended.release());
            return busy;
        }
        write_record(e, *runtime);
        status outcome = of_background(e.core().shut_down());
        e.leave();
        return outcome;
    });
}

ebb_status ebb_step(ebb_runtime *runtime, ebb_phase phase) {
    return on_runtime_reporting(runtime, [&](entry &e) -> status {
        if (phase != EBB_PHASE_TRAIN && phase != EBB_PHASE_EVALUATE) {
            return {code::invalid_argument,
                    fmt::format("phase is {}: use EBB_PHASE_TRAIN or EBB_PHASE_EVALUATE", phase)};
        }
        status begun = e.core().begin_step(static_cast<ebb::phase>(phase));
        if (e.core().step_is_measured()) {
            write_record(e, *runtime);
        }
        return begun;
    });
}

ebb_status ebb_progress(ebb_runtime *runtime) {
    return on_runtime(runtime, [](entry &e) -> status {
        EBB_TRY(e.core().progress());
        return e.take_failure();
    });
}

ebb_status ebb_recompute_begin(ebb_runtime *runtime, uint64_t size_bytes) {
    return on_runtime(runtime, [&](entry &e) -> status {
        if (size_bytes > (uint64_t{1} << 48U)) {
            return {code::invalid_argument, fmt::format("size_bytes is {}, more than any address space", size_bytes)};
        }
        return e.core().recompute_begin(size_bytes);
    });
}

ebb_status ebb_recompute_end(ebb_runtime *runtime) {
    return on_runtime(runtime, [](entry &e) { return e.core().recompute_end(); });
}

ebb_status ebb_collective_begin(ebb_runtime *runtime, ebb_stream stream, uint64_t size_bytes) {
    return on_runtime(runtime, [&](entry &e) -> status {
        if (size_bytes > (uint64_t{1} << 48U)) {
            return {code::invalid_argument, fmt::format("size_bytes is {}, more than any address space", size_bytes)};
        }
        return e.core().collective_begin(stream_id{stream}, size_bytes);
    });
}

ebb_status ebb_collective_end(ebb_runtime *runtime, ebb_stream stream) {
    return on_runtime(runtime, [&](entry &e) { return e.core().collective_end(stream_id{stream}); });
}

ebb_status ebb_graph_join(ebb_runtime *runtime, ebb_stream stream, ebb_graph *graph) {
    return on_runtime(runtime, [&](entry &e) -> status {
        if (graph == nullptr) {
            return {code::invalid_argument, "graph is null: it is where the graph's handle is written"};
        }
        return e.core().graph_join(stream_id{stream}, *graph);
    });
}

ebb_status ebb_graph_release(ebb_runtime *runtime, ebb_graph graph) {
    return on_runtime(runtime, [&](entry &e) { return e.core().graph_release(graph); });
}

ebb_status ebb_stats(ebb_runtime *runtime, ebb_statistics *statistics) {
    return on_runtime(runtime, [&](entry &e) -> status {
        EBB_TRY(check_out_struct(statistics, "statistics", k_first_statistics));
        const counters c = e.core().snapshot();
        fill_struct(statistics, [&](ebb_statistics &s) {
            s.steps = c.steps;
            s.sampled_steps = c.sampled_steps;
            s.live_activations = e.core().live_activations();
            s.offload_calls = c.offload_calls;
            s.kept_count = c.kept_count;
            s.offloaded_count = c.offloaded_count;
            s.recompute_count = c.recompute_count;
            s.forwarded_count = c.forwarded_count;
            s.reloads_prefetched = c.reloads_prefetched;
            s.reloads_on_demand = c.reloads_on_demand;
            s.prefetches_dropped = c.prefetches_dropped;
            s.no_slot_count = c.no_slot_count;
            s.d2h_bytes = c.d2h_bytes;
            s.h2d_bytes = c.h2d_bytes;
            s.given_up_bytes = c.given_up_bytes;
            s.hidden_ns = c.hidden_ns;
            s.exposed_ns = c.exposed_ns;
            s.device_held_bytes = c.device_held_bytes;
            s.device_peak_bytes = c.device_peak_bytes;
            s.kept_bytes = c.kept_bytes;
            s.source_bytes = c.source_bytes;
            s.source_peak_bytes = c.source_peak_bytes;
            s.staging_bytes = c.staging_bytes;
            s.staging_used_bytes = c.staging_used_bytes;
            s.staging_peak_bytes = c.staging_peak_bytes;
            s.pinned_bytes = c.pinned_bytes;
            s.pinned_used_bytes = c.pinned_used_bytes;
            s.pinned_peak_bytes = c.pinned_peak_bytes;
            s.device_budget_bytes = c.device_budget_bytes;
            s.over_budget_policy_bytes = c.over_budget_policy_bytes;
            s.over_budget_failure_bytes = c.over_budget_failure_bytes;
            s.over_budget_size_bytes = c.over_budget_size_bytes;
            s.over_budget_caller_bytes = c.over_budget_caller_bytes;
            s.order_mismatches = c.order_mismatches;
            s.device_allocations = c.device_allocations;
            s.graphs = c.graphs;
            s.graph_pinned_bytes = c.graph_pinned_bytes;
            s.graph_staging_bytes = c.graph_staging_bytes;
        });
        return {};
    });
}
