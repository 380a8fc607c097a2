// The same on the host device: functions on its streams' threads.
#pragma once

#include <atomic>
#include <future>
#include <memory>

#include "device/host/host_device.hpp"
#include "link/link_kernels.hpp"

namespace ebb::link {

class host_link_kernels : public link_kernels {
public:
    static result<std::unique_ptr<host_link_kernels>> make(host_device &dev);
    ~host_link_kernels() override;

    status close_gate() override;
    status hold(stream_id stream) override;
    status open_gate() override;
    status fill(stream_id stream, void *data, uint64_t size_bytes, uint64_t seed) override;
    result<uint64_t> count_wrong(stream_id stream, const void *data, uint64_t size_bytes, uint64_t seed) override;
    status begin_load(load under) override;
    status end_load() override;

private:
    explicit host_link_kernels(host_device &dev) : dev_(dev) {}

    host_device &dev_;
    stream_id load_stream_{};
    std::promise<void> opener_;  // gone without having opened, it opens
    std::shared_future<void> gate_;
    std::shared_ptr<std::atomic<bool>> load_ends_;  // shared with the load, which may outlive this
};

}  // namespace ebb::link
