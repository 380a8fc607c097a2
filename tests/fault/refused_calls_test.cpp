// Every device call may be refused. The first, the second, the third call of each kind is, until a small training run
// makes no more of them; then the device breaks for good after one call, two, three. Each time the run ends, every
// status is one that says what happened, each deleter runs once, and no activation comes back with wrong bytes: it
// comes back right, or it does not.

#include <gtest/gtest.h>

#include <list>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "fault_session.hpp"

namespace ebb::test {
namespace {

class unmarked_reader : public on_every_machine {};
class undisturbed_run : public on_every_machine {};

constexpr uint64_t k_small_bytes = 8 * 1024;

// A training loop that goes on whatever it is told.
class stubborn_run {
public:
    using arm_function = std::function<void(fault_device &)>;

    stubborn_run(const runtime_options &core, bool idle_before_close, const arm_function &arm)
        : idle_before_close_(idle_before_close) {
        auto dev = rig_device::make(make_machine({}));
        device_ = dev.get();
        host_device *host = dev->machine().host();
        device_->at_end([this](rig_device &gone) { count_refused(gone.fault()); });
        arm(dev->fault());
        result<ebb_runtime *> made =
            capi::make_runtime(std::move(dev), host, core, logger(ignore, nullptr, log_level::error), nullptr);
        if (!made.ok()) {
            EXPECT_NE(made.why().text(), "");
            EXPECT_NE(made.why().code(), code::internal);
            return;
        }
        runtime_ = made.value();
        compute_ = static_cast<ebb_stream>(machine().create_stream().value());
        reader_ = static_cast<ebb_stream>(machine().create_stream().value());
        for (int step = 0; step < 2; ++step) {
            train();
        }
        evaluate();
        end();
    }

    [[nodiscard]] bool any_refused() const { return refused_ != 0; }
    [[nodiscard]] const std::set<ebb_status> &statuses() const { return statuses_; }
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
    static void ignore(void *, log_level, const char *) {}
    static void run(void *body) { (*static_cast<std::function<void()> *>(body))(); }

    // Not the statuses that would blame the caller, or us.
    ebb_status note(ebb_status status) {
        static const std::set<ebb_status> k_expected = {EBB_OK, EBB_NO_SLOT, EBB_OUT_OF_DEVICE_MEMORY,
                                                        EBB_OUT_OF_HOST_MEMORY, EBB_DEVICE_ERROR};
        EXPECT_EQ(k_expected.count(status), 1U) << ebb_status_name(status) << ": " << ebb_last_error();
        if (status != EBB_OK) {
            EXPECT_STRNE(ebb_last_error(), "");
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

    void launch(ebb_stream stream, std::function<void()> body) {
        launches_.push_back(std::move(body));
        EXPECT_TRUE(machine().launch(stream_id{stream}, run, &launches_.back()).ok());
    }
    std::byte *alloc(uint64_t size_bytes) { return static_cast<std::byte *>(machine().alloc(size_bytes).value()); }
    memory &produce(uint64_t size_bytes) {
        memory &m = memories_.emplace_back();
        m.data = alloc(size_bytes);
        m.size_bytes = size_bytes;
        m.seed = ++seed_;
        m.references = 1;  // ours, until let_go
        launch(compute_, [data = m.data, size_bytes, seed = m.seed] { fill_pattern(data, size_bytes, seed); });
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
        launch(compute_, [data = m.data, size = m.size_bytes] { std::memset(data, 0xFF, size); });
    }

    void check(ebb_stream stream, const void *data, const item &i) {
        launch(stream, [this, data, i] {
            std::vector<std::byte> all(i.offset_bytes + i.size_bytes);
            fill_pattern(all.data(), all.size(), i.seed);
            wrong_ += std::memcmp(data, all.data() + i.offset_bytes, i.size_bytes) == 0 ? 0 : 1;
        });
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
std::vector<named_options> option_sets() {
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

constexpr uint64_t k_most_calls = 5000;  // far more than a run makes

// Which calls, with which options, and whether only the nth is refused or all from there on.
using refusal_case = std::tuple<size_t, size_t, bool>;
class refused_calls : public on_every_machine_with<refusal_case> {};

TEST_P(refused_calls, the_nth_for_every_n) {
    const auto kind = static_cast<call_kind>(std::get<0>(parameter()));
    const runtime_options core = option_sets()[std::get<1>(parameter())].core;
    const bool for_good = std::get<2>(parameter());
    uint64_t nth = 1;
    for (; nth < k_most_calls; ++nth) {
        SCOPED_TRACE("call " + std::to_string(nth) + (for_good ? " and all that follow" : ""));
        const stubborn_run run(core, for_good, [&](fault_device &fault) {
            fault.refuse(kind, nth, for_good ? fault_device::k_for_good : 1);
        });
        // One refused call, or pinning that is refused for good, costs nobody an activation.
        if (!for_good || kind == call_kind::map_host) {
            EXPECT_EQ(run.lost(), 0);
        }
        if (!run.any_refused() || HasFailure()) {
            break;
        }
    }
    EXPECT_LT(nth, k_most_calls);
    const bool makes_such_calls = kind != call_kind::checksum || core.verify;
    EXPECT_EQ(nth > 1, makes_such_calls) << "the first is refused, or there is none";
}

INSTANTIATE_TEST_SUITE_P(on, refused_calls,
                         ::testing::Combine(::testing::ValuesIn(machine_kinds()),
                                            ::testing::Combine(::testing::Range(size_t{0}, k_call_kinds),
                                                               ::testing::Range(size_t{0}, option_sets().size()),
                                                               ::testing::Bool())),
                         [](const auto &at) {
                             const refusal_case &c = std::get<1>(at.param);
                             return ::testing::PrintToString(std::get<0>(at.param)) + "_" +
                                    call_kind_name(static_cast<call_kind>(std::get<0>(c))) + "_" +
                                    option_sets()[std::get<1>(c)].name + (std::get<2>(c) ? "_for_good" : "_once");
                         });

class broken_device : public on_every_machine_with<size_t> {};

TEST_P(broken_device, after_each_number_of_calls) {
    const runtime_options core = option_sets()[parameter()].core;
    uint64_t calls = 0;
    for (; calls < k_most_calls; ++calls) {
        SCOPED_TRACE("broken after " + std::to_string(calls) + " calls");
        const stubborn_run run(core, true, [&](fault_device &fault) { fault.break_after(calls); });
        if (!run.any_refused() || HasFailure()) {
            break;
        }
    }
    EXPECT_LT(calls, k_most_calls);
    EXPECT_GT(calls, 20U);
}

INSTANTIATE_TEST_SUITE_P(on, broken_device,
                         ::testing::Combine(::testing::ValuesIn(machine_kinds()),
                                            ::testing::Range(size_t{0}, option_sets().size())),
                         [](const auto &at) {
                             return ::testing::PrintToString(std::get<0>(at.param)) + "_" +
                                    option_sets()[std::get<1>(at.param)].name;
                         });

// A copy on the device whose end the device refuses to mark may read its slot (or source) at any later time: that
// memory is not used again before close, when everything is idle.
TEST_P(unmarked_reader, keeps_its_slot_until_close) {
    session s(copies_always());
    const ebb_stream compute = s.stream();
    const ebb_stream late = s.stream();
    std::byte *own = s.alloc(k_unit_bytes);  // never a source: `late` is not behind their home
    const session::saved first = s.save(compute, "first");
    const session::saved second = s.save(compute, "second");
    const ebb_reload_info claim = s.reload(first, compute);

    s.stand(late, s.gate());
    s.fault().refuse(call_kind::record_event, 2);  // the first marks where the memory is free
    EXPECT_EQ(ebb_reload_into(s.runtime(), first.activation, own, k_unit_bytes, late), EBB_DEVICE_ERROR);
    EXPECT_NE(std::string(ebb_last_error()).find("'first'"), std::string::npos) << ebb_last_error();
    EXPECT_NE(std::string(ebb_last_error()).find("until the runtime is closed"), std::string::npos) << ebb_last_error();
    s.check(late, own, first);  // the copy was enqueued, and reads the slot once the gate opens

    s.give_back(claim, compute);
    s.release(first);
    ebb_reload_info info{};
    info.struct_size = sizeof(info);
    EXPECT_EQ(ebb_reload(s.runtime(), second.activation, compute, &info), EBB_NO_SLOT) << "the only slot is still read";
    s.release(second);
    s.close();
}

TEST_P(unmarked_reader, keeps_its_source_until_close) {
    session s(sources_stay());
    const ebb_stream compute = s.stream();
    const ebb_stream late = s.stream();
    std::byte *own = s.alloc(k_unit_bytes);
    const session::saved kept = s.save(compute, "kept");

    s.stand(late, s.gate());
    s.fault().refuse(call_kind::record_event, 2);
    EXPECT_EQ(ebb_reload_into(s.runtime(), kept.activation, own, k_unit_bytes, late), EBB_DEVICE_ERROR);
    s.check(late, own, kept);

    s.release(kept);
    EXPECT_EQ(s.deleted(), 0U) << "its source is still read";
    s.close();
    EXPECT_EQ(s.deleted(), 1U);
}

// The run itself is right: with no fault, every activation comes back and no call fails.
TEST_P(undisturbed_run, brings_everything_back) {
    for (const named_options &each : option_sets()) {
        const stubborn_run run(each.core, false, [](fault_device &) {});
        EXPECT_FALSE(run.any_refused());
        EXPECT_GT(run.read_back(), 20);
        EXPECT_EQ(run.lost(), 0);
        EXPECT_EQ(run.statuses().count(EBB_DEVICE_ERROR), 0U);
    }
}

EBB_ON_EVERY_MACHINE(unmarked_reader);
EBB_ON_EVERY_MACHINE(undisturbed_run);

}  // namespace
}  // namespace ebb::test
