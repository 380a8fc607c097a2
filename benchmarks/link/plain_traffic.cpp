#include <fmt/format.h>

#include "link/host_pattern.hpp"
#include "link/traffic.hpp"

namespace ebb::link {

namespace {

class plain_traffic : public traffic {
public:
    plain_traffic(link_rig &rig, way direction, traffic_size size, traffic_memory memory, stream_id stream)
        : rig_(rig), way_(direction), size_(size), memory_(memory), stream_(stream) {}

    status prepare(uint64_t seed) override {
        seed_ = seed;
        for (uint64_t i = 0; i < size_.count; ++i) {
            if (way_ == way::d2h) {
                EBB_TRY(rig_.kernels().fill(stream_, on_device(i), size_.copy_bytes, seed_ + i));
            } else {
                fill_pattern(on_host(i), size_.copy_bytes, seed_ + i);
            }
        }
        return rig_.finish(stream_);
    }
    [[nodiscard]] stream_id held_stream() const override { return stream_; }
    status enqueue(uint64_t number) override {
        if (way_ == way::d2h) {
            return rig_.dev().copy(stream_, copy_direction::d2h, on_host(number), on_device(number), size_.copy_bytes);
        }
        return rig_.dev().copy(stream_, copy_direction::h2d, on_device(number), on_host(number), size_.copy_bytes);
    }
    [[nodiscard]] stream_id last_stream() const override { return stream_; }
    status verify() override {
        for (uint64_t i = 0; i < size_.count; ++i) {
            const result<uint64_t> wrong = wrong_words(i);
            EBB_TRY(wrong.why());
            if (wrong.value() != 0) {
                return {code::data_mismatch, fmt::format("plain copy {} of {}: {} of {} words are wrong", i + 1,
                                                         size_.count, wrong.value(), size_.copy_bytes / 8)};
            }
        }
        return {};
    }

private:
    [[nodiscard]] char *on_device(uint64_t i) const { return memory_.sources + i * size_.copy_bytes; }
    [[nodiscard]] char *on_host(uint64_t i) const { return memory_.pinned + i * size_.copy_bytes; }
    result<uint64_t> wrong_words(uint64_t i) {
        if (way_ == way::d2h) {
            return count_wrong_words(on_host(i), size_.copy_bytes, seed_ + i);
        }
        return rig_.kernels().count_wrong(stream_, on_device(i), size_.copy_bytes, seed_ + i);
    }

    link_rig &rig_;
    way way_;
    traffic_size size_;
    traffic_memory memory_;
    stream_id stream_;
    uint64_t seed_ = 0;
};

}  // namespace

result<std::unique_ptr<traffic>> make_plain_traffic(link_rig &rig, way direction, traffic_size size,
                                                    traffic_memory memory) {
    const result<stream_id> stream = rig.new_stream();
    EBB_TRY(stream.why());
    return std::unique_ptr<traffic>(std::make_unique<plain_traffic>(rig, direction, size, memory, stream.value()));
}

}  // namespace ebb::link
