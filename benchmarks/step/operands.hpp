// The arrays of one operation, in double precision on the CPU and in the device's own types.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "step_device.hpp"

namespace step {

class operands {
public:
    explicit operands(uint64_t seed) : seed_(seed) {}

    // A number stands for an array; a copy of `operands` in a call's builder tells where it lies.
    using array = size_t;

    // Random in middle +- 1, or all of one value where spread is 0. What an operation writes is compared.
    array elements(int64_t count, double middle = 0, double spread = 1) {
        return add(kind::elements, count, middle, spread);
    }
    array reals(int64_t count, double middle = 0, double spread = 1) { return add(kind::reals, count, middle, spread); }
    array loss() { return add(kind::loss, 1, 0, 0); }
    array indices(std::vector<int32_t> values);
    array bytes(std::vector<uint8_t> values);

    void upload(step_device &device);
    // The largest difference of the device's arrays from those here, by the scale of each array.
    [[nodiscard]] double difference(step_device &device) const;
    // All the device's arrays, as they are.
    [[nodiscard]] std::vector<std::byte> download(step_device &device) const;

    // Where an array lies: here, or on the device.
    [[nodiscard]] void *here(array which);
    [[nodiscard]] void *there(array which) const { return keep(which).get(); }
    // To be there longer than this object.
    [[nodiscard]] const std::shared_ptr<void> &keep(array which) const { return arrays_[which].on_device; }

private:
    enum class kind : uint8_t { elements, reals, loss, indices, bytes };
    struct one_array {
        kind what{};
        std::vector<double> values;    // element, real, loss
        std::vector<int32_t> indices;  // index
        std::vector<uint8_t> raw;      // byte
        std::shared_ptr<void> on_device;
    };

    array add(kind what, int64_t count, double middle, double spread);
    [[nodiscard]] static uint64_t value_bytes(const one_array &a, step_device &device);
    [[nodiscard]] static uint64_t size_bytes(const one_array &a, step_device &device);

    uint64_t seed_;
    std::vector<one_array> arrays_;
};

// Nearest, ties to even; for finite numbers.
[[nodiscard]] uint16_t to_bf16(double value);
[[nodiscard]] double from_bf16(uint16_t bits);

}  // namespace step
