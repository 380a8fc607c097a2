// Wrong arguments: each gives a status and a text that names it, nothing is taken, and the runtime works on.

#include <cstring>

#include "capi_fixture.hpp"

namespace ebb::test {
namespace {

using ::testing::HasSubstr;

class arguments : public capi_test {
protected:
    void SetUp() override {
        capi_test::SetUp();
        open();
        buffer_ = &make_buffer();
        args_ = args_for(*buffer_);
    }
    // The offload with the arguments as they are now is refused, its text has `words`, and nothing was taken.
    void expect_refused(ebb_status wanted, const std::string &words) {
        EBB_EXPECT_REFUSED(ebb_offload(runtime_, &args_, &info_), wanted, words);
        EXPECT_EQ(info_.activation, 0U);
        EXPECT_EQ(stats().offload_calls, 0U);
        EXPECT_EQ(buffer_->deleted, 0);
        args_ = args_for(*buffer_);
    }

    buffer *buffer_ = nullptr;
    ebb_offload_args args_{};
};

// ---------------------------------------------------------------------------------------------- struct_size --

TEST_F(arguments, a_struct_without_its_size_is_refused) {
    args_.struct_size = 0;
    expect_refused(EBB_INVALID_ARGUMENT, "args->struct_size is 0");
    args_.struct_size = sizeof(args_) - 8;
    expect_refused(EBB_INVALID_ARGUMENT, "args->struct_size");
    args_.struct_size = ~uint64_t{0};
    expect_refused(EBB_INVALID_ARGUMENT, "args->struct_size");
    info_.struct_size = 8;
    EBB_EXPECT_REFUSED(ebb_offload(runtime_, &args_, &info_), EBB_INVALID_ARGUMENT, "info->struct_size is 8");
    ebb_statistics s{};
    EBB_EXPECT_REFUSED(ebb_stats(runtime_, &s), EBB_INVALID_ARGUMENT, "statistics->struct_size");
    ebb_runtime_options o{};
    ebb_runtime *made = nullptr;
    EBB_EXPECT_REFUSED(ebb_runtime_create(&o, &made), EBB_INVALID_ARGUMENT, "options->struct_size");
    EXPECT_EQ(made, nullptr);
}

TEST_F(arguments, a_larger_struct_may_have_only_zeros_beyond_what_is_known) {
    struct {
        ebb_offload_args known;
        uint64_t newer[4];
    } larger{};
    larger.known = args_;
    larger.known.struct_size = sizeof(larger);
    larger.newer[2] = 1;
    EBB_EXPECT_REFUSED(ebb_offload(runtime_, &larger.known, &info_), EBB_INVALID_ARGUMENT, "args->struct_size");
    EXPECT_THAT(ebb_last_error(), HasSubstr("is not zero"));
    EXPECT_EQ(stats().offload_calls, 0U);
    larger.newer[2] = 0;
    EBB_EXPECT_STATUS(ebb_offload(runtime_, &larger.known, &info_), EBB_OK);
}

TEST_F(arguments, a_larger_struct_to_fill_keeps_its_size_and_its_tail) {
    struct {
        ebb_offload_info known;
        uint64_t newer;
    } larger{};
    larger.known.struct_size = sizeof(larger);
    larger.newer = 77;
    EBB_ASSERT_OK(ebb_offload(runtime_, &args_, &larger.known));
    EXPECT_EQ(larger.known.struct_size, sizeof(larger));
    EXPECT_EQ(larger.newer, 77U);
    EXPECT_NE(larger.known.activation, 0U);
}

// ----------------------------------------------------------------------------------------------------- null --

TEST_F(arguments, null_pointers_are_named) {
    ebb_reload_info loaded = zeroed<ebb_reload_info>();
    DLManagedTensorVersioned *tensor = nullptr;
    const ebb_activation live = offload(args_);
    EBB_EXPECT_REFUSED(ebb_runtime_create(nullptr, nullptr), EBB_INVALID_ARGUMENT, "runtime is null");
    EBB_EXPECT_REFUSED(ebb_offload(runtime_, nullptr, &info_), EBB_INVALID_ARGUMENT, "args is null");
    EBB_EXPECT_REFUSED(ebb_offload(runtime_, &args_, nullptr), EBB_INVALID_ARGUMENT, "info is null");
    EBB_EXPECT_REFUSED(ebb_offload_staged(runtime_, nullptr, &info_), EBB_INVALID_ARGUMENT, "args is null");
    const ebb_offload_args staged = staged_args_for(*buffer_);
    EBB_EXPECT_REFUSED(ebb_offload_staged(runtime_, &staged, nullptr), EBB_INVALID_ARGUMENT, "info is null");
    EBB_EXPECT_REFUSED(ebb_offload_dlpack(runtime_, nullptr, nullptr, &info_), EBB_INVALID_ARGUMENT, "args is null");
    ebb_offload_args plain = staged;
    plain.data = nullptr;
    plain.size_bytes = 0;
    EBB_EXPECT_REFUSED(ebb_offload_dlpack(runtime_, &plain, nullptr, &info_), EBB_INVALID_ARGUMENT, "tensor is null");
    EBB_EXPECT_REFUSED(ebb_reload(runtime_, live, compute_, nullptr), EBB_INVALID_ARGUMENT, "info is null");
    EBB_EXPECT_REFUSED(ebb_reload_into(runtime_, live, nullptr, k_size, compute_), EBB_INVALID_ARGUMENT,
                       "data is null");
    EBB_EXPECT_REFUSED(ebb_reload_dlpack(runtime_, live, compute_, nullptr), EBB_INVALID_ARGUMENT, "tensor is null");
    EBB_EXPECT_REFUSED(ebb_stats(runtime_, nullptr), EBB_INVALID_ARGUMENT, "statistics is null");
    EBB_EXPECT_REFUSED(ebb_report_write(runtime_, EBB_REPORT_TEXT, nullptr, nullptr), EBB_INVALID_ARGUMENT,
                       "sink is null");
    EBB_EXPECT_REFUSED(ebb_scope_push(runtime_, nullptr), EBB_INVALID_ARGUMENT, "name is null");
    EBB_EXPECT_REFUSED(ebb_host_stream_create(runtime_, nullptr), EBB_INVALID_ARGUMENT, "stream is null");
    EBB_EXPECT_REFUSED(ebb_host_launch(runtime_, compute_, nullptr, nullptr), EBB_INVALID_ARGUMENT, "function is null");
    EBB_EXPECT_REFUSED(ebb_host_alloc(runtime_, 64, nullptr), EBB_INVALID_ARGUMENT, "data is null");
    EBB_EXPECT_STATUS(ebb_host_free(runtime_, nullptr), EBB_OK);  // as free
    EBB_EXPECT_STATUS(ebb_host_memory(runtime_, nullptr, nullptr, nullptr), EBB_OK);
    EXPECT_EQ(tensor, nullptr);
    EXPECT_EQ(loaded.claim, 0U);
    EXPECT_EQ(stats().offload_calls, 1U);
}

TEST_F(arguments, a_null_runtime_is_named_by_every_function) {
    ebb_reload_info loaded = zeroed<ebb_reload_info>();
    ebb_statistics s = zeroed<ebb_statistics>();
    DLManagedTensorVersioned *tensor = nullptr;
    ebb_stream stream = 0;
    void *data = nullptr;
    char space[8];
    const auto function = [](void *) {};
    const auto sink = [](void *, const char *, uint64_t) {};
    const std::vector<std::function<ebb_status()>> calls = {
        [&] { return ebb_step(nullptr, EBB_PHASE_TRAIN); },
        [&] { return ebb_scope_push(nullptr, "x"); },
        [&] { return ebb_scope_pop(nullptr); },
        [&] { return ebb_offload(nullptr, &args_, &info_); },
        [&] { return ebb_offload_dlpack(nullptr, &args_, nullptr, &info_); },
        [&] { return ebb_offload_staged(nullptr, &args_, &info_); },
        [&] { return ebb_reload(nullptr, 1, 0, &loaded); },
        [&] { return ebb_reload_into(nullptr, 1, space, 8, 0); },
        [&] { return ebb_reload_dlpack(nullptr, 1, 0, &tensor); },
        [&] { return ebb_use(nullptr, 1, 0); },
        [&] { return ebb_return(nullptr, 1, 0); },
        [&] { return ebb_release(nullptr, 1); },
        [&] { return ebb_drop(nullptr, 1); },
        [&] { return ebb_wait(nullptr, 1); },
        [&] { return ebb_wait_room(nullptr); },
        [&] { return ebb_recompute_begin(nullptr, 0); },
        [&] { return ebb_recompute_end(nullptr); },
        [&] { return ebb_collective_begin(nullptr, 0, 0); },
        [&] { return ebb_collective_end(nullptr, 0); },
        [&] { return ebb_progress(nullptr); },
        [&] { return ebb_stats(nullptr, &s); },
        [&] { return ebb_report_write(nullptr, EBB_REPORT_TEXT, sink, nullptr); },
        [&] { return ebb_record_export(nullptr, sink, nullptr); },
        [&] { return ebb_plan_export(nullptr, sink, nullptr); },
        [&] { return ebb_plan_import(nullptr, "", 0); },
        [&] { return ebb_host_stream_create(nullptr, &stream); },
        [&] { return ebb_host_stream_destroy(nullptr, 0); },
        [&] { return ebb_host_stream_synchronize(nullptr, 0); },
        [&] { return ebb_host_launch(nullptr, 0, function, nullptr); },
        [&] { return ebb_host_alloc(nullptr, 8, &data); },
        [&] { return ebb_host_free(nullptr, space); },
        [&] { return ebb_host_memory(nullptr, nullptr, nullptr, nullptr); },
    };
    for (size_t i = 0; i < calls.size(); ++i) {
        SCOPED_TRACE(i);
        EBB_EXPECT_REFUSED(calls[i](), EBB_INVALID_ARGUMENT, "runtime is null");
    }
    EBB_EXPECT_STATUS(ebb_runtime_close(nullptr, EBB_CLOSE_DEFAULT), EBB_OK);  // as free
}

// ------------------------------------------------------------------------------------------- offload's fields --

TEST_F(arguments, names_are_checked) {
    args_.name = nullptr;
    expect_refused(EBB_INVALID_ARGUMENT, "args->name is null");
    args_.name = "";
    expect_refused(EBB_INVALID_ARGUMENT, "args->name must have 1 to 255 bytes");
    const std::string longest(255, 'n');
    const std::string too_long(256, 'n');
    args_.name = too_long.c_str();
    expect_refused(EBB_INVALID_ARGUMENT, "args->name must have 1 to 255 bytes");
    for (const std::string part_is_empty : {"/", "/gate", "layer/", "layer//gate"}) {
        args_.name = part_is_empty.c_str();
        expect_refused(EBB_INVALID_ARGUMENT, "args->name is '" + part_is_empty + "': '/' separates scopes");
    }
    EBB_EXPECT_REFUSED(ebb_scope_push(runtime_, ""), EBB_INVALID_ARGUMENT, "name must have");
    EBB_EXPECT_REFUSED(ebb_scope_push(runtime_, "a/"), EBB_INVALID_ARGUMENT, "name is 'a/'");
    EBB_EXPECT_REFUSED(ebb_scope_push(runtime_, too_long.c_str()), EBB_INVALID_ARGUMENT, "name must have");
    EBB_EXPECT_REFUSED(ebb_scope_pop(runtime_), EBB_WRONG_STATE, "ebb_scope_pop");  // none of them was pushed
    args_.name = longest.c_str();
    EBB_EXPECT_STATUS(ebb_offload(runtime_, &args_, &info_), EBB_OK);
}

TEST_F(arguments, fields_of_offload_are_checked) {
    args_.data = nullptr;
    expect_refused(EBB_INVALID_ARGUMENT, "args->data is null");
    args_.size_bytes = ~uint64_t{0};
    expect_refused(EBB_INVALID_ARGUMENT, "args->size_bytes");
    args_.producers = nullptr;
    expect_refused(EBB_INVALID_ARGUMENT, "args->producers");
    args_.producer_count = 0;
    expect_refused(EBB_INVALID_ARGUMENT, "producer_count is 0");
    args_.producer_count = 65;
    expect_refused(EBB_INVALID_ARGUMENT, "producer_count is 65");
    args_.flags = 0x80;
    expect_refused(EBB_INVALID_ARGUMENT, "args->flags is 0x80");
    args_.placement = 9;
    expect_refused(EBB_INVALID_ARGUMENT, "args->placement is 9");
    args_.placement = -1;
    expect_refused(EBB_INVALID_ARGUMENT, "args->placement is -1");
    args_.placement = EBB_PLACE_RECOMPUTE;
    expect_refused(EBB_INVALID_ARGUMENT, "EBB_OFFLOAD_CAN_RECOMPUTE");
    args_.recompute_from_count = 1;
    expect_refused(EBB_INVALID_ARGUMENT, "args->recompute_from is null");
    const ebb_activation made_up[2] = {4711, 0};
    args_.recompute_from = made_up;
    args_.recompute_from_count = 2;
    expect_refused(EBB_STALE_HANDLE, "recompute_from[0]");
}

TEST_F(arguments, another_devices_memory_is_refused) {
    args_.device_type = 2;  // DLPack's number of CUDA
    expect_refused(EBB_INVALID_ARGUMENT, "args->device_type is 2");
    args_.device_type = 1;
    args_.device_ordinal = 3;
    expect_refused(EBB_INVALID_ARGUMENT, "device_ordinal 3");
    args_.device_type = 1;
    EBB_EXPECT_STATUS(ebb_offload(runtime_, &args_, &info_), EBB_OK);
}

TEST_F(arguments, flags_and_numbers_of_other_functions_are_checked) {
    EBB_EXPECT_REFUSED(ebb_runtime_close(runtime_, 0x10), EBB_INVALID_ARGUMENT, "flags is 0x10");
    EBB_EXPECT_REFUSED(ebb_step(runtime_, 0), EBB_INVALID_ARGUMENT, "phase is 0");
    EBB_EXPECT_REFUSED(ebb_step(runtime_, 3), EBB_INVALID_ARGUMENT, "phase is 3");
    const auto sink = [](void *, const char *, uint64_t) {};
    EBB_EXPECT_REFUSED(ebb_report_write(runtime_, 0, sink, nullptr), EBB_INVALID_ARGUMENT, "format is 0");
    EBB_EXPECT_REFUSED(ebb_report_write(runtime_, 9, sink, nullptr), EBB_INVALID_ARGUMENT, "format is 9");
    EBB_EXPECT_REFUSED(ebb_recompute_begin(runtime_, ~uint64_t{0}), EBB_INVALID_ARGUMENT, "size_bytes");
    EBB_EXPECT_REFUSED(ebb_recompute_end(runtime_), EBB_WRONG_STATE, "ebb_recompute_begin");
    void *data = nullptr;
    EBB_EXPECT_REFUSED(ebb_host_alloc(runtime_, 0, &data), EBB_INVALID_ARGUMENT, "0 bytes");
    EBB_EXPECT_STATUS(ebb_host_alloc(runtime_, ~uint64_t{0}, &data), EBB_OUT_OF_DEVICE_MEMORY);
    EBB_EXPECT_STATUS(ebb_host_alloc(runtime_, host_options_.capacity_bytes, &data), EBB_OUT_OF_DEVICE_MEMORY);
    EBB_EXPECT_REFUSED(ebb_host_free(runtime_, &data), EBB_INVALID_ARGUMENT, "no live block");
    EXPECT_EQ(data, nullptr);
    const ebb_activation a = offload(args_);
    char space[8];
    EBB_EXPECT_REFUSED(ebb_reload_into(runtime_, a, space, sizeof(space), compute_), EBB_INVALID_ARGUMENT,
                       "size_bytes is 8, but activation 'gate' has 65536 bytes");
}

// ---------------------------------------------------------------------------------------------------- streams --

TEST_F(arguments, streams_that_are_none_of_this_device_are_named) {
    ebb_stream destroyed = 0;
    EBB_ASSERT_OK(ebb_host_stream_create(runtime_, &destroyed));
    EBB_ASSERT_OK(ebb_host_stream_destroy(runtime_, destroyed));
    for (const ebb_stream wrong : {EBB_STREAM_LEGACY, EBB_STREAM_PER_THREAD, ebb_stream{0xABCDEF}, destroyed}) {
        SCOPED_TRACE(wrong);
        const ebb_stream producers[2] = {compute_, wrong};
        args_.producers = producers;
        args_.producer_count = 2;
        expect_refused(EBB_INVALID_ARGUMENT, "producers: stream");
        args_.home = &wrong;
        expect_refused(EBB_INVALID_ARGUMENT, "home: stream");
        EBB_EXPECT_STATUS(ebb_host_stream_synchronize(runtime_, wrong), EBB_INVALID_ARGUMENT);
        EBB_EXPECT_STATUS(ebb_host_stream_destroy(runtime_, wrong), EBB_INVALID_ARGUMENT);
        EBB_EXPECT_STATUS(ebb_host_launch(
                              runtime_, wrong, [](void *) {}, nullptr),
                          EBB_INVALID_ARGUMENT);
    }
    EBB_EXPECT_REFUSED(ebb_host_stream_destroy(runtime_, EBB_STREAM_DEFAULT), EBB_INVALID_ARGUMENT, "default stream");
    const ebb_activation a = offload(args_);
    ebb_reload_info loaded = zeroed<ebb_reload_info>();
    EBB_EXPECT_REFUSED(ebb_reload(runtime_, a, destroyed, &loaded), EBB_INVALID_ARGUMENT, "consumer: stream");
    std::vector<char> space(k_size);
    EBB_EXPECT_REFUSED(ebb_reload_into(runtime_, a, space.data(), k_size, destroyed), EBB_INVALID_ARGUMENT,
                       "consumer: stream");
    loaded = reload(a);
    EBB_EXPECT_REFUSED(ebb_use(runtime_, loaded.claim, destroyed), EBB_INVALID_ARGUMENT, "stream: stream");
    EBB_EXPECT_REFUSED(ebb_use(runtime_, loaded.claim, EBB_STREAM_CALLING_THREAD), EBB_INVALID_ARGUMENT, "ebb_wait");
    EBB_EXPECT_REFUSED(ebb_return(runtime_, loaded.claim, destroyed), EBB_INVALID_ARGUMENT, "last: stream");
    EBB_EXPECT_STATUS(ebb_return(runtime_, loaded.claim, compute_), EBB_OK);  // the claim was still held
}

TEST_F(arguments, the_default_stream_is_one) {
    const ebb_stream zero = EBB_STREAM_DEFAULT;
    args_.producers = &zero;
    const ebb_activation a = offload(args_);
    const ebb_reload_info loaded = reload(a, EBB_STREAM_DEFAULT);
    EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, EBB_STREAM_DEFAULT));
    EXPECT_TRUE(has_pattern(loaded.data, k_size, buffer_->seed));
    EBB_EXPECT_OK(ebb_return(runtime_, loaded.claim, EBB_STREAM_DEFAULT));
    EBB_EXPECT_OK(ebb_release(runtime_, a));
}

TEST_F(arguments, a_staged_offload_needs_a_stream_and_no_deleter) {
    EBB_EXPECT_REFUSED(ebb_offload_staged(runtime_, &args_, &info_), EBB_INVALID_ARGUMENT, "args->deleter");
    ebb_offload_args staged = staged_args_for(*buffer_);
    staged.deleter_context = this;
    EBB_EXPECT_REFUSED(ebb_offload_staged(runtime_, &staged, &info_), EBB_INVALID_ARGUMENT, "args->deleter");
    staged = staged_args_for(*buffer_);
    const ebb_stream thread = EBB_STREAM_CALLING_THREAD;
    staged.producers = &thread;
    EBB_EXPECT_REFUSED(ebb_offload_staged(runtime_, &staged, &info_), EBB_INVALID_ARGUMENT, "args->producers[0]");
    EXPECT_EQ(stats().offload_calls, 0U);
}

// ----------------------------------------------------------------------------------------------------- errors --

TEST_F(arguments, errors_belong_to_the_thread_that_got_them) {
    EBB_EXPECT_STATUS(ebb_release(runtime_, 1), EBB_STALE_HANDLE);
    const std::string mine = ebb_last_error();
    std::thread([&] {
        EXPECT_STREQ(ebb_last_error(), "");
        EBB_EXPECT_STATUS(ebb_step(runtime_, 77), EBB_INVALID_ARGUMENT);
        EXPECT_THAT(ebb_last_error(), HasSubstr("phase is 77"));
    }).join();
    EXPECT_EQ(mine, ebb_last_error());
    EBB_EXPECT_STATUS(ebb_progress(runtime_), EBB_OK);
    EXPECT_EQ(mine, ebb_last_error()) << "a call that succeeds leaves the text";
}

TEST(status_names, are_the_constants) {
    const std::pair<ebb_status, const char *> all[] = {
        {EBB_OK, "EBB_OK"},
        {EBB_INVALID_ARGUMENT, "EBB_INVALID_ARGUMENT"},
        {EBB_STALE_HANDLE, "EBB_STALE_HANDLE"},
        {EBB_WRONG_STATE, "EBB_WRONG_STATE"},
        {EBB_NO_SLOT, "EBB_NO_SLOT"},
        {EBB_RECOMPUTE, "EBB_RECOMPUTE"},
        {EBB_OUT_OF_DEVICE_MEMORY, "EBB_OUT_OF_DEVICE_MEMORY"},
        {EBB_OUT_OF_HOST_MEMORY, "EBB_OUT_OF_HOST_MEMORY"},
        {EBB_BUSY, "EBB_BUSY"},
        {EBB_DEVICE_ERROR, "EBB_DEVICE_ERROR"},
        {EBB_DATA_MISMATCH, "EBB_DATA_MISMATCH"},
        {EBB_UNSUPPORTED, "EBB_UNSUPPORTED"},
        {EBB_INTERNAL, "EBB_INTERNAL"},
    };
    for (const auto &[status, name] : all) {
        EXPECT_STREQ(ebb_status_name(status), name);
    }
    EXPECT_STREQ(ebb_status_name(13), "EBB_UNKNOWN_STATUS");
    EXPECT_STREQ(ebb_status_name(-1), "EBB_UNKNOWN_STATUS");
}

TEST(build_info, is_one_line_with_version_compiler_build_type_and_devices) {
    const std::string info = ebb_build_info();
    EXPECT_THAT(info, ::testing::StartsWith("ebb " + std::to_string(EBB_VERSION_MAJOR) + "." +
                                            std::to_string(EBB_VERSION_MINOR) + "." +
                                            std::to_string(EBB_VERSION_PATCH) + ", "));
    EXPECT_THAT(info, ::testing::ContainsRegex("(gcc|clang) [0-9]+"));
    EXPECT_THAT(info, HasSubstr("optimised"));
    EXPECT_THAT(info, HasSubstr("devices host null sim"));
    EXPECT_EQ(info.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace ebb::test
