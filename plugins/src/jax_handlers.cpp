// What XLA calls: the handlers of offload and reload, and what Python calls by ctypes. XLA's side of a call is taken
// apart here; what a handle stands for is jax_groups, and how bytes move is jax_mover.
#include "jax_handlers.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "ebb/ebb.h"

namespace ebb_jax {
namespace {

// ------------------------------------------------------------------------------------------ of the process --

// By platform, device, and whether it is for what stays: that comes in no order that a training step could be learned
// by.
using places_by_key = std::map<std::tuple<const mover *, std::int32_t, bool>, std::shared_ptr<place>>;

struct process {
    groups groups_of_all;
    std::mutex mutex;  // of what follows
    places_by_key places;
    ebb_runtime_options options{};
    std::atomic<bool> steps_are_marked{false};  // by the caller
};

process &the_process() {
    static auto *const one = new process;  // never destroyed: XLA's threads may outlive static objects
    return *one;
}

failure find_place(mover &with, std::int32_t ordinal, bool stays, std::shared_ptr<place> &found) {
    process &all = the_process();
    const std::lock_guard<std::mutex> lock(all.mutex);
    if (!with.has_streams()) {
        ordinal = 0;  // all devices of XLA are one: the machine's memory
    }
    std::shared_ptr<place> &here = all.places[{&with, ordinal, stays}];
    if (here == nullptr) {
        auto made = std::make_shared<place>();
        ebb_runtime_options options = all.options;
        options.struct_size = sizeof options;
        if (failure why = with.open(options, ordinal, *made)) {
            return why;
        }
        made->name += stays ? " state" : "";
        here = std::move(made);
    }
    found = here;
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
    const void *attribute(const char *name, std::int32_t kind) const {
        for (std::int64_t i = 0; i < frame.attrs.size; ++i) {
            const xla::span &key = *frame.attrs.names[i];
            if (frame.attrs.kinds[i] == kind && std::string_view(key.data, key.size) == name) {
                return frame.attrs.values[i];
            }
        }
        return nullptr;
    }
    std::string text(const char *name) const {
        const auto *found = static_cast<const xla::span *>(attribute(name, xla::k_string_attribute));
        return found == nullptr ? std::string() : std::string(found->data, found->size);
    }
    std::int64_t number(const char *name) const {
        const auto *found = static_cast<const xla::scalar *>(attribute(name, xla::k_scalar_attribute));
        std::int64_t value = 0;
        if (found != nullptr && found->type == xla::k_s64) {
            std::memcpy(&value, found->value, sizeof value);
        }
        return value;
    }
};

std::uint64_t element_count(const xla::buffer &one) {
    std::uint64_t count = 1;
    for (std::int64_t i = 0; i < one.rank; ++i) {
        count *= static_cast<std::uint64_t>(one.dimensions[i]);
    }
    return count;
}

std::vector<std::string> lines(const std::string &text) {
    std::vector<std::string> all;
    std::size_t from = 0;
    while (from < text.size()) {
        const std::size_t to = std::min(text.find('\n', from), text.size());
        all.push_back(text.substr(from, to - from));
        from = to + 1;
    }
    return all;
}

// One call of a handler, taken apart.
struct call {
    frame_view view;
    mover &with;
    void *stream = nullptr;
    std::int64_t run = 0;
    std::int32_t ordinal = 0;
    std::vector<std::string> names;
    std::string scope;
    std::shared_ptr<place> home;

    call(const xla::call_frame &frame, mover &mover_of_platform) : view{frame}, with(mover_of_platform) {}

    bool ask_context() {
        const xla::call_frame &frame = view.frame;
        xla::run_id_get_args run_args{sizeof run_args, nullptr, frame.ctx, 0};
        xla::device_ordinal_get_args ordinal_args{sizeof ordinal_args, nullptr, frame.ctx, 0};
        xla::stream_get_args stream_args{sizeof stream_args, nullptr, frame.ctx, nullptr};
        if (frame.table->run_id_get(&run_args) != nullptr ||
            frame.table->device_ordinal_get(&ordinal_args) != nullptr ||
            (with.has_streams() && frame.table->stream_get(&stream_args) != nullptr)) {
            return false;
        }
        run = run_args.run_id;
        ordinal = ordinal_args.device_ordinal;
        stream = stream_args.stream;
        return true;
    }

    failure prepare() {
        if (!ask_context()) {
            return {EBB_INTERNAL, "ebb.jax: XLA does not tell run, device or stream of this call"};
        }
        scope = view.text("scope");
        names = lines(view.text("names"));
        return find_place(with, ordinal, stays(), home);
    }

    // For errors.
    std::string title() const {
        std::string text = scope;
        const char *separator = ": ";
        for (const std::string &name : names) {
            text += separator + name;
            separator = ", ";
        }
        return text;
    }
    bool stays() const { return view.number("stays") != 0; }
    site_key site() const {
        return {view.number("site"), home.get(), ordinal, static_cast<std::uint64_t>(view.number("reloads"))};
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

failure offload_parts(call &now, group &made) {
    if (const ebb_status status = ebb_scope_push(now.home->runtime, now.scope.c_str()); status != EBB_OK) {
        return failed_call(status);
    }
    failure why;
    for (std::size_t i = 0; i < now.names.size() && !why; ++i) {
        const xla::buffer &operand = now.view.argument(static_cast<std::int64_t>(i));
        std::uint64_t size_bytes = 0;
        part one;
        why = size_of(operand, now.names[i], size_bytes);
        if (!why) {
            why = now.with.offload(*now.home, now.names[i], operand.data, size_bytes, now.stream, one);
        }
        if (!why) {
            made.parts.push_back(one);
            made.size_bytes += size_bytes;
        }
    }
    ebb_scope_pop(now.home->runtime);
    return why;
}

// Operands: what is moved, by name, and behind them what it is to be ordered behind. Result: the handle.
failure offload(call &now) {
    if (failure why = now.prepare()) {
        return why;
    }
    const xla::call_frame &frame = now.view.frame;
    if (now.names.empty() || frame.arguments.size < static_cast<std::int64_t>(now.names.size()) ||
        frame.results.size != 1) {
        return {EBB_INVALID_ARGUMENT, "ebb.jax: ebb_offload has fewer operands than names, or not one result"};
    }
    groups &all = the_process().groups_of_all;
    if (all.begin_run(*now.home, now.site(), now.run) && !now.stays() && !the_process().steps_are_marked) {
        if (const ebb_status status = ebb_step(now.home->runtime, EBB_PHASE_TRAIN); status != EBB_OK) {
            return failed_call(status);
        }
    }
    auto made = std::make_shared<group>();
    made->home = now.home;
    made->site = now.site();
    made->layout = now.view.text("layout");
    made->run = now.run;
    made->stays = now.stays();
    if (failure why = offload_parts(now, *made)) {
        return why;
    }
    const std::uint64_t handle = all.add(std::move(made));
    return now.with.write_handle(now.view.result(0).data, handle, now.stream);
}

failure check_reload(const call &now, const group &what) {
    const frame_view &view = now.view;
    const std::string_view unlike = what.home != now.home || what.site.ordinal != now.ordinal ? "on another device"
                                    : what.parts.size() != static_cast<std::size_t>(view.frame.results.size) ||
                                            what.parts.size() != now.names.size()
                                        ? "as another number of arrays"
                                    : what.layout != view.text("layout") ? "in another sharding"
                                                                         : "";
    if (!unlike.empty()) {
        return {EBB_INVALID_ARGUMENT,
                "ebb.jax: " + now.title() + " is asked for " + std::string(unlike) +
                    " than it was offloaded: " + view.text("layout") + " here, " + what.layout +
                    " there. Give the function that is differentiated the same sharding in both programs"};
    }
    for (std::size_t i = 0; i < what.parts.size(); ++i) {
        std::uint64_t size_bytes = 0;
        if (failure why = size_of(view.result(static_cast<std::int64_t>(i)), now.names[i], size_bytes)) {
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

failure read_handle(call &now, std::uint64_t &handle) {
    const xla::buffer &operand = now.view.argument(0);
    std::vector<std::uint64_t> handles(element_count(operand) / 2);
    if (handles.empty()) {
        return {EBB_INVALID_ARGUMENT, "ebb.jax: " + now.title() + " is asked for without a handle"};
    }
    if (failure why = now.with.read_handles(operand.data, handles, now.stream)) {
        return why;
    }
    for (const std::uint64_t one : handles) {
        if (one != handles.front()) {
            return {EBB_INVALID_ARGUMENT,
                    "ebb.jax: " + now.title() + " is asked for in one batch, but was offloaded in several calls"};
        }
    }
    handle = handles.front();
    return {};
}

// Operands: the handle (a batch has it several times), and what the reload is to be ordered behind. Results: what was
// moved.
failure reload(call &now) {
    if (failure why = now.prepare()) {
        return why;
    }
    if (now.view.frame.arguments.size < 1) {
        return {EBB_INVALID_ARGUMENT, "ebb.jax: ebb_reload has no operand"};
    }
    std::uint64_t handle = 0;
    if (failure why = read_handle(now, handle)) {
        return why;
    }
    groups &all = the_process().groups_of_all;
    const std::shared_ptr<group> what = all.find(handle);
    if (what == nullptr) {
        return {EBB_STALE_HANDLE, "ebb.jax: what " + now.title() + " offloaded is gone: " + all.why_gone(handle)};
    }
    if (failure why = check_reload(now, *what)) {
        return why;
    }
    for (std::size_t i = 0; i < what->parts.size(); ++i) {
        void *const data = now.view.result(static_cast<std::int64_t>(i)).data;
        if (failure why = now.with.reload(*now.home, what->parts[i], data, now.stream)) {
            return why;
        }
    }
    if (now.stays()) {
        all.end_one(handle, "it was brought back");
    } else {
        all.reloaded(handle, now.run);
    }
    return {};
}

// ---------------------------------------------------------------------------------------------------- entries --

xla::error *error_of(const xla::api *table, const failure &why) {
    xla::error_create_args args{sizeof args, nullptr, why.text.c_str(), code_of(why.status)};
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
    process &all = the_process();
    const std::lock_guard<std::mutex> lock(all.mutex);
    std::vector<std::shared_ptr<place>> found;
    for (const auto &[key, one] : all.places) {
        if (one != nullptr) {
            found.push_back(one);
        }
    }
    return found;
}

groups &all_groups() {
    return the_process().groups_of_all;
}

void close_all() {
    process &all = the_process();
    all.groups_of_all.forget_all("ebb.jax.close() ended it");
    all.steps_are_marked = false;
    places_by_key places;
    const std::lock_guard<std::mutex> lock(all.mutex);
    places.swap(all.places);
}

}  // namespace ebb_jax
