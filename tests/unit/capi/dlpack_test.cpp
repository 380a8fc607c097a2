// DLPack in and out.

#include <array>

#include "capi/dlpack_abi.hpp"
#include "capi_fixture.hpp"

namespace ebb::test {
namespace {

class dlpack : public capi_test {
protected:
    // A tensor of 32-bit floats over a buffer, whose deleter counts as the buffer's.
    struct tensor {
        DLManagedTensorVersioned managed{};
        std::vector<int64_t> shape, strides;
        buffer *bytes = nullptr;
    };
    tensor &make_tensor(std::vector<int64_t> shape, std::vector<int64_t> strides, uint64_t size_bytes) {
        tensor &t = tensors_.emplace_back();
        if (size_bytes != 0) {
            t.bytes = &make_buffer(size_bytes);
        } else {
            t.bytes = &buffers_.emplace_back();
        }
        t.shape = std::move(shape);
        t.strides = std::move(strides);
        t.managed.abi = {1, 0};
        t.managed.manager_ctx = &t;
        t.managed.deleter = [](DLManagedTensorVersioned *self) {
            ++static_cast<tensor *>(self->manager_ctx)->bytes->deleted;
        };
        t.managed.tensor.data = t.bytes->data;
        t.managed.tensor.where = {1, 0};
        t.managed.tensor.dimensions = static_cast<int32_t>(t.shape.size());
        t.managed.tensor.type = {2, 32, 1};
        t.managed.tensor.shape = t.shape.data();
        t.managed.tensor.strides = t.strides.empty() ? nullptr : t.strides.data();
        return t;
    }
    static ebb_offload_args plain_args(const ebb_stream *producer) {
        ebb_offload_args a = zeroed<ebb_offload_args>();
        a.name = "tensor";
        a.producers = producer;
        a.producer_count = 1;
        return a;
    }
    ebb_status try_offload(tensor &t) {
        const ebb_offload_args a = plain_args(&compute_);
        return ebb_offload_dlpack(runtime_, &a, &t.managed, &info_);
    }
    void expect_refused(tensor &t, ebb_status wanted, const char *words) {
        EBB_EXPECT_REFUSED(try_offload(t), wanted, words);
        EXPECT_EQ(t.bytes->deleted, 0) << "still the caller's";
        EXPECT_EQ(stats().offload_calls, 0U);
    }
    DLManagedTensorVersioned *reload_tensor(ebb_activation a) {
        DLManagedTensorVersioned *out = nullptr;
        EBB_EXPECT_STATUS(ebb_reload_dlpack(runtime_, a, compute_, &out), EBB_OK);
        return out;
    }

    std::deque<tensor> tensors_;
};

TEST_F(dlpack, a_permuted_tensor_comes_back_with_its_strides) {
    open();
    tensor &t = make_tensor({2, 3, 4}, {4, 8, 1}, 2 * 3 * 4 * 4);
    EBB_ASSERT_OK(try_offload(t));
    EXPECT_EQ(t.bytes->deleted, 1);
    DLManagedTensorVersioned *out = reload_tensor(info_.activation);
    ASSERT_NE(out, nullptr);
    EXPECT_EQ(out->abi.major, 1U);
    ASSERT_EQ(out->tensor.dimensions, 3);
    EXPECT_THAT(std::vector<int64_t>(out->tensor.shape, out->tensor.shape + 3), ::testing::ElementsAre(2, 3, 4));
    EXPECT_THAT(std::vector<int64_t>(out->tensor.strides, out->tensor.strides + 3), ::testing::ElementsAre(4, 8, 1));
    EXPECT_EQ(out->tensor.type.code, 2);
    EXPECT_EQ(out->tensor.type.bits, 32);
    EXPECT_EQ(out->tensor.type.lanes, 1);
    EXPECT_EQ(out->tensor.where.type, 1);
    EXPECT_EQ(out->tensor.byte_offset, 0U);
    expect_bytes(out->tensor.data, *t.bytes);
    out->deleter(out);
    EBB_EXPECT_OK(ebb_release(runtime_, info_.activation));
    expect_nothing_held();
}

TEST_F(dlpack, compact_strides_a_scalar_and_sizes_of_one) {
    open();
    tensor &compact = make_tensor({3, 5}, {}, 60);
    EBB_ASSERT_OK(try_offload(compact));
    DLManagedTensorVersioned *out = reload_tensor(info_.activation);
    EXPECT_THAT(std::vector<int64_t>(out->tensor.strides, out->tensor.strides + 2), ::testing::ElementsAre(5, 1));
    out->deleter(out);
    tensor &scalar = make_tensor({}, {}, 4);
    EBB_ASSERT_OK(try_offload(scalar));
    out = reload_tensor(info_.activation);
    EXPECT_EQ(out->tensor.dimensions, 0);
    expect_bytes(out->tensor.data, *scalar.bytes);
    out->deleter(out);
    tensor &ones = make_tensor({1, 4, 1}, {99, 1, 77}, 16);  // strides of a size of one mean nothing
    EBB_ASSERT_OK(try_offload(ones));
    out = reload_tensor(info_.activation);
    EXPECT_THAT(std::vector<int64_t>(out->tensor.strides, out->tensor.strides + 3), ::testing::ElementsAre(99, 1, 77));
    out->deleter(out);
}

TEST_F(dlpack, a_byte_offset_is_followed) {
    open();
    tensor &t = make_tensor({16}, {1}, 128);
    t.managed.tensor.byte_offset = 64;
    EBB_ASSERT_OK(try_offload(t));
    DLManagedTensorVersioned *out = reload_tensor(info_.activation);
    EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, compute_));
    EXPECT_EQ(std::memcmp(out->tensor.data, static_cast<char *>(t.bytes->data) + 64, 64), 0);
    out->deleter(out);
}

TEST_F(dlpack, a_tensor_without_elements_lives_like_the_others) {
    open();
    // The product of the other sizes overflows; there are still no elements.
    tensor &t = make_tensor({int64_t{1} << 62, 0, int64_t{1} << 62}, {}, 0);
    EBB_ASSERT_OK(try_offload(t));
    DLManagedTensorVersioned *out = reload_tensor(info_.activation);
    EXPECT_EQ(out->tensor.dimensions, 3);
    EXPECT_EQ(out->tensor.shape[1], 0);
    out->deleter(out);
    EBB_EXPECT_OK(ebb_release(runtime_, info_.activation));
    EXPECT_EQ(t.bytes->deleted, 1);
    expect_nothing_held();
}

TEST_F(dlpack, tensors_that_are_not_dense_are_refused) {
    open();
    expect_refused(make_tensor({4, 4}, {8, 1}, 256), EBB_INVALID_ARGUMENT, "not dense: stride 8 of dimension 0");
    expect_refused(make_tensor({4, 4}, {0, 1}, 256), EBB_INVALID_ARGUMENT, "not dense");  // expanded
    expect_refused(make_tensor({4, 4}, {-4, 1}, 256), EBB_INVALID_ARGUMENT, "not dense");
    expect_refused(make_tensor({8}, {2}, 256), EBB_INVALID_ARGUMENT, "not dense");
}

TEST_F(dlpack, malformed_tensors_are_refused_and_named) {
    open();
    tensor &version = make_tensor({8}, {1}, 32);
    version.managed.abi.major = 2;
    expect_refused(version, EBB_UNSUPPORTED, "DLPack version 2.0");
    tensor &null = make_tensor({8}, {1}, 32);
    null.managed.tensor.data = nullptr;
    expect_refused(null, EBB_INVALID_ARGUMENT, "tensor->data is null");
    tensor &shapeless = make_tensor({8}, {1}, 32);
    shapeless.managed.tensor.shape = nullptr;
    expect_refused(shapeless, EBB_INVALID_ARGUMENT, "tensor->shape is null");
    tensor &negative = make_tensor({-8}, {1}, 32);
    expect_refused(negative, EBB_INVALID_ARGUMENT, "tensor->shape[0] is -8");
    tensor &many = make_tensor(std::vector<int64_t>(17, 1), {}, 32);
    expect_refused(many, EBB_UNSUPPORTED, "17 dimensions");
    tensor &fewer = make_tensor({8}, {1}, 32);
    fewer.managed.tensor.dimensions = -1;
    expect_refused(fewer, EBB_UNSUPPORTED, "-1 dimensions");
    expect_refused(make_tensor({int64_t{1} << 62, 8}, {}, 32), EBB_INVALID_ARGUMENT, "overflows");
    expect_refused(make_tensor({int64_t{1} << 62, 3}, {}, 32), EBB_INVALID_ARGUMENT, "overflows");
    tensor &bits = make_tensor({3}, {1}, 32);
    bits.managed.tensor.type = {1, 4, 1};  // three values of 4 bits
    expect_refused(bits, EBB_INVALID_ARGUMENT, "not a whole number of bytes");
    tensor &cuda = make_tensor({8}, {1}, 32);
    cuda.managed.tensor.where = {2, 0};
    expect_refused(cuda, EBB_INVALID_ARGUMENT, "tensor->device is type 2");
    tensor &ordinal = make_tensor({8}, {1}, 32);
    ordinal.managed.tensor.where = {1, 4};
    expect_refused(ordinal, EBB_INVALID_ARGUMENT, "id 4");
}

TEST_F(dlpack, what_comes_from_the_tensor_must_be_zero_in_the_arguments) {
    open();
    tensor &t = make_tensor({8}, {1}, 32);
    const std::vector<std::function<void(ebb_offload_args &)>> changes = {
        [&](ebb_offload_args &a) { a.data = t.bytes->data; },
        [](ebb_offload_args &a) { a.size_bytes = 32; },
        [](ebb_offload_args &a) { a.deleter = [](void *) {}; },
        [&](ebb_offload_args &a) { a.deleter_context = &t; },
    };
    for (const auto &change : changes) {
        ebb_offload_args a = plain_args(&compute_);
        change(a);
        EBB_EXPECT_REFUSED(ebb_offload_dlpack(runtime_, &a, &t.managed, &info_), EBB_INVALID_ARGUMENT,
                           "args->data, size_bytes, deleter and deleter_context must be zero");
    }
    ebb_offload_args a = plain_args(&compute_);
    a.name = "";
    EBB_EXPECT_REFUSED(ebb_offload_dlpack(runtime_, &a, &t.managed, &info_), EBB_INVALID_ARGUMENT, "args->name");
    EXPECT_EQ(t.bytes->deleted, 0);
}

TEST_F(dlpack, a_tensor_without_a_deleter_is_fine) {
    open();
    tensor &t = make_tensor({8}, {1}, 32);
    t.managed.deleter = nullptr;
    EBB_ASSERT_OK(try_offload(t));
    EBB_EXPECT_OK(ebb_release(runtime_, info_.activation));
}

TEST_F(dlpack, what_was_not_offloaded_from_dlpack_comes_as_bytes) {
    open();
    buffer &b = make_buffer();
    DLManagedTensorVersioned *out = reload_tensor(offload(b));
    ASSERT_EQ(out->tensor.dimensions, 1);
    EXPECT_EQ(out->tensor.shape[0], static_cast<int64_t>(k_size));
    EXPECT_EQ(out->tensor.strides[0], 1);
    EXPECT_EQ(out->tensor.type.code, 1);
    EXPECT_EQ(out->tensor.type.bits, 8);
    expect_bytes(out->tensor.data, b);
    out->deleter(out);
}

TEST_F(dlpack, its_deleter_on_another_thread_frees_the_slot) {
    options_.max_activation_bytes = k_size;
    options_.staging_bytes = k_size + 512;  // room for one
    open();
    buffer &b = make_buffer();
    buffer &c = make_buffer();
    const ebb_activation one = offload(b, "one");
    const ebb_activation two = offload(c, "two");
    DLManagedTensorVersioned *out = reload_tensor(one);
    ebb_reload_info info = zeroed<ebb_reload_info>();
    EBB_EXPECT_STATUS(ebb_reload(runtime_, two, compute_, &info), EBB_NO_SLOT);
    std::thread([out] { out->deleter(out); }).join();
    reload_and_return(two, c);
    expect_bytes(reload(one).data, b);
}

TEST_F(dlpack, its_deleter_may_run_inside_a_callback_and_after_the_release) {
    options_.source_bytes = k_automatic;
    open();
    buffer &b = make_buffer();
    const ebb_activation a = offload(b, "claimed");
    DLManagedTensorVersioned *out = reload_tensor(a);
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    buffer &last = make_buffer();
    last.in_deleter = [out] { out->deleter(out); };
    EBB_EXPECT_OK(ebb_release(runtime_, offload(last)));
    EBB_EXPECT_OK(ebb_progress(runtime_));
    EXPECT_EQ(b.deleted, 1);
    expect_nothing_held();
}

TEST_F(dlpack, its_deleter_may_run_after_close_on_another_thread) {
    open();
    DLManagedTensorVersioned *out[2] = {reload_tensor(offload(make_buffer())), reload_tensor(offload(make_buffer()))};
    close();
    std::thread([&] { out[0]->deleter(out[0]); }).join();
    out[1]->deleter(out[1]);
}

TEST_F(dlpack, a_reload_that_fails_gives_no_tensor) {
    open();
    buffer &b = make_buffer();
    ebb_offload_args args = args_for(b);
    args.flags = EBB_OFFLOAD_CAN_RECOMPUTE;
    args.placement = EBB_PLACE_RECOMPUTE;
    DLManagedTensorVersioned *out = nullptr;
    EBB_EXPECT_STATUS(ebb_reload_dlpack(runtime_, offload(args), compute_, &out), EBB_RECOMPUTE);
    EXPECT_EQ(out, nullptr);
}

}  // namespace
}  // namespace ebb::test
