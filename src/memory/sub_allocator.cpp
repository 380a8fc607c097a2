#include "memory/sub_allocator.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"

namespace ebb {

sub_allocator::sub_allocator(uint64_t granule_bytes)
    : granule_shift_(static_cast<uint32_t>(std::countr_zero(granule_bytes))),
      second_level_(k_class_count >> k_second_level_bits, 0U),
      classes_(k_class_count) {
    EBB_CHECK(std::has_single_bit(granule_bytes));
}

// ---- Size classes --------------------------------------------------------------------------------------------

// Sizes below 64 granules have a class each; above, 32 classes for each power of two.
uint32_t sub_allocator::class_of(uint64_t granules) noexcept {
    constexpr uint64_t k_second_level = uint64_t{1} << k_second_level_bits;
    if (granules < k_second_level) {
        return static_cast<uint32_t>(granules);
    }
    const auto power = static_cast<uint32_t>(std::bit_width(granules)) - 1;
    const auto within = static_cast<uint32_t>((granules >> (power - k_second_level_bits)) & (k_second_level - 1));
    return ((power - k_second_level_bits + 1) << k_second_level_bits) + within;
}

uint64_t sub_allocator::granules_for(uint64_t size_bytes) const noexcept {
    const uint64_t mask = (uint64_t{1} << granule_shift_) - 1;
    return (size_bytes >> granule_shift_) + ((size_bytes & mask) != 0 ? 1 : 0);  // no overflow near 2^64
}

uint32_t sub_allocator::next_class(uint32_t from) const noexcept {
    if (from >= k_class_count) {
        return k_none;
    }
    const uint32_t map = from >> k_second_level_bits;
    const uint32_t rest = second_level_[map] & (~uint32_t{0} << (from & ((1U << k_second_level_bits) - 1)));
    if (rest != 0) {
        return (map << k_second_level_bits) + static_cast<uint32_t>(std::countr_zero(rest));
    }
    const uint64_t above = first_level_ & (~uint64_t{0} << (map + 1));  // map is below 60
    if (above == 0) {
        return k_none;
    }
    const auto found = static_cast<uint32_t>(std::countr_zero(above));
    return (found << k_second_level_bits) + static_cast<uint32_t>(std::countr_zero(second_level_[found]));
}

uint32_t sub_allocator::previous_class(uint32_t below) const noexcept {
    uint32_t map = below >> k_second_level_bits;
    uint32_t rest = 0;
    if (below < k_class_count) {
        rest = second_level_[map] & ((1U << (below & ((1U << k_second_level_bits) - 1))) - 1);
    }
    if (rest == 0) {
        const uint64_t lower = first_level_ & ((uint64_t{1} << map) - 1);
        if (lower == 0) {
            return k_none;
        }
        map = static_cast<uint32_t>(std::bit_width(lower)) - 1;
        rest = second_level_[map];
    }
    return (map << k_second_level_bits) + static_cast<uint32_t>(std::bit_width(rest)) - 1;
}

void sub_allocator::mark_class(uint32_t size_class) noexcept {
    const uint32_t map = size_class >> k_second_level_bits;
    second_level_[map] |= 1U << (size_class & ((1U << k_second_level_bits) - 1));
    first_level_ |= uint64_t{1} << map;
}

void sub_allocator::list_back(uint32_t head) noexcept {
    const uint32_t size_class = class_of(nodes_[head].run_granules);
    run_list &list = classes_[size_class];
    nodes_[head].list_previous = list.last;
    nodes_[head].list_next = k_none;
    if (list.last == k_none) {
        list.first = head;
        mark_class(size_class);
    } else {
        nodes_[list.last].list_next = head;
    }
    list.last = head;
}

void sub_allocator::list_front(uint32_t head) noexcept {
    const uint32_t size_class = class_of(nodes_[head].run_granules);
    run_list &list = classes_[size_class];
    nodes_[head].list_previous = k_none;
    nodes_[head].list_next = list.first;
    if (list.first == k_none) {
        list.last = head;
        mark_class(size_class);
    } else {
        nodes_[list.first].list_previous = head;
    }
    list.first = head;
}

void sub_allocator::unlist(uint32_t head) noexcept {
    const node &run = nodes_[head];
    const uint32_t size_class = class_of(run.run_granules);
    run_list &list = classes_[size_class];
    (run.list_previous == k_none ? list.first : nodes_[run.list_previous].list_next) = run.list_next;
    (run.list_next == k_none ? list.last : nodes_[run.list_next].list_previous) = run.list_previous;
    if (list.first != k_none) {
        return;
    }
    const uint32_t map = size_class >> k_second_level_bits;
    second_level_[map] &= ~(1U << (size_class & ((1U << k_second_level_bits) - 1)));
    if (second_level_[map] == 0) {
        first_level_ &= ~(uint64_t{1} << map);
    }
}

// ---- Nodes ---------------------------------------------------------------------------------------------------

uint32_t sub_allocator::new_node() {
    if (recycled_nodes_ != k_none) {
        const uint32_t index = recycled_nodes_;
        recycled_nodes_ = nodes_[index].list_next;
        return index;
    }
    EBB_CHECK(nodes_.size() < k_none);
    nodes_.emplace_back();
    tickets_.emplace_back();
    return static_cast<uint32_t>(nodes_.size() - 1);
}

void sub_allocator::recycle(uint32_t index) noexcept {
    nodes_[index].state = node_state::recycled;
    nodes_[index].list_next = recycled_nodes_;
    recycled_nodes_ = index;
}

void sub_allocator::append_tickets(uint32_t index, std::vector<ticket> &waits) const {
    const ticket_set &tickets = tickets_[index];
    waits.insert(waits.end(), tickets.begin(), tickets.end());
}

// ---- Regions -------------------------------------------------------------------------------------------------

uint32_t sub_allocator::add_region(std::byte *data, uint64_t size_bytes) {
    const uint64_t granules = size_bytes >> granule_shift_;
    EBB_CHECK(granules > 0);
    EBB_CHECK((reinterpret_cast<uintptr_t>(data) & ((uintptr_t{1} << granule_shift_) - 1)) == 0);
    uint32_t region = 0;  // regions are few, so a search for a number out of service is cheap
    while (region < regions_.size() && regions_[region].first_node != k_none) {
        ++region;
    }
    if (region == regions_.size()) {
        regions_.emplace_back();
    }
    const uint32_t index = new_node();
    node &whole = nodes_[index];
    whole = node{};
    whole.data = data;
    whole.granules = whole.run_granules = granules;
    whole.age = ++clock_;
    whole.run_end = index;
    whole.region = region;
    whole.state = node_state::free;
    tickets_[index].clear();
    list_back(index);
    regions_[region] = {index, 0, granules};
    total_granules_ += granules;
    free_granules_ += granules;
    return region;
}

bool sub_allocator::region_idle(uint32_t region) const noexcept {
    EBB_CHECK(region < regions_.size() && regions_[region].first_node != k_none);
    return regions_[region].blocks_in_use == 0;
}

void sub_allocator::remove_region(uint32_t region, std::vector<ticket> &waits) {
    EBB_CHECK(region_idle(region));
    unlist(regions_[region].first_node);  // an idle region is one run
    for (uint32_t index = regions_[region].first_node; index != k_none;) {
        const uint32_t above = nodes_[index].neighbour[1];
        append_tickets(index, waits);
        recycle(index);
        index = above;
    }
    total_granules_ -= regions_[region].granules;
    free_granules_ -= regions_[region].granules;
    regions_[region] = {};
}

// ---- Search --------------------------------------------------------------------------------------------------

// The smallest run that fits among the first ones of a class.
uint32_t sub_allocator::find_in_class(uint32_t size_class, uint64_t granules, uint32_t tries) const noexcept {
    uint32_t found = k_none;
    uint64_t found_granules = ~uint64_t{0};
    uint32_t head = classes_[size_class].first;
    for (uint32_t i = 0; i < tries && head != k_none; ++i, head = nodes_[head].list_next) {
        const uint64_t size = nodes_[head].run_granules;
        if (size >= granules && size < found_granules) {
            found = head;
            found_granules = size;
            if (size == granules) {
                break;
            }
        }
    }
    return found;
}

// The request's own class also holds runs that are too small, so it is searched up to a bound: that is where equal
// sizes come back. Every run of a higher class fits.
uint32_t sub_allocator::find_best(uint64_t granules) const noexcept {
    const uint32_t own = class_of(granules);
    const uint32_t found = find_in_class(own, granules, k_own_class_tries);
    if (found != k_none) {
        return found;
    }
    const uint32_t larger = next_class(own + 1);
    if (larger != k_none) {
        return classes_[larger].first;
    }
    return find_in_class(own, granules, k_none);  // nothing larger: whatever fits is better than nothing
}

uint32_t sub_allocator::find_oldest(uint64_t granules) const noexcept {
    uint32_t found = k_none;
    uint64_t found_age = ~uint64_t{0};
    for (uint32_t size_class = next_class(class_of(granules)); size_class != k_none;
         size_class = next_class(size_class + 1)) {
        for (uint32_t head = classes_[size_class].first; head != k_none; head = nodes_[head].list_next) {
            const uint64_t age = std::min(nodes_[head].age, nodes_[nodes_[head].run_end].age);
            if (nodes_[head].run_granules >= granules && age < found_age) {
                found = head;
                found_age = age;
            }
        }
    }
    return found;
}

// ---- Allocate and free ---------------------------------------------------------------------------------------

// Turns the run's bytes from its near end on into one segment in use: whole segments are absorbed, the last one
// is split. Works from either end: `forward` is the direction in which it eats. Returns the new segment; what is
// left of the run begins at its neighbour in that direction.
uint32_t sub_allocator::consume(uint32_t near, uint32_t forward, uint64_t granules, std::vector<ticket> &waits) {
    const uint32_t behind = nodes_[near].neighbour[1 - forward];
    std::byte *data = nodes_[near].data;
    uint32_t block = k_none;
    uint32_t at = near;
    uint64_t left = granules;
    while (left > 0 && nodes_[at].granules <= left) {
        append_tickets(at, waits);
        left -= nodes_[at].granules;
        data = nodes_[at].data < data ? nodes_[at].data : data;
        const uint32_t ahead = nodes_[at].neighbour[forward];
        if (block == k_none) {
            block = at;
        } else {
            recycle(at);
        }
        at = ahead;
    }
    if (left > 0) {
        append_tickets(at, waits);
        if (block == k_none) {
            block = new_node();
        }
        node &split = nodes_[at];
        split.granules -= left;
        if (forward == 1) {
            split.data += left << granule_shift_;
        } else {
            data = split.data + (split.granules << granule_shift_);
        }
    }
    const uint32_t region = nodes_[near].region;  // read before the block's node, which may be near, is filled in
    node &taken = nodes_[block];
    taken.data = data;
    taken.granules = granules;
    taken.neighbour[1 - forward] = behind;
    taken.neighbour[forward] = at;
    taken.region = region;
    taken.state = node_state::in_use;
    if (at != k_none) {
        nodes_[at].neighbour[1 - forward] = block;
    }
    if (behind != k_none) {
        nodes_[behind].neighbour[forward] = block;
    }
    region_record &owner = regions_[region];
    if (taken.neighbour[0] == k_none) {
        owner.first_node = block;
    }
    ++owner.blocks_in_use;
    return block;
}

sub_allocator::piece sub_allocator::take(uint32_t head, uint64_t granules, std::vector<ticket> &waits) {
    const uint32_t last = nodes_[head].run_end;
    const uint64_t run_granules = nodes_[head].run_granules;
    const uint32_t forward = nodes_[head].age <= nodes_[last].age ? 1 : 0;  // eat from the older end
    const uint32_t away = forward == 1 ? last : head;
    unlist(head);
    const uint32_t block = consume(forward == 1 ? head : last, forward, granules, waits);
    if (granules < run_granules) {
        const uint32_t near = nodes_[block].neighbour[forward];
        const uint32_t new_head = forward == 1 ? near : away;
        const uint32_t new_last = forward == 1 ? away : near;
        nodes_[new_head].run_end = new_last;
        nodes_[new_last].run_end = new_head;
        nodes_[new_head].run_granules = run_granules - granules;
        list_front(new_head);  // what is left is as old as what was taken
    }
    free_granules_ -= granules;
    return {block, nodes_[block].data, granules << granule_shift_};
}

std::optional<sub_allocator::piece> sub_allocator::allocate(uint64_t size_bytes, fit_rule rule,
                                                            std::vector<ticket> &waits) {
    EBB_CHECK(size_bytes > 0);
    const uint64_t granules = granules_for(size_bytes);
    const uint32_t head = rule == fit_rule::best ? find_best(granules) : find_oldest(granules);
    if (head == k_none) {
        return std::nullopt;
    }
    return take(head, granules, waits);
}

std::optional<sub_allocator::piece> sub_allocator::allocate_largest(uint64_t size_bytes, std::vector<ticket> &waits) {
    EBB_CHECK(size_bytes > 0);
    const uint32_t largest = previous_class(k_class_count);
    if (largest == k_none) {
        return std::nullopt;
    }
    const uint32_t head = classes_[largest].first;
    return take(head, std::min(granules_for(size_bytes), nodes_[head].run_granules), waits);
}

void sub_allocator::free(segment_id segment, const ticket_set &last_uses) {
    EBB_CHECK(segment < nodes_.size() && nodes_[segment].state == node_state::in_use);
    node &freed = nodes_[segment];
    freed.state = node_state::free;
    freed.age = ++clock_;
    tickets_[segment] = last_uses;
    free_granules_ += freed.granules;
    --regions_[freed.region].blocks_in_use;

    const uint32_t below = freed.neighbour[0];
    const uint32_t above = freed.neighbour[1];
    uint32_t head = segment;
    uint32_t last = segment;
    uint64_t run_granules = freed.granules;
    if (below != k_none && nodes_[below].state == node_state::free) {
        head = nodes_[below].run_end;
        run_granules += nodes_[head].run_granules;
        unlist(head);
    }
    if (above != k_none && nodes_[above].state == node_state::free) {
        last = nodes_[above].run_end;
        run_granules += nodes_[above].run_granules;
        unlist(above);
    }
    nodes_[head].run_end = last;
    nodes_[last].run_end = head;
    nodes_[head].run_granules = run_granules;
    list_back(head);
}

// ---- What there is -------------------------------------------------------------------------------------------

uint64_t sub_allocator::largest_pieces_bytes(uint32_t count, uint64_t minimum_bytes) const noexcept {
    const uint64_t minimum = granules_for(minimum_bytes);
    uint64_t sum = 0;
    for (uint32_t size_class = previous_class(k_class_count); size_class != k_none && count > 0;
         size_class = previous_class(size_class)) {
        for (uint32_t head = classes_[size_class].first; head != k_none && count > 0;
             head = nodes_[head].list_next, --count) {
            if (nodes_[head].run_granules < minimum) {
                return sum << granule_shift_;
            }
            sum += nodes_[head].run_granules;
        }
    }
    return sum << granule_shift_;
}

uint64_t sub_allocator::largest_free_bytes() const noexcept {
    const uint32_t largest = previous_class(k_class_count);
    uint64_t granules = 0;
    if (largest != k_none) {
        for (uint32_t head = classes_[largest].first; head != k_none; head = nodes_[head].list_next) {
            granules = std::max(granules, nodes_[head].run_granules);
        }
    }
    return granules << granule_shift_;
}

}  // namespace ebb
