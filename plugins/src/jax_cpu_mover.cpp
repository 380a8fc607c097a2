#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "jax_mover.hpp"

namespace ebb_jax {
namespace {

// Copies of ours that wait for Ebb's: at most about so much, over all threads.
constexpr std::uint64_t k_wait_bytes = std::uint64_t{16} << 20;

// Memory for our copies. Small pieces that a thread frees it keeps for its next ones, a few of each size: the allocator
// takes longer for these sizes than all else that is done for one.
class copy_memory {
public:
    static void *take(std::uint64_t size_bytes) {
        const std::size_t size_class = class_of(size_bytes);
        if (size_class < k_classes) {
            kept &mine = kept_[size_class];
            return mine.count > 0 ? mine.pieces[--mine.count]
                                  : made(size_class, std::size_t{1} << (k_smallest_log + size_class));
        }
        return made(size_class, size_bytes);
    }
    // As a deleter.
    static void give(void *data) {
        void *const start = static_cast<char *>(data) - k_header_bytes;
        std::size_t size_class = 0;
        std::memcpy(&size_class, start, sizeof size_class);
        if (size_class < k_classes && kept_[size_class].count < k_most_kept) {
            kept_[size_class].pieces[kept_[size_class].count++] = data;
            return;
        }
        std::free(start);
    }

private:
    static constexpr std::size_t k_header_bytes = 64;  // so much, that copies are aligned like what is copied
    static constexpr std::size_t k_smallest_log = 6, k_classes = 13;  // 64 bytes to 256 KiB
    static constexpr std::size_t k_most_kept = 4;
    struct kept {
        std::array<void *, k_most_kept> pieces{};
        std::size_t count = 0;
        ~kept() {
            while (count > 0) {
                std::free(static_cast<char *>(pieces[--count]) - k_header_bytes);
            }
        }
    };

    static std::size_t class_of(std::uint64_t size_bytes) {
        const auto log = static_cast<std::size_t>(std::bit_width(size_bytes == 0 ? 0 : size_bytes - 1));
        return std::max(log, k_smallest_log) - k_smallest_log;
    }
    static void *made(std::size_t size_class, std::uint64_t size_bytes) {
        void *const start = std::malloc(k_header_bytes + size_bytes);
        if (start == nullptr) {
            return nullptr;
        }
        std::memcpy(start, &size_class, sizeof size_class);
        return static_cast<char *>(start) + k_header_bytes;
    }

    static thread_local std::array<kept, k_classes> kept_;
};
thread_local std::array<copy_memory::kept, copy_memory::k_classes> copy_memory::kept_;

// XLA may overwrite an operand as soon as its handler has returned, and there is no stream that a staged copy could be
// ordered on: so Ebb gets memory of our own.
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
        void *copy = copy_memory::take(size_bytes);
        if (copy == nullptr) {
            return {EBB_OUT_OF_HOST_MEMORY,
                    "ebb.jax: no memory for a copy of " + path + ", " + std::to_string(size_bytes) + " bytes"};
        }
        std::memcpy(copy, data, size_bytes);
        const ebb_stream thread = EBB_STREAM_CALLING_THREAD;
        ebb_offload_args args = moving(path, copy, size_bytes, thread);
        args.deleter = copy_memory::give;
        args.deleter_context = copy;
        ebb_offload_info info{};
        info.struct_size = sizeof info;
        const ebb_status status = ebb_offload(home.runtime, &args, &info);
        if (status != EBB_OK) {
            failure why = failed_call(status);
            copy_memory::give(copy);
            return why;
        }
        made = {info.activation, size_bytes};
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

    failure reload(place &home, const part &what, void *data, void *) override {
        const ebb_status status =
            ebb_reload_into(home.runtime, what.activation, data, what.size_bytes, EBB_STREAM_CALLING_THREAD);
        return status == EBB_OK ? failure{} : failed_call(status);
    }

    failure wait_for(place &home, const part &what) override {
        const ebb_status status = ebb_wait(home.runtime, what.activation);
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
