#include <fmt/format.h>

#include <string>
#include <vector>

#include "link/traffic.hpp"

namespace ebb::link {

namespace {

constexpr uint64_t k_scribble_seed = ~uint64_t{0};

struct moved_activation {
    std::string name;
    char *source = nullptr;
    bool is_given_up = false;
    ebb_activation handle = 0;
    ebb_reload_info reloaded{};
};

class ebb_traffic : public traffic {
public:
    ebb_traffic(link_rig &rig, way direction, traffic_size size, traffic_memory memory)
        : rig_(rig), way_(direction), size_(size), activations_(size.count) {
        for (uint64_t i = 0; i < size.count; ++i) {
            activations_[i].name = fmt::format("{}{}", way_name(direction), i);
            activations_[i].source = memory.sources + i * slot_pool::slot_bytes(size.copy_bytes);
        }
    }
    status take_streams() {
        for (stream_id *stream : {&producer_, &home_, &consumer_}) {
            const result<stream_id> made = rig_.new_stream();
            EBB_TRY(made.why());
            *stream = made.value();
        }
        return {};
    }

    status prepare(uint64_t seed) override;
    // An offload's copy waits for its producer; a reload's for the home stream's point where its slot is taken.
    [[nodiscard]] stream_id held_stream() const override { return way_ == way::d2h ? producer_ : home_; }
    status enqueue(uint64_t number) override {
        return way_ == way::d2h ? offload(activations_[number]) : reload(activations_[number]);
    }
    // An offload's home stream goes on when its source is given up, behind the copy.
    [[nodiscard]] stream_id last_stream() const override { return way_ == way::d2h ? home_ : consumer_; }
    status verify() override;

private:
    status offload(moved_activation &a);
    status reload(moved_activation &a);
    status scribble_sources();
    status look_at(uint64_t number);

    link_rig &rig_;
    way way_;
    traffic_size size_;
    std::vector<moved_activation> activations_;
    stream_id producer_{}, home_{}, consumer_{};
    uint64_t seed_ = 0;
};

status ebb_traffic::prepare(uint64_t seed) {
    seed_ = seed;
    for (uint64_t i = 0; i < size_.count; ++i) {
        EBB_TRY(rig_.kernels().fill(producer_, activations_[i].source, size_.copy_bytes, seed_ + i));
    }
    if (way_ == way::h2d) {
        for (moved_activation &a : activations_) {
            EBB_TRY(offload(a));
        }
        EBB_TRY(scribble_sources());
    }
    EBB_TRY(rig_.finish(producer_));
    return rig_.finish(home_);
}

status ebb_traffic::offload(moved_activation &a) {
    const auto producer = static_cast<ebb_stream>(producer_);
    const auto home = static_cast<ebb_stream>(home_);
    ebb_offload_args args{};
    args.struct_size = sizeof args;
    args.name = a.name.c_str();
    args.data = a.source;
    args.size_bytes = size_.copy_bytes;
    args.producers = &producer;
    args.producer_count = 1;
    args.home = &home;
    args.deleter = [](void *context) { *static_cast<bool *>(context) = true; };
    args.deleter_context = &a.is_given_up;
    args.placement = EBB_PLACE_OFFLOAD;
    a.is_given_up = false;
    ebb_offload_info info{};
    info.struct_size = sizeof info;
    EBB_TRY(of_ebb(ebb_offload(rig_.runtime(), &args, &info), "ebb_offload"));
    a.handle = info.activation;
    if (info.placement != EBB_PLACE_OFFLOAD || !a.is_given_up) {
        return {code::internal,
                fmt::format("{} was not offloaded: placement {}, reason {}, {} bytes wanted, {} held of {}", a.name,
                            info.placement, info.reason, info.wanted_bytes, info.held_bytes, info.cap_bytes)};
    }
    return {};
}

status ebb_traffic::reload(moved_activation &a) {
    a.reloaded = {};
    a.reloaded.struct_size = sizeof a.reloaded;
    return of_ebb(ebb_reload(rig_.runtime(), a.handle, static_cast<ebb_stream>(consumer_), &a.reloaded), "ebb_reload");
}

// Behind the copies: what is reloaded can only have come from the host.
status ebb_traffic::scribble_sources() {
    for (moved_activation &a : activations_) {
        EBB_TRY(rig_.kernels().fill(home_, a.source, size_.copy_bytes, k_scribble_seed));
    }
    return {};
}

status ebb_traffic::verify() {
    if (way_ == way::d2h) {
        EBB_TRY(scribble_sources());
        for (moved_activation &a : activations_) {
            EBB_TRY(reload(a));
        }
    }
    status first_wrong;
    for (uint64_t i = 0; i < size_.count; ++i) {
        if (status looked = look_at(i); first_wrong.ok()) {
            first_wrong = std::move(looked);
        }
        const moved_activation &a = activations_[i];
        EBB_TRY(of_ebb(ebb_return(rig_.runtime(), a.reloaded.claim, static_cast<ebb_stream>(consumer_)), "ebb_return"));
        EBB_TRY(of_ebb(ebb_release(rig_.runtime(), a.handle), "ebb_release"));
    }
    for (const stream_id stream : {consumer_, home_}) {
        EBB_TRY(rig_.finish(stream));
    }
    return first_wrong;
}

status ebb_traffic::look_at(uint64_t number) {
    const moved_activation &a = activations_[number];
    const result<uint64_t> wrong =
        rig_.kernels().count_wrong(consumer_, a.reloaded.data, size_.copy_bytes, seed_ + number);
    EBB_TRY(wrong.why());
    if (wrong.value() != 0) {
        return {code::data_mismatch,
                fmt::format("activation {}: {} of {} words are wrong", a.name, wrong.value(), size_.copy_bytes / 8)};
    }
    return {};
}

}  // namespace

result<std::unique_ptr<traffic>> make_ebb_traffic(link_rig &rig, way direction, traffic_size size,
                                                  traffic_memory memory) {
    auto made = std::make_unique<ebb_traffic>(rig, direction, size, memory);
    EBB_TRY(made->take_streams());
    return std::unique_ptr<traffic>(std::move(made));
}

}  // namespace ebb::link
