// Device memory that reloads go to: slots. Until the block is taken (while the first step is recorded) memory is
// allocated from the device as slots need it, within the cap; afterwards there is one block, ours or lent. With
// a caller's allocator each slot's memory is adopted from it and handed back when the slot is free.
//
// A pool is a part of the block that is set apart for one user, a graph: what is freed there is given to that user
// alone.
//
// A slot keeps its source's address modulo 512, since kernels are chosen by alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.hpp"
#include "base/ticket.hpp"
#include "device/device.hpp"
#include "memory/sub_allocator.hpp"

namespace ebb {

class staging {
public:
    using slot_id = uint32_t;
    static constexpr uint64_t k_alignment = 512;

    staging(device &dev, uint64_t cap_bytes);
    ~staging();  // gives back our own memory; the caller has waited for the copies and readers
    staging(const staging &) = delete;
    staging &operator=(const staging &) = delete;

    // Instead of memory of our own, before any slot; whole multiples of 512 of it are used, and they are the cap.
    void lend_block(void *data, uint64_t size_bytes);
    void set_cap(uint64_t cap_bytes) noexcept;  // never below what is held

    // What a slot of that size and address takes: multiples of 512, with the offset of the address.
    [[nodiscard]] static uint64_t slot_footprint_bytes(uint64_t size_bytes, const void *like) noexcept;

    // Empty when there is no room. Before the block is taken, this may allocate from the device within the cap.
    // Zero-size slots are refused by the caller before (EBB_CHECK).
    [[nodiscard]] std::optional<slot_id> allocate(uint64_t size_bytes, const void *like, std::vector<ticket> &waits) {
        const slot_id id = allocate_slot(size_bytes, like, waits);
        return id == k_none ? std::nullopt : std::optional<slot_id>(id);
    }
    // A slot on memory that the caller's allocator gave (footprint bytes, aligned to 512).
    slot_id adopt(void *memory, uint64_t footprint_bytes, uint64_t size_bytes, const void *like);
    // Pools grow by pieces of the free part of the block, and leave some of it to others: half of what is free is
    // taken, at least `piece_bytes` where that can be had. A piece whose last readers, reported in waits, are in the
    // way goes back.
    using pool_id = uint32_t;
    static constexpr uint32_t k_no_pool = ~uint32_t{0};
    pool_id open_pool();
    [[nodiscard]] std::optional<slot_id> allocate_in(pool_id pool, uint64_t size_bytes, const void *like,
                                                     std::vector<ticket> &waits);
    [[nodiscard]] bool grow_pool(pool_id pool, uint64_t footprint_bytes, uint64_t piece_bytes,
                                 std::vector<ticket> &waits);
    void give_back_piece(pool_id pool, const ticket_set &readers);  // the last one, of which nothing was used
    // Who reads its slots and is not over with the graph.
    [[nodiscard]] ticket_set &pool_readers(pool_id pool) noexcept { return pools_[pool]->readers; }
    // Its memory goes back to the block, behind those; what slots still use of it, with the last of them.
    void close_pool(pool_id pool);
    [[nodiscard]] uint64_t pool_bytes(pool_id pool) const noexcept { return pools_[pool]->size_bytes; }
    [[nodiscard]] pool_id pool_of(slot_id id) const noexcept { return live(id).pool; }

    struct handed_back {
        void *memory = nullptr;  // not null: adopted memory, to be given back behind last_uses
        uint64_t footprint_bytes = 0;
    };
    handed_back free(slot_id slot, const ticket_set &last_uses);
    // While frozen nothing is allocated for slots.
    void freeze(bool frozen) noexcept { frozen_ = frozen; }
    // The same for slots that can stand for each other: footprint, and offset in the 512 bytes that it begins in.
    [[nodiscard]] static uint64_t slot_key(uint64_t size_bytes, const void *like) noexcept;
    [[nodiscard]] uint64_t key(slot_id slot) const noexcept;
    [[nodiscard]] uint64_t footprint_bytes(slot_id id) const noexcept { return live(id).footprint_bytes; }
    // Between two steps: where slots will lie then follows from that step alone, as a plan assumes
    // (schedule/slot_replay.hpp).
    void restart() { sub_.restart_idle_regions(); }

    [[nodiscard]] std::byte *data(slot_id slot) const noexcept;
    [[nodiscard]] uint64_t size_bytes(slot_id slot) const noexcept;
    [[nodiscard]] bool is_adopted(slot_id id) const noexcept { return live(id).adopted != nullptr; }

    // Taking the block: prepare() retires the learned regions that hold no slot, appends their tickets to
    // waits; once the caller has waited for those, take_block() frees them and allocates one region so that about
    // size_bytes are held in all. On failure the status says how much was wanted; what is held still works, and the
    // block counts as taken.
    void prepare_block(std::vector<ticket> &waits);
    // The caller could not wait: what prepare_block() retired may be in use still, and is freed with this object only.
    void strand_retired();
    status take_block(uint64_t size_bytes);
    // The same once more, between two steps: what prepare_block() could not retire stays.
    status retake_block(uint64_t size_bytes) {
        block_taken_ = false;
        return take_block(size_bytes);
    }
    [[nodiscard]] bool block_taken() const noexcept { return block_taken_; }

    [[nodiscard]] uint64_t cap_bytes() const noexcept { return cap_bytes_; }
    [[nodiscard]] uint64_t held_bytes() const noexcept { return held_bytes_; }  // what counts in the device budget
    [[nodiscard]] uint64_t held_peak_bytes() const noexcept { return held_peak_bytes_; }
    [[nodiscard]] uint64_t used_bytes() const noexcept { return used_bytes_; }  // footprints of live slots
    [[nodiscard]] uint64_t used_peak_bytes() const noexcept { return used_peak_bytes_; }
    [[nodiscard]] uint64_t device_allocation_count() const noexcept { return device_allocation_count_; }

private:
    static constexpr uint32_t k_none = ~uint32_t{0};

    struct region {
        std::byte *data = nullptr;
        uint64_t size_bytes = 0;  // 0: that number is not in service
    };
    struct slot {
        std::byte *data = nullptr;
        uint64_t size_bytes = 0;  // 0: the record is unused
        uint64_t footprint_bytes = 0;
        void *adopted = nullptr;                     // the caller's memory, or
        sub_allocator::segment_id segment = k_none;  // a segment of ours, or
        pool_id pool = k_no_pool;                    // of that pool's
        uint32_t next_unused = k_none;
    };

    struct slot_pool {
        sub_allocator sub{k_alignment};
        std::vector<sub_allocator::segment_id> pieces;  // of the block
        uint64_t size_bytes = 0;
        ticket_set readers;
        uint32_t slots = 0;  // live ones
        bool open = false;
    };
    void empty_pool(slot_pool &emptied);

    [[nodiscard]] status add_device_region(uint64_t size_bytes);
    status free_retired();  // what prepare_block() put aside
    // k_none when there is no room (an optional would go through memory).
    [[nodiscard]] slot_id allocate_slot(uint64_t size_bytes, const void *like, std::vector<ticket> &waits);
    void keep_spare_slot();
    slot_id new_slot(std::byte *data, uint64_t size_bytes, uint64_t footprint_bytes) noexcept;
    [[nodiscard]] const slot &live(slot_id id) const noexcept;
    void hold(uint64_t size_bytes) noexcept;
    void used(uint64_t footprint_bytes) noexcept;

    device &device_;
    uint64_t cap_bytes_;
    sub_allocator sub_;
    std::vector<region> regions_;  // ours, by region number; lent memory is not among them
    std::vector<region> stranded_;
    std::vector<region> retired_;
    std::vector<slot> slots_;
    std::vector<std::unique_ptr<slot_pool>> pools_;
    uint32_t unused_slots_ = k_none;
    bool block_taken_ = false;
    bool frozen_ = false;
    uint64_t held_bytes_ = 0;
    uint64_t held_peak_bytes_ = 0;
    uint64_t used_bytes_ = 0;
    uint64_t used_peak_bytes_ = 0;
    uint64_t device_allocation_count_ = 0;
};

}  // namespace ebb
