#include "link/host_link_kernels.hpp"

#include <functional>
#include <utility>

#include "link/host_pattern.hpp"

namespace ebb::link {

namespace {

status launch(host_device &dev, stream_id stream, std::function<void()> function) {
    auto *held = new std::function<void()>(std::move(function));
    const auto run = [](void *argument) {
        const std::unique_ptr<std::function<void()>> mine(static_cast<std::function<void()> *>(argument));
        (*mine)();
    };
    status launched = dev.launch(stream, run, held);
    if (!launched.ok()) {
        delete held;
    }
    return launched;
}

}  // namespace

result<std::unique_ptr<host_link_kernels>> host_link_kernels::make(host_device &dev) {
    std::unique_ptr<host_link_kernels> made(new host_link_kernels(dev));
    const result<stream_id> stream = dev.create_stream(stream_role::compute);
    EBB_TRY(stream.why());
    made->load_stream_ = stream.value();
    return made;
}

host_link_kernels::~host_link_kernels() {
    // The stream is the device's to end, which may be gone.
    if (load_ends_) {
        *load_ends_ = true;
    }
}

status host_link_kernels::close_gate() {
    opener_ = std::promise<void>();
    gate_ = opener_.get_future().share();
    return {};
}

status host_link_kernels::hold(stream_id stream) {
    return launch(dev_, stream, [gate = gate_] { gate.wait(); });
}

status host_link_kernels::open_gate() {
    opener_.set_value();
    return {};
}

status host_link_kernels::fill(stream_id stream, void *data, uint64_t size_bytes, uint64_t seed) {
    return launch(dev_, stream, [=] { fill_pattern(data, size_bytes, seed); });
}

result<uint64_t> host_link_kernels::count_wrong(stream_id stream, const void *data, uint64_t size_bytes,
                                                uint64_t seed) {
    EBB_TRY(dev_.synchronize_stream(stream));
    return count_wrong_words(data, size_bytes, seed);
}

status host_link_kernels::begin_load(load under) {
    if (under == load::nccl) {
        return {code::unsupported, "the host device has no NCCL"};
    }
    load_ends_ = std::make_shared<std::atomic<bool>>(false);
    return launch(dev_, load_stream_, [ends = load_ends_] {
        double value = 1;
        while (!ends->load(std::memory_order_relaxed)) {
            for (int i = 0; i < 1000; ++i) {
                value = value * 0.999999 + 1e-9;
            }
        }
        volatile double kept = value;
        static_cast<void>(kept);
    });
}

status host_link_kernels::end_load() {
    *load_ends_ = true;
    return dev_.synchronize_stream(load_stream_);
}

}  // namespace ebb::link
