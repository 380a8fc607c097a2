#include "link/link_rig.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "capi/session.hpp"

namespace ebb::link {

namespace {

// Copies are issued when they are asked for, a source is given up in the call that offloads it, and nothing is kept for
// being small: what is measured is the copy.
runtime_options options_of_runtime() {
    runtime_options o;
    o.min_offload_bytes = 1;
    o.policy = "offload";
    o.prefetch_bytes = k_none_bytes;
    o.source_bytes = k_none_bytes;
    o.lent_allocator = true;
    return o;
}

}  // namespace

status of_ebb(ebb_status returned, const char *call) {
    if (returned == EBB_OK) {
        return {};
    }
    return {static_cast<code>(returned), fmt::format("{}: {}: {}", call, ebb_status_name(returned), ebb_last_error())};
}

result<std::unique_ptr<link_rig>> link_rig::make(link_device on, const std::vector<link_cell> &cells) {
    std::unique_ptr<link_rig> rig(new link_rig());
    rig->kernels_ = std::move(on.kernels);
    EBB_TRY(rig->create_runtime(std::move(on.dev), on.host));
    cell_memory wanted;
    for (const link_cell &cell : cells) {
        const cell_memory of_cell = memory_of(cell);
        wanted.device_bytes = std::max(wanted.device_bytes, of_cell.device_bytes);
        wanted.pinned_bytes = std::max(wanted.pinned_bytes, of_cell.pinned_bytes / 2);
    }
    EBB_TRY(rig->take_memory(wanted));
    return rig;
}

status link_rig::create_runtime(std::unique_ptr<device> dev, host_device *host) {
    dev_ = dev.get();
    const logger log(nullptr, nullptr, log_level::warning);
    const ebb_allocator allocator = slots_->allocator();
    const result<ebb_runtime *> made = capi::make_runtime(std::move(dev), host, options_of_runtime(), log, &allocator);
    EBB_TRY(made.why());
    runtime_ = made.value();
    return {};
}

status link_rig::take_memory(const cell_memory &wanted) {
    const result<void *> on_device = dev_->alloc_device(wanted.device_bytes);
    EBB_TRY(on_device.why());
    device_memory_ = static_cast<char *>(on_device.value());
    held_.device_bytes = wanted.device_bytes;
    const result<void *> on_host = dev_->map_host(wanted.pinned_bytes);
    EBB_TRY(on_host.why());
    pinned_memory_ = static_cast<char *>(on_host.value());
    held_.pinned_bytes = wanted.pinned_bytes;
    return {};
}

link_rig::~link_rig() {
    kernels_.reset();
    if (runtime_ == nullptr) {
        return;  // and the device went with it
    }
    static_cast<void>(drop_streams());
    for (const event_id mark : marks_) {
        static_cast<void>(dev_->destroy_event(mark));
    }
    if (device_memory_ != nullptr) {
        static_cast<void>(dev_->free_device(device_memory_, held_.device_bytes));
    }
    if (pinned_memory_ != nullptr) {
        static_cast<void>(dev_->unmap_host(pinned_memory_, held_.pinned_bytes));
    }
    static_cast<void>(ebb_runtime_close(runtime_, EBB_CLOSE_FORCE));
}

result<stream_id> link_rig::new_stream() {
    const result<stream_id> made = dev_->create_stream(stream_role::compute);
    EBB_TRY(made.why());
    streams_.push_back(made.value());
    return made.value();
}

status link_rig::drop_streams() {
    status dropped;
    for (const stream_id stream : streams_) {
        if (status one = dev_->destroy_stream(stream); dropped.ok()) {
            dropped = std::move(one);
        }
    }
    streams_.clear();
    return dropped;
}

result<uint64_t> link_rig::mark(stream_id stream) {
    if (used_marks_ == marks_.size()) {
        const result<event_id> made = dev_->create_event(event_kind::timed);
        EBB_TRY(made.why());
        marks_.push_back(made.value());
    }
    EBB_TRY(dev_->record_event(marks_[used_marks_], stream));
    return used_marks_++;
}

result<uint64_t> link_rig::ns_between(uint64_t start, uint64_t end) {
    return dev_->elapsed_ns(marks_[start], marks_[end]);
}

status link_rig::finish(stream_id stream) {
    const result<event_id> made = dev_->create_event(event_kind::plain);
    EBB_TRY(made.why());
    status waited = dev_->record_event(made.value(), stream);
    if (waited.ok()) {
        waited = dev_->synchronize_event(made.value());
    }
    EBB_TRY(dev_->destroy_event(made.value()));
    return waited;
}

}  // namespace ebb::link
