#include "memory/staging.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.hpp"

namespace ebb {
namespace {

uint64_t offset_of(const void *address) noexcept {
    return reinterpret_cast<uintptr_t>(address) & (staging::k_alignment - 1);
}

uint64_t aligned_down(uint64_t bytes) noexcept {
    return bytes & ~(staging::k_alignment - 1);
}

}  // namespace

staging::staging(device &dev, uint64_t cap_bytes) : device_(dev), cap_bytes_(cap_bytes), sub_(k_alignment) {}

staging::~staging() {
    retired_.insert(retired_.end(), stranded_.begin(), stranded_.end());
    static_cast<void>(free_retired());
    for (const region &r : regions_) {
        if (r.size_bytes != 0) {
            static_cast<void>(device_.free_device(r.data, r.size_bytes));
        }
    }
}

void staging::lend_block(void *data, uint64_t size_bytes) {
    EBB_CHECK(data != nullptr && held_bytes_ == 0 && !block_taken_);
    auto *start = static_cast<std::byte *>(data);
    const uint64_t skipped_bytes = (k_alignment - offset_of(data)) & (k_alignment - 1);
    EBB_CHECK(size_bytes >= skipped_bytes + k_alignment);
    const uint64_t usable_bytes = std::min(aligned_down(size_bytes - skipped_bytes), sub_.max_region_bytes());
    sub_.add_region(start + skipped_bytes, usable_bytes);
    cap_bytes_ = usable_bytes;
    block_taken_ = true;
    hold(usable_bytes);
}

void staging::set_cap(uint64_t cap_bytes) noexcept {
    cap_bytes_ = std::max(cap_bytes, held_bytes_);
}

void staging::hold(uint64_t size_bytes) noexcept {
    held_bytes_ += size_bytes;
    held_peak_bytes_ = std::max(held_peak_bytes_, held_bytes_);
}

// ---- Slots ---------------------------------------------------------------------------------------------------

uint64_t staging::slot_footprint_bytes(uint64_t size_bytes, const void *like) noexcept {
    return aligned_down(offset_of(like) + size_bytes + k_alignment - 1);
}

uint64_t staging::slot_key(uint64_t size_bytes, const void *like) noexcept {
    return slot_footprint_bytes(size_bytes, like) | offset_of(like);
}

uint64_t staging::key(slot_id id) const noexcept {
    return live(id).footprint_bytes | offset_of(live(id).data);
}

staging::slot_id staging::allocate_slot(uint64_t size_bytes, const void *like, std::vector<ticket> &waits) {
    EBB_CHECK(size_bytes > 0);
    const uint64_t footprint_bytes = slot_footprint_bytes(size_bytes, like);
    if (footprint_bytes < size_bytes) {
        return k_none;  // near 2^64
    }
    keep_spare_slot();
    auto piece = sub_.allocate(footprint_bytes, fit_rule::oldest, waits);
    if (!piece && !block_taken_ && !frozen_ && held_bytes_ <= cap_bytes_ &&
        footprint_bytes <= cap_bytes_ - held_bytes_) {
        if (!add_device_region(footprint_bytes).ok()) {
            return k_none;
        }
        piece = sub_.allocate(footprint_bytes, fit_rule::oldest, waits);
    }
    if (!piece) {
        return k_none;
    }
    used(footprint_bytes);
    const slot_id id = new_slot(piece->data + offset_of(like), size_bytes, footprint_bytes);
    slots_[id].segment = piece->segment;
    return id;
}

staging::slot_id staging::adopt(void *memory, uint64_t footprint_bytes, uint64_t size_bytes, const void *like) {
    EBB_CHECK(memory != nullptr && offset_of(memory) == 0 && size_bytes > 0);
    EBB_CHECK(footprint_bytes >= slot_footprint_bytes(size_bytes, like));
    keep_spare_slot();
    hold(footprint_bytes);
    used(footprint_bytes);
    const slot_id id = new_slot(static_cast<std::byte *>(memory) + offset_of(like), size_bytes, footprint_bytes);
    slots_[id].adopted = memory;
    return id;
}

void staging::used(uint64_t footprint_bytes) noexcept {
    used_bytes_ += footprint_bytes;
    used_peak_bytes_ = std::max(used_peak_bytes_, used_bytes_);
}

// Before the memory of a slot is taken: its record may want heap memory.
void staging::keep_spare_slot() {
    if (unused_slots_ == k_none) {
        EBB_CHECK(slots_.size() < k_none);
        slots_.emplace_back();
        unused_slots_ = static_cast<uint32_t>(slots_.size() - 1);
    }
}

staging::slot_id staging::new_slot(std::byte *data, uint64_t size_bytes, uint64_t footprint_bytes) noexcept {
    const slot_id id = unused_slots_;
    slot &fresh = slots_[id];
    unused_slots_ = fresh.next_unused;
    fresh.data = data;
    fresh.size_bytes = size_bytes;
    fresh.footprint_bytes = footprint_bytes;
    fresh.adopted = nullptr;
    fresh.pool = k_no_pool;
    return id;
}

staging::handed_back staging::free(slot_id id, const ticket_set &last_uses) {
    EBB_CHECK(id < slots_.size() && slots_[id].size_bytes != 0);
    slot &ended = slots_[id];
    ended.size_bytes = 0;
    ended.next_unused = unused_slots_;
    unused_slots_ = id;
    if (ended.pool != k_no_pool) {
        slot_pool &owner = *pools_[ended.pool];
        owner.sub.free(ended.segment, last_uses);
        if (--owner.slots == 0 && !owner.open) {
            empty_pool(owner);
        }
        return {};
    }
    used_bytes_ -= ended.footprint_bytes;
    if (ended.adopted == nullptr) {
        sub_.free(ended.segment, last_uses);
        return {};
    }
    held_bytes_ -= ended.footprint_bytes;
    return {ended.adopted, ended.footprint_bytes};
}

// ---- Pools ---------------------------------------------------------------------------------------------------

staging::pool_id staging::open_pool() {
    for (pool_id id = 0; id < pools_.size(); ++id) {
        if (!pools_[id]->open && pools_[id]->slots == 0) {
            pools_[id]->open = true;
            return id;
        }
    }
    pools_.push_back(std::make_unique<slot_pool>());
    pools_.back()->open = true;
    return static_cast<pool_id>(pools_.size() - 1);
}

std::optional<staging::slot_id> staging::allocate_in(pool_id id, uint64_t size_bytes, const void *like,
                                                     std::vector<ticket> &waits) {
    const uint64_t footprint_bytes = slot_footprint_bytes(size_bytes, like);
    slot_pool &owner = *pools_[id];
    keep_spare_slot();
    const auto piece = owner.sub.allocate(footprint_bytes, fit_rule::oldest, waits);
    if (!piece) {
        return std::nullopt;
    }
    ++owner.slots;
    const slot_id made = new_slot(piece->data + offset_of(like), size_bytes, footprint_bytes);
    slots_[made].segment = piece->segment;
    slots_[made].pool = id;
    return made;
}

bool staging::grow_pool(pool_id id, uint64_t footprint_bytes, uint64_t piece_bytes, std::vector<ticket> &waits) {
    const uint64_t wanted_bytes = std::max(piece_bytes, aligned_down(sub_.free_bytes() / 2));
    slot_pool &owner = *pools_[id];
    owner.sub.prepare_region();
    owner.pieces.reserve(owner.pieces.size() + 1);
    auto piece = sub_.allocate(std::max(footprint_bytes, wanted_bytes), fit_rule::oldest, waits);
    if (!piece && footprint_bytes < wanted_bytes) {
        piece = sub_.allocate(footprint_bytes, fit_rule::oldest, waits);
    }
    if (!piece) {
        return false;
    }
    owner.sub.add_region(piece->data, piece->size_bytes);
    owner.pieces.push_back(piece->segment);
    owner.size_bytes += piece->size_bytes;
    used(piece->size_bytes);
    return true;
}

void staging::give_back_piece(pool_id id, const ticket_set &readers) {
    slot_pool &owner = *pools_[id];
    const sub_allocator::segment_id piece = owner.pieces.back();
    owner.pieces.pop_back();
    std::vector<ticket> none;
    owner.sub.remove_region(static_cast<uint32_t>(owner.pieces.size()), none);
    owner.size_bytes -= sub_.size_bytes(piece);
    used_bytes_ -= sub_.size_bytes(piece);
    sub_.free(piece, readers);
}

void staging::close_pool(pool_id id) {
    pools_[id]->open = false;
    if (pools_[id]->slots == 0) {
        empty_pool(*pools_[id]);
    }
}

void staging::empty_pool(slot_pool &emptied) {
    for (const sub_allocator::segment_id piece : emptied.pieces) {
        sub_.free(piece, emptied.readers);
    }
    used_bytes_ -= emptied.size_bytes;
    emptied = slot_pool{};
}

const staging::slot &staging::live(slot_id id) const noexcept {
    EBB_CHECK(id < slots_.size() && slots_[id].size_bytes != 0);
    return slots_[id];
}

std::byte *staging::data(slot_id id) const noexcept {
    return live(id).data;
}

uint64_t staging::size_bytes(slot_id id) const noexcept {
    return live(id).size_bytes;
}

// ---- Memory --------------------------------------------------------------------------------------------------

status staging::add_device_region(uint64_t size_bytes) {
    if (size_bytes > sub_.max_region_bytes()) {
        return {code::out_of_device_memory, fmt::format("staging: {} bytes wanted in one piece, at most {} can be had",
                                                        size_bytes, sub_.max_region_bytes())};
    }
    const uint32_t number = sub_.prepare_region();
    if (number >= regions_.size()) {
        regions_.resize(number + 1);
    }
    result<void *> memory = device_.alloc_device(size_bytes);
    if (!memory.ok()) {
        return memory.why();
    }
    ++device_allocation_count_;
    regions_[number] = {static_cast<std::byte *>(memory.value()), size_bytes};
    sub_.add_region(regions_[number].data, size_bytes);
    hold(size_bytes);
    return {};
}

void staging::prepare_block(std::vector<ticket> &waits) {
    retired_.reserve(retired_.size() + regions_.size());
    for (uint32_t number = 0; number < regions_.size(); ++number) {
        region &candidate = regions_[number];
        if (candidate.size_bytes != 0 && sub_.region_idle(number)) {
            sub_.remove_region(number, waits);
            retired_.push_back(candidate);
            candidate = {};
        }
    }
}

void staging::strand_retired() {
    stranded_.insert(stranded_.end(), retired_.begin(), retired_.end());
    retired_.clear();
}

// A region that the device fails to free is not tried again, and no longer counted.
status staging::free_retired() {
    status first_failure;
    for (const region &r : retired_) {
        status freed = device_.free_device(r.data, r.size_bytes);
        if (!freed.ok() && first_failure.ok()) {
            first_failure = std::move(freed);
        }
        held_bytes_ -= r.size_bytes;
    }
    retired_.clear();
    return first_failure;
}

status staging::take_block(uint64_t size_bytes) {
    if (block_taken_) {
        return {};
    }
    block_taken_ = true;
    EBB_TRY(free_retired());
    const uint64_t wanted_bytes = std::min(size_bytes, cap_bytes_);
    const uint64_t missing_bytes =
        wanted_bytes > held_bytes_ ? std::min(aligned_down(wanted_bytes - held_bytes_), sub_.max_region_bytes()) : 0;
    if (missing_bytes == 0) {
        return {};
    }
    const status taken = add_device_region(missing_bytes);
    if (taken.ok()) {
        return taken;
    }
    return {taken.code(), fmt::format("staging: {} bytes of device memory wanted beside {} held, cap {}: {}",
                                      missing_bytes, held_bytes_, cap_bytes_, taken.text())};
}

}  // namespace ebb
