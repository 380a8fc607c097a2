// RAII wrapper over the C ABI, header-only, C++17. ebb.h is the manual: what is said there about streams, threads and
// life times holds here. Its classes live in the program that includes it; nothing of them crosses the library's
// border. SPDX-License-Identifier: Apache-2.0
//
//     ebb::cpp::runtime ebb(options);
//     ebb.step(EBB_PHASE_TRAIN);
//     ebb::cpp::activation saved = [&] {
//         ebb::cpp::scope layer(ebb, "layer.0");
//         return ebb.offload(args);
//     }();
//     ...
//     ebb::cpp::claim bytes = saved.reload(stream);  // launch what reads bytes.data() on `stream`
//     bytes.return_on(stream);
//     saved.release();
//
// - Owning types (runtime, activation, claim) can be moved and not copied. A moved-from, released, returned or closed
//   one is empty: false as a bool, safe to destroy or assign to.
// - Errors are thrown as ebb::cpp::error, with status and text. Results that are part of normal work have try_ forms
//   that give them as values: EBB_NO_SLOT, EBB_RECOMPUTE, and EBB_BUSY from close.
// - Destructors never throw: a claim is returned on its consumer stream, an activation released, a runtime closed with
//   EBB_CLOSE_FORCE. An activation and a claim name their runtime: let them end before it (declare it first).
// - The namespace is ebb::cpp because ebb itself holds the library's own sources.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "ebb/ebb.h"

namespace ebb::cpp {

class error : public std::runtime_error {
public:
    error(ebb_status status, const std::string &text)
        : std::runtime_error(std::string(ebb_status_name(status)) + ": " + text), status_(status) {}
    [[nodiscard]] ebb_status status() const noexcept { return status_; }

private:
    ebb_status status_;
};

// Throws unless EBB_OK; for calls of the C ABI that have no wrapper.
inline void check(ebb_status status) {
    if (status != EBB_OK) {
        throw error(status, ebb_last_error());
    }
}

// A struct of the C ABI with its struct_size set and all else zero, which means default.
template <class Struct>
[[nodiscard]] Struct make() noexcept {
    Struct made{};
    made.struct_size = sizeof(Struct);
    return made;
}

// A value, or the status that is part of normal work and says why there is none.
template <class T>
class [[nodiscard]] outcome {
public:
    outcome(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
    explicit outcome(ebb_status status) noexcept : status_(status) {}

    explicit operator bool() const noexcept { return value_.has_value(); }
    [[nodiscard]] ebb_status status() const noexcept { return status_; }
    // Throws error when there is no value.
    [[nodiscard]] T &value() & {
        need();
        return *value_;
    }
    [[nodiscard]] T &&value() && {
        need();
        return *std::move(value_);
    }
    [[nodiscard]] T &operator*() &noexcept { return *value_; }
    [[nodiscard]] T &&operator*() &&noexcept { return *std::move(value_); }
    [[nodiscard]] T *operator->() noexcept { return &*value_; }

private:
    void need() const {
        if (!value_.has_value()) {
            throw error(status_, "there is no value");
        }
    }
    std::optional<T> value_;
    ebb_status status_ = EBB_OK;
};

// The bytes of one reload, until they are returned.
class claim {
public:
    claim() noexcept = default;
    claim(claim &&other) noexcept { swap(other); }
    claim &operator=(claim &&other) noexcept {
        claim moved(std::move(other));
        swap(moved);
        return *this;
    }
    claim(const claim &) = delete;
    claim &operator=(const claim &) = delete;
    ~claim() {
        if (runtime_ != nullptr) {
            static_cast<void>(ebb_return(runtime_, info_.claim, consumer_));
        }
    }

    explicit operator bool() const noexcept { return runtime_ != nullptr; }
    [[nodiscard]] void *data() const noexcept { return info_.data; }
    [[nodiscard]] std::uint64_t size_bytes() const noexcept { return info_.size_bytes; }
    [[nodiscard]] ebb_claim id() const noexcept { return info_.claim; }

    // A further stream that reads the bytes.
    void use(ebb_stream stream) { check(ebb_use(runtime_, info_.claim, stream)); }
    // The memory may be reused behind `last`; empty afterwards. When it throws, the claim is still held.
    void return_on(ebb_stream last) {
        check(ebb_return(runtime_, info_.claim, last));
        runtime_ = nullptr;
        info_ = ebb_reload_info{};
    }
    // The claim becomes the caller's to return.
    [[nodiscard]] ebb_claim detach() noexcept {
        runtime_ = nullptr;
        return std::exchange(info_, ebb_reload_info{}).claim;
    }

private:
    friend class activation;
    claim(ebb_runtime *runtime, ebb_stream consumer, const ebb_reload_info &info) noexcept
        : runtime_(runtime), consumer_(consumer), info_(info) {}
    void swap(claim &other) noexcept {
        std::swap(runtime_, other.runtime_);
        std::swap(consumer_, other.consumer_);
        std::swap(info_, other.info_);
    }

    ebb_runtime *runtime_ = nullptr;
    ebb_stream consumer_ = EBB_STREAM_DEFAULT;
    ebb_reload_info info_{};
};

class activation {
public:
    activation() noexcept = default;
    activation(activation &&other) noexcept { swap(other); }
    activation &operator=(activation &&other) noexcept {
        activation moved(std::move(other));
        swap(moved);
        return *this;
    }
    activation(const activation &) = delete;
    activation &operator=(const activation &) = delete;
    ~activation() {
        if (runtime_ != nullptr) {
            static_cast<void>(ebb_release(runtime_, info_.activation));
        }
    }

    explicit operator bool() const noexcept { return runtime_ != nullptr; }
    [[nodiscard]] ebb_activation id() const noexcept { return info_.activation; }
    [[nodiscard]] ebb_placement placement() const noexcept { return info_.placement; }
    [[nodiscard]] const ebb_offload_info &info() const noexcept { return info_; }  // with the reason it was kept for

    [[nodiscard]] claim reload(ebb_stream consumer) {
        ebb_reload_info info = make<ebb_reload_info>();
        check(ebb_reload(runtime_, info_.activation, consumer, &info));
        return claim(runtime_, consumer, info);
    }
    // EBB_NO_SLOT: use reload_into. EBB_RECOMPUTE: compute it again. All else is thrown.
    outcome<claim> try_reload(ebb_stream consumer) {
        ebb_reload_info info = make<ebb_reload_info>();
        const ebb_status status = ebb_reload(runtime_, info_.activation, consumer, &info);
        if (status == EBB_NO_SLOT || status == EBB_RECOMPUTE) {
            return outcome<claim>(status);
        }
        check(status);
        return claim(runtime_, consumer, info);
    }
    void reload_into(void *data, std::uint64_t size_bytes, ebb_stream consumer) {
        check(ebb_reload_into(runtime_, info_.activation, data, size_bytes, consumer));
    }
    // False: EBB_RECOMPUTE. All else is thrown.
    [[nodiscard]] bool try_reload_into(void *data, std::uint64_t size_bytes, ebb_stream consumer) {
        const ebb_status status = ebb_reload_into(runtime_, info_.activation, data, size_bytes, consumer);
        if (status == EBB_RECOMPUTE) {
            return false;
        }
        check(status);
        return true;
    }
    // The tensor's own deleter ends it.
    [[nodiscard]] DLManagedTensorVersioned *reload_dlpack(ebb_stream consumer) {
        DLManagedTensorVersioned *tensor = nullptr;
        check(ebb_reload_dlpack(runtime_, info_.activation, consumer, &tensor));
        return tensor;
    }
    void wait() { check(ebb_wait(runtime_, info_.activation)); }

    // Both leave it empty. When release throws, the activation is still held.
    void release() {
        check(ebb_release(runtime_, info_.activation));
        forget();
    }
    void drop() {
        check(ebb_drop(runtime_, info_.activation));
        forget();
    }
    // The activation becomes the caller's to release.
    [[nodiscard]] ebb_activation detach() noexcept {
        const ebb_activation id = info_.activation;
        forget();
        return id;
    }

private:
    friend class runtime;
    activation(ebb_runtime *runtime, const ebb_offload_info &info) noexcept : runtime_(runtime), info_(info) {}
    void forget() noexcept {
        runtime_ = nullptr;
        info_ = ebb_offload_info{};
    }
    void swap(activation &other) noexcept {
        std::swap(runtime_, other.runtime_);
        std::swap(info_, other.info_);
    }

    ebb_runtime *runtime_ = nullptr;
    ebb_offload_info info_{};
};

class runtime {
public:
    explicit runtime(ebb_runtime_options options = {}) {
        options.struct_size = sizeof(options);
        check(ebb_runtime_create(&options, &handle_));
    }
    runtime(runtime &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    runtime &operator=(runtime &&other) noexcept {
        runtime moved(std::move(other));
        std::swap(handle_, moved.handle_);
        return *this;
    }
    runtime(const runtime &) = delete;
    runtime &operator=(const runtime &) = delete;
    ~runtime() { static_cast<void>(ebb_runtime_close(handle_, EBB_CLOSE_FORCE)); }

    explicit operator bool() const noexcept { return handle_ != nullptr; }
    [[nodiscard]] ebb_runtime *get() const noexcept { return handle_; }  // still owned here

    // EBB_BUSY when activations are live, EBB_WRONG_STATE from inside a callback: the runtime lives on. Otherwise it is
    // empty, also where a failure of the background is returned that nobody was told yet.
    [[nodiscard]] ebb_status close() noexcept {
        const ebb_status status = ebb_runtime_close(handle_, EBB_CLOSE_DEFAULT);
        if (status != EBB_BUSY && status != EBB_WRONG_STATE && status != EBB_INVALID_ARGUMENT) {
            handle_ = nullptr;
        }
        return status;
    }

    void step(ebb_phase phase) { check(ebb_step(handle_, phase)); }

    // struct_size is set here.
    [[nodiscard]] activation offload(ebb_offload_args args) { return take(ebb_offload, args); }
    [[nodiscard]] activation offload_staged(ebb_offload_args args) { return take(ebb_offload_staged, args); }
    // EBB_NO_SLOT: nothing was taken. All else is thrown.
    outcome<activation> try_offload_staged(ebb_offload_args args) {
        args.struct_size = sizeof(args);
        ebb_offload_info info = make<ebb_offload_info>();
        const ebb_status status = ebb_offload_staged(handle_, &args, &info);
        if (status == EBB_NO_SLOT) {
            return outcome<activation>(status);
        }
        check(status);
        return activation(handle_, info);
    }
    // Owns the tensor from here on, unless it throws.
    [[nodiscard]] activation offload_dlpack(ebb_offload_args args, DLManagedTensorVersioned *tensor) {
        return take([tensor](ebb_runtime *r, const ebb_offload_args *a,
                             ebb_offload_info *i) { return ebb_offload_dlpack(r, a, tensor, i); },
                    args);
    }

    void wait_room() { check(ebb_wait_room(handle_)); }
    void progress() { check(ebb_progress(handle_)); }

    [[nodiscard]] ebb_statistics stats() {
        ebb_statistics statistics = make<ebb_statistics>();
        check(ebb_stats(handle_, &statistics));
        return statistics;
    }
    [[nodiscard]] std::string report(ebb_report_format format = EBB_REPORT_TEXT) {
        std::string text;
        const auto append = [](void *to, const char *piece, std::uint64_t size_bytes) {
            static_cast<std::string *>(to)->append(piece, static_cast<std::size_t>(size_bytes));
        };
        check(ebb_report_write(handle_, format, append, &text));
        return text;
    }

private:
    template <class Call>
    activation take(Call call, ebb_offload_args &args) {
        args.struct_size = sizeof(args);
        ebb_offload_info info = make<ebb_offload_info>();
        check(call(handle_, &args, &info));
        return activation(handle_, info);
    }

    ebb_runtime *handle_ = nullptr;
};

// A name for what the calling thread offloads while it lives. It must end on the thread that made it, youngest first.
class scope {
public:
    scope(runtime &owner, const char *name) : runtime_(owner.get()) { check(ebb_scope_push(runtime_, name)); }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;
    ~scope() { static_cast<void>(ebb_scope_pop(runtime_)); }

private:
    ebb_runtime *runtime_;
};

// A graph's memory, from ebb_graph_join, which is the last call in its capture, to ebb_graph_release, which comes when
// no launch is under way or will come. Ends before its runtime.
class graph {
public:
    graph(ebb_runtime *owner, ebb_stream stream) : runtime_(owner) { check(ebb_graph_join(runtime_, stream, &graph_)); }
    graph(runtime &owner, ebb_stream stream) : graph(owner.get(), stream) {}
    graph(graph &&other) noexcept
        : runtime_(std::exchange(other.runtime_, nullptr)), graph_(std::exchange(other.graph_, 0)) {}
    graph &operator=(graph &&other) noexcept {
        graph moved(std::move(other));
        std::swap(runtime_, moved.runtime_);
        std::swap(graph_, moved.graph_);
        return *this;
    }
    graph(const graph &) = delete;
    graph &operator=(const graph &) = delete;
    ~graph() {
        if (runtime_ != nullptr) {
            static_cast<void>(ebb_graph_release(runtime_, graph_));
        }
    }
    [[nodiscard]] ebb_graph id() const noexcept { return graph_; }

private:
    ebb_runtime *runtime_ = nullptr;
    ebb_graph graph_ = 0;
};

// Between ebb_recompute_begin and _end.
class recompute_section {
public:
    recompute_section(runtime &owner, std::uint64_t size_bytes) : runtime_(owner.get()) {
        check(ebb_recompute_begin(runtime_, size_bytes));
    }
    recompute_section(const recompute_section &) = delete;
    recompute_section &operator=(const recompute_section &) = delete;
    ~recompute_section() { static_cast<void>(ebb_recompute_end(runtime_)); }

private:
    ebb_runtime *runtime_;
};

// Between ebb_collective_begin and _end.
class collective_section {
public:
    collective_section(runtime &owner, ebb_stream stream, std::uint64_t size_bytes)
        : runtime_(owner.get()), stream_(stream) {
        check(ebb_collective_begin(runtime_, stream_, size_bytes));
    }
    collective_section(const collective_section &) = delete;
    collective_section &operator=(const collective_section &) = delete;
    ~collective_section() { static_cast<void>(ebb_collective_end(runtime_, stream_)); }

private:
    ebb_runtime *runtime_;
    ebb_stream stream_;
};

}  // namespace ebb::cpp
