#include "capi/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace ebb::capi {

namespace {

thread_local std::string last_error_text;

std::atomic<uint64_t> next_serial{1};

// Scope stacks of the calling thread, one per runtime that it pushed scopes on.
struct scope_stack {
    uint64_t runtime = 0;
    std::vector<name_table::node> nodes;
};
thread_local std::vector<scope_stack> scope_stacks;

thread_local const outside *innermost_callback = nullptr;

scope_stack *find_stack(uint64_t serial) noexcept {
    for (scope_stack &s : scope_stacks) {
        if (s.runtime == serial) {
            return &s;
        }
    }
    return nullptr;
}

// Empty stacks are taken over, so that a thread that outlives many runtimes does not gather them.
scope_stack &make_stack(uint64_t serial) {
    for (scope_stack &s : scope_stacks) {
        if (s.nodes.empty()) {
            s.runtime = serial;
            return s;
        }
    }
    scope_stacks.push_back({serial, {}});
    return scope_stacks.back();
}

// Added to a sum until it ends, for good when it is kept.
class reserved_bytes {
public:
    reserved_bytes(uint64_t &sum, uint64_t bytes) noexcept : sum_(sum), bytes_(bytes) { sum_ += bytes_; }
    ~reserved_bytes() { sum_ -= bytes_; }
    reserved_bytes(const reserved_bytes &) = delete;
    reserved_bytes &operator=(const reserved_bytes &) = delete;
    void keep() noexcept { bytes_ = 0; }

private:
    uint64_t &sum_;
    uint64_t bytes_;
};

}  // namespace

outside::outside(ebb_runtime &r, std::unique_lock<std::mutex> &lock) noexcept
    : r_(r),
      lock_(lock),
      outer_(std::exchange(innermost_callback, this)),
      context_(r.core == nullptr ? 0 : r.core->call_context()) {
    lock_.unlock();
}

outside::~outside() {
    innermost_callback = outer_;
    lock_.lock();
    if (r_.core != nullptr) {
        r_.core->begin_call(context_);
    }
}

uint32_t outside::depth(const ebb_runtime &r) noexcept {
    uint32_t depth = 0;
    for (const outside *o = innermost_callback; o != nullptr; o = o->outer_) {
        depth += &o->r_ == &r ? 1 : 0;
    }
    return depth;
}

ebb_status report(const status &s) noexcept {
    return s.ok() ? EBB_OK : report(s.code(), s.text());
}

ebb_status report(code why, std::string_view text) noexcept {
    try {
        last_error_text = text;
    } catch (...) {
        last_error_text = k_out_of_memory;  // so short that it lies in the string itself
    }
    return static_cast<ebb_status>(why);
}

status of_background(status failure) {
    switch (failure.code()) {
        case code::wrong_state:
        case code::busy:
            return {code::stale_handle, failure.text()};  // a second release, which was queued
        case code::invalid_argument:
            return {code::device_error, failure.text()};  // the device knows the stream no more
        default:
            return failure;
    }
}

void release_queue::push(item i) {
    const std::lock_guard<std::mutex> lock(mutex_);
    items_.push_back(i);
    waiting_.store(items_.size(), std::memory_order_release);
}

void release_queue::take(std::vector<item> &into) {
    into.clear();
    const std::lock_guard<std::mutex> lock(mutex_);
    std::swap(items_, into);
    waiting_.store(0, std::memory_order_release);
}

exported_tensor *release_queue::acquire_tensor() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!free_tensors_.empty()) {
            exported_tensor *tensor = free_tensors_.back().release();
            free_tensors_.pop_back();
            return tensor;
        }
    }
    return new exported_tensor;
}

void release_queue::recycle_tensor(exported_tensor *tensor) noexcept {
    std::unique_ptr<exported_tensor> owned(tensor);
    try {
        const std::lock_guard<std::mutex> lock(mutex_);
        free_tensors_.push_back(std::move(owned));
    } catch (...) {
        // No room in the pool: it is freed.
    }
}

// Ends that other threads asked for. A stale handle there is a caller's error with nobody to return it to: the
// next call that reports background failures names it.
void entry::apply_queue() {
    r_.queue->take(r_.taken);
    for (const release_queue::item &i : r_.taken) {
        status s = i.is_claim ? core().give_back_on_consumer(i.handle) : core().release(i.handle);
        if (!s.ok()) {
            core().note_failure({s.code(), "queued by another call: " + s.text()});
        }
    }
}

// The lock is released around the callbacks, which may call us again, and held again afterwards. Calls from inside
// callbacks leave what is due to the outer one after a few levels: a chain of them must not use up the stack.
void entry::run_due() {
    constexpr uint32_t k_batch = 4;
    constexpr uint32_t k_deepest = 4;
    due_call calls[k_batch];
    while (core().has_due() && outside::depth(r_) < k_deepest) {
        const uint32_t count = core().take_due(calls, k_batch);
        uint64_t freed_bytes = 0;
        {
            const outside callbacks(r_, lock_);
            for (uint32_t i = 0; i < count; ++i) {
                const due_call &c = calls[i];
                if (c.deleter != nullptr) {
                    c.deleter(c.context);
                } else if (r_.has_allocator) {
                    r_.allocator.free(r_.allocator.context, c.memory, c.size_bytes, static_cast<ebb_stream>(c.home));
                    freed_bytes += c.size_bytes;
                }
            }
        }
        r_.lent_bytes -= freed_bytes;
    }
}

void entry::run_notes() {
    std::string note;
    while (core().take_note(note)) {
        const outside callback(r_, lock_);
        r_.log.write(log_level::warning, note);
    }
}

// Counted before the lock is released, so that no two threads take the last of the cap. What is due is freed first;
// what waits for its copies still counts.
bool entry::supply(uint64_t footprint_bytes, stream_id home) {
    run_due();
    const uint64_t cap_bytes = core().options().staging_bytes;
    if (cap_bytes != 0 && r_.lent_bytes + footprint_bytes > cap_bytes) {
        return false;
    }
    reserved_bytes reserved(r_.lent_bytes, footprint_bytes);
    void *memory = nullptr;
    {
        const outside callback(r_, lock_);
        memory = r_.allocator.alloc(r_.allocator.context, footprint_bytes, staging::k_alignment,
                                    static_cast<ebb_stream>(home));
    }
    if (memory == nullptr) {
        return false;
    }
    reserved.keep();
    core().supply(memory, footprint_bytes, home);
    if (reinterpret_cast<uintptr_t>(memory) % staging::k_alignment != 0) {
        core().discard_supply();
        core().note_failure(
            {code::unsupported,
             fmt::format("options->allocator: alloc gave {}, which is not aligned to {} as it was asked", memory,
                         staging::k_alignment)});
        return false;
    }
    return true;
}

void entry::supply_now(uint64_t footprint_bytes, stream_id home) {
    if (core().make_lent_room(footprint_bytes) && !supply(footprint_bytes, home) && core().drop_unclaimed()) {
        static_cast<void>(supply(footprint_bytes, home));
    }
}

// Calls from inside a callback leave this to the outer one: the allocator may be what is calling.
void entry::use_allocator() {
    if (outside::depth(r_) != 0) {
        return;
    }
    for (runtime::memory_wish wish = core().take_prefetch_wish();
         wish.footprint_bytes != 0 && supply(wish.footprint_bytes, wish.home); wish = core().take_prefetch_wish()) {
        core().settle();
        core().discard_supply();
    }
    if (r_.allocator.available_bytes != nullptr && core().take_wish_for_available_bytes()) {
        uint64_t available = 0;
        unlocked([&] { available = r_.allocator.available_bytes(r_.allocator.context); });
        core().note_available(available);
    }
}

result<ebb_runtime *> make_runtime(std::unique_ptr<device> dev, host_device *host, const runtime_options &options,
                                   const logger &log, const ebb_allocator *allocator) {
    auto made = std::make_unique<ebb_runtime>();
    made->device = std::move(dev);
    made->host = host;
    made->log = log;
    if (allocator != nullptr) {
        made->has_allocator = true;
        made->allocator = *allocator;
    }
    made->serial = next_serial.fetch_add(1);
    runtime_options seeded = options;
    seeded.handle_seed = static_cast<uint32_t>(made->serial);
    result<std::unique_ptr<runtime>> core = runtime::create(*made->device, seeded);
    if (!core.ok()) {
        return core.why();
    }
    made->core = std::move(core).value();
    return made.release();
}

name_table::node current_scope(const ebb_runtime &r) noexcept {
    const scope_stack *stack = find_stack(r.serial);
    return stack == nullptr || stack->nodes.empty() ? name_table::k_root : stack->nodes.back();
}

// A name that is known was right when it was new. Most are one part: they are found without looking for more.
status find_name(name_table &names, const char *name, const char *argument, name_table::node &scope,
                 name_table::node &node) {
    constexpr size_t k_longest = 255;
    if (name == nullptr) {
        return {code::invalid_argument, fmt::format("{} is null", argument)};
    }
    const std::string_view all(name, strnlen(name, k_longest + 1));
    node = names.find(scope, all);
    if (node != name_table::k_root) {
        return {};
    }
    if (all.empty() || all.size() > k_longest) {
        return {code::invalid_argument,
                fmt::format("{} must have 1 to {} bytes{}", argument, k_longest, all.empty() ? ", it is empty" : "")};
    }
    for (size_t from = 0;;) {
        const size_t to = std::min(all.find('/', from), all.size());
        const std::string_view part = all.substr(from, to - from);
        if (part.empty()) {
            return {code::invalid_argument,
                    fmt::format("{} is '{}': '/' separates scopes, and one of them is empty", argument, name)};
        }
        node = names.find(scope, part);
        node = node == name_table::k_root ? names.intern(scope, part) : node;
        if (to == all.size()) {
            return {};
        }
        scope = node;
        from = to + 1;
    }
}

}  // namespace ebb::capi

using namespace ebb;        // NOLINT(google-build-using-namespace): the exported functions below
using namespace ebb::capi;  // NOLINT(google-build-using-namespace)

ebb_status ebb_scope_push(ebb_runtime *runtime, const char *name) {
    return on_runtime(runtime, [&](entry &e) -> status {
        name_table::node outer = current_scope(*runtime);
        name_table::node scope = name_table::k_root;
        EBB_TRY(find_name(e.core().names(), name, "name", outer, scope));
        scope_stack *stack = find_stack(runtime->serial);
        if (stack == nullptr) {
            stack = &make_stack(runtime->serial);
        }
        stack->nodes.push_back(scope);
        return {};
    });
}

ebb_status ebb_scope_pop(ebb_runtime *runtime) {
    return on_runtime(runtime, [&](entry &) -> status {
        scope_stack *stack = find_stack(runtime->serial);
        if (stack == nullptr || stack->nodes.empty()) {
            return {code::wrong_state, "ebb_scope_pop without a scope pushed by this thread on this runtime"};
        }
        stack->nodes.pop_back();
        return {};
    });
}

const char *ebb_last_error(void) {
    return last_error_text.c_str();
}

const char *ebb_status_name(ebb_status status) {
    return code_name(static_cast<code>(status));
}
