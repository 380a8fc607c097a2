// A GPU that has failed: what the program is told, and that it can still end in order. Each of these ends the process's
// use of CUDA, and so has a process of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "gpu_kernels.hpp"
#include "gpu_test_main.hpp"
#include "gpu_world.hpp"

namespace ebb::test {

namespace {

// Ends the child with that status when something is not as it should be.
void must(bool holds, const char *what) {
    if (!holds) {
        std::fprintf(stderr, "not so: %s; the last error of Ebb is: %s\n", what, ebb_last_error());
        _exit(1);
    }
}

struct child_step {
    std::unique_ptr<gpu_world> world = make_gpu_world();
    ebb_runtime *runtime = nullptr;
    cudaStream_t stream = nullptr;
    void *data = nullptr;
    int deleted = 0;
    static constexpr uint64_t k_bytes = 8ULL << 20U;

    child_step() {
        runtime_wishes wishes;
        wishes.policy = "offload";
        must(world->create_runtime(wishes, &runtime) == EBB_OK, "the runtime is made");
        must(world->cuda().stream_create_with_flags(&stream, cudaStreamNonBlocking) == cudaSuccess, "a stream is made");
        must(world->cuda().malloc(&data, k_bytes) == cudaSuccess, "memory is there");
    }
    ebb_status offload(const char *name, ebb_activation &activation) {
        const auto producer = reinterpret_cast<ebb_stream>(stream);
        ebb_offload_args args{};
        args.struct_size = sizeof args;
        args.name = name;
        args.data = data;
        args.size_bytes = k_bytes;
        args.producers = &producer;
        args.producer_count = 1;
        args.deleter = [](void *context) { ++*static_cast<int *>(context); };
        args.deleter_context = &deleted;
        args.placement = EBB_PLACE_OFFLOAD;
        ebb_offload_info info{};
        info.struct_size = sizeof info;
        const ebb_status status = ebb_offload(runtime, &args, &info);
        activation = info.activation;
        return status;
    }
};

// A kernel of the program's writes where it must not. From then on CUDA returns that error from every call.
int after_an_illegal_address() {
    child_step step;
    ebb_activation before = 0;
    must(step.offload("before", before) == EBB_OK, "an offload works");
    must(launch_illegal_address(step.stream) == cudaSuccess, "the kernel is launched");
    must(step.world->cuda().stream_synchronize(step.stream) == cudaErrorIllegalAddress, "the context is gone");

    ebb_activation after = 0;
    ebb_reload_info back{};
    back.struct_size = sizeof back;
    std::string told;
    for (const ebb_status status : {step.offload("after", after),
                                    ebb_reload(step.runtime, before, reinterpret_cast<ebb_stream>(step.stream), &back),
                                    ebb_progress(step.runtime)}) {
        if (status != EBB_OK) {
            told += std::string(ebb_status_name(status)) + ": " + ebb_last_error() + "\n";
        }
    }
    std::fputs(told.c_str(), stderr);
    must(told.find("EBB_DEVICE_ERROR") != std::string::npos, "a device error is told");
    must(told.find("cudaErrorIllegalAddress") != std::string::npos, "the error's name is told");
    // After a failure of the background the runtime is gone too, unless it is busy.
    must(ebb_runtime_close(step.runtime, EBB_CLOSE_FORCE) != EBB_BUSY, "closing works");
    must(step.deleted >= 1, "the source's deleter ran");
    return 0;
}

// Closed by what runs when the process ends, after it has begun to end: nothing may be asked of CUDA any more.
struct closed_at_exit {
    child_step step;
    ~closed_at_exit() { must(ebb_runtime_close(step.runtime, EBB_CLOSE_FORCE) != EBB_BUSY, "closing works"); }
};

int close_at_exit() {
    static closed_at_exit late;
    ebb_activation kept = 0;
    must(late.step.offload("left behind", kept) == EBB_OK, "an offload works");
    return 0;
}

// Closed by nobody.
int exit_with_an_open_runtime() {
    child_step step;
    ebb_activation kept = 0;
    must(step.offload("left behind", kept) == EBB_OK, "an offload works");
    return 0;
}

struct child_end {
    int status = 0;
    std::string said;
};

// This program again.
child_end child(const char *what) {
    int ends[2] = {};
    EXPECT_EQ(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        execl("/proc/self/exe", "gpu_tests", k_child_argument, what, static_cast<char *>(nullptr));
        _exit(127);
    }
    close(ends[1]);
    child_end end;
    char piece[512];
    for (ssize_t size = 0; (size = read(ends[0], piece, sizeof piece)) > 0;) {
        end.said.append(piece, static_cast<size_t>(size));
    }
    close(ends[0]);
    EXPECT_EQ(waitpid(pid, &end.status, 0), pid);
    return end;
}

}  // namespace

cudaError_t prepare_gpu() {
    return load_all_kernels();
}

int run_as_child(const char *what) {
    if (std::strcmp(what, "illegal address") == 0) {
        return after_an_illegal_address();
    }
    if (std::strcmp(what, "open runtime") == 0) {
        return exit_with_an_open_runtime();
    }
    if (std::strcmp(what, "close at exit") == 0) {
        return close_at_exit();
    }
    return 2;
}

TEST(gpu_errors, an_illegal_address_of_the_program_is_named_and_closing_works) {
    const child_end end = child("illegal address");
    EXPECT_TRUE(WIFEXITED(end.status) && WEXITSTATUS(end.status) == 0) << end.said;
    EXPECT_THAT(end.said, testing::HasSubstr("cudaErrorIllegalAddress"));
}

TEST(gpu_errors, a_process_may_end_with_a_runtime_that_is_open_or_closed_too_late) {
    for (const char *what : {"open runtime", "close at exit"}) {
        const child_end end = child(what);
        EXPECT_TRUE(WIFEXITED(end.status) && WEXITSTATUS(end.status) == 0) << what << ": " << end.said;
    }
}

TEST(gpu_errors, an_ordinal_that_is_not_there_is_named) {
    ebb_runtime_options options{};
    options.struct_size = sizeof options;
    options.device = "cuda";
    options.device_ordinal = 4711;
    ebb_runtime *runtime = nullptr;
    EXPECT_EQ(ebb_runtime_create(&options, &runtime), EBB_INVALID_ARGUMENT);
    EXPECT_THAT(ebb_last_error(), testing::HasSubstr("4711"));
}

TEST(gpu_errors, automatic_is_the_gpu) {
    ebb_runtime *runtime = nullptr;
    ASSERT_EQ(ebb_runtime_create(nullptr, &runtime), EBB_OK) << ebb_last_error();
    ebb_stream stream = 0;
    EXPECT_EQ(ebb_host_stream_create(runtime, &stream), EBB_UNSUPPORTED);
    EXPECT_EQ(ebb_runtime_close(runtime, EBB_CLOSE_DEFAULT), EBB_OK);
}

}  // namespace ebb::test
