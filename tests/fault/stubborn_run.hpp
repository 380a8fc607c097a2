// A small training run that goes on whatever it is told: what fails is tried again, kept by the program or given up.
// Each deleter runs once, every status says what happened, and no activation comes back with wrong bytes: it comes back
// right, or it does not.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <list>
#include <set>
#include <string>
#include <vector>

#include "fault_session.hpp"

namespace ebb::test {

constexpr uint64_t k_small_bytes = 8 * 1024;

// A training loop that goes on whatever it is told.
class stubborn_run {
public:
    using device_function = std::function<void(rig_device &)>;

    // `arm` is called before the runtime is made, `look` when it is gone.
    stubborn_run(
        const runtime_options &core, bool idle_before_close, const device_function &arm,
        const device_function &look = [](rig_device &) {})
        : idle_before_close_(idle_before_close) {
        auto dev = rig_device::make(make_machine({}));
        device_ = dev.get();
        host_device *host = dev->machine().host();
        device_->at_end([this, look](rig_device &gone) {
            count_refused(gone.fault());
            look(gone);
        });
        arm(*dev);
        result<ebb_runtime *> made =
            capi::make_runtime(std::move(dev), host, core, logger(ignore, nullptr, log_level::error), nullptr);
        if (!made.ok()) {
            EXPECT_NE(made.why().text(), "");
            EXPECT_NE(made.why().code(), code::internal);
            failures_.push_back(made.why().text());
            return;
        }
        runtime_ = made.value();
        compute_ = new_stream();
        reader_ = new_stream();
        for (int step = 0; step < 2; ++step) {
            train();
        }
        evaluate();
        end();
    }

    [[nodiscard]] bool any_refused() const { return refused_ != 0; }
    [[nodiscard]] const std::set<ebb_status> &statuses() const { return statuses_; }
    // What was said of the calls that failed.
    [[nodiscard]] const std::vector<std::string> &failures() const { return failures_; }
    [[nodiscard]] int read_back() const { return read_back_; }
    // Sources that were refused, and activations that never came back.
    [[nodiscard]] int lost() const { return lost_; }

private:
    struct memory {
        std::byte *data = nullptr;
        uint64_t size_bytes = 0;
        uint64_t seed = 0;
        int references = 0;
    };
    struct source {
        stubborn_run *owner = nullptr;
        memory *of = nullptr;
        bool taken = false;
        int deleted = 0;
    };
    struct item {
        ebb_activation activation = 0;
        uint64_t seed = 0;
        uint64_t offset_bytes = 0, size_bytes = 0;  // within what the seed filled
    };

    [[nodiscard]] test_machine &machine() { return device_->machine(); }
    // On a device that is lost already there is none to be had: the default one does as little.
    ebb_stream new_stream() {
        const result<stream_id> made = machine().create_stream();
        return made.ok() ? static_cast<ebb_stream>(made.value()) : EBB_STREAM_DEFAULT;
    }
    static void ignore(void *, int32_t, const char *) {}
    static void run(void *body) { (*static_cast<std::function<void()> *>(body))(); }

    // Not the statuses that would blame the caller, or us.
    ebb_status note(ebb_status status) {
        static const std::set<ebb_status> k_expected = {EBB_OK, EBB_NO_SLOT, EBB_OUT_OF_DEVICE_MEMORY,
                                                        EBB_OUT_OF_HOST_MEMORY, EBB_DEVICE_ERROR};
        EXPECT_EQ(k_expected.count(status), 1U) << ebb_status_name(status) << ": " << ebb_last_error();
        if (status != EBB_OK) {
            EXPECT_STRNE(ebb_last_error(), "");
            failures_.emplace_back(ebb_last_error());
        }
        statuses_.insert(status);
        return status;
    }
    // A failure of the background is told once, by a call that then did nothing else: it is made again.
    template <class Call>
    ebb_status insist(Call &&call) {
        ebb_status status = EBB_OK;
        for (int attempt = 0; attempt < 4; ++attempt) {
            status = note(call());
            if (status == EBB_OK || status == EBB_NO_SLOT) {
                break;
            }
        }
        return status;
    }

    void launch(ebb_stream stream, std::function<void()> body, const kernel_uses &uses = {}) {
        launches_.push_back(std::move(body));
        EXPECT_TRUE(machine().launch(stream_id{stream}, run, &launches_.back(), uses).ok());
    }
    std::byte *alloc(uint64_t size_bytes) { return static_cast<std::byte *>(machine().alloc(size_bytes).value()); }
    memory &produce(uint64_t size_bytes) {
        memory &m = memories_.emplace_back();
        m.data = alloc(size_bytes);
        m.size_bytes = size_bytes;
        m.seed = ++seed_;
        m.references = 1;  // ours, until let_go
        launch(compute_, [data = m.data, size_bytes, seed = m.seed] { fill_pattern(data, size_bytes, seed); },
               {{m.data, size_bytes, true}});
        return m;
    }

    static void delete_source(void *context) {
        auto *s = static_cast<source *>(context);
        ++s->deleted;
        s->owner->let_go(*s->of);
    }
    void let_go(memory &m) {
        if (--m.references == 0) {
            EXPECT_TRUE(machine().free(m.data).ok());
        }
    }

    // A part of what was produced; of one storage, so that a part of a part shares the copy.
    void save(memory &m, uint64_t offset_bytes, uint64_t size_bytes, const char *name, ebb_placement placement) {
        source &s = sources_.emplace_back();
        s.owner = this;
        s.of = &m;
        ebb_offload_args args{};
        args.struct_size = sizeof(args);
        args.name = name;
        args.data = m.data + offset_bytes;
        args.size_bytes = size_bytes;
        args.producers = &compute_;
        args.producer_count = 1;
        args.deleter = delete_source;
        args.deleter_context = &s;
        args.storage_id = m.seed;
        args.storage_version = 1;
        args.placement = placement;
        ebb_offload_info info{};
        info.struct_size = sizeof(info);
        ++m.references;  // the deleter may run in the call
        if (insist([&] { return ebb_offload(runtime_, &args, &info); }) == EBB_OK) {
            s.taken = true;
            live_.push_back({info.activation, m.seed, offset_bytes, size_bytes});
        } else {
            ++lost_;
            let_go(m);
        }
    }
    void save_staged(memory &m) {
        ebb_offload_args args{};
        args.struct_size = sizeof(args);
        args.name = "staged";
        args.data = m.data;
        args.size_bytes = m.size_bytes;
        args.producers = &compute_;
        args.producer_count = 1;
        ebb_offload_info info{};
        info.struct_size = sizeof(info);
        if (insist([&] { return ebb_offload_staged(runtime_, &args, &info); }) == EBB_OK) {
            live_.push_back({info.activation, m.seed, 0, m.size_bytes});
        }
        launch(compute_, [data = m.data, size = m.size_bytes] { std::memset(data, 0xFF, size); },
               {{m.data, m.size_bytes, true}});
    }

    void check(ebb_stream stream, const void *data, const item &i) {
        launch(stream,
               [this, data, i] {
                   std::vector<std::byte> all(i.offset_bytes + i.size_bytes);
                   fill_pattern(all.data(), all.size(), i.seed);
                   wrong_ += std::memcmp(data, all.data() + i.offset_bytes, i.size_bytes) == 0 ? 0 : 1;
               },
               {{data, i.size_bytes, false}});
        ++read_back_;
    }
    // The reader of each claim stands until the next copy has been asked for.
    void read(const item &i) {
        ebb_reload_info info{};
        info.struct_size = sizeof(info);
        const ebb_status status = insist([&] { return ebb_reload(runtime_, i.activation, compute_, &info); });
        if (status == EBB_OK) {
            check(compute_, info.data, i);
            stream_gate &gate = gates_.emplace_back();
            if (insist([&] { return ebb_use(runtime_, info.claim, reader_); }) == EBB_OK) {
                launch(reader_, [&gate] { gate.pass(); });
                check(reader_, info.data, i);
            }
            static_cast<void>(insist([&] { return ebb_return(runtime_, info.claim, compute_); }));
            if (before_ != nullptr) {
                before_->let();
            }
            before_ = &gate;
            return;
        }
        // Memory of the caller always works, unless the device does not. A copy that failed may still come: it stays.
        std::byte *own = alloc(i.size_bytes);
        if (insist([&] { return ebb_reload_into(runtime_, i.activation, own, i.size_bytes, compute_); }) == EBB_OK) {
            check(compute_, own, i);
        } else {
            ++lost_;
        }
    }
    void read_all() {
        while (!live_.empty()) {
            const item i = live_.back();
            live_.pop_back();
            read(i);
            static_cast<void>(insist([&] { return ebb_release(runtime_, i.activation); }));
        }
        if (before_ != nullptr) {
            before_->let();
            before_ = nullptr;
        }
    }

    void train() {
        static_cast<void>(insist([&] { return ebb_step(runtime_, EBB_PHASE_TRAIN); }));
        for (uint64_t l = 0; l < 4; ++l) {
            memory &m = produce((1 + l % 2) * k_small_bytes);
            save(m, 0, m.size_bytes, "input", EBB_PLACE_BY_POLICY);
            if (l == 1) {
                save(m, m.size_bytes / 2, m.size_bytes / 2, "part", EBB_PLACE_BY_POLICY);
            }
            if (l == 2) {
                memory &kept = produce(k_small_bytes);
                save(kept, 0, k_small_bytes, "kept", EBB_PLACE_KEEP);
                let_go(kept);
            }
            let_go(m);
        }
        memory &staged = produce(k_small_bytes);
        save_staged(staged);
        let_go(staged);
        read_all();
    }
    void evaluate() {
        static_cast<void>(insist([&] { return ebb_step(runtime_, EBB_PHASE_EVALUATE); }));
        for (const char *name : {"input", "unread"}) {
            memory &m = produce(k_small_bytes);
            save(m, 0, m.size_bytes, name, EBB_PLACE_BY_POLICY);
            let_go(m);
        }
        if (!live_.empty()) {
            live_.pop_back();  // dropped by close
        }
        read_all();
        static_cast<void>(note(ebb_progress(runtime_)));
    }

    void count_refused(const fault_device &fault) {
        for (size_t kind = 0; kind < k_call_kinds; ++kind) {
            refused_ += fault.refused(static_cast<call_kind>(kind));
        }
    }

    void end() {
        for (const ebb_stream stream : {compute_, reader_}) {
            EXPECT_TRUE(machine().synchronize(stream_id{stream}).ok());
        }
        if (idle_before_close_) {
            device_->wait_for_our_streams();  // a lost device does nothing any more
        }
        EXPECT_EQ(wrong_.load(), 0) << "activations came back with wrong bytes";
        static_cast<void>(note(ebb_runtime_close(runtime_, EBB_CLOSE_FORCE)));
        for (const source &s : sources_) {
            EXPECT_EQ(s.deleted, s.taken ? 1 : 0);
        }
    }

    bool idle_before_close_;
    rig_device *device_ = nullptr;
    ebb_runtime *runtime_ = nullptr;
    ebb_stream compute_ = 0, reader_ = 0;
    uint64_t refused_ = 0;
    std::set<ebb_status> statuses_;
    std::vector<std::string> failures_;
    std::deque<memory> memories_;
    std::deque<source> sources_;
    std::deque<std::function<void()>> launches_;
    std::list<stream_gate> gates_;
    stream_gate *before_ = nullptr;
    std::vector<item> live_;
    std::atomic<int> wrong_{0};
    uint64_t seed_ = 0;
    int read_back_ = 0;
    int lost_ = 0;
};

struct named_options {
    const char *name;
    runtime_options core;
};

// Few slots and a tight budget, so that there are copies, prefetches, handed-back sources and reloads without a slot.
inline std::vector<named_options> option_sets() {
    runtime_options tight;
    tight.min_offload_bytes = 1;
    tight.max_activation_bytes = 2 * k_small_bytes;
    tight.staging_bytes = 3 * k_small_bytes;
    tight.device_budget_bytes = 7 * k_small_bytes;
    tight.chunk_bytes = k_small_bytes / 2;
    runtime_options learned;  // sizes and budget
    learned.min_offload_bytes = 1;
    learned.lanes = 2;
    learned.sample_every = 1;
    runtime_options verified = tight;
    verified.verify = true;
    verified.source_bytes = k_none_bytes;
    return {{"tight", tight}, {"learned", learned}, {"verified", verified}};
}

}  // namespace ebb::test
