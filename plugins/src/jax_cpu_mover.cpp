#include <atomic>
#include <cstdlib>
#include <cstring>

#include "jax_mover.hpp"

namespace ebb_jax {
namespace {

// Copies of ours that wait for Ebb's: at most about so much, over all threads.
constexpr std::uint64_t k_wait_bytes = std::uint64_t{16} << 20;
// Up to here a thread copies in less time than it takes to hand the copy to another and wait for it.
constexpr std::uint64_t k_small_bytes = std::uint64_t{32} << 10;

// As XLA's own, which what is copied may be aligned to.
constexpr std::size_t k_alignment = 64;

void *make_copy(const void *data, std::uint64_t size_bytes) {
    void *const copy = std::aligned_alloc(k_alignment, (size_bytes + k_alignment - 1) / k_alignment * k_alignment);
    if (copy != nullptr) {
        std::memcpy(copy, data, size_bytes);
    }
    return copy;
}

class on_cpu : public mover {
public:
    bool has_streams() const override { return false; }

    failure open(ebb_runtime_options options, std::int32_t, place &made) override {
        if (options.device == nullptr) {
            options.device = "host";
        }
        // The order of calls differs from run to run, so that a prefetch would often be of the wrong one; and the copy
        // that Ebb borrows is for nothing but to be moved.
        options.prefetch_bytes = EBB_PREFETCH_NONE;
        options.source_bytes = EBB_SOURCES_NONE;
        // Nothing is reloaded but into XLA's buffers: how large what comes back may be is not for the first step to
        // say.
        static const ebb_allocator no_staging{
            [](void *, std::uint64_t, std::uint64_t, ebb_stream) -> void * { return nullptr; },
            [](void *, void *, std::uint64_t, ebb_stream) {}, nullptr, nullptr};
        if (options.allocator == nullptr && options.staging_memory == nullptr) {
            options.allocator = &no_staging;
        }
        made.name = "cpu";
        const ebb_status status = ebb_runtime_create(&options, &made.runtime);
        return status == EBB_OK ? failure{} : failed_call(status);
    }

    failure offload(place &home, const std::string &path, void *data, std::uint64_t size_bytes, void *,
                    part &made) override {
        return size_bytes <= k_small_bytes && offload_by_thread(home, path, data, size_bytes, made)
                   ? failure{}
                   : offload_copy(home, path, data, size_bytes, made);
    }

    failure reload(place &home, const part &what, void *data, void *) override {
        const ebb_status status =
            ebb_reload_into(home.runtime, what.activation, data, what.size_bytes, EBB_STREAM_CALLING_THREAD);
        return status == EBB_OK ? failure{} : failed_call(status);
    }

    failure wait_for(place &home, const part &what) override {
        const ebb_status status = what.is_by_thread ? EBB_OK : ebb_wait(home.runtime, what.activation);
        return status == EBB_OK ? failure{} : failed_call(status);
    }

    failure fill_with_zeros(void *data, std::uint64_t size_bytes, void *) override {
        std::memset(data, 0, size_bytes);
        return {};
    }

    failure write_handle(void *to, std::uint64_t handle, void *) override {
        std::memcpy(to, &handle, sizeof handle);
        return {};
    }

    failure read_handles(const void *from, std::uint64_t *handles, std::size_t count, void *) override {
        std::memcpy(handles, from, count * sizeof *handles);
        return {};
    }

private:
    // False: that cannot be now, and nothing was done.
    static bool offload_by_thread(place &home, const std::string &path, void *data, std::uint64_t size_bytes,
                                  part &made) {
        const ebb_stream thread = EBB_STREAM_CALLING_THREAD;
        const ebb_offload_args args = moving(path, data, size_bytes, thread);
        ebb_offload_info info{};
        info.struct_size = sizeof info;
        if (ebb_offload_staged(home.runtime, &args, &info) != EBB_OK) {
            return false;
        }
        made = {info.activation, size_bytes, true};
        return true;
    }

    // XLA may overwrite an operand as soon as its handler has returned: so Ebb gets memory of our own.
    failure offload_copy(place &home, const std::string &path, void *data, std::uint64_t size_bytes, part &made) {
        void *const copy = make_copy(data, size_bytes);
        if (copy == nullptr) {
            return {EBB_OUT_OF_HOST_MEMORY,
                    "ebb.jax: no memory for a copy of " + path + ", " + std::to_string(size_bytes) + " bytes"};
        }
        const ebb_stream thread = EBB_STREAM_CALLING_THREAD;
        ebb_offload_args args = moving(path, copy, size_bytes, thread);
        args.deleter = std::free;
        args.deleter_context = copy;
        ebb_offload_info info{};
        info.struct_size = sizeof info;
        const ebb_status status = ebb_offload(home.runtime, &args, &info);
        if (status != EBB_OK) {
            failure why = failed_call(status);
            std::free(copy);
            return why;
        }
        made = {info.activation, size_bytes, false};
        if (waiting_bytes_.fetch_add(size_bytes) + size_bytes > k_wait_bytes) {
            waiting_bytes_ = 0;
            if (const ebb_status waited = ebb_wait_room(home.runtime); waited != EBB_OK) {
                failure why = failed_call(waited);
                ebb_release(home.runtime, made.activation);
                return why;
            }
        }
        return {};
    }

    std::atomic<std::uint64_t> waiting_bytes_{0};
};

}  // namespace

failure failed_call(ebb_status status) {
    return {status, std::string("ebb: ") + ebb_status_name(status) + ": " + ebb_last_error()};
}

mover &cpu_mover() {
    static on_cpu the_mover;
    return the_mover;
}

}  // namespace ebb_jax
