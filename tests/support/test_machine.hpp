// The machine under a test's runtime: a device, and what the program that uses it does there itself (streams, kernels,
// memory freed in the order of its streams). The host device, or the CUDA backend on a double of the CUDA runtime.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "device/fault/fault_device.hpp"
#include "device/host/host_device.hpp"

namespace ebb::test {

enum class machine_kind : uint8_t { host, cuda };

inline std::ostream &operator<<(std::ostream &out, machine_kind kind) {
    return out << (kind == machine_kind::host ? "host" : "cuda");
}

// Memory that a kernel of a test uses: where orders are checked, it is checked too.
struct kernel_use {
    const void *data = nullptr;
    uint64_t size_bytes = 0;
    bool writes = false;
};
using kernel_uses = std::vector<kernel_use>;

class test_machine {
public:
    test_machine() = default;
    virtual ~test_machine() = default;
    test_machine(const test_machine &) = delete;
    test_machine &operator=(const test_machine &) = delete;

    [[nodiscard]] virtual device &dev() = 0;
    // Where the machine is the host device.
    [[nodiscard]] virtual host_device *host() { return nullptr; }

    // The program's side.
    virtual result<stream_id> create_stream() = 0;
    virtual status destroy_stream(stream_id stream) = 0;
    virtual status synchronize(stream_id stream) = 0;  // of ours too
    virtual status launch(stream_id stream, void (*function)(void *argument), void *argument,
                          const kernel_uses &uses) = 0;
    virtual result<void *> alloc(uint64_t size_bytes) = 0;
    virtual status free(void *data) = 0;
    // A copy of the program's own, of memory that is not pinned.
    virtual status copy_in(stream_id stream, void *destination, const void *source, uint64_t size_bytes) = 0;
    [[nodiscard]] virtual uint64_t used_bytes() = 0;  // of device memory, by whomever

    // Pinned memory that a test makes itself, for the device.
    virtual void registered(void * /*data*/, uint64_t /*size_bytes*/) {}
    virtual void unregistered(void * /*data*/) {}

    // For a fault device: what it launches always runs.
    [[nodiscard]] virtual fault_device::launcher launcher() {
        return [this](stream_id stream, void (*function)(void *argument), void *argument) {
            return launch(stream, function, argument, {});
        };
    }
};

class host_machine final : public test_machine {
public:
    explicit host_machine(const host_device_options &options) : host_(options) {}

    device &dev() override { return host_; }
    host_device *host() override { return &host_; }
    result<stream_id> create_stream() override { return host_.create_stream(stream_role::compute); }
    status destroy_stream(stream_id stream) override { return host_.destroy_stream(stream); }
    status synchronize(stream_id stream) override { return host_.synchronize_stream(stream); }
    status launch(stream_id stream, void (*function)(void *argument), void *argument,
                  const kernel_uses & /*uses*/) override {
        return host_.launch(stream, function, argument);
    }
    result<void *> alloc(uint64_t size_bytes) override { return host_.alloc_for_caller(size_bytes); }
    status free(void *data) override { return host_.free_device(data); }
    status copy_in(stream_id stream, void *destination, const void *source, uint64_t size_bytes) override {
        return host_.copy(stream, copy_direction::h2d, destination, source, size_bytes);
    }
    uint64_t used_bytes() override { return host_.statistics().arena.used_bytes; }

private:
    host_device host_;
};

}  // namespace ebb::test

#ifdef EBB_HAVE_CUDA
#include "cuda_machine.hpp"
#endif

namespace ebb::test {

[[nodiscard]] inline std::vector<machine_kind> machine_kinds() {
#ifdef EBB_HAVE_CUDA
    return {machine_kind::host, machine_kind::cuda};
#else
    return {machine_kind::host};
#endif
}

// What the tests make from here on.
inline machine_kind current_machine_kind = machine_kind::host;

[[nodiscard]] inline std::unique_ptr<test_machine> make_machine(const host_device_options &options) {
#ifdef EBB_HAVE_CUDA
    if (current_machine_kind == machine_kind::cuda) {
        return std::make_unique<cuda_machine>(options);
    }
#endif
    return std::make_unique<host_machine>(options);
}

// A test that runs on every machine there is. `Parameter` is what else it is run with.
class on_every_machine : public ::testing::TestWithParam<machine_kind> {
protected:
    on_every_machine() { current_machine_kind = GetParam(); }
    ~on_every_machine() override { current_machine_kind = machine_kind::host; }
};

template <class Parameter>
class on_every_machine_with : public ::testing::TestWithParam<std::tuple<machine_kind, Parameter>> {
protected:
    on_every_machine_with() { current_machine_kind = std::get<0>(this->GetParam()); }
    ~on_every_machine_with() override { current_machine_kind = machine_kind::host; }
    [[nodiscard]] static const Parameter &parameter() {
        return std::get<1>(::testing::TestWithParam<std::tuple<machine_kind, Parameter>>::GetParam());
    }
};

inline std::string machine_name(const ::testing::TestParamInfo<machine_kind> &at) {
    return ::testing::PrintToString(at.param);
}

}  // namespace ebb::test

#define EBB_ON_EVERY_MACHINE(suite) \
    INSTANTIATE_TEST_SUITE_P(on, suite, ::testing::ValuesIn(ebb::test::machine_kinds()), ebb::test::machine_name)
