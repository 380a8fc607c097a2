// A device that lives in a library of its own: every call goes through the module's table of C functions.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "device/device.hpp"
#include "device/module/device_module.hpp"

namespace ebb {

class module_device final : public device {
public:
    // The table stays where it is for good. `note` is called with what a user should be told.
    static result<std::unique_ptr<device>> make(const device_module &module, const std::string &name,
                                                const module_options &options,
                                                const std::function<void(const char *)> &note);
    ~module_device() override;
    module_device(const module_device &) = delete;
    module_device &operator=(const module_device &) = delete;

    [[nodiscard]] const device_info &info() const noexcept override { return info_; }

    result<void *> alloc_device(uint64_t size_bytes) override;
    status free_device(void *data, uint64_t size_bytes) override;
    [[nodiscard]] device_memory memory() const override;

    result<void *> map_host(uint64_t size_bytes) override;
    status unmap_host(void *data, uint64_t size_bytes) override;
    [[nodiscard]] uint64_t host_room_bytes() const override;

    result<stream_id> create_stream(stream_role role) override;
    status destroy_stream(stream_id stream) override;
    [[nodiscard]] status check_stream(stream_id stream) const override;

    result<event_id> create_event(event_kind kind) override;
    status destroy_event(event_id event) override;
    status record_event(event_id event, stream_id stream) override;
    status wait_event(stream_id stream, event_id event) override;
    result<bool> event_done(event_id event) override;
    status synchronize_event(event_id event) override;
    result<uint64_t> elapsed_ns(event_id start, event_id end) override;

    status copy(stream_id stream, copy_direction direction, void *destination, const void *source,
                uint64_t size_bytes) override;
    status copy_pieces(stream_id stream, copy_direction direction, const copy_piece *pieces, uint32_t count) override;
    status checksum(stream_id stream, const void *data, uint64_t size_bytes, uint64_t *accumulator) override;

    result<capture_id> capture_of(stream_id stream) override;

    void begin_range(const char *what, const char *name, uint64_t size_bytes) noexcept override;
    void end_range() noexcept override;

private:
    module_device(const device_module &module, bool ranges) : module_(module), ranges_(ranges) {}
    [[nodiscard]] status answer(int32_t code) const {
        return code == 0 ? status{} : status{static_cast<ebb::code>(code), module_.last_text()};
    }

    const device_module &module_;
    const bool ranges_;
    void *device_ = nullptr;
    device_info info_;
};

}  // namespace ebb
