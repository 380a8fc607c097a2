// What stands behind an ebb_runtime*: the core, its device, the lock that takes calls one after the other, and
// the queue of what other threads dropped. Every exported function goes through here: nothing else holds the
// lock, runs callbacks or catches exceptions.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/status.hpp"
#include "capi/dlpack_abi.hpp"
#include "device/device.hpp"
#include "device/host/host_device.hpp"
#include "ebb/ebb.h"
#include "runtime/runtime.hpp"

namespace ebb::capi {

constexpr const char *k_out_of_memory = "out of memory";

// Both set the thread's last error and give the code as the C number. Where there is no memory for the text, the text
// says that.
ebb_status report(const status &s) noexcept;
ebb_status report(code why, std::string_view text) noexcept;

// The exception barrier: nothing thrown crosses the C ABI. No status is made on the way out, since that takes memory.
template <class Body>
ebb_status guarded(Body &&body) noexcept {
    try {
        return report(body());
    } catch (const std::bad_alloc &) {
        return report(code::internal, k_out_of_memory);
    } catch (const std::exception &e) {
        return report(code::internal, e.what());
    } catch (...) {
        return report(code::internal, "unknown exception");
    }
}

// A failure of the background, as the call that tells it returns it: with its text, and never with a code that says
// that this call was wrong (after which a runtime also lives on through its close).
status of_background(status failure);

// What ends without a call of its own: ebb_drop, and deleters of DLPack tensors that we gave out. Shared, since
// those tensors may outlive the runtime.
class release_queue {
public:
    struct item {
        uint64_t handle = 0;
        bool is_claim = false;
    };

    void push(item i);
    // Takes what is queued; `into` is swapped so that neither side allocates once warm.
    void take(std::vector<item> &into);
    [[nodiscard]] bool empty() const noexcept { return waiting_.load(std::memory_order_acquire) == 0; }

    exported_tensor *acquire_tensor();
    void recycle_tensor(exported_tensor *tensor) noexcept;

private:
    std::mutex mutex_;
    std::atomic<size_t> waiting_{0};
    std::vector<item> items_;
    std::vector<std::unique_ptr<exported_tensor>> free_tensors_;
};

// Shape of a tensor offloaded through DLPack, by activation index.
struct tensor_shape {
    static constexpr int32_t k_max_dimensions = 16;
    uint64_t activation = 0;
    int32_t dimensions = 0;
    dl::data_type type{};
    std::array<int64_t, k_max_dimensions> shape{}, strides{};
};

}  // namespace ebb::capi

struct ebb_runtime {
    std::mutex mutex;
    ebb::logger log;
    std::unique_ptr<ebb::device> device;
    ebb::host_device *host = nullptr;  // when the device is (or decorates) the host device
    std::unique_ptr<ebb::runtime> core;
    bool has_allocator = false;
    ebb_allocator allocator{};
    uint64_t lent_bytes = 0;  // asked of the allocator and not given back to it
    uint64_t serial = 0;      // never reused, names the runtime in the threads' scope stacks
    std::shared_ptr<ebb::capi::release_queue> queue = std::make_shared<ebb::capi::release_queue>();
    std::vector<ebb::capi::release_queue::item> taken;
    uint32_t activation_records = 0;  // of the core, as far as handles have shown
    std::vector<ebb::capi::tensor_shape> shapes;
    std::string record_path;  // to be written
};

namespace ebb::capi {

// While one lives, the thread is in a callback (or a wait) of that runtime, with its lock released.
class outside {
public:
    outside(ebb_runtime &r, std::unique_lock<std::mutex> &lock) noexcept;
    ~outside();
    outside(const outside &) = delete;
    outside &operator=(const outside &) = delete;

    // How many callbacks of that runtime the calling thread is in.
    [[nodiscard]] static uint32_t depth(const ebb_runtime &r) noexcept;

private:
    ebb_runtime &r_;
    std::unique_lock<std::mutex> &lock_;
    const outside *outer_;
    uint64_t context_;  // of the call that goes on afterwards
};

// One call on a runtime: locks, does what was queued, and on leaving runs the callbacks that are due with no lock held.
class entry {
public:
    explicit entry(ebb_runtime &r) : r_(r), lock_(r.mutex) {
        r.core->begin_call();
        if (!r.queue->empty()) {
            apply_queue();
        }
    }
    entry(const entry &) = delete;
    entry &operator=(const entry &) = delete;

    [[nodiscard]] ebb::runtime &core() noexcept { return *r_.core; }
    // The failure of the background that nobody was told yet, once.
    status take_failure() { return of_background(core().take_failure()); }

    // Runs `body` with the lock released, behind the callbacks that were due.
    template <class Body>
    void unlocked(Body &&body) {
        run_due();
        const outside callback(r_, lock_);
        body();
    }

    // Memory from the lent allocator for a slot of that footprint; false when it refuses, or the cap does.
    bool supply(uint64_t footprint_bytes, stream_id home);
    // The same for a slot that is needed now: unclaimed prefetches make room, where that helps.
    void supply_now(uint64_t footprint_bytes, stream_id home);

    // The last thing of a call: prefetches that need the allocator, then callbacks.
    void leave() {
        if (r_.has_allocator) {
            use_allocator();
        }
        if (core().has_due()) {
            run_due();
        }
        if (core().has_notes()) {
            run_notes();
        }
    }

private:
    void apply_queue();
    void use_allocator();
    void run_due();
    void run_notes();

    ebb_runtime &r_;
    std::unique_lock<std::mutex> lock_;
};

// Common shape of the functions that take a runtime.
template <class Body>
ebb_status on_runtime(ebb_runtime *r, Body &&body) noexcept {
    return guarded([&]() -> status {
        if (r == nullptr) {
            return {code::invalid_argument, "runtime is null"};
        }
        entry e(*r);
        status outcome = body(e);
        e.leave();
        return outcome;
    });
}

// The same for calls that report what failed in the background.
template <class Body>
ebb_status on_runtime_reporting(ebb_runtime *r, Body &&body) noexcept {
    return on_runtime(r, [&](entry &e) -> status {
        EBB_TRY(e.take_failure());
        return body(e);
    });
}

// For tests and devices to come: a runtime on a device made elsewhere. `host` may be null.
result<ebb_runtime *> make_runtime(std::unique_ptr<device> dev, host_device *host, const runtime_options &options,
                                   const logger &log, const ebb_allocator *allocator);

// The innermost scope of the calling thread, k_root when there is none.
name_table::node current_scope(const ebb_runtime &r) noexcept;

// The node of a name below `scope`, which becomes the one right above it; refuses what is no name.
[[nodiscard]] status find_name(name_table &names, const char *name, const char *argument, name_table::node &scope,
                               name_table::node &node);

}  // namespace ebb::capi
