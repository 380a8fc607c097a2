// The RAII wrapper, from create to close.

#include "ebb/ebb.hpp"

#include <cstring>
#include <type_traits>

#include "capi_fixture.hpp"  // the library's own namespace beside ebb::cpp: they do not collide

namespace {

using ebb::test::fill_pattern;
using ebb::test::has_pattern;
using ebb::test::k_size;

template <class T>
constexpr bool k_owns = std::is_nothrow_move_constructible_v<T> &&std::is_nothrow_move_assignable_v<T> &&
                        !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;
static_assert(k_owns<ebb::cpp::runtime> && k_owns<ebb::cpp::activation> && k_owns<ebb::cpp::claim>);
static_assert(!std::is_move_constructible_v<ebb::cpp::scope>);

ebb_runtime_options host_options() {
    ebb_runtime_options o{};
    o.device = "host";
    o.host_device_bytes = 16 << 20;
    o.min_offload_bytes = 1;
    o.source_bytes = EBB_SOURCES_NONE;
    o.max_activation_bytes = k_size;
    o.staging_bytes = k_size + 512;  // one slot
    return o;
}

class ebb_hpp : public ::testing::Test {
protected:
    void SetUp() override {
        ebb::cpp::check(ebb_host_stream_create(runtime_.get(), &stream_));
        ebb::cpp::check(ebb_host_alloc(runtime_.get(), k_size, &data_));
        fill_pattern(data_, k_size, 1);
        args_.name = "gate";
        args_.data = data_;
        args_.size_bytes = k_size;
        args_.producers = &stream_;
        args_.producer_count = 1;
        args_.deleter = [](void *count) { ++*static_cast<int *>(count); };
        args_.deleter_context = &deleted_;
    }
    void expect_bytes(const void *data) {
        ebb::cpp::check(ebb_host_stream_synchronize(runtime_.get(), stream_));
        EXPECT_TRUE(has_pattern(data, k_size, 1));
    }

    int deleted_ = 0;
    ebb_stream stream_ = 0;
    void *data_ = nullptr;
    ebb_offload_args args_{};
    ebb::cpp::runtime runtime_{host_options()};
};

TEST_F(ebb_hpp, one_activations_life) {
    runtime_.step(EBB_PHASE_TRAIN);
    ebb::cpp::activation saved = [&] {
        const ebb::cpp::scope layer(runtime_, "layer.0");
        return runtime_.offload(args_);
    }();
    EXPECT_EQ(saved.placement(), EBB_PLACE_OFFLOAD);
    EXPECT_EQ(saved.info().reason, EBB_REASON_NONE);
    EXPECT_EQ(deleted_, 1);
    ebb::cpp::claim bytes = saved.reload(stream_);
    EXPECT_EQ(bytes.size_bytes(), k_size);
    expect_bytes(bytes.data());
    bytes.use(EBB_STREAM_DEFAULT);
    bytes.return_on(stream_);
    EXPECT_FALSE(bytes);
    saved.wait();
    saved.release();
    EXPECT_FALSE(saved);
    runtime_.progress();
    runtime_.wait_room();
    EXPECT_EQ(runtime_.stats().live_activations, 0U);
    EXPECT_NE(runtime_.report().find("layer.*/gate"), std::string::npos);
    EXPECT_NE(runtime_.report(EBB_REPORT_JSON).find("layer.0/gate"), std::string::npos);
    EXPECT_EQ(runtime_.close(), EBB_OK);
    EXPECT_FALSE(runtime_);
}

TEST_F(ebb_hpp, destructors_return_and_release) {
    {
        ebb::cpp::activation saved = runtime_.offload(args_);
        const ebb::cpp::claim bytes = saved.reload(stream_);
        EXPECT_GT(runtime_.stats().staging_used_bytes, 0U);
    }
    EXPECT_EQ(runtime_.stats().staging_used_bytes, 0U);
    EXPECT_EQ(runtime_.stats().live_activations, 0U);
}

TEST_F(ebb_hpp, moves_leave_the_other_empty_and_assignment_ends_what_was_held) {
    ebb::cpp::activation one = runtime_.offload(args_);
    ebb::cpp::activation two = std::move(one);
    EXPECT_FALSE(one);  // NOLINT(bugprone-use-after-move): that is what is tested
    EXPECT_TRUE(two);
    ebb::cpp::claim first = two.reload(stream_);
    ebb::cpp::claim second = std::move(first);
    EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move)
    second = ebb::cpp::claim();
    EXPECT_EQ(runtime_.stats().staging_used_bytes, 0U);
    two = runtime_.offload(args_);
    EXPECT_EQ(runtime_.stats().live_activations, 1U);
    ebb::cpp::runtime moved = std::move(runtime_);
    EXPECT_FALSE(runtime_);  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(moved.stats().live_activations, 1U);
    two.release();
    EXPECT_EQ(moved.close(), EBB_OK);
}

TEST_F(ebb_hpp, errors_are_thrown_with_status_and_text) {
    args_.name = "a//b";
    try {
        static_cast<void>(runtime_.offload(args_));
        FAIL() << "nothing was thrown";
    } catch (const ebb::cpp::error &e) {
        EXPECT_EQ(e.status(), EBB_INVALID_ARGUMENT);
        EXPECT_NE(std::string(e.what()).find("EBB_INVALID_ARGUMENT: args->name is 'a//b'"), std::string::npos);
    }
    EXPECT_THROW(ebb::cpp::scope(runtime_, ""), ebb::cpp::error);
    ebb_runtime_options o{};
    o.device = "abacus";
    EXPECT_THROW(ebb::cpp::runtime{o}, ebb::cpp::error);
    EXPECT_THROW(runtime_.step(0), ebb::cpp::error);
}

TEST_F(ebb_hpp, results_of_normal_work_are_values_in_the_try_forms) {
    ebb::cpp::activation saved = runtime_.offload(args_);
    ebb::cpp::activation other = runtime_.offload(args_);
    ebb::cpp::outcome<ebb::cpp::claim> bytes = saved.try_reload(stream_);
    ASSERT_TRUE(bytes);
    EXPECT_EQ(bytes.status(), EBB_OK);
    expect_bytes(bytes->data());
    // The only slot is taken.
    ebb::cpp::outcome<ebb::cpp::claim> none = other.try_reload(stream_);
    EXPECT_FALSE(none);
    EXPECT_EQ(none.status(), EBB_NO_SLOT);
    EXPECT_THROW(static_cast<void>(none.value()), ebb::cpp::error);
    EXPECT_THROW(static_cast<void>(other.reload(stream_)), ebb::cpp::error);
    ebb_offload_args staged = args_;
    staged.deleter = nullptr;
    staged.deleter_context = nullptr;
    EXPECT_EQ(runtime_.try_offload_staged(staged).status(), EBB_NO_SLOT);
    EXPECT_THROW(static_cast<void>(runtime_.offload_staged(staged)), ebb::cpp::error);
    EXPECT_EQ(runtime_.close(), EBB_BUSY);
    EXPECT_TRUE(runtime_);
    void *own = nullptr;
    ebb::cpp::check(ebb_host_alloc(runtime_.get(), k_size, &own));
    EXPECT_TRUE(other.try_reload_into(own, k_size, stream_));
    expect_bytes(own);
    std::memset(own, 0, k_size);
    other.reload_into(own, k_size, stream_);
    expect_bytes(own);
    std::move(bytes).value().return_on(stream_);
    EXPECT_TRUE(runtime_.try_offload_staged(staged));
    ebb::cpp::activation third = runtime_.offload_staged(staged);
    expect_bytes(third.reload(stream_).data());
}

TEST_F(ebb_hpp, recompute) {
    args_.flags = EBB_OFFLOAD_CAN_RECOMPUTE;
    args_.placement = EBB_PLACE_RECOMPUTE;
    ebb::cpp::activation saved = runtime_.offload(args_);
    EXPECT_EQ(saved.try_reload(stream_).status(), EBB_RECOMPUTE);
    EXPECT_FALSE(saved.try_reload_into(data_, k_size, stream_));
    {
        const ebb::cpp::recompute_section section(runtime_, k_size);
        EXPECT_THROW(ebb::cpp::recompute_section(runtime_, 1), ebb::cpp::error);
    }
    EXPECT_EQ(ebb_recompute_end(runtime_.get()), EBB_WRONG_STATE);
}

TEST_F(ebb_hpp, detach_and_drop_give_up_ownership) {
    ebb::cpp::activation saved = runtime_.offload(args_);
    const ebb_claim c = saved.reload(stream_).detach();
    EXPECT_GT(runtime_.stats().staging_used_bytes, 0U);
    ebb::cpp::check(ebb_return(runtime_.get(), c, stream_));
    const ebb_activation a = saved.detach();
    EXPECT_FALSE(saved);
    ebb::cpp::check(ebb_release(runtime_.get(), a));
    saved = runtime_.offload(args_);
    saved.drop();
    EXPECT_FALSE(saved);
    EXPECT_EQ(runtime_.stats().live_activations, 0U);
}

TEST_F(ebb_hpp, dlpack_both_ways) {
    int64_t shape[1] = {static_cast<int64_t>(k_size)};
    DLManagedTensorVersioned tensor{};
    tensor.abi = {1, 0};
    tensor.manager_ctx = &deleted_;
    tensor.deleter = [](DLManagedTensorVersioned *self) { ++*static_cast<int *>(self->manager_ctx); };
    tensor.tensor.data = data_;
    tensor.tensor.where = {1, 0};
    tensor.tensor.dimensions = 1;
    tensor.tensor.type = {1, 8, 1};
    tensor.tensor.shape = shape;
    ebb_offload_args plain{};
    plain.name = "tensor";
    plain.producers = &stream_;
    plain.producer_count = 1;
    ebb::cpp::activation saved = runtime_.offload_dlpack(plain, &tensor);
    EXPECT_EQ(deleted_, 1);
    DLManagedTensorVersioned *out = saved.reload_dlpack(stream_);
    expect_bytes(out->tensor.data);
    out->deleter(out);
    tensor.abi.major = 9;
    EXPECT_THROW(static_cast<void>(runtime_.offload_dlpack(plain, &tensor)), ebb::cpp::error);
    EXPECT_EQ(deleted_, 1) << "still ours";
}

// The statuses that say that the runtime lives on leave it owned.
TEST_F(ebb_hpp, a_close_from_inside_a_callback_is_refused_and_it_is_still_owned) {
    ebb_status inside = EBB_OK;
    struct closer {
        ebb::cpp::runtime *runtime;
        ebb_status *status;
    } closing{&runtime_, &inside};
    args_.deleter = [](void *context) {
        const auto *c = static_cast<closer *>(context);
        *c->status = c->runtime->close();
    };
    args_.deleter_context = &closing;
    runtime_.offload(args_).release();
    EXPECT_EQ(inside, EBB_WRONG_STATE);
    EXPECT_TRUE(runtime_);
    EXPECT_EQ(runtime_.close(), EBB_OK);
}

TEST(ebb_hpp_close, the_destructor_closes_with_force) {
    int deleted = 0;
    {
        ebb::cpp::runtime runtime(host_options());
        ebb_offload_args args{};
        args.name = "none";
        const ebb_stream producer = EBB_STREAM_DEFAULT;
        args.producers = &producer;
        args.producer_count = 1;
        args.deleter = [](void *count) { ++*static_cast<int *>(count); };
        args.deleter_context = &deleted;
        static_cast<void>(runtime.offload(args).detach());
        EXPECT_EQ(deleted, 0);
    }
    EXPECT_EQ(deleted, 1);
}

}  // namespace
