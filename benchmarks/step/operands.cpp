#include "operands.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "random_values.hpp"

namespace step {
namespace {

// As the device stores them: bf16, float or double.
std::vector<std::byte> stored(const std::vector<double> &values, uint64_t value_bytes) {
    std::vector<std::byte> bytes(values.size() * value_bytes);
    for (size_t i = 0; i < values.size(); ++i) {
        std::byte *const to = bytes.data() + i * value_bytes;
        if (value_bytes == sizeof(uint16_t)) {
            const uint16_t value = to_bf16(values[i]);
            std::memcpy(to, &value, sizeof(value));
        } else if (value_bytes == sizeof(float)) {
            const auto value = static_cast<float>(values[i]);
            std::memcpy(to, &value, sizeof(value));
        } else {
            std::memcpy(to, &values[i], sizeof(double));
        }
    }
    return bytes;
}

double stored_at(const std::byte *from, uint64_t value_bytes) {
    if (value_bytes == sizeof(uint16_t)) {
        uint16_t value = 0;
        std::memcpy(&value, from, sizeof(value));
        return from_bf16(value);
    }
    if (value_bytes == sizeof(float)) {
        float value = 0;
        std::memcpy(&value, from, sizeof(value));
        return static_cast<double>(value);
    }
    double value = 0;
    std::memcpy(&value, from, sizeof(value));
    return value;
}

}  // namespace

uint16_t to_bf16(double value) {
    const auto single = static_cast<float>(value);
    uint32_t bits = 0;
    std::memcpy(&bits, &single, sizeof(bits));
    bits += 0x7fffU + ((bits >> 16U) & 1U);
    return static_cast<uint16_t>(bits >> 16U);
}

double from_bf16(uint16_t bits) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16U;
    float value = 0;
    std::memcpy(&value, &wide, sizeof(value));
    return static_cast<double>(value);
}

operands::array operands::add(kind what, int64_t count, double middle, double spread) {
    one_array &a = arrays_.emplace_back();
    a.what = what;
    a.values.resize(static_cast<size_t>(count));
    for (size_t i = 0; i < a.values.size(); ++i) {
        const double unit = random_unit(seed_ + arrays_.size(), i);
        a.values[i] = from_bf16(to_bf16(middle + spread * (2 * unit - 1)));
    }
    return arrays_.size() - 1;
}

operands::array operands::indices(std::vector<int32_t> values) {
    one_array &a = arrays_.emplace_back();
    a.what = kind::indices;
    a.indices = std::move(values);
    return arrays_.size() - 1;
}

operands::array operands::bytes(std::vector<uint8_t> values) {
    one_array &a = arrays_.emplace_back();
    a.what = kind::bytes;
    a.raw = std::move(values);
    return arrays_.size() - 1;
}

uint64_t operands::value_bytes(const one_array &a, step_device &device) {
    switch (a.what) {
        case kind::elements:
            return device.math().element_bytes();
        case kind::reals:
            return device.math().real_bytes();
        case kind::loss:
            return sizeof(double);
        case kind::indices:
            return sizeof(int32_t);
        case kind::bytes:
            break;
    }
    return 1;
}

uint64_t operands::size_bytes(const one_array &a, step_device &device) {
    return (a.values.size() + a.indices.size() + a.raw.size()) * value_bytes(a, device);
}

void operands::upload(step_device &device) {
    for (one_array &a : arrays_) {
        const uint64_t bytes = size_bytes(a, device);
        a.on_device = device.allocate(memory_kind::scratch, std::max<uint64_t>(bytes, 1));
        if (!a.values.empty()) {
            device.upload(a.on_device.get(), stored(a.values, value_bytes(a, device)).data(), bytes);
        } else if (!a.indices.empty()) {
            device.upload(a.on_device.get(), a.indices.data(), bytes);
        } else if (!a.raw.empty()) {
            device.upload(a.on_device.get(), a.raw.data(), bytes);
        }
    }
}

void *operands::here(array which) {
    one_array &a = arrays_[which];
    switch (a.what) {
        case kind::indices:
            return a.indices.data();
        case kind::bytes:
            return a.raw.data();
        default:
            return a.values.data();
    }
}

std::vector<std::byte> operands::download(step_device &device) const {
    std::vector<std::byte> all;
    for (const one_array &a : arrays_) {
        const size_t first = all.size();
        all.resize(first + size_bytes(a, device));
        device.download(all.data() + first, a.on_device.get(), size_bytes(a, device));
    }
    return all;
}

double operands::difference(step_device &device) const {
    const std::vector<std::byte> all = download(device);
    const std::byte *from = all.data();
    double largest = 0;
    for (const one_array &a : arrays_) {
        double squares = 0;
        for (const double value : a.values) {
            squares += value * value;
        }
        const double scale = std::sqrt(squares / static_cast<double>(std::max<size_t>(a.values.size(), 1)));
        for (size_t i = 0; i < a.values.size(); ++i) {
            const double got = stored_at(from + i * value_bytes(a, device), value_bytes(a, device));
            const double off = std::abs(got - a.values[i]) / (std::abs(a.values[i]) + scale + 1e-30);
            largest = std::isnan(off) ? INFINITY : std::max(largest, off);
        }
        from += size_bytes(a, device);
    }
    return largest;
}

}  // namespace step
