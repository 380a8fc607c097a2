// Drives the real core through a random training run on the simulated device in checking mode: whatever comes back is
// read by kernels that expect the tags of what was saved, and memory is reused as soon as it is given up.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "capi/session.hpp"
#include "ebb/ebb.h"
#include "sim_stack.hpp"
#include "sim_world.hpp"

namespace ebb::test {

struct sim_outcome {
    std::vector<sim_violation> violations;
    uint64_t violation_count = 0;
    uint64_t saves = 0;
    uint64_t reads = 0;
    uint64_t recomputed = 0;
    uint64_t planned = 0;  // not offloaded, by a plan's choice
    uint64_t unread = 0;   // the runtime said that it could not bring them
    uint64_t errors = 0;
    uint64_t waits = 0;
    uint64_t log_hash = 0;
    bool left_out_was_redundant = false;
    uint64_t wrong_deletes = 0;  // deleters that ran more or less than once
    std::string first_error;
    ebb_statistics stats{};
};

struct sim_training_options {
    bool may_fail = false;  // calls may fail, if they say why
    std::function<void(sim_stack &)> before_steps = [](sim_stack &) {};
};

class sim_training {
public:
    sim_training(const sim_world &world, uint64_t checking_seed, sim_training_options how = {})
        : world_(world), how_(std::move(how)), random_(checking_seed) {
        auto stack = std::make_unique<sim_stack>(world.machine, checking_seed, world.slab_bytes);
        stack_ = stack.get();
        sim_ = &stack->sim();
        stack->at_end([this](sim_stack &ending) {
            outcome_.violations = ending.sim().violations();
            outcome_.violation_count = ending.sim().violation_count();
            outcome_.waits = ending.waits();
            outcome_.log_hash = ending.sim().log_hash();
            outcome_.left_out_was_redundant = ending.left_out_was_redundant();
        });
        pool_ = std::make_unique<stream_pool>(*sim_);
        compute_ = sim_->create_stream(stream_role::compute).value();
        beside_ = sim_->create_stream(stream_role::compute).value();
        gather_ = sim_->create_stream(stream_role::compute).value();
        mark_ = sim_->create_event(event_kind::plain).value();
        runtime_options core = world.core;
        core.lent_allocator = world.memory == sim_memory::lent_allocator;
        if (world.memory == sim_memory::lent_block) {
            core.staging_memory = sim_->alloc_device(core.staging_bytes).value();
        }
        const ebb_allocator lent{lent_alloc, lent_free, nullptr, this};
        result<ebb_runtime *> made = capi::make_runtime(
            std::move(stack), nullptr, core, logger([](void *, int32_t, const char *) {}, nullptr, log_level::error),
            core.lent_allocator ? &lent : nullptr);
        EXPECT_TRUE(made.ok()) << made.why().text();
        runtime_ = made.ok() ? made.value() : nullptr;
    }
    sim_training(const sim_training &) = delete;
    sim_training &operator=(const sim_training &) = delete;

    sim_outcome run() {
        if (runtime_ == nullptr) {
            return outcome_;
        }
        how_.before_steps(*stack_);
        for (uint64_t step = 0; step < world_.steps; ++step) {
            run_step(step);
        }
        sim_->synchronize();
        outcome_.stats.struct_size = sizeof(outcome_.stats);
        static_cast<void>(ebb_stats(runtime_, &outcome_.stats));
        told(ebb_runtime_close(runtime_, how_.may_fail ? EBB_CLOSE_FORCE : EBB_CLOSE_DEFAULT));
        for (const source &each : sources_) {
            for (const holder &h : each.holders) {
                outcome_.wrong_deletes += h.deleted == (h.taken ? 1U : 0U) ? 0U : 1U;
            }
        }
        return outcome_;
    }

private:
    struct source;
    struct holder {
        source *of = nullptr;
        bool taken = false;
        uint64_t deleted = 0;
    };
    // Memory of the framework's, until all that hold it let it go.
    struct source {
        sim_training *owner = nullptr;
        std::byte *block = nullptr;
        uint64_t block_bytes = 0;
        bool thread_is_home = false;
        std::deque<holder> holders;
        uint64_t held = 0;
    };
    struct saved {
        ebb_activation activation = 0;
        const sim_tensor *like = nullptr;
        uint64_t size_bytes = 0;
        uint64_t tag = 0;
        uint64_t position_bytes = 0;
        std::vector<saved> inputs{};  // of recomputing it
    };
    using key = std::tuple<uint64_t, uint64_t, size_t>;  // micro-batch, stage, layer

    // --------------------------------------------------------------------------------------------- the caller --

    void run_step(uint64_t step) {
        const bool evaluates = world_.evaluates && step == world_.steps - 2;
        tried([&] { return ebb_step(runtime_, evaluates ? EBB_PHASE_EVALUATE : EBB_PHASE_TRAIN); });
        const bool other = step == world_.steps - 2;
        skip_next_save_ = world_.skips && step == world_.steps - 1;
        for (const pass &p : other ? world_.other_order : world_.order) {
            for (size_t i = 0; i < world_.layers.size(); ++i) {
                if (p.forward) {
                    forward(p, i);
                } else {
                    backward(p, world_.layers.size() - 1 - i);
                }
            }
        }
    }

    void forward(const pass &p, size_t layer) {
        const bool gathers = begin_collective();
        told(ebb_scope_push(runtime_, ("layer" + std::to_string(layer)).c_str()));
        std::vector<saved> &saves = live_[{p.micro_batch, p.stage, layer}];
        saves.clear();
        for (size_t i = 0; i < world_.layers[layer].size(); ++i) {
            if (!std::exchange(skip_next_save_, false)) {
                save(p, world_.layers[layer][i], "t" + std::to_string(i), saves);
            }
        }
        told(ebb_scope_pop(runtime_));
        end_collective(gathers);
        poll();
    }

    void backward(const pass &p, size_t layer) {
        std::vector<saved> &saves = live_[{p.micro_batch, p.stage, layer}];
        const bool gathers = begin_collective();
        while (!saves.empty()) {
            const saved s = saves.back();
            saves.pop_back();
            for (int reads = s.like->read_twice ? 2 : 1; reads > 0; --reads) {
                read_back(s);
            }
            if (world_.drops) {
                told(ebb_drop(runtime_, s.activation));
            } else {
                told(ebb_release(runtime_, s.activation));
            }
            write_scratch(s.size_bytes);
        }
        end_collective(gathers);
        poll();
    }

    // Weights of the next layer, say: all that is asked for until it is enqueued is held.
    bool begin_collective() {
        constexpr uint64_t k_gathered_bytes = 1 << 20U;
        return world_.collectives && random_() % 2 == 0 &&
               told(ebb_collective_begin(runtime_, static_cast<ebb_stream>(gather_), k_gathered_bytes));
    }
    void end_collective(bool begun) {
        if (begun) {
            EXPECT_TRUE(sim_->launch(gather_, {sim_engine::collective, 0, 0}).ok());
            told(ebb_collective_end(runtime_, static_cast<ebb_stream>(gather_)));
        }
    }

    void poll() {
        if (world_.polls && random_() % 4 == 0) {
            tried([&] { return ebb_progress(runtime_); });
        }
    }

    // ------------------------------------------------------------------------------------------------- saving --

    void save(const pass &p, const sim_tensor &like, const std::string &name, std::vector<saved> &saves) {
        source &s = sources_.emplace_back();
        s.owner = this;
        s.block_bytes = like.size_bytes + like.shift_bytes;
        s.thread_is_home = like.thread_is_home;
        s.block = like.thread_is_home ? alloc_by_host(s.block_bytes) : pool_->alloc(compute_, s.block_bytes);
        const uint64_t tag = ++tag_;
        std::byte *data = s.block + like.shift_bytes;
        produce(data, like, tag);
        ebb_offload_args args{};
        args.micro_batch = p.micro_batch;
        args.stage = p.stage;
        args.storage_id = like.has_view ? tag : 0;
        args.storage_version = 1;
        args.flags = like.recomputed || like.may_be_recomputed ? uint32_t{EBB_OFFLOAD_CAN_RECOMPUTE} : 0;
        args.recompute_cost_ns = like.recompute_ns;
        args.placement = like.recomputed ? EBB_PLACE_RECOMPUTE : like.kept ? EBB_PLACE_KEEP : EBB_PLACE_BY_POLICY;
        s.held = like.has_view ? 2 : 1;
        saved made{0, &like, like.size_bytes, tag, 0};
        if (args.flags != 0 && like.from_the_one_before && !saves.empty()) {
            made.inputs.push_back(saves.back());
            args.recompute_from = &made.inputs.front().activation;
            args.recompute_from_count = 1;
        }
        offload(s, args, made, name, data, saves);
        if (like.has_view) {
            const uint64_t from = like.size_bytes / 4 / 64 * 64;
            offload(s, args, {0, &like, like.size_bytes / 2, tag, from}, name + "_view", data + from, saves);
        }
    }

    void produce(std::byte *data, const sim_tensor &like, uint64_t tag) {
        const uint64_t first_bytes = like.two_producers ? like.size_bytes / 2 : like.size_bytes;
        if (like.two_producers) {
            order(compute_, beside_);  // the memory comes from the pool of the first
            launch(beside_, {}, {{data + first_bytes, like.size_bytes - first_bytes, tag, first_bytes}});
        }
        launch(compute_, {}, {{data, first_bytes, tag}});
    }

    void offload(source &s, ebb_offload_args args, saved made, const std::string &name, std::byte *data,
                 std::vector<saved> &saves) {
        const ebb_stream producers[] = {static_cast<ebb_stream>(compute_), static_cast<ebb_stream>(beside_)};
        const ebb_stream thread = EBB_STREAM_CALLING_THREAD;
        args.struct_size = sizeof(args);
        args.name = name.c_str();
        args.data = data;
        args.size_bytes = made.size_bytes;
        args.producers = producers;
        args.producer_count = made.like->two_producers ? 2 : 1;
        args.home = s.thread_is_home ? &thread : nullptr;
        holder &h = s.holders.emplace_back();
        h.of = &s;
        if (made.like->staged ? offload_staged(s, args, made) : lend(h, args, made)) {
            ++outcome_.saves;
            saves.push_back(made);
        }
    }

    bool lend(holder &h, ebb_offload_args &args, saved &made) {
        args.deleter = [](void *context) { static_cast<holder *>(context)->of->owner->deleted(context); };
        args.deleter_context = &h;
        ebb_offload_info info{};
        info.struct_size = sizeof(info);
        h.taken = true;  // before the call, which may run the deleter itself
        if (!told(ebb_offload(runtime_, &args, &info))) {
            h.taken = false;
            order(beside_, compute_);  // where it was perhaps produced
            let_go(*h.of);
            return false;
        }
        made.activation = info.activation;
        const bool computed_again = info.placement == EBB_PLACE_RECOMPUTE && !made.like->recomputed;
        outcome_.planned += info.reason == EBB_REASON_PLAN || computed_again ? 1 : 0;
        return true;
    }

    // The memory is the caller's again behind the first producer, whether or not the copy in the runtime's own found
    // room.
    bool offload_staged(source &s, ebb_offload_args &args, saved &made) {
        ebb_offload_info info{};
        info.struct_size = sizeof(info);
        const ebb_status status = ebb_offload_staged(runtime_, &args, &info);
        if (status != EBB_OK && status != EBB_NO_SLOT) {
            told(status);
        }
        if (status != EBB_OK) {
            order(beside_, compute_);
        }
        let_go(s);
        made.activation = info.activation;
        return status == EBB_OK;
    }

    void deleted(void *context) {
        auto *h = static_cast<holder *>(context);
        if (++h->deleted == 1) {
            let_go(*h->of);
        }
    }
    void let_go(source &s) {
        if (--s.held != 0) {
            return;
        }
        if (!s.thread_is_home) {
            pool_->free(compute_, s.block, s.block_bytes);
            return;
        }
        for (const holder &h : s.holders) {
            if (!h.taken) {
                sim_->synchronize();  // nobody else waits for its producers
            }
        }
        EXPECT_TRUE(sim_->free_device(s.block, s.block_bytes).ok());
    }

    // ------------------------------------------------------------------------------------------- reading back --

    void read_back(const saved &s) {
        const stream_id consumer = s.like->read_beside ? beside_ : compute_;
        ebb_reload_info info{};
        info.struct_size = sizeof(info);
        const ebb_status reloaded =
            tried([&] { return ebb_reload(runtime_, s.activation, static_cast<ebb_stream>(consumer), &info); });
        if (reloaded == EBB_RECOMPUTE) {
            recompute(s, consumer);
        } else if (reloaded == EBB_OK) {
            EXPECT_EQ(info.size_bytes, s.size_bytes);
            expect(consumer, info.data, s);
            const stream_id other = consumer == beside_ ? compute_ : beside_;
            if (s.like->used_beside && told(ebb_use(runtime_, info.claim, static_cast<ebb_stream>(other)))) {
                expect(other, info.data, s);
            }
            for (int tries = 0; tries < 3; ++tries) {
                if (told(ebb_return(runtime_, info.claim, static_cast<ebb_stream>(consumer)))) {
                    break;
                }
            }
        } else {
            read_into_own(s, consumer);
        }
    }

    // The caller's memory, when there is no room elsewhere.
    void read_into_own(const saved &s, stream_id consumer) {
        for (int tries = 0; tries < 3; ++tries) {
            std::byte *own = pool_->alloc(consumer, s.size_bytes);
            const bool read =
                told(ebb_reload_into(runtime_, s.activation, own, s.size_bytes, static_cast<ebb_stream>(consumer)));
            if (read) {
                expect(consumer, own, s);
            }
            // Only if it says so may the memory still be written; nobody gets it again then.
            if (read ||
                std::string(ebb_last_error()).find("keep it until the runtime is closed") == std::string::npos) {
                pool_->free(consumer, own, s.size_bytes);
            }
            if (read) {
                return;
            }
        }
        ++outcome_.unread;
    }

    void recompute(const saved &s, stream_id consumer) {
        // An input may have to be computed again itself: only the outermost one is marked.
        if (recomputing_++ == 0) {
            told(ebb_recompute_begin(runtime_, s.size_bytes));
        }
        ++outcome_.recomputed;
        std::byte *own = pool_->alloc(consumer, s.size_bytes);
        for (const saved &input : s.inputs) {
            read_back(input);
        }
        launch(consumer, {}, {{own, s.size_bytes, s.tag}});
        expect(consumer, own, s);
        pool_->free(consumer, own, s.size_bytes);
        if (--recomputing_ == 0) {
            told(ebb_recompute_end(runtime_));
        }
    }

    void expect(stream_id stream, const void *data, const saved &s) {
        ++outcome_.reads;
        launch(stream, {{data, s.size_bytes, s.tag, s.position_bytes}}, {});
    }

    // What was given up last is overwritten at once, if it may be.
    void write_scratch(uint64_t size_bytes) {
        std::byte *scratch = pool_->alloc(compute_, size_bytes);
        launch(compute_, {}, {{scratch, size_bytes, ++tag_}});
        pool_->free(compute_, scratch, size_bytes);
    }

    // ---------------------------------------------------------------------------------------------- the device --

    void launch(stream_id stream, const std::vector<sim_read> &reads, const std::vector<sim_write> &writes) {
        sim_kernel kernel;
        kernel.reads = reads;
        kernel.writes = writes;
        EXPECT_TRUE(sim_->launch(stream, kernel).ok());
    }
    void order(stream_id earlier, stream_id later) { stack_->order(earlier, later, mark_); }
    std::byte *alloc_by_host(uint64_t size_bytes) {
        return static_cast<std::byte *>(sim_->alloc_device(size_bytes).value());
    }

    static void *lent_alloc(void *self, uint64_t size_bytes, uint64_t /*alignment*/, ebb_stream home) {
        auto *t = static_cast<sim_training *>(self);
        return home == EBB_STREAM_CALLING_THREAD ? t->alloc_by_host(size_bytes)
                                                 : t->pool_->alloc(stream_id{home}, size_bytes);
    }
    static void lent_free(void *self, void *data, uint64_t size_bytes, ebb_stream home) {
        auto *t = static_cast<sim_training *>(self);
        if (home == EBB_STREAM_CALLING_THREAD) {
            EXPECT_TRUE(t->sim_->free_device(data, size_bytes).ok());
        } else {
            t->pool_->free(stream_id{home}, static_cast<std::byte *>(data), size_bytes);
        }
    }

    // -------------------------------------------------------------------------------------------------- failure --

    // A call may fail only where the test lets it, as one of these, and with a sentence.
    bool told(ebb_status status) {
        if (status == EBB_OK) {
            return true;
        }
        const std::string why = std::string(ebb_status_name(status)) + ": " + ebb_last_error();
        if (outcome_.errors++ == 0) {
            outcome_.first_error = why;
        }
        const bool possible = status == EBB_DEVICE_ERROR || status == EBB_OUT_OF_DEVICE_MEMORY ||
                              status == EBB_OUT_OF_HOST_MEMORY || status == EBB_NO_SLOT;
        EXPECT_TRUE(how_.may_fail && possible && std::string(ebb_last_error()).size() > 10) << why;
        return false;
    }
    // Calls that may report what failed before: they are made again.
    template <class Call>
    ebb_status tried(Call &&call) {
        ebb_status status = EBB_OK;
        for (int tries = 0; tries < 3; ++tries) {
            status = call();
            if (status == EBB_OK || status == EBB_NO_SLOT || status == EBB_RECOMPUTE) {
                return status;
            }
            told(status);
        }
        return status;
    }

    const sim_world &world_;
    sim_training_options how_;
    std::mt19937_64 random_;
    sim_stack *stack_ = nullptr;
    sim_device *sim_ = nullptr;
    std::unique_ptr<stream_pool> pool_;
    ebb_runtime *runtime_ = nullptr;
    stream_id compute_{}, beside_{}, gather_{};
    event_id mark_{};
    std::deque<source> sources_;
    std::map<key, std::vector<saved>> live_;
    uint64_t tag_ = 0;
    bool skip_next_save_ = false;
    uint32_t recomputing_ = 0;
    sim_outcome outcome_;
};

}  // namespace ebb::test
