// When the heap has nothing left: a status, and nothing was taken.

#include "capi/dlpack_abi.hpp"
#include "capi_fixture.hpp"
#include "counted_new.hpp"

namespace ebb::test {
namespace {

class out_of_memory : public capi_test {};

// The failed call's own text needs memory, and so would a second failure made of the first.
TEST_F(out_of_memory, a_refused_call_whose_text_does_not_fit_is_a_status_all_the_same) {
    open();
    ebb_status refused = EBB_OK;
    {
        const no_heap_memory none;
        refused = ebb_scope_push(runtime_, nullptr);
    }
    EXPECT_EQ(refused, EBB_INTERNAL);
    EXPECT_STREQ(ebb_last_error(), "out of memory");
}

TEST_F(out_of_memory, a_callback_that_throws_then_is_a_status_all_the_same) {
    open();
    ebb_status thrown = EBB_OK;
    const ebb_text_sink sink = [](void *, const char *, uint64_t) {
        static const std::runtime_error full("the sink has no room for what it was given");
        allocations_left = 0;
        throw full;
    };
    thrown = ebb_report_write(runtime_, EBB_REPORT_TEXT, sink, nullptr);
    allocations_left = ~uint64_t{0};
    EXPECT_EQ(thrown, EBB_INTERNAL);
}

// The record of a tensor's shape grows with the number of activations that live at once.
TEST_F(out_of_memory, a_tensor_is_taken_whole_or_not_at_all) {
    open();
    std::vector<ebb_activation> warm;
    for (int i = 0; i < 3; ++i) {
        warm.push_back(offload(make_buffer(), "tensor"));
    }
    for (const ebb_activation a : warm) {
        EBB_ASSERT_OK(ebb_release(runtime_, a));
    }
    buffer &b = make_buffer();
    int64_t shape[1] = {static_cast<int64_t>(k_size)};
    DLManagedTensorVersioned tensor{};
    tensor.abi = {1, 0};
    tensor.manager_ctx = &b;
    tensor.deleter = [](DLManagedTensorVersioned *self) { ++static_cast<buffer *>(self->manager_ctx)->deleted; };
    tensor.tensor.data = b.data;
    tensor.tensor.where = {1, 0};
    tensor.tensor.dimensions = 1;
    tensor.tensor.type = {1, 8, 1};
    tensor.tensor.shape = shape;
    ebb_offload_args args = args_for(b, "tensor");
    args.data = nullptr;
    args.size_bytes = 0;
    args.deleter = nullptr;
    args.deleter_context = nullptr;
    ebb_status refused = EBB_OK;
    {
        const no_heap_memory none;
        refused = ebb_offload_dlpack(runtime_, &args, &tensor, &info_);
    }
    EXPECT_EQ(refused, EBB_INTERNAL);
    EXPECT_EQ(b.deleted, 0) << "still the caller's";
    EXPECT_EQ(stats().live_activations, 0U);
    EBB_ASSERT_OK(ebb_offload_dlpack(runtime_, &args, &tensor, &info_));
    EXPECT_EQ(b.deleted, 1);
}

// Wherever in the call the heap has nothing left: it has taken nothing, or everything.
TEST_F(out_of_memory, an_offload_takes_everything_or_nothing) {
    options_.verify = true;
    options_.max_activation_bytes = k_size;
    options_.staging_bytes = 64 * (k_size + 512);
    open();
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    int failed = 0;
    for (const bool staged : {false, true}) {
        bool taken = false;
        for (uint64_t allowed = 0; !taken; ++allowed) {
            ASSERT_LT(allowed, 1000U);
            buffer &b = make_buffer();
            const std::string name = (staged ? "staged" : "borrowed") + std::to_string(allowed);
            ebb_offload_args args = staged ? staged_args_for(b, name.c_str()) : args_for(b, name.c_str());
            args.storage_id = staged ? 0 : 1000 + allowed;
            args.flags = EBB_OFFLOAD_CAN_RECOMPUTE;
            ebb_status status = EBB_OK;
            {
                const no_heap_memory none(allowed);
                status = staged ? ebb_offload_staged(runtime_, &args, &info_) : ebb_offload(runtime_, &args, &info_);
            }
            taken = status == EBB_OK;
            if (!taken) {
                ++failed;
                EXPECT_EQ(status, EBB_INTERNAL) << ebb_last_error();
                EXPECT_EQ(b.deleted, 0) << "still the caller's, after " << allowed;
                EXPECT_EQ(stats().live_activations, 0U);
                continue;
            }
            reload_and_return(info_.activation, b);
            EBB_EXPECT_OK(ebb_release(runtime_, info_.activation));
            EXPECT_EQ(b.deleted, staged ? 0 : 1);
        }
    }
    EXPECT_GT(failed, 5);
    expect_nothing_held();
    EBB_EXPECT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
}

}  // namespace
}  // namespace ebb::test
