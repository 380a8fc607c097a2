#include "device/sim/sim_device.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/check.hpp"
#include "device/copy_arguments.hpp"
#include "device/handle_number.hpp"

namespace ebb {
namespace {

// The index of an unused slot, which may be new.
template <class Slot>
uint32_t take_slot(std::vector<Slot> &slots, std::vector<uint32_t> &unused) {
    if (unused.empty()) {
        slots.emplace_back();
        return static_cast<uint32_t>(slots.size() - 1);
    }
    const uint32_t index = unused.back();
    unused.pop_back();
    return index;
}

}  // namespace

sim_device::sim_device(const sim_machine &machine, std::optional<uint64_t> checking_seed)
    : machine_(machine),
      device_memory_("device memory of the sim device", machine.device_bytes, code::out_of_device_memory),
      host_memory_("pinned host memory of the sim device", machine.host_bytes, code::out_of_host_memory),
      checker_(checking_seed.has_value() ? std::make_unique<sim_checker>(*checking_seed) : nullptr),
      streams_(machine, checker_.get()),
      default_stream_(streams_.create()) {
    EBB_CHECK(check_machine(machine).ok());
    info_.name = "sim";
    info_.integrated = machine_.integrated;
}

sim_device::~sim_device() = default;

// --------------------------------------------------------------------------------------------- the host's clock --

void sim_device::call() {
    host_ps_ = std::max(host_ps_, streams_.now()) + machine_.host_call_ps;
    streams_.run_until(host_ps_);
}

void sim_device::call_ends() {
    if (!machine_.host_runs_ahead) {
        streams_.run_until_idle();
        host_ps_ = std::max(host_ps_, streams_.now());
    }
}

void sim_device::synchronize() {
    const std::lock_guard lock(mutex_);
    streams_.run_until_idle();
    host_ps_ = std::max(host_ps_, streams_.now());
}

sim_time_ps sim_device::host_time_ps() const {
    const std::lock_guard lock(mutex_);
    return host_ps_;
}

sim_time_ps sim_device::busy_ps(sim_engine engine) const {
    const std::lock_guard lock(mutex_);
    return streams_.engines().busy_ps(engine);
}

uint64_t sim_device::log_hash() const {
    const std::lock_guard lock(mutex_);
    return streams_.log_hash();
}

uint64_t sim_device::operation_count() const {
    const std::lock_guard lock(mutex_);
    return streams_.operation_count();
}

// ------------------------------------------------------------------------------------------------------ memory --

result<void *> sim_device::reserve(reserved_memory &memory, uint64_t size_bytes) {
    const std::lock_guard lock(mutex_);
    result<void *> given = memory.reserve(size_bytes);
    if (checker_ != nullptr && given.ok()) {
        checker_->allocated(given.value(), size_bytes);
    }
    return given;
}

status sim_device::give_back(reserved_memory &memory, void *data, uint64_t size_bytes) {
    const std::lock_guard lock(mutex_);
    EBB_TRY(memory.give_back(data, size_bytes));
    if (checker_ != nullptr) {
        checker_->freed(data, size_bytes);
    }
    return {};
}

result<void *> sim_device::alloc_device(uint64_t size_bytes) {
    return reserve(device_memory_, size_bytes);
}

status sim_device::free_device(void *data, uint64_t size_bytes) {
    return give_back(device_memory_, data, size_bytes);
}

device_memory sim_device::memory() const {
    return {device_memory_.capacity_bytes(), device_memory_.free_bytes()};
}

result<void *> sim_device::map_host(uint64_t size_bytes) {
    return reserve(host_memory_, size_bytes);
}

status sim_device::unmap_host(void *data, uint64_t size_bytes) {
    return give_back(host_memory_, data, size_bytes);
}

uint64_t sim_device::host_room_bytes() const {
    return host_memory_.free_bytes();
}

// ----------------------------------------------------------------------------------------------------- streams --

status sim_device::no_such(stream_id stream) {
    return {code::invalid_argument,
            fmt::format("stream {}: no stream of this sim device has that number; it was destroyed, or comes from "
                        "another device",
                        static_cast<uint64_t>(stream))};
}

const sim_device::stream_slot *sim_device::find(stream_id stream) const noexcept {
    const auto number = static_cast<uint64_t>(stream);
    const uint32_t index = handle_index(number);
    return number != 0 && index < stream_slots_.size() && stream_slots_[index].number == number ? &stream_slots_[index]
                                                                                                : nullptr;
}

result<stream_id> sim_device::create_stream(stream_role /*role*/) {
    const std::lock_guard lock(mutex_);
    const uint32_t index = take_slot(stream_slots_, free_stream_slots_);
    stream_slots_[index] = {new_handle_number(index), streams_.create()};
    return stream_id{stream_slots_[index].number};
}

status sim_device::destroy_stream(stream_id stream) {
    const std::lock_guard lock(mutex_);
    const stream_slot *found = find(stream);
    if (found == nullptr) {
        return no_such(stream);
    }
    streams_.destroy(found->stream);
    const uint32_t index = handle_index(found->number);
    stream_slots_[index] = {};
    free_stream_slots_.push_back(index);
    return {};
}

status sim_device::check_stream(stream_id stream) const {
    const std::lock_guard lock(mutex_);
    return stream == k_default_stream || find(stream) != nullptr ? status() : no_such(stream);
}

// ------------------------------------------------------------------------------------------------------ events --

status sim_device::no_such(event_id event) {
    return {code::invalid_argument,
            fmt::format("event {}: no event of this sim device has that number; it was destroyed, or comes from "
                        "another device",
                        static_cast<uint64_t>(event))};
}

sim_device::event_slot *sim_device::find(event_id event) noexcept {
    const auto number = static_cast<uint64_t>(event);
    const uint32_t index = handle_index(number);
    return number != 0 && index < event_slots_.size() && event_slots_[index].number == number ? &event_slots_[index]
                                                                                              : nullptr;
}

result<event_id> sim_device::create_event(event_kind kind) {
    const std::lock_guard lock(mutex_);
    const uint32_t index = take_slot(event_slots_, free_event_slots_);
    event_slots_[index] = {new_handle_number(index), kind, sim_streams::k_none};
    return event_id{event_slots_[index].number};
}

status sim_device::destroy_event(event_id event) {
    const std::lock_guard lock(mutex_);
    event_slot *found = find(event);
    if (found == nullptr) {
        return no_such(event);
    }
    if (found->latest != sim_streams::k_none) {
        streams_.release(found->latest);
    }
    const uint32_t index = handle_index(found->number);
    *found = {};
    free_event_slots_.push_back(index);
    return {};
}

status sim_device::record_event(event_id event, stream_id stream) {
    const std::lock_guard lock(mutex_);
    event_slot *found = find(event);
    if (found == nullptr) {
        return no_such(event);
    }
    const stream_slot *on = find(stream);
    if (on == nullptr && stream != k_default_stream) {
        return no_such(stream);
    }
    call();
    const sim_streams::index before = found->latest;
    found->latest = streams_.mark(on == nullptr ? default_stream_ : on->stream);
    if (before != sim_streams::k_none) {
        streams_.release(before);
    }
    call_ends();
    return {};
}

status sim_device::wait_event(stream_id stream, event_id event) {
    const std::lock_guard lock(mutex_);
    const event_slot *found = find(event);
    if (found == nullptr) {
        return no_such(event);
    }
    const stream_slot *on = find(stream);
    if (on == nullptr && stream != k_default_stream) {
        return no_such(stream);
    }
    if (found->latest == sim_streams::k_none) {
        return {code::invalid_argument, fmt::format("wait_event: event {} was never recorded", found->number)};
    }
    call();
    streams_.wait(on == nullptr ? default_stream_ : on->stream, found->latest);
    call_ends();
    return {};
}

// Asking takes the host time, too: a loop that polls gets there.
result<bool> sim_device::event_done(event_id event) {
    const std::lock_guard lock(mutex_);
    const event_slot *found = find(event);
    if (found == nullptr) {
        return no_such(event);
    }
    call();
    constexpr sim_time_ps k_least_ps = 1000;  // on a machine whose calls take no time
    if (machine_.host_call_ps < k_least_ps) {
        streams_.run_until(host_ps_ += k_least_ps);
    }
    return found->latest == sim_streams::k_none || streams_.passed(found->latest);
}

status sim_device::synchronize_event(event_id event) {
    const std::lock_guard lock(mutex_);
    const event_slot *found = find(event);
    if (found == nullptr) {
        return no_such(event);
    }
    call();
    if (found->latest != sim_streams::k_none && !streams_.run_until_passed(found->latest)) {
        return {code::device_error,
                fmt::format("synchronize_event: event {} is never passed: its stream waits for what nothing that runs "
                            "will bring",
                            found->number)};
    }
    host_ps_ = std::max(host_ps_, streams_.now());
    return {};
}

result<sim_time_ps> sim_device::time_of(event_id event, const char *which) {
    const event_slot *found = find(event);
    if (found == nullptr) {
        return no_such(event);
    }
    const auto refused = [&](code c, const char *why) {
        return status{c, fmt::format("elapsed_ns: the {} event {} {}", which, found->number, why)};
    };
    if (found->kind != event_kind::timed) {
        return refused(code::invalid_argument, "takes no times; create it as event_kind::timed");
    }
    if (found->latest == sim_streams::k_none) {
        return refused(code::invalid_argument, "was never recorded");
    }
    if (!streams_.passed(found->latest)) {
        return refused(code::wrong_state, "is not done; ask event_done or call synchronize_event first");
    }
    return streams_.passed_at(found->latest);
}

result<uint64_t> sim_device::elapsed_ns(event_id start, event_id end) {
    const std::lock_guard lock(mutex_);
    const result<sim_time_ps> from = time_of(start, "start");
    if (!from.ok()) {
        return from.why();
    }
    const result<sim_time_ps> until = time_of(end, "end");
    if (!until.ok()) {
        return until.why();
    }
    return until.value() > from.value() ? (until.value() - from.value()) / 1000 : 0;
}

// -------------------------------------------------------------------------------------------------------- work --

status sim_device::enqueue(stream_id stream, sim_work work, const touched &memory) {
    const stream_slot *on = find(stream);
    if (on == nullptr && stream != k_default_stream) {
        return no_such(stream);
    }
    if (checker_ != nullptr) {
        work.access = checker_->add(memory.action, static_cast<uint64_t>(stream), memory.reads, memory.writes);
    }
    call();
    streams_.work(on == nullptr ? default_stream_ : on->stream, work);
    call_ends();
    return {};
}

sim_time_ps sim_device::hbm_time_ps(uint64_t size_bytes) const noexcept {
    const double rate = machine_.hbm_bytes_per_second;
    const double time_ps = rate > 0 ? static_cast<double>(size_bytes) / rate * k_ps_per_second : 0;
    return static_cast<sim_time_ps>(std::llround(time_ps));
}

status sim_device::copy(stream_id stream, copy_direction direction, void *destination, const void *source,
                        uint64_t size_bytes) {
    EBB_TRY(check_copy_arguments(destination, source, size_bytes));
    const sim_read read{source, size_bytes};
    const sim_write write{destination, size_bytes};
    const std::lock_guard lock(mutex_);
    sim_work work;
    sim_action action = sim_action::copy_d2d;
    if (direction == copy_direction::d2d) {
        work.hbm_fraction = 1;
        work.duration_ps = hbm_time_ps(2 * size_bytes);
    } else {
        const bool out = direction == copy_direction::d2h;
        action = out ? sim_action::copy_d2h : sim_action::copy_h2d;
        work.engine = out ? sim_engine::d2h : sim_engine::h2d;
        work.size_bytes = size_bytes;
    }
    return enqueue(stream, work, {action, {&read, 1}, {&write, 1}});
}

status sim_device::checksum(stream_id stream, const void *data, uint64_t size_bytes, uint64_t *accumulator) {
    EBB_TRY(check_checksum_arguments(data, size_bytes, accumulator));
    const sim_read read{data, size_bytes};
    const std::lock_guard lock(mutex_);
    sim_work work;
    work.hbm_fraction = 1;
    work.duration_ps = hbm_time_ps(size_bytes);
    return enqueue(stream, work, {sim_action::checksum, {&read, 1}, {}});
}

status sim_device::launch(stream_id stream, const sim_kernel &kernel) {
    const std::lock_guard lock(mutex_);
    sim_work work;
    work.engine = kernel.engine;
    work.duration_ps = kernel.duration_ps;
    work.hbm_fraction = kernel.hbm_fraction;
    return enqueue(stream, work, {sim_action::kernel, kernel.reads, kernel.writes});
}

// ---------------------------------------------------------------------------------------------------- checking --

status sim_device::enqueue_at_once(stream_id stream, sim_action action, const sim_write &range) {
    const std::lock_guard lock(mutex_);
    const stream_slot *on = find(stream);
    if (on == nullptr && stream != k_default_stream) {
        return no_such(stream);
    }
    if (checker_ != nullptr) {
        streams_.at_once(on == nullptr ? default_stream_ : on->stream,
                         checker_->add(action, static_cast<uint64_t>(stream), {}, {&range, 1}));
    }
    return {};
}

status sim_device::free_on(stream_id stream, void *data, uint64_t size_bytes) {
    return enqueue_at_once(stream, sim_action::free, {data, size_bytes});
}

status sim_device::alloc_on(stream_id stream, void *data, uint64_t size_bytes) {
    return enqueue_at_once(stream, sim_action::alloc, {data, size_bytes});
}

std::vector<sim_violation> sim_device::violations() const {
    const std::lock_guard lock(mutex_);
    return checker_ == nullptr ? std::vector<sim_violation>() : checker_->violations();
}

uint64_t sim_device::violation_count() const {
    const std::lock_guard lock(mutex_);
    return checker_ == nullptr ? 0 : checker_->violation_count();
}

void sim_device::set_link_rates(double d2h_bytes_per_second, double h2d_bytes_per_second) {
    const std::lock_guard lock(mutex_);
    streams_.set_link_rates(d2h_bytes_per_second, h2d_bytes_per_second);
}

// ------------------------------------------------------------------------------------------------------- gates --

result<sim_device::gate> sim_device::stand(stream_id stream) {
    const std::lock_guard lock(mutex_);
    const stream_slot *on = find(stream);
    if (on == nullptr && stream != k_default_stream) {
        return no_such(stream);
    }
    return gate{streams_.gate(on == nullptr ? default_stream_ : on->stream)};
}

void sim_device::open_gate(gate g) {
    const std::lock_guard lock(mutex_);
    streams_.open(g.number);
}

}  // namespace ebb
