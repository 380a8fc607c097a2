#include "memory/sub_allocator.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"

// The hot path is a handful of loads and stores: calls between its parts would cost as much as the parts.
#define EBB_HOT_INLINE [[gnu::always_inline]] inline

namespace ebb {
namespace {

// All bits set when x is zero, none otherwise. Selects by this mask stay free of branches, where a compiler turns an
// ordinary one back into a branch that, on sizes that change every step, is mispredicted at every second call.
EBB_HOT_INLINE uint32_t ones_if_zero(uint32_t x) noexcept {
    return ((x | (0U - x)) >> 31U) - 1U;
}

EBB_HOT_INLINE uint32_t select(uint32_t mask, uint32_t if_ones, uint32_t if_none) noexcept {
    return if_none ^ ((if_none ^ if_ones) & mask);
}

}  // namespace

sub_allocator::sub_allocator(uint64_t granule_bytes)
    : granule_shift_(static_cast<uint32_t>(std::countr_zero(granule_bytes))),
      granule_mask_(granule_bytes - 1),
      runs_(k_class_count) {
    EBB_CHECK(std::has_single_bit(granule_bytes));
    for (uint32_t size_class = 0; size_class < k_class_count; ++size_class) {
        runs_[size_class].previous = runs_[size_class].next = size_class;
    }
    nodes_.emplace_back();  // k_edge
    nodes_[k_edge].state = node_state::in_use;
    runs_.emplace_back();
    more_tickets_.emplace_back();
}

// ---- Size classes --------------------------------------------------------------------------------------------

// Sizes below 64 granules have a class each; above, 32 classes for each power of two.
EBB_HOT_INLINE uint32_t sub_allocator::class_of(uint32_t granules) noexcept {
    if (granules < k_second_level) {
        return granules;
    }
    const uint32_t shift = static_cast<uint32_t>(std::bit_width(granules)) - 1 - k_second_level_bits;
    return (shift << k_second_level_bits) + (granules >> shift);  // the top bit of the second term is the "+ 1"
}

uint64_t sub_allocator::granules_for(uint64_t size_bytes) const noexcept {
    const uint64_t whole = size_bytes >> granule_shift_;
    return (whole << granule_shift_) == size_bytes ? whole : whole + 1;  // no overflow near 2^64
}

EBB_HOT_INLINE uint32_t sub_allocator::next_class(uint32_t from) const noexcept {
    const uint32_t map = from >> k_second_level_bits;
    const uint32_t here = second_level_[map] & (~uint32_t{0} << (from & (k_second_level - 1)));
    const uint32_t above = first_level_ & (~uint32_t{0} << (map + 1));                         // map is at most 28
    const auto higher = static_cast<uint32_t>(std::countr_zero(above | 1U << k_first_level));  // the last map is empty
    const uint32_t none_here = ones_if_zero(here);
    const uint32_t word = here | (second_level_[higher] & none_here);
    const uint32_t found = select(none_here, higher, map);
    if (word == 0) {
        return k_none;
    }
    return (found << k_second_level_bits) + static_cast<uint32_t>(std::countr_zero(word));
}

uint32_t sub_allocator::previous_class(uint32_t below) const noexcept {
    uint32_t map = below >> k_second_level_bits;
    uint32_t rest = 0;
    if (below < k_class_count) {
        rest = second_level_[map] & ((1U << (below & (k_second_level - 1))) - 1);
    }
    if (rest == 0) {
        const uint32_t lower = first_level_ & ((1U << map) - 1);
        if (lower == 0) {
            return k_none;
        }
        map = static_cast<uint32_t>(std::bit_width(lower)) - 1;
        rest = second_level_[map];
    }
    return (map << k_second_level_bits) + static_cast<uint32_t>(std::bit_width(rest)) - 1;
}

EBB_HOT_INLINE void sub_allocator::list(uint32_t first_node, uint32_t size_class, bool at_front) noexcept {
    run *const runs = runs_.data();
    const uint32_t record = k_class_count + first_node;
    const uint32_t previous = at_front ? size_class : runs[size_class].previous;
    const uint32_t next = at_front ? runs[size_class].next : size_class;
    runs[record].previous = previous;
    runs[record].next = next;
    runs[previous].next = record;
    runs[next].previous = record;
    const uint32_t map = size_class >> k_second_level_bits;
    second_level_[map] |= 1U << (size_class & (k_second_level - 1));
    first_level_ |= 1U << map;
}

EBB_HOT_INLINE void sub_allocator::unlist(uint32_t first_node) noexcept {
    run *const runs = runs_.data();
    const uint32_t previous = runs[k_class_count + first_node].previous;
    const uint32_t next = runs[k_class_count + first_node].next;
    runs[previous].next = next;
    runs[next].previous = previous;
    // Alone in its ring: both are the head, whose number is the class. Otherwise the spare map is cleared, which is
    // empty anyway.
    const uint32_t map = select(ones_if_zero(previous ^ next), previous >> k_second_level_bits, k_first_level);
    const uint32_t left = second_level_[map] & ~(1U << (previous & (k_second_level - 1)));
    second_level_[map] = left;
    first_level_ &= ~((ones_if_zero(left) & 1U) << map);
}

EBB_HOT_INLINE void sub_allocator::set_run(uint32_t first_node, uint32_t last_node, uint32_t granules) noexcept {
    run_of(first_node).granules = granules;
    run_of(first_node).last = last_node;
    nodes_[last_node].run_first = first_node;
}

// ---- Nodes ---------------------------------------------------------------------------------------------------

// Recycled nodes are chained by run_first.
EBB_HOT_INLINE void sub_allocator::recycle(uint32_t index) noexcept {
    nodes_[index].state = node_state::recycled;
    nodes_[index].run_first = recycled_nodes_;
    recycled_nodes_ = index;
}

// The others follow the nodes' number, and not each its own: where the heap has nothing left for one of them, the next
// call finds what was had for the rest.
void sub_allocator::add_spare_node() {
    EBB_CHECK(nodes_.size() < k_none - k_class_count);
    runs_.resize(k_class_count + nodes_.size() + 1);
    more_tickets_.resize(nodes_.size() + 1);
    nodes_.emplace_back();
    recycle(static_cast<uint32_t>(nodes_.size() - 1));
}

// Makes sure that spare_node() has one to give: afterwards references to nodes hold.
EBB_HOT_INLINE void sub_allocator::keep_spare_node() {
    if (recycled_nodes_ == k_edge) {
        add_spare_node();
    }
}

EBB_HOT_INLINE uint32_t sub_allocator::spare_node() noexcept {
    const uint32_t index = recycled_nodes_;
    recycled_nodes_ = nodes_[index].run_first;
    return index;
}

EBB_HOT_INLINE void sub_allocator::append_tickets(uint32_t index, std::vector<ticket> &waits) const {
    const node &n = nodes_[index];
    if (n.ticket_count == 1) {
        waits.push_back(n.first_ticket);
    } else if (n.ticket_count > 1) {
        waits.insert(waits.end(), more_tickets_[index].begin(), more_tickets_[index].end());
    }
}

// ---- Regions -------------------------------------------------------------------------------------------------

uint32_t sub_allocator::prepare_region() {
    uint32_t region = 0;  // regions are few, so a search for a number out of service is cheap
    while (region < regions_.size() && regions_[region].granules != 0) {
        ++region;
    }
    if (region == regions_.size()) {
        regions_.emplace_back();
    }
    keep_spare_node();
    return region;
}

uint32_t sub_allocator::add_region(std::byte *data, uint64_t size_bytes) {
    const uint64_t granules = size_bytes >> granule_shift_;
    EBB_CHECK(granules > 0 && granules <= k_max_granules);
    EBB_CHECK((reinterpret_cast<uintptr_t>(data) & granule_mask_) == 0);
    const uint32_t region = prepare_region();
    const uint32_t index = spare_node();
    node &whole = nodes_[index];
    whole = node{};
    whole.data = data;
    whole.granules = static_cast<uint32_t>(granules);
    whole.age = ++clock_;
    whole.run_first = index;
    whole.region = region;
    whole.state = node_state::free;
    set_run(index, index, whole.granules);
    list(index, class_of(whole.granules), false);
    regions_[region] = {0, whole.granules, index};
    total_granules_ += granules;
    free_granules_ += granules;
    return region;
}

bool sub_allocator::region_idle(uint32_t region) const noexcept {
    EBB_CHECK(region < regions_.size() && regions_[region].granules != 0);
    return regions_[region].blocks_in_use == 0;
}

// The latest block's node is still there: only a later block could have absorbed it.
uint32_t sub_allocator::first_node(uint32_t region) const noexcept {
    uint32_t index = regions_[region].latest_block;
    while (nodes_[index].neighbour[0] != k_edge) {
        index = nodes_[index].neighbour[0];
    }
    return index;
}

void sub_allocator::restart_idle_regions() {
    for (uint32_t region = 0; region < regions_.size(); ++region) {
        if (regions_[region].granules != 0 && region_idle(region)) {
            restart_region(region);
        }
    }
}

void sub_allocator::restart_region(uint32_t region) {
    const uint32_t first = first_node(region);
    ticket last;
    for (uint32_t index = first; index != k_edge; index = nodes_[index].neighbour[1]) {
        const node &n = nodes_[index];
        if (n.ticket_count > 1 || (n.ticket_count == 1 && !last.empty() && n.first_ticket.timeline != last.timeline)) {
            return;  // one of them may be late: the others are not made to wait for it
        }
        if (n.ticket_count == 1 && (last.empty() || last.sequence < n.first_ticket.sequence)) {
            last = n.first_ticket;
        }
    }
    unlist(first);  // an idle region is one run
    for (uint32_t index = nodes_[first].neighbour[1]; index != k_edge;) {
        const uint32_t above = nodes_[index].neighbour[1];
        recycle(index);
        index = above;
    }
    node &whole = nodes_[first];
    whole.granules = regions_[region].granules;
    whole.neighbour[1] = k_edge;
    whole.age = ++clock_;
    whole.ticket_count = last.empty() ? 0 : 1;
    whole.first_ticket = last;
    set_run(first, first, whole.granules);
    list(first, class_of(whole.granules), false);
    regions_[region].latest_block = first;
}

void sub_allocator::remove_region(uint32_t region, std::vector<ticket> &waits) {
    EBB_CHECK(region_idle(region));
    const uint32_t first = first_node(region);
    for (uint32_t index = first; index != k_edge; index = nodes_[index].neighbour[1]) {
        append_tickets(index, waits);
    }
    unlist(first);  // an idle region is one run
    uint32_t index = first;
    while (index != k_edge) {
        const uint32_t above = nodes_[index].neighbour[1];
        recycle(index);
        index = above;
    }
    total_granules_ -= regions_[region].granules;
    free_granules_ -= regions_[region].granules;
    regions_[region] = {};
}

// ---- Search --------------------------------------------------------------------------------------------------

// The smallest run that fits among the first `tries` of a class; k_edge when none does.
EBB_HOT_INLINE uint32_t sub_allocator::find_in_class(uint32_t size_class, uint32_t granules,
                                                     uint32_t tries) const noexcept {
    const run *const runs = runs_.data();
    uint32_t found = k_class_count;    // the record of k_edge
    uint32_t least_excess = granules;  // a class spans less than its smallest size
    for (uint32_t record = runs[size_class].next; record != size_class && tries > 0;
         record = runs[record].next, --tries) {
        // One that is too small wraps around to far more than any excess within the class.
        const uint32_t excess = runs[record].granules - granules;
        found = excess < least_excess ? record : found;
        least_excess = std::min(least_excess, excess);
        if (least_excess == 0) {
            break;
        }
    }
    return found - k_class_count;
}

// The request's own class also holds runs that are too small. It is searched up to a bound, for that is where
// equal sizes come back; every run of a higher class fits. Where there is no higher class, the whole of it is searched.
EBB_HOT_INLINE uint32_t sub_allocator::find_best(uint32_t granules) const noexcept {
    const uint32_t own = class_of(granules);
    const bool own_listed = (second_level_[own >> k_second_level_bits] >> (own & (k_second_level - 1)) & 1U) != 0;
    if (own_listed) {
        const uint32_t found = find_in_class(own, granules, k_own_class_tries);
        if (found != k_edge) {
            return found;
        }
    }
    const uint32_t larger = next_class(own + 1);
    if (larger != k_none) {
        return runs_[larger].next - k_class_count;
    }
    return find_in_class(own, granules, k_none);
}

uint32_t sub_allocator::find_oldest(uint32_t granules) const noexcept {
    uint32_t found = k_edge;
    uint64_t found_age = ~uint64_t{0};
    for (uint32_t size_class = next_class(class_of(granules)); size_class != k_none;
         size_class = next_class(size_class + 1)) {
        for (uint32_t record = runs_[size_class].next; record != size_class; record = runs_[record].next) {
            const uint32_t first = record - k_class_count;
            const uint64_t age = std::min(nodes_[first].age, nodes_[runs_[record].last].age);
            if (runs_[record].granules >= granules && age < found_age) {
                found = first;
                found_age = age;
            }
        }
    }
    return found;
}

// ---- Allocate and free ---------------------------------------------------------------------------------------

// Turns the run's bytes from its near end on into one segment in use: whole segments are absorbed, the last one
// is split. `forward` is the direction in which it eats, as an index of neighbour. Returns the new segment; what is
// left of the run begins at its neighbour in that direction.
EBB_HOT_INLINE uint32_t sub_allocator::consume(uint32_t near, uint32_t forward, uint32_t granules,
                                               std::vector<ticket> &waits) {
    node *const nodes = nodes_.data();
    const uint32_t behind = nodes[near].neighbour[1 - forward];
    const uint32_t region = nodes[near].region;
    std::byte *data = nodes[near].data;
    if (forward == 0) {  // downwards the block ends where the near segment ends
        data += (int64_t{nodes[near].granules} - int64_t{granules}) * static_cast<int64_t>(granule_mask_ + 1);
    }
    uint32_t block = near;  // its node becomes the block's, unless it is larger
    uint32_t at = near;
    uint32_t left = granules;
    append_tickets(near, waits);
    if (nodes[near].granules > granules) {
        block = spare_node();
    } else {
        left -= nodes[near].granules;
        at = nodes[near].neighbour[forward];
        while (left > 0) {
            append_tickets(at, waits);
            if (nodes[at].granules > left) {
                break;
            }
            left -= nodes[at].granules;
            at = nodes[at].neighbour[forward];
        }
        // The tickets may have wanted heap memory: only from here on is anything changed.
        for (uint32_t absorbed = nodes[near].neighbour[forward]; absorbed != at;) {
            const uint32_t next = nodes[absorbed].neighbour[forward];
            recycle(absorbed);
            absorbed = next;
        }
    }
    if (left > 0) {
        nodes[at].granules -= left;
        if (forward == 1) {
            nodes[at].data += uint64_t{left} << granule_shift_;
        }
    }
    node &taken = nodes[block];
    taken.data = data;
    taken.granules = granules;
    taken.neighbour[1 - forward] = behind;
    taken.neighbour[forward] = at;
    taken.region = region;
    taken.state = node_state::in_use;
    nodes[at].neighbour[1 - forward] = block;  // what k_edge is told does not matter
    nodes[behind].neighbour[forward] = block;
    regions_[region].latest_block = block;
    ++regions_[region].blocks_in_use;
    return block;
}

EBB_HOT_INLINE std::optional<sub_allocator::piece> sub_allocator::take(uint32_t first_node, uint32_t granules,
                                                                       std::vector<ticket> &waits) {
    keep_spare_node();
    const run old = run_of(first_node);
    const uint32_t rest = old.granules - granules;
    const uint32_t forward = nodes_[first_node].age <= nodes_[old.last].age ? 1 : 0;  // eat from the older end
    const uint32_t block = consume(forward == 1 ? first_node : old.last, forward, granules, waits);
    unlist(first_node);  // not before: a call that fails changes nothing
    if (rest > 0) {
        const uint32_t near = nodes_[block].neighbour[forward];
        const uint32_t new_first = forward == 1 ? near : first_node;
        const uint32_t new_last = forward == 1 ? old.last : near;
        set_run(new_first, new_last, rest);
        list(new_first, class_of(rest), true);  // what is left is about as old as what was taken
    }
    free_granules_ -= granules;
    return piece{block, nodes_[block].data, uint64_t{granules} << granule_shift_};
}

std::optional<sub_allocator::piece> sub_allocator::allocate(uint64_t size_bytes, fit_rule rule,
                                                            std::vector<ticket> &waits) {
    EBB_CHECK(size_bytes > 0);
    if (size_bytes > free_bytes()) {
        return std::nullopt;
    }
    const uint64_t granules = (size_bytes + granule_mask_) >> granule_shift_;
    if (granules > k_max_granules) {
        return std::nullopt;
    }
    const auto wanted = static_cast<uint32_t>(granules);
    const uint32_t first = rule == fit_rule::best ? find_best(wanted) : find_oldest(wanted);
    if (first == k_edge) {
        return std::nullopt;
    }
    return take(first, wanted, waits);
}

std::optional<sub_allocator::piece> sub_allocator::allocate_largest(uint64_t size_bytes, std::vector<ticket> &waits) {
    EBB_CHECK(size_bytes > 0);
    const uint32_t largest = previous_class(k_class_count);
    if (largest == k_none) {
        return std::nullopt;
    }
    const uint32_t record = runs_[largest].next;
    const uint64_t granules = std::min<uint64_t>(granules_for(size_bytes), runs_[record].granules);
    return take(record - k_class_count, static_cast<uint32_t>(granules), waits);
}

void sub_allocator::free(segment_id segment, const ticket_set &last_uses) {
    EBB_CHECK(segment < nodes_.size() && segment != k_edge && nodes_[segment].state == node_state::in_use);
    node *const nodes = nodes_.data();
    node &freed = nodes[segment];
    freed.state = node_state::free;
    freed.age = ++clock_;
    freed.ticket_count = static_cast<uint8_t>(last_uses.size());
    freed.first_ticket = *last_uses.begin();
    if (last_uses.size() > 1) {
        more_tickets_[segment] = last_uses;
    }
    free_granules_ += freed.granules;
    --regions_[freed.region].blocks_in_use;

    const uint32_t below = freed.neighbour[0];
    const uint32_t above = freed.neighbour[1];
    uint32_t first = segment;
    uint32_t last = segment;
    uint32_t granules = freed.granules;
    if (nodes[above].state == node_state::free) {
        last = run_of(above).last;
        granules += run_of(above).granules;
        unlist(above);
    }
    if (nodes[below].state == node_state::free) {
        first = nodes[below].run_first;
        granules += run_of(first).granules;
        unlist(first);
    }
    set_run(first, last, granules);
    list(first, class_of(granules), false);
}

// ---- What there is -------------------------------------------------------------------------------------------

uint64_t sub_allocator::largest_pieces_bytes(uint32_t count, uint64_t minimum_bytes,
                                             uint64_t enough_bytes) const noexcept {
    const uint64_t minimum = granules_for(minimum_bytes);
    const uint64_t enough = granules_for(enough_bytes);
    uint64_t sum = 0;
    for (uint32_t size_class = previous_class(k_class_count); size_class != k_none;
         size_class = previous_class(size_class)) {
        for (uint32_t record = runs_[size_class].next; record != size_class; record = runs_[record].next) {
            if (count-- == 0 || sum >= enough || runs_[record].granules < minimum) {
                return sum << granule_shift_;
            }
            sum += runs_[record].granules;
        }
    }
    return sum << granule_shift_;
}

uint64_t sub_allocator::largest_free_bytes() const noexcept {
    const uint32_t largest = previous_class(k_class_count);
    uint32_t granules = 0;
    if (largest != k_none) {
        for (uint32_t record = runs_[largest].next; record != largest; record = runs_[record].next) {
            granules = std::max(granules, runs_[record].granules);
        }
    }
    return uint64_t{granules} << granule_shift_;
}

}  // namespace ebb
