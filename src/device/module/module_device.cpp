#include "device/module/module_device.hpp"

namespace ebb {
namespace {

uint64_t number_of(stream_id stream) noexcept {
    return static_cast<uint64_t>(stream);
}

uint64_t number_of(event_id event) noexcept {
    return static_cast<uint64_t>(event);
}

void pass_note(void *context, const char *line) {
    (*static_cast<const std::function<void(const char *)> *>(context))(line);
}

}  // namespace

result<std::unique_ptr<device>> module_device::make(const device_module &module, const std::string &name,
                                                    const module_options &options,
                                                    const std::function<void(const char *)> &note) {
    std::unique_ptr<module_device> made(new module_device(module, options.nvtx != 0));
    std::function<void(const char *)> pass = note;
    module_device_info info{};
    EBB_TRY(made->answer(module.make(module.context, &options, pass_note, &pass, &made->device_, &info)));
    made->info_.name = name;
    made->info_.type = static_cast<memory_type>(info.type);
    made->info_.ordinal = options.ordinal;
    made->info_.integrated = info.integrated != 0;
    made->info_.captures = info.captures != 0;
    made->info_.default_chunk_bytes = info.default_chunk_bytes;
    made->info_.slab_bytes = info.slab_bytes;
    made->info_.measured_link = {info.d2h_bytes_per_second, info.h2d_bytes_per_second,
                                 info.d2h_beside_h2d_bytes_per_second, info.h2d_beside_d2h_bytes_per_second};
    return std::unique_ptr<device>(std::move(made));
}

module_device::~module_device() {
    if (device_ != nullptr) {
        module_.destroy(device_);
    }
}

result<void *> module_device::alloc_device(uint64_t size_bytes) {
    void *data = nullptr;
    EBB_TRY(answer(module_.alloc_device(device_, size_bytes, &data)));
    return data;
}

status module_device::free_device(void *data, uint64_t size_bytes) {
    return answer(module_.free_device(device_, data, size_bytes));
}

device_memory module_device::memory() const {
    device_memory now;
    module_.memory(device_, &now.capacity_bytes, &now.free_bytes);
    return now;
}

result<void *> module_device::map_host(uint64_t size_bytes) {
    void *data = nullptr;
    EBB_TRY(answer(module_.map_host(device_, size_bytes, &data)));
    return data;
}

status module_device::unmap_host(void *data, uint64_t size_bytes) {
    return answer(module_.unmap_host(device_, data, size_bytes));
}

uint64_t module_device::host_room_bytes() const {
    return module_.host_room_bytes(device_);
}

result<stream_id> module_device::create_stream(stream_role role) {
    uint64_t stream = 0;
    EBB_TRY(answer(module_.create_stream(device_, static_cast<int32_t>(role), &stream)));
    return stream_id{stream};
}

status module_device::destroy_stream(stream_id stream) {
    return answer(module_.destroy_stream(device_, number_of(stream)));
}

status module_device::check_stream(stream_id stream) const {
    return answer(module_.check_stream(device_, number_of(stream)));
}

result<event_id> module_device::create_event(event_kind kind) {
    uint64_t event = 0;
    EBB_TRY(answer(module_.create_event(device_, static_cast<int32_t>(kind), &event)));
    return event_id{event};
}

status module_device::destroy_event(event_id event) {
    return answer(module_.destroy_event(device_, number_of(event)));
}

status module_device::record_event(event_id event, stream_id stream) {
    return answer(module_.record_event(device_, number_of(event), number_of(stream)));
}

status module_device::wait_event(stream_id stream, event_id event) {
    return answer(module_.wait_event(device_, number_of(stream), number_of(event)));
}

result<bool> module_device::event_done(event_id event) {
    int32_t done = 0;
    EBB_TRY(answer(module_.event_done(device_, number_of(event), &done)));
    return done != 0;
}

status module_device::synchronize_event(event_id event) {
    return answer(module_.synchronize_event(device_, number_of(event)));
}

result<uint64_t> module_device::elapsed_ns(event_id start, event_id end) {
    uint64_t ns = 0;
    EBB_TRY(answer(module_.elapsed_ns(device_, number_of(start), number_of(end), &ns)));
    return ns;
}

status module_device::copy(stream_id stream, copy_direction direction, void *destination, const void *source,
                           uint64_t size_bytes) {
    return answer(
        module_.copy(device_, number_of(stream), static_cast<int32_t>(direction), destination, source, size_bytes));
}

status module_device::copy_pieces(stream_id stream, copy_direction direction, const copy_piece *pieces,
                                  uint32_t count) {
    return answer(module_.copy_pieces(device_, number_of(stream), static_cast<int32_t>(direction), pieces, count));
}

status module_device::checksum(stream_id stream, const void *data, uint64_t size_bytes, uint64_t *accumulator) {
    return answer(module_.checksum(device_, number_of(stream), data, size_bytes, accumulator));
}

result<capture_id> module_device::capture_of(stream_id stream) {
    uint64_t capture = 0;
    EBB_TRY(answer(module_.capture_of(device_, number_of(stream), &capture)));
    return capture_id{capture};
}

void module_device::begin_range(const char *what, const char *name, uint64_t size_bytes) noexcept {
    if (ranges_) {
        module_.begin_range(device_, what, name, size_bytes);
    }
}

void module_device::end_range() noexcept {
    if (ranges_) {
        module_.end_range(device_);
    }
}

}  // namespace ebb
