// A runtime on a machine whose faults, copies and trace a test controls, with as many streams as it asks for.
// Sources are freed by their deleters, each of which must run once; bytes are checked on the streams that read them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "stream_order.hpp"
#include "training_rig.hpp"

namespace ebb::test {

constexpr uint64_t k_unit_bytes = 64 * 1024;

// A kernel that stands until it is let pass.
class stream_gate {
public:
    void let(uint64_t count = 1) {
        const std::lock_guard lock(mutex_);
        permits_ += count;
        changed_.notify_all();
    }
    void let_all() { let(k_all); }
    void pass() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return permits_ > 0; });
        permits_ -= permits_ >= k_all ? 0 : 1;
    }

private:
    static constexpr uint64_t k_all = uint64_t{1} << 40U;
    std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t permits_ = 0;
};

// Sources are given up in the offload call, so that every reload is a copy; reloads have room for `slots` units.
inline runtime_options copies_always(uint64_t slots = 1, uint64_t largest_bytes = k_unit_bytes) {
    runtime_options o;
    o.min_offload_bytes = 1;
    o.source_bytes = k_none_bytes;
    o.max_activation_bytes = largest_bytes;
    const uint64_t slot_bytes =
        (largest_bytes + staging::k_alignment - 1) / staging::k_alignment * staging::k_alignment;
    o.staging_bytes = slots * slot_bytes + staging::k_alignment;
    o.device_budget_bytes = o.staging_bytes + 4 * largest_bytes;
    return o;
}

// Sources stay until somebody wants the room, which nobody does.
inline runtime_options sources_stay(uint64_t slots = 1, uint64_t largest_bytes = k_unit_bytes) {
    runtime_options o = copies_always(slots, largest_bytes);
    o.source_bytes = k_automatic;
    o.device_budget_bytes = uint64_t{1} << 30U;
    return o;
}

class session {
public:
    struct saved {
        ebb_activation activation = 0;
        uint64_t seed = 0;
        uint64_t size_bytes = 0;
        std::byte *data = nullptr;  // of the source; only an address once it is given up
        ebb_offload_info info{};
    };

    explicit session(const runtime_options &core, const host_device_options &host = {}, uint64_t slab_bytes = 0) {
        auto dev = rig_device::make(host, slab_bytes);
        device_ = dev.get();
        host_device *inner = dev->machine().host();
        result<ebb_runtime *> made =
            capi::make_runtime(std::move(dev), inner, core, logger(note_line, this, log_level::warning), nullptr);
        EXPECT_TRUE(made.ok()) << made.why().text();
        runtime_ = made.ok() ? std::move(made).value() : nullptr;
    }
    ~session() { close(); }
    session(const session &) = delete;
    session &operator=(const session &) = delete;

    // Lets everything go that a test holds, then ends the runtime.
    void close() {
        if (runtime_ == nullptr) {
            return;
        }
        let_all_pass();
        for (const ebb_stream stream : streams_) {
            sync(stream);
        }
        EBB_EXPECT_OK(ebb_runtime_close(std::exchange(runtime_, nullptr), EBB_CLOSE_FORCE));
        EXPECT_EQ(wrong_.load(), 0) << "bytes came back wrong";
        for (const source &each : sources_) {
            EXPECT_EQ(each.deleted, each.taken ? 1 : 0) << "a deleter runs exactly once";
        }
    }

    [[nodiscard]] ebb_runtime *runtime() { return runtime_; }
    [[nodiscard]] rig_device &device() { return *device_; }
    [[nodiscard]] test_machine &machine() { return device_->machine(); }
    [[nodiscard]] fault_device &fault() { return device_->fault(); }
    [[nodiscard]] const std::vector<std::string> &log() const { return log_; }
    [[nodiscard]] int wrong() const { return wrong_.load(); }
    [[nodiscard]] uint64_t deleted() const {
        uint64_t count = 0;
        for (const source &each : sources_) {
            count += static_cast<uint64_t>(each.deleted);
        }
        return count;
    }

    ebb_stream stream() {
        const result<stream_id> made = machine().create_stream();
        EXPECT_TRUE(made.ok()) << made.why().text();
        streams_.push_back(static_cast<ebb_stream>(made.value()));
        return streams_.back();
    }
    void end_stream(ebb_stream stream) {
        streams_.erase(std::find(streams_.begin(), streams_.end(), stream));
        EXPECT_TRUE(machine().destroy_stream(stream_id{stream}).ok());
    }
    stream_gate &gate() { return gates_.emplace_back(); }
    void let_all_pass() {
        for (stream_gate &each : gates_) {
            each.let_all();
        }
        EXPECT_TRUE(fault().release(copy_direction::d2h).ok());
        EXPECT_TRUE(fault().release(copy_direction::h2d).ok());
    }
    void hold(copy_direction direction) { EXPECT_TRUE(fault().hold(direction).ok()); }
    void let_go(copy_direction direction) { EXPECT_TRUE(fault().release(direction).ok()); }

    void launch(ebb_stream stream, std::function<void()> body, const kernel_uses &uses = {}) {
        launches_.push_back(std::move(body));
        EXPECT_TRUE(machine().launch(stream_id{stream}, run, &launches_.back(), uses).ok());
    }
    void stand(ebb_stream stream, stream_gate &at) {
        launch(stream, [&at] { at.pass(); });
    }
    void sync(ebb_stream stream) { EXPECT_TRUE(machine().synchronize(stream_id{stream}).ok()); }
    // Everything that is enqueued has run; nothing may be held.
    void drain() {
        for (const ebb_stream stream : streams_) {
            sync(stream);
        }
        device_->wait_for_our_streams();
    }

    [[nodiscard]] std::byte *alloc(uint64_t size_bytes) {
        const result<void *> data = machine().alloc(size_bytes);
        EXPECT_TRUE(data.ok()) << data.why().text();
        return static_cast<std::byte *>(data.ok() ? data.value() : nullptr);
    }
    void free(std::byte *data) { EXPECT_TRUE(machine().free(data).ok()); }

    // Offloads `args` as it stands, with a deleter that frees `freed` (null: frees nothing).
    saved offload(ebb_offload_args args, uint64_t seed, std::byte *freed) {
        source &s = sources_.emplace_back(source{this, freed});
        args.struct_size = sizeof(args);
        args.deleter = delete_source;
        args.deleter_context = &s;
        saved made;
        made.info.struct_size = sizeof(made.info);
        const ebb_status status = ebb_offload(runtime_, &args, &made.info);
        EXPECT_EQ(status, EBB_OK) << ebb_last_error();
        s.taken = status == EBB_OK;
        made.activation = made.info.activation;
        made.seed = seed;
        made.size_bytes = args.size_bytes;
        made.data = static_cast<std::byte *>(args.data);
        return made;
    }

    // Produces and offloads on one stream. `more` may set anything that is not about the bytes and the producer.
    saved save(ebb_stream producer, const char *name, uint64_t size_bytes = k_unit_bytes, ebb_offload_args more = {}) {
        std::byte *data = alloc(size_bytes);
        const uint64_t seed = ++seed_;
        launch(producer, [data, size_bytes, seed] { fill_pattern(data, size_bytes, seed); },
               {{data, size_bytes, true}});
        more.name = name;
        more.data = data;
        more.size_bytes = size_bytes;
        more.producers = &producer;
        more.producer_count = 1;
        return offload(more, seed, data);
    }

    ebb_reload_info reload(const saved &s, ebb_stream consumer) {
        ebb_reload_info info{};
        info.struct_size = sizeof(info);
        EBB_EXPECT_OK(ebb_reload(runtime_, s.activation, consumer, &info));
        return info;
    }
    // One that lies in a slot which nobody has claimed: prefetched, since the step before read it.
    enum class copy_in { passes, is_held };
    saved prefetched(ebb_stream stream, const char *name, copy_in copy = copy_in::passes) {
        EBB_EXPECT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        const saved recorded = save(stream, name);
        read_back(recorded, stream);
        release(recorded);
        EBB_EXPECT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        drain();
        device().clear();
        if (copy == copy_in::is_held) {
            hold(copy_direction::h2d);
        }
        const saved again = save(stream, name);
        EXPECT_EQ(stats().staging_used_bytes, again.size_bytes);
        return again;
    }
    void check(ebb_stream stream, const void *data, const saved &s) {
        launch(stream, [this, data, s] { wrong_ += has_pattern(data, s.size_bytes, s.seed) ? 0 : 1; },
               {{data, s.size_bytes, false}});
    }
    void check(ebb_stream stream, std::function<bool()> right) {
        launch(stream, [this, right = std::move(right)] { wrong_ += right() ? 0 : 1; });
    }
    void give_back(const ebb_reload_info &info, ebb_stream last) {
        EBB_EXPECT_OK(ebb_return(runtime_, info.claim, last));
    }
    void read_back(const saved &s, ebb_stream consumer) {
        const ebb_reload_info info = reload(s, consumer);
        check(consumer, info.data, s);
        give_back(info, consumer);
    }
    void release(const saved &s) { EBB_EXPECT_OK(ebb_release(runtime_, s.activation)); }

    [[nodiscard]] ebb_statistics stats() {
        ebb_statistics s{};
        s.struct_size = sizeof(s);
        EBB_EXPECT_OK(ebb_stats(runtime_, &s));
        return s;
    }
    [[nodiscard]] std::string report(ebb_report_format format) {
        std::string text;
        EBB_EXPECT_OK(ebb_report_write(
            runtime_, format,
            [](void *context, const char *piece, uint64_t size_bytes) {
                static_cast<std::string *>(context)->append(piece, size_bytes);
            },
            &text));
        return text;
    }
    [[nodiscard]] stream_order order() { return stream_order(device_->entries()); }

private:
    struct source {
        session *owner;
        std::byte *freed;
        bool taken = false;
        int deleted = 0;
    };

    static void note_line(void *self, int32_t, const char *line) {
        static_cast<session *>(self)->log_.emplace_back(line);
    }
    static void run(void *body) { (*static_cast<std::function<void()> *>(body))(); }
    static void delete_source(void *context) {
        auto *s = static_cast<source *>(context);
        ++s->deleted;
        if (s->freed != nullptr && s->deleted == 1) {
            s->owner->free(s->freed);
        }
    }

    rig_device *device_ = nullptr;
    ebb_runtime *runtime_ = nullptr;
    std::vector<ebb_stream> streams_;
    std::list<stream_gate> gates_;
    std::deque<std::function<void()>> launches_;
    std::deque<source> sources_;
    std::vector<std::string> log_;
    std::atomic<int> wrong_{0};
    uint64_t seed_ = 0;
};

}  // namespace ebb::test
