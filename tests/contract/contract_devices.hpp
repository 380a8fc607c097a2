// The devices that the contract holds for, and what each of them leaves out.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "device/fault/fault_device.hpp"
#include "device/host/host_device.hpp"
#include "device/null/null_device.hpp"
#include "device/trace/trace_device.hpp"

namespace ebb {

// A device and what it stands on, outermost last.
class device_stack {
public:
    template <class Device, class... Arguments>
    Device &add(Arguments &&...arguments) {
        auto made = std::make_unique<Device>(std::forward<Arguments>(arguments)...);
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

private:
    std::vector<std::unique_ptr<device>> devices_;
};

struct contract_case {
    std::string name;
    std::function<device_stack()> make;
    bool moves_bytes = true;            // memory is real and copies copy
    bool checks_arguments = true;       // streams, events and pointers that cannot be right are refused
    bool knows_events = true;           // an event that was never recorded is known to be so
    std::vector<uint64_t> bad_streams;  // numbers that are no streams of it
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

inline std::vector<contract_case> contract_cases() {
    const std::vector<uint64_t> not_on_host{1, 2, ~uint64_t{0}, 12345, uint64_t{77} << 24U};
    std::vector<contract_case> cases;
    cases.push_back({"host",
                     [] {
                         device_stack stack;
                         stack.add<host_device>(contract_host());
                         return stack;
                     },
                     true, true, true, not_on_host});
    cases.push_back({"null",
                     [] {
                         device_stack stack;
                         stack.add<null_device>();
                         return stack;
                     },
                     false,
                     false,
                     false,
                     {}});
    cases.push_back({"fault",
                     [] {
                         device_stack stack;
                         stack.add<fault_device>(stack.add<host_device>(contract_host()));
                         return stack;
                     },
                     true, true, true, not_on_host});
    cases.push_back({"trace",
                     [] {
                         device_stack stack;
                         auto &trace = stack.add<trace_device>(stack.add<host_device>(contract_host()));
                         stack.quieten = [&trace] { trace.record(false); };
                         return stack;
                     },
                     true, true, true, not_on_host});
    return cases;
}

}  // namespace ebb
