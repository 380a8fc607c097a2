// What XLA calls: the handlers of offload and reload, and what Python calls by ctypes. XLA's side of a call is taken
// apart here; what a handle stands for is jax_groups, and how bytes move is jax_mover.
#include "jax_handlers.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ebb/ebb.h"

namespace ebb_jax {
namespace {

// ------------------------------------------------------------------------------------------ of the process --

struct process {
    groups groups_of_all;
    std::mutex mutex;  // of the options, and of opening places by them
    ebb_runtime_options options{};
    std::atomic<bool> steps_are_marked{false};  // by the caller
};

process &the_process() {
    static auto *const one = new process;  // never destroyed: XLA's threads may outlive static objects
    return *one;
}

failure open_place(mover &with, const place_key &key) {
    process &all = the_process();
    const std::lock_guard<std::mutex> lock(all.mutex);
    if (all.groups_of_all.place_of(key) != nullptr) {
        return {};
    }
    auto made = std::make_shared<place>();
    made->key = key;
    ebb_runtime_options options = all.options;
    options.struct_size = sizeof options;
    if (failure why = with.open(options, key.ordinal, *made)) {
        return why;
    }
    made->name += key.stays ? " state" : "";
    all.groups_of_all.open_place(std::move(made));
    return {};
}

// ------------------------------------------------------------------------------------------------- XLA's call --

xla::error_code code_of(ebb_status status) {
    switch (status) {
        case EBB_INVALID_ARGUMENT:
            return xla::error_code::invalid_argument;
        case EBB_NO_SLOT:
        case EBB_OUT_OF_DEVICE_MEMORY:
        case EBB_OUT_OF_HOST_MEMORY:
            return xla::error_code::resource_exhausted;
        case EBB_STALE_HANDLE:
        case EBB_WRONG_STATE:
            return xla::error_code::failed_precondition;
        case EBB_DATA_MISMATCH:
            return xla::error_code::data_loss;
        default:
            return xla::error_code::internal;
    }
}

struct frame_view {
    const xla::call_frame &frame;

    const xla::buffer &argument(std::int64_t i) const {
        return *static_cast<const xla::buffer *>(frame.arguments.buffers[i]);
    }
    const xla::buffer &result(std::int64_t i) const {
        return *static_cast<const xla::buffer *>(frame.results.buffers[i]);
    }
};

std::uint64_t element_count(const xla::buffer &one) {
    std::uint64_t count = 1;
    for (std::int64_t i = 0; i < one.rank; ++i) {
        count *= static_cast<std::uint64_t>(one.dimensions[i]);
    }
    return count;
}

// One call of a handler, taken apart.
struct call {
    frame_view view;
    mover &with;
    const call_attributes &said;
    void *stream = nullptr;
    std::int64_t run = 0;
    std::int32_t ordinal = 0;
    place_key where;

    call(const xla::call_frame &frame, mover &mover_of_platform)
        : view{frame}, with(mover_of_platform), said(attributes_of(frame.attrs)) {}

    failure ask_context() {
        const bool has_streams = with.has_streams();
        const xla::call_frame &frame = view.frame;
        xla::run_id_get_args run_args{sizeof run_args, nullptr, frame.ctx, 0};
        xla::device_ordinal_get_args ordinal_args{sizeof ordinal_args, nullptr, frame.ctx, 0};
        xla::stream_get_args stream_args{sizeof stream_args, nullptr, frame.ctx, nullptr};
        if (frame.table->run_id_get(&run_args) != nullptr ||
            frame.table->device_ordinal_get(&ordinal_args) != nullptr ||
            (has_streams && frame.table->stream_get(&stream_args) != nullptr)) {
            return {EBB_INTERNAL, "ebb.jax: XLA does not tell run, device or stream of this call"};
        }
        run = run_args.run_id;
        ordinal = ordinal_args.device_ordinal;
        stream = stream_args.stream;
        // Without streams all devices of XLA are one: the machine's memory.
        where = {&with, has_streams ? ordinal : 0, said.stays};
        return {};
    }

    // For errors.
    std::string title() const {
        std::string text = said.scope;
        const char *separator = ": ";
        for (const std::string &name : said.names) {
            text += separator + name;
            separator = ", ";
        }
        return text;
    }
};

failure size_of(const xla::buffer &one, const std::string &name, std::uint64_t &size_bytes) {
    const std::uint64_t element = xla::element_bytes(one.type);
    if (element == 0) {
        return {EBB_UNSUPPORTED, "ebb.jax: " + name + " has elements of XLA's type " + std::to_string(one.type) +
                                     ", which Ebb does not move"};
    }
    size_bytes = element * element_count(one);
    return {};
}

failure size_of_parts(const call &now, std::uint64_t &size_bytes) {
    for (std::size_t i = 0; i < now.said.names.size(); ++i) {
        std::uint64_t of_one = 0;
        if (failure why = size_of(now.view.argument(static_cast<std::int64_t>(i)), now.said.names[i], of_one)) {
            return why;
        }
        size_bytes += of_one;
    }
    return {};
}

failure offload_parts(call &now, group &made) {
    made.parts.reserve(now.said.names.size());
    for (std::size_t i = 0; i < now.said.names.size(); ++i) {
        const xla::buffer &operand = now.view.argument(static_cast<std::int64_t>(i));
        std::uint64_t size_bytes = 0;
        part one;
        if (failure why = size_of(operand, now.said.names[i], size_bytes)) {
            return why;
        }
        if (failure why = now.with.offload(*made.home, now.said.paths[i], operand.data, size_bytes, now.stream, one)) {
            return why;
        }
        made.parts.push_back(one);
    }
    return {};
}

// Operands: what is moved, by name, and behind them what it is to be ordered behind. Result: the handle.
failure offload(call &now) {
    if (failure why = now.ask_context()) {
        return why;
    }
    const xla::call_frame &frame = now.view.frame;
    if (now.said.names.empty() || frame.arguments.size < static_cast<std::int64_t>(now.said.names.size()) ||
        frame.results.size != 1) {
        return {EBB_INVALID_ARGUMENT, "ebb.jax: ebb_offload has fewer operands than names, or not one result"};
    }
    std::uint64_t size_bytes = 0;
    if (failure why = size_of_parts(now, size_bytes)) {
        return why;
    }
    process &all = the_process();
    groups::begun begun;
    while ((begun = all.groups_of_all.begin(now.where, now.said, now.ordinal, now.run, size_bytes)).made == nullptr) {
        if (failure why = open_place(now.with, now.where)) {
            return why;
        }
    }
    group &made = *begun.made;
    if (begun.first_of_step && !now.said.stays && !all.steps_are_marked) {
        if (const ebb_status status = ebb_step(made.home->runtime, EBB_PHASE_TRAIN); status != EBB_OK) {
            return failed_call(status);
        }
    }
    if (failure why = offload_parts(now, made)) {
        return why;
    }
    if (failure why = now.with.write_handle(now.view.result(0).data, made.handle, now.stream)) {
        return why;
    }
    made.is_whole = true;
    return {};
}

failure check_reload(const call &now, const group &what) {
    const frame_view &view = now.view;
    const std::string_view unlike = what.home->key != now.where || what.ordinal != now.ordinal ? "on another device"
                                    : what.parts.size() != static_cast<std::size_t>(view.frame.results.size) ||
                                            what.parts.size() != now.said.names.size()
                                        ? "as another number of arrays"
                                    : what.of->layout != now.said.layout ? "in another sharding"
                                                                         : "";
    if (!unlike.empty()) {
        return {EBB_INVALID_ARGUMENT,
                "ebb.jax: " + now.title() + " is asked for " + std::string(unlike) +
                    " than it was offloaded: " + now.said.layout + " here, " + what.of->layout +
                    " there. Give the function that is differentiated the same sharding in both programs"};
    }
    for (std::size_t i = 0; i < what.parts.size(); ++i) {
        std::uint64_t size_bytes = 0;
        if (failure why = size_of(view.result(static_cast<std::int64_t>(i)), now.said.names[i], size_bytes)) {
            return why;
        }
        if (size_bytes != what.parts[i].size_bytes) {
            return {EBB_INVALID_ARGUMENT, "ebb.jax: " + now.title() + " is asked for with " +
                                              std::to_string(size_bytes) + " bytes, and " +
                                              std::to_string(what.parts[i].size_bytes) +
                                              " were offloaded: both have to be batched and sharded alike"};
        }
    }
    return {};
}

// All are under way before the first is waited for; and none is any more when this returns, since XLA may then use the
// memory of results for something else.
failure reload_parts(call &now, const group &what) {
    failure why;
    std::size_t begun = 0;
    while (begun < what.parts.size() && !why) {
        void *const data = now.view.result(static_cast<std::int64_t>(begun)).data;
        why = now.with.reload(*what.home, what.parts[begun++], data, now.stream);
    }
    for (std::size_t i = 0; i < begun; ++i) {
        failure of_one = now.with.wait_for(*what.home, what.parts[i]);
        if (!why) {
            why = std::move(of_one);
        }
    }
    return why;
}

// Of the handles of a batch, that of this call; 0 where it has none. JAX turns a cond over a batch into all its
// branches and a choice: then each one of the batch has the handle of the branch that it took, or zeros where that
// offloads nothing, and who took another branch reads nothing of what this one reloads.
failure choose_handle(const call &now, std::vector<std::uint64_t> handles, std::uint64_t &chosen) {
    groups &all = the_process().groups_of_all;
    std::sort(handles.begin(), handles.end());
    handles.erase(std::unique(handles.begin(), handles.end()), handles.end());
    const auto keep = [&](const auto &is_of) {
        handles.erase(std::remove_if(handles.begin(), handles.end(),
                                     [&](std::uint64_t one) {
                                         const used_group what = all.find(one);
                                         return one == 0 || (what != nullptr && !is_of(*what->of));
                                     }),
                      handles.end());
    };
    keep([&](const call_attributes &of) { return of.site == now.said.site; });
    if (handles.size() > 1) {
        keep([&](const call_attributes &of) { return of.serial == now.said.serial; });
        if (handles.size() != 1) {
            return {EBB_INVALID_ARGUMENT,
                    "ebb.jax: " + now.title() + " is asked for in one batch, but was offloaded in several calls"};
        }
    }
    chosen = handles.empty() ? 0 : handles.front();
    return {};
}

failure read_handle(call &now, std::uint64_t &handle) {
    const xla::buffer &operand = now.view.argument(0);
    const std::uint64_t count = element_count(operand) / 2;
    if (count == 0) {
        return {};
    }
    if (operand.rank == 1) {
        return now.with.read_handles(operand.data, &handle, 1, now.stream);
    }
    std::vector<std::uint64_t> handles(count);
    if (failure why = now.with.read_handles(operand.data, handles.data(), count, now.stream)) {
        return why;
    }
    return choose_handle(now, std::move(handles), handle);
}

// Of a batch of which nobody took the branch that offloads: nobody reads it, and it is as JAX makes it without Ebb.
failure fill_with_zeros(call &now) {
    failure why;
    for (std::int64_t i = 0; i < now.view.frame.results.size && !why; ++i) {
        const xla::buffer &result = now.view.result(i);
        std::uint64_t size_bytes = 0;
        why = size_of(result, now.title(), size_bytes);
        if (!why && size_bytes > 0) {
            why = now.with.fill_with_zeros(result.data, size_bytes, now.stream);
        }
    }
    return why;
}

// Operands: the handle (a batch has it several times), and what the reload is to be ordered behind. Results: what was
// moved.
failure reload(call &now) {
    if (failure why = now.ask_context()) {
        return why;
    }
    if (now.view.frame.arguments.size < 1) {
        return {EBB_INVALID_ARGUMENT, "ebb.jax: ebb_reload has no operand"};
    }
    std::uint64_t handle = 0;
    if (failure why = read_handle(now, handle)) {
        return why;
    }
    if (handle == 0 && now.view.argument(0).rank > 1) {
        return fill_with_zeros(now);
    }
    groups &all = the_process().groups_of_all;
    const used_group what = now.said.stays ? all.find(handle) : all.find_to_reload(handle, now.run);
    if (what == nullptr) {
        return {EBB_STALE_HANDLE, "ebb.jax: what " + now.title() + " offloaded is gone: " + all.why_gone(handle)};
    }
    failure why = check_reload(now, *what);
    if (!why) {
        why = reload_parts(now, *what);
    }
    if (why && !now.said.stays) {
        all.not_reloaded(*what, now.run);
    } else if (!why && now.said.stays) {
        all.end_one(handle, "it was brought back");
    }
    return why;
}

// ---------------------------------------------------------------------------------------------------- entries --

xla::error *error_of(const xla::api *table, const failure &why) {
    xla::error_create_args args{sizeof args, nullptr, why.text->c_str(), code_of(why.status)};
    return table->error_create(&args);
}

// XLA asks a handler for its version with a call that has this extension.
bool answered_question(const xla::call_frame &frame) {
    if (frame.extensions == nullptr || frame.extensions->type != xla::k_metadata_extension) {
        return false;
    }
    xla::metadata &asked = *reinterpret_cast<xla::metadata_extension *>(frame.extensions)->data;
    asked.api_version.major = xla::k_major;
    // jaxlib 0.8 asks without its table.
    asked.api_version.minor =
        frame.table == nullptr ? xla::k_oldest_minor : std::min(frame.table->api_version.minor, xla::k_newest_minor);
    asked.traits = 0;
    return true;
}

xla::error *handle_call(xla::call_frame *frame, mover &with, failure (*handler)(call &)) {
    if (answered_question(*frame) || frame->stage != xla::k_execute) {
        return nullptr;
    }
    failure why;
    try {
        call now(*frame, with);
        why = handler(now);
    } catch (const std::bad_alloc &) {
        why = {EBB_OUT_OF_HOST_MEMORY, "ebb.jax: no memory for a call's own records"};
    } catch (const std::exception &error) {
        why = {EBB_INTERNAL, std::string("ebb.jax: ") + error.what()};
    }
    return why ? error_of(frame->table, why) : nullptr;
}

}  // namespace

xla::error *handle_offload(xla::call_frame *frame, mover &with) {
    return handle_call(frame, with, offload);
}
xla::error *handle_reload(xla::call_frame *frame, mover &with) {
    return handle_call(frame, with, reload);
}

void configure(const ebb_runtime_options &options, std::uint64_t survivor_bytes) {
    process &all = the_process();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.options = options;
    all.groups_of_all.set_cap(survivor_bytes);
}

void mark_steps() {
    the_process().steps_are_marked = true;
}

std::vector<std::shared_ptr<place>> all_places() {
    return the_process().groups_of_all.places();
}

groups &all_groups() {
    return the_process().groups_of_all;
}

void close_all() {
    process &all = the_process();
    all.groups_of_all.close("ebb.jax.close() ended it");
    all.steps_are_marked = false;
}

}  // namespace ebb_jax
