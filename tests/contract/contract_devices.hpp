// The devices that the contract holds for, and what each of them leaves out.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "device/fault/fault_device.hpp"
#include "device/host/host_device.hpp"
#include "device/null/null_device.hpp"
#include "device/sim/sim_device.hpp"
#include "device/trace/trace_device.hpp"

#ifdef EBB_HAVE_CUDA
#include "cuda_double/checked_cuda.hpp"
#include "device/cuda/cuda_device.hpp"
#endif

namespace ebb {

// A device and what it stands on, outermost last.
class device_stack {
public:
    template <class Device, class... Arguments>
    Device &add(Arguments &&...arguments) {
        return put(std::make_unique<Device>(std::forward<Arguments>(arguments)...));
    }
    template <class Device>
    Device &put(std::unique_ptr<Device> made) {
        Device &added = *made;
        devices_.push_back(std::move(made));
        return added;
    }
    ~device_stack() {
        while (!devices_.empty()) {
            devices_.pop_back();
        }
    }
    device_stack() = default;
    device_stack(device_stack &&) = default;
    device_stack &operator=(device_stack &&) = default;

    [[nodiscard]] device &top() const { return *devices_.back(); }
    // Before allocations are counted: what only a test needs stops.
    std::function<void()> quieten = [] {};
    // Keeps a stream from going on until the function that this gives back is called. Empty where streams have nothing
    // to be kept from.
    std::function<std::function<void()>(stream_id)> block;
    // What the devices stand on, if that is none.
    std::shared_ptr<void> ground;

private:
    std::vector<std::unique_ptr<device>> devices_;
};

// A host device as the ground of the stack, whose streams can be blocked.
inline host_device &add_host(device_stack &stack, const host_device_options &options) {
    auto &host = stack.add<host_device>(options);
    stack.block = [&host](stream_id stream) {
        // The function stays alive on both sides: the stream may get there after the test let it pass.
        auto *opened = new std::shared_ptr<std::promise<void>>(std::make_shared<std::promise<void>>());
        const std::shared_ptr<std::promise<void>> kept = *opened;
        const auto stand = [](void *argument) {
            const std::unique_ptr<std::shared_ptr<std::promise<void>>> held(
                static_cast<std::shared_ptr<std::promise<void>> *>(argument));
            (*held)->get_future().wait();
        };
        EXPECT_TRUE(host.launch(stream, stand, opened).ok());
        return std::function<void()>([kept] { kept->set_value(); });
    };
    return host;
}

struct contract_case {
    std::string name;
    std::function<device_stack()> make;
    bool warms_up = true;                     // allocates nothing on the heap once warm, but for this:
    uint64_t heap_allocations_per_block = 0;  // of alloc_device when warm: records of address space, or of a trace
    bool moves_bytes = true;                  // memory is real and copies copy
    bool checks_arguments = true;             // streams, events and pointers that cannot be right are refused
    bool knows_events = true;                 // an event that was never recorded is known to be so
    uint64_t memory_slack_bytes = 0;          // of device memory: what is free is known to that, and had up to that
    std::vector<uint64_t> bad_streams;        // numbers that are no streams of it
};

inline std::ostream &operator<<(std::ostream &out, const contract_case &tested) {
    return out << tested.name;
}

constexpr uint64_t k_contract_capacity_bytes = 96ULL << 20U;

inline host_device_options contract_host() {
    host_device_options options;
    options.capacity_bytes = k_contract_capacity_bytes;
    return options;
}

// Of the host device, bare or decorated.
inline contract_case contract_case_on_host(std::string name, std::function<device_stack()> make) {
    contract_case made;
    made.name = std::move(name);
    made.make = std::move(make);
    made.bad_streams = {1, 2, ~uint64_t{0}, 12345, uint64_t{77} << 24U};
    return made;
}

// A machine whose every feature is on.
inline sim_machine contract_machine() {
    sim_machine machine;
    machine.device_bytes = 1ULL << 36U;  // address space that a sanitizer's shadow memory leaves room for
    machine.host_bytes = 1ULL << 36U;
    machine.d2h = {190e9, 180e9, 3'000'000, {{1 << 20U, 0.5}, {64 << 20U, 1}}};
    machine.h2d = {200e9, 170e9, 3'000'000, {}};
    machine.hbm_bytes_per_second = 8e12;
    machine.host_dram_bytes_per_second = 380e9;
    machine.gpus_per_host_memory = 2;
    return machine;
}

// With a seed, in checking mode.
inline contract_case contract_case_on_sim(std::string name, std::optional<uint64_t> checking_seed) {
    contract_case sim;
    sim.name = std::move(name);
    sim.make = [checking_seed] {
        device_stack stack;
        auto &added = stack.add<sim_device>(contract_machine(), checking_seed);
        stack.block = [&added](stream_id stream) {
            const result<sim_device::gate> gate = added.stand(stream);
            EXPECT_TRUE(gate.ok());
            return std::function<void()>([&added, g = gate.value()] { added.open_gate(g); });
        };
        return stack;
    };
    sim.heap_allocations_per_block = 1;
    sim.moves_bytes = false;
    sim.bad_streams = {1, 2, ~uint64_t{0}, 12345, uint64_t{77} << 24U};
    return sim;
}

#ifdef EBB_HAVE_CUDA
// The CUDA backend, on a double of the CUDA runtime.
inline device_stack cuda_on_double(test::cuda_double_options options) {
    options.capacity_bytes = k_contract_capacity_bytes;
    device_stack stack;
    auto cuda = std::make_shared<test::checked_cuda>(options);
    result<std::unique_ptr<cuda_device>> made = cuda_device::make(cuda->api(), 0, {});
    EXPECT_TRUE(made.ok()) << made.why().text();
    cuda_device &added = stack.put(std::move(made).value());
    stack.ground = cuda;
    stack.block = [&added, double_ = cuda.get()](stream_id stream) {
        auto opened = std::make_shared<std::promise<void>>();
        EXPECT_EQ(
            double_->launch_function(added.native_stream(stream).value(), [opened] { opened->get_future().wait(); }),
            cudaSuccess);
        return std::function<void()>([opened] { opened->set_value(); });
    };
    return stack;
}

inline contract_case contract_case_on_cuda(std::string name, const test::cuda_double_options &options) {
    contract_case cuda;
    cuda.name = std::move(name);
    cuda.make = [options] { return cuda_on_double(options); };
    cuda.heap_allocations_per_block = 2;  // a record, and a list of streams that are waited for before it is freed
    // What could be a cudaStream_t is taken for one: CUDA has no way to ask.
    cuda.bad_streams = {3, 12345, 4097, ~uint64_t{0}, uint64_t{0xEB} << 56U, uint64_t{1} << 60U};
    return cuda;
}
#endif

#ifdef EBB_CONTRACT_ON_GPU
std::vector<contract_case> contract_cases();  // the program's
#else
inline std::vector<contract_case> contract_cases() {
    contract_case host = contract_case_on_host("host", [] {
        device_stack stack;
        add_host(stack, contract_host());
        return stack;
    });
    contract_case fault = contract_case_on_host("fault", [] {
        device_stack stack;
        stack.add<fault_device>(add_host(stack, contract_host()));
        return stack;
    });
    contract_case trace = contract_case_on_host("trace", [] {
        device_stack stack;
        auto &added = stack.add<trace_device>(add_host(stack, contract_host()));
        stack.quieten = [&added] { added.record(false); };
        return stack;
    });
    trace.heap_allocations_per_block = 1;
    contract_case null;
    null.name = "null";
    null.make = [] {
        device_stack stack;
        // Address space that a sanitizer's shadow memory leaves room for.
        null_device_options options;
        options.capacity_bytes = 1ULL << 36U;
        options.host_room_bytes = 1ULL << 36U;
        stack.add<null_device>(options);
        return stack;
    };
    null.heap_allocations_per_block = 1;
    null.moves_bytes = false;
    null.checks_arguments = false;
    null.knows_events = false;
    contract_case checking = contract_case_on_sim("sim_checking", 5);
    checking.warms_up = false;  // what lies where is a map
    std::vector<contract_case> cases = {host, null, fault, trace, contract_case_on_sim("sim", std::nullopt), checking};
#ifdef EBB_HAVE_CUDA
    test::cuda_double_options coherent;  // where CUDA itself allocates pinned memory
    coherent.attributes = {{cudaDevAttrPageableMemoryAccess, 1},
                           {cudaDevAttrPageableMemoryAccessUsesHostPageTables, 1}};
    test::cuda_double_options older;
    older.has_batches = false;
    cases.push_back(contract_case_on_cuda("cuda", {}));
    cases.push_back(contract_case_on_cuda("cuda_coherent", coherent));
    cases.push_back(contract_case_on_cuda("cuda_without_batches", older));
#endif
    return cases;
}
#endif

inline std::vector<contract_case> contract_cases_that_warm_up() {
    std::vector<contract_case> cases;
    for (const contract_case &each : contract_cases()) {
        if (each.warms_up) {
            cases.push_back(each);
        }
    }
    return cases;
}

}  // namespace ebb
