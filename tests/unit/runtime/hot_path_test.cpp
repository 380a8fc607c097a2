// After warm-up, whole training steps through the C ABI make no heap allocation and no system call.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "capi/session.hpp"
#include "counted_new.hpp"
#include "device/null/null_device.hpp"
#include "ebb/ebb.h"
#include "syscall_count.hpp"

namespace ebb::test {
namespace {

constexpr ebb_stream k_compute = 99;
constexpr uint64_t k_mib = uint64_t{1} << 20U;

class steps {
public:
    steps() {
        for (uint64_t l = 0; l < 40; ++l) {
            layers_.push_back("layer." + std::to_string(l));
        }
        handles_.resize(layers_.size() * 5 * 2);
        runtime_options o;
        o.max_activation_bytes = 8 * k_mib;
        o.staging_bytes = 64 * k_mib;
        o.device_budget_bytes = 160 * k_mib;
        o.keep_last = 2;
        o.sample_every = 4;  // sampled steps are hot as well
        result<ebb_runtime *> made = capi::make_runtime(std::make_unique<null_device>(), nullptr, o, logger(), nullptr);
        EXPECT_TRUE(made.ok()) << made.why().text();
        runtime_ = made.value();
    }
    ~steps() { ebb_runtime_close(runtime_, EBB_CLOSE_FORCE); }
    steps(const steps &) = delete;
    steps &operator=(const steps &) = delete;

    // Two micro-batches; per layer a large one, one below the floor, one recomputed, a stored range and a view of it.
    void run() {
        ok_ &= ebb_step(runtime_, EBB_PHASE_TRAIN) == EBB_OK;
        for (uint64_t m = 0; m < 2; ++m) {
            size_t at = 0;
            for (const std::string &layer : layers_) {
                ok_ &= ebb_scope_push(runtime_, layer.c_str()) == EBB_OK;
                handles_[at++] = offload("gate", 4 * k_mib, m);
                handles_[at++] = offload("norm", k_mib / 2, m);
                handles_[at++] = offload("up", 2 * k_mib, m, true);
                const uint64_t storage = 1000 * m + at + 1;
                handles_[at++] = offload("whole", 2 * k_mib, m, false, storage);
                handles_[at++] = offload("part", k_mib, m, false, storage);
                ok_ &= ebb_scope_pop(runtime_) == EBB_OK;
            }
            while (at-- > 0) {
                reload(handles_[at]);
            }
        }
    }
    [[nodiscard]] bool ok() const { return ok_; }
    [[nodiscard]] ebb_runtime *runtime() { return runtime_; }

private:
    ebb_activation offload(const char *name, uint64_t size_bytes, uint64_t micro_batch, bool recompute = false,
                           uint64_t storage = 0) {
        ebb_offload_args args{};
        args.struct_size = sizeof(args);
        args.name = name;
        args.data = reinterpret_cast<void *>((storage + 1) << 30U);
        args.size_bytes = size_bytes;
        args.producers = &k_compute;
        args.producer_count = 1;
        args.deleter = [](void *context) { ++*static_cast<uint64_t *>(context); };
        args.deleter_context = &deleted_;
        args.micro_batch = micro_batch;
        args.storage_id = storage;
        args.flags = recompute ? uint32_t{EBB_OFFLOAD_CAN_RECOMPUTE} : 0U;
        args.placement = recompute ? EBB_PLACE_RECOMPUTE : EBB_PLACE_BY_POLICY;
        args.recompute_from = recompute ? &handles_[0] : nullptr;
        args.recompute_from_count = recompute ? 1 : 0;
        ebb_offload_info info{};
        info.struct_size = sizeof(info);
        ok_ &= ebb_offload(runtime_, &args, &info) == EBB_OK;
        return info.activation;
    }
    void reload(ebb_activation activation) {
        ebb_reload_info info{};
        info.struct_size = sizeof(info);
        const ebb_status reloaded = ebb_reload(runtime_, activation, k_compute, &info);
        if (reloaded == EBB_OK) {
            ok_ &= ebb_return(runtime_, info.claim, k_compute) == EBB_OK;
        } else {
            ok_ &= reloaded == EBB_RECOMPUTE;
        }
        ok_ &= ebb_release(runtime_, activation) == EBB_OK;
    }

    std::vector<std::string> layers_;
    std::vector<ebb_activation> handles_;
    ebb_runtime *runtime_ = nullptr;
    uint64_t deleted_ = 0;
    bool ok_ = true;
};

constexpr int k_warm_steps = 6;
constexpr int k_hot_steps = 9;

void run(steps &s, int count) {
    for (int i = 0; i < count; ++i) {
        s.run();
    }
}

TEST(hot_path, allocates_nothing_after_warm_up) {
    steps s;
    run(s, k_warm_steps);
    ebb_statistics before{};
    before.struct_size = sizeof(before);
    ASSERT_EQ(ebb_stats(s.runtime(), &before), EBB_OK);
    const uint64_t count = allocation_count.load();
    run(s, k_hot_steps);
    EXPECT_EQ(allocation_count.load(), count);
    EXPECT_TRUE(s.ok()) << ebb_last_error();
    ebb_statistics after{};
    after.struct_size = sizeof(after);
    ASSERT_EQ(ebb_stats(s.runtime(), &after), EBB_OK);
    // It did move, prefetch, forward, share and recompute.
    EXPECT_EQ(after.device_allocations, before.device_allocations);
    EXPECT_GT(after.d2h_bytes, before.d2h_bytes);
    EXPECT_GT(after.reloads_prefetched, before.reloads_prefetched);
    EXPECT_GT(after.recompute_count, before.recompute_count);
    EXPECT_GT(after.sampled_steps, before.sampled_steps);
    EXPECT_GT(allocation_count.load(), 0U) << "the counter does not count";
}

#if !defined(EBB_SANITIZES_ADDRESSES) && !defined(EBB_SANITIZES_THREADS)
TEST(hot_path, makes_no_system_call_after_warm_up) {
    int calls_of_a_known_one = count_system_calls([] {}, [] { getppid(); });
    EXPECT_EQ(calls_of_a_known_one, 1) << "the counter does not count";
    std::unique_ptr<steps> s;
    const int calls = count_system_calls(
        [&] {
            s = std::make_unique<steps>();
            run(*s, k_warm_steps);
        },
        [&] { run(*s, k_hot_steps); });
    EXPECT_EQ(calls, 0);
}
#endif

}  // namespace
}  // namespace ebb::test
