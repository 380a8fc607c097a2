// The border between libebb and libebb_cuda: the table that is crossed, the file that is loaded, and what "auto" means.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "device/cuda/cuda_module_table.hpp"
#include "device/module/automatic_device.hpp"
#include "device/module/cuda_module_loader.hpp"
#include "device/module/module_device.hpp"
#include "device/registry.hpp"
#include "fake_cuda.hpp"
#include "fake_system.hpp"

namespace ebb {
namespace {

// ------------------------------------------------------------------------------------------ the table --

class module_border : public ::testing::Test {
protected:
    result<std::unique_ptr<device>> make(int32_t ordinal = 0, bool nvtx = false) {
        const module_options options{system_.root().c_str(), 1, ordinal, 0, nvtx ? 1 : 0};
        return module_device::make(module_, "cuda", options, [this](const char *note) { notes_.emplace_back(note); });
    }

    fake_cuda cuda_;
    fake_system system_;
    device_module module_ = make_cuda_module_table(cuda_.api);
    std::vector<std::string> notes_;
};

TEST_F(module_border, a_device_behind_it_is_the_device) {
    cuda_.attributes[cudaDevAttrIntegrated] = 1;
    result<std::unique_ptr<device>> made = make();
    ASSERT_TRUE(made.ok()) << made.why().text();
    device &dev = *made.value();
    EXPECT_EQ(dev.info().name, "cuda");
    EXPECT_EQ(dev.info().type, memory_type::cuda);
    EXPECT_TRUE(dev.info().integrated);
    EXPECT_EQ(dev.info().default_chunk_bytes, 24U << 20U);
    EXPECT_EQ(dev.info().slab_bytes, 1U << 30U);
    EXPECT_EQ(dev.memory().capacity_bytes, 1U << 30U);
    EXPECT_EQ(dev.memory().free_bytes, 1U << 29U);
    EXPECT_GT(dev.host_room_bytes(), 0U);

    const stream_id stream = dev.create_stream(stream_role::d2h).value();
    const event_id event = dev.create_event(event_kind::timed).value();
    void *block = dev.alloc_device(64).value();
    void *mapped = dev.map_host(64).value();
    const std::vector<copy_piece> pieces{{mapped, block, 16}, {static_cast<char *>(mapped) + 16, block, 16}};
    EXPECT_TRUE(dev.check_stream(stream).ok());
    EXPECT_TRUE(dev.copy(stream, copy_direction::d2h, mapped, block, 64).ok());
    EXPECT_TRUE(dev.copy_pieces(stream, copy_direction::d2h, pieces.data(), 2).ok());
    EXPECT_TRUE(dev.checksum(stream, block, 64, static_cast<uint64_t *>(mapped)).ok());
    EXPECT_EQ(dev.wait_event(stream, event).code(), code::invalid_argument) << "never recorded";
    EXPECT_TRUE(dev.record_event(event, stream).ok());
    EXPECT_TRUE(dev.wait_event(stream, event).ok());
    EXPECT_TRUE(dev.synchronize_event(event).ok());
    EXPECT_TRUE(dev.event_done(event).value());
    EXPECT_EQ(dev.elapsed_ns(event, event).value(), 1'000'000U);
    cuda_.capture = cudaStreamCaptureStatusActive;
    EXPECT_EQ(dev.capture_of(stream).value(), capture_id{7});
    for (const char *function : {"memcpy_async", "memcpy_batch_async", "launch_checksum", "event_synchronize"}) {
        EXPECT_EQ(cuda_.calls[function], 1) << function;
    }
    EXPECT_TRUE(dev.unmap_host(mapped, 64).ok());
    EXPECT_TRUE(dev.free_device(block, 64).ok());
    EXPECT_TRUE(dev.destroy_event(event).ok());
    EXPECT_TRUE(dev.destroy_stream(stream).ok());
    made.value().reset();
    EXPECT_EQ(cuda_.calls["malloc"], cuda_.calls["free"]);
}

TEST_F(module_border, failures_cross_it_with_code_and_text) {
    result<std::unique_ptr<device>> made = make();
    ASSERT_TRUE(made.ok());
    const status why = made.value()->check_stream(k_calling_thread);
    EXPECT_EQ(why.code(), code::invalid_argument);
    EXPECT_NE(why.text().find("the calling thread"), std::string::npos) << why.text();
    cuda_.failures["memcpy_async"] = cudaErrorIllegalAddress;
    char from = 0;
    char to = 0;
    EXPECT_EQ(made.value()->copy(stream_id{0x1000}, copy_direction::d2d, &to, &from, 1).code(), code::device_error);
    const status later = made.value()->destroy_event(event_id{77});
    EXPECT_NE(later.text().find("77"), std::string::npos) << "each failure has its own text: " << later.text();
    EXPECT_EQ(make(5).why().code(), code::invalid_argument);
}

TEST_F(module_border, a_text_that_is_too_long_is_cut) {
    result<std::unique_ptr<device>> made = make();
    ASSERT_TRUE(made.ok());
    cuda_.failures["memcpy_async"] = cudaErrorInvalidValue;
    cuda_.api.get_error_string = [](cudaError_t) {
        static const std::string text(10000, 'x');
        return text.c_str();
    };
    char from = 0;
    char to = 0;
    const status why = made.value()->copy(stream_id{0x1000}, copy_direction::d2d, &to, &from, 1);
    EXPECT_EQ(why.text().size(), 2047U);
    EXPECT_NE(why.text().find("copy of 1 bytes"), std::string::npos);
}

TEST_F(module_border, notes_cross_it) {
    system_.write("/sys/devices/system/node/online", "0,1000\n");
    system_.write("/sys/devices/system/node/node1000/cpulist", "0\n");
    cuda_.attributes[cudaDevAttrHostNumaId] = 1000;
    ASSERT_TRUE(make().ok());
    ASSERT_EQ(notes_.size(), 1U);
    EXPECT_NE(notes_[0].find("NUMA node 1000"), std::string::npos);
}

// ------------------------------------------------------------------------------------------- the driver --

TEST_F(module_border, a_driver_that_is_too_old_is_named_with_both_versions) {
    cuda_.driver_version = 12040;
    cuda_.failures["get_device_count"] = cudaErrorInsufficientDriver;
    for (const status &why : {check_driver(module_), choose_automatic(&module_, [] { return true; }).why()}) {
        EXPECT_EQ(why.code(), code::device_error);
        for (const char *part : {"12.4", "13.0", "cudaErrorInsufficientDriver", "\"host\"", "install a driver"}) {
            EXPECT_NE(why.text().find(part), std::string::npos) << part << " in: " << why.text();
        }
    }
    EXPECT_EQ(cuda_.last_error, cudaSuccess);
}

TEST_F(module_border, a_driver_without_a_gpu_is_an_error) {
    cuda_.devices = 0;
    const status why = choose_automatic(&module_, [] { return true; }).why();
    EXPECT_EQ(why.code(), code::device_error);
    EXPECT_NE(why.text().find("CUDA_VISIBLE_DEVICES"), std::string::npos) << why.text();
    cuda_.failures["get_device_count"] = cudaErrorNoDevice;
    EXPECT_NE(check_driver(module_).text().find("CUDA_VISIBLE_DEVICES"), std::string::npos);
    cuda_.failures = {{"driver_get_version", cudaErrorSystemDriverMismatch}};
    EXPECT_NE(check_driver(module_).text().find("cudaDriverGetVersion"), std::string::npos);
}

TEST_F(module_border, automatic_is_the_gpu_and_without_a_driver_the_host) {
    EXPECT_TRUE(check_driver(module_).ok());
    EXPECT_EQ(choose_automatic(&module_, [] { return false; }).value(), &module_) << "the backend knows better";
    cuda_.driver_version = 0;
    EXPECT_EQ(choose_automatic(&module_, [] { return true; }).value(), nullptr);
    EXPECT_EQ(check_driver(module_).code(), code::unsupported);
    EXPECT_EQ(cuda_.calls["get_device_count"], 2) << "without a driver nobody looks for devices";
}

TEST_F(module_border, a_missing_backend_matters_only_beside_a_driver) {
    const status missing{code::unsupported, "there is no /opt/libebb_cuda.so"};
    EXPECT_EQ(choose_automatic(missing, [] { return false; }).value(), nullptr);
    const status why = choose_automatic(missing, [] { return true; }).why();
    EXPECT_EQ(why.code(), code::unsupported);
    EXPECT_NE(why.text().find("driver is installed"), std::string::npos) << why.text();
    EXPECT_NE(why.text().find("/opt/libebb_cuda.so"), std::string::npos) << why.text();
}

// --------------------------------------------------------------------------------------------- the file --

std::string refusal_of(const std::string &file) {
    const result<const device_module *> loaded = load_cuda_module(file);
    EXPECT_FALSE(loaded.ok()) << file;
    EXPECT_EQ(loaded.why().code(), code::unsupported);
    EXPECT_NE(loaded.why().text().find(file), std::string::npos) << loaded.why().text();
    EXPECT_NE(loaded.why().text().find("EBB_CUDA_LIBRARY"), std::string::npos) << loaded.why().text();
    return loaded.why().text();
}

TEST(module_file, files_that_are_no_backend_are_named_with_what_is_wrong) {
    EXPECT_NE(refusal_of("/no/such/libebb_cuda.so").find("there is no /no/such"), std::string::npos);
    fake_system files;
    files.write("/libebb_cuda.so", "not a library");
    EXPECT_NE(refusal_of(files.root() + "/libebb_cuda.so").find("cannot be loaded"), std::string::npos);
    EXPECT_NE(refusal_of(EBB_ODD_MODULE_no_function).find("no function ebb_cuda_module"), std::string::npos);
    const std::string other = refusal_of(EBB_ODD_MODULE_wrong_version);
    EXPECT_NE(other.find("version 4711"), std::string::npos) << other;
    EXPECT_NE(other.find("needs version " + std::to_string(k_device_module_version)), std::string::npos) << other;
}

TEST(module_file, the_device_by_name_says_what_is_wrong_with_the_file) {
    device_options options;
    options.cuda_library = "/no/such/libebb_cuda.so";
    const status why = make_device("cuda", 0, options).why();
    EXPECT_EQ(why.code(), code::unsupported);
    EXPECT_NE(why.text().find("/no/such/libebb_cuda.so"), std::string::npos) << why.text();
    EXPECT_EQ(device_names(options.cuda_library), "host null sim");
}

#if defined(EBB_CUDA_MODULE)
// The library as it is built, in a process that has no libcuda.
TEST(module_file, the_real_one_loads_and_tells_of_the_driver) {
    const result<const device_module *> loaded = load_cuda_module(EBB_CUDA_MODULE);
    ASSERT_TRUE(loaded.ok()) << loaded.why().text();
    EXPECT_EQ(device_names(EBB_CUDA_MODULE), "host null sim cuda");
    module_driver found{};
    const int32_t probed = loaded.value()->probe(loaded.value()->context, &found);
    EXPECT_GE(found.runtime_version, 13000);
    if (nvidia_driver_is_installed()) {
        EXPECT_GT(found.driver_version, 0);
        return;
    }
    EXPECT_EQ(probed, 0) << loaded.value()->last_text();
    EXPECT_EQ(found.driver_version, 0);
    EXPECT_EQ(choose_automatic(loaded, nvidia_driver_is_installed).value(), nullptr);
    device_options options;
    options.cuda_library = EBB_CUDA_MODULE;
    EXPECT_NE(make_device("cuda", 0, options).why().text().find("no NVIDIA driver is installed"), std::string::npos);
    EXPECT_EQ(make_device("auto", 0, options).value()->info().name, "host");
    // Past the check, too, it is an error and no crash.
    const module_options wanted{"/", 1, 0, 0, 0};
    const auto made = module_device::make(*loaded.value(), "cuda", wanted, [](const char *) {});
    EXPECT_EQ(made.why().code(), code::device_error);
    EXPECT_NE(made.why().text().find("cudaErrorInsufficientDriver"), std::string::npos) << made.why().text();
}
#else
// A static library holds the backend.
TEST(module_file, the_backend_is_built_in) {
    const result<const device_module *> loaded = load_cuda_module("");
    ASSERT_TRUE(loaded.ok()) << loaded.why().text();
    EXPECT_EQ(device_names(""), "host null sim cuda");
    module_driver found{};
    EXPECT_TRUE(nvidia_driver_is_installed() || loaded.value()->probe(loaded.value()->context, &found) == 0);
}
#endif

}  // namespace
}  // namespace ebb
