// For tests of one edge at a time: streams, memory and copies that stand where a test wants them, so that nothing but
// the wait in question brings the order about; what waits for what is read from the trace of device calls.
#pragma once

#include <vector>

#include "fault_session.hpp"

namespace ebb::test {

class order_test : public on_every_machine {
protected:
    explicit order_test(const runtime_options &core) : s_(core) {}

    // Where a kernel that is enqueued on `stream` now stands in the trace: a save there, which is kept, marks it.
    size_t next_kernel_on(ebb_stream stream) {
        ebb_offload_args args{};
        args.placement = EBB_PLACE_KEEP;
        later_.push_back(s_.save(stream, "later", k_unit_bytes, args));
        return s_.order().records().back();
    }
    // Of two calls on different streams, since a stream's own order shows nothing.
    void expect_behind(size_t later, size_t earlier) {
        const stream_order order = s_.order();
        EXPECT_NE(order[later].stream, order[earlier].stream);
        EXPECT_TRUE(order.behind(later, earlier)) << to_string(order[later]) << "\nbehind\n"
                                                  << to_string(order[earlier]);
    }
    void expect_next_behind(ebb_stream stream, size_t call) { expect_behind(next_kernel_on(stream), call); }
    [[nodiscard]] std::vector<size_t> copies(copy_direction direction) { return s_.order().copies(direction); }
    [[nodiscard]] std::vector<size_t> records() { return s_.order().records(); }

    // From here on nothing runs on `stream`.
    void stand(ebb_stream stream) { s_.stand(stream, gate_); }
    // What was held goes on, and everything is as it should be.
    void finish() {
        s_.let_all_pass();
        for (const session::saved &each : later_) {
            s_.release(each);
        }
        later_.clear();
        s_.drain();
        EBB_EXPECT_OK(ebb_wait_room(s_.runtime()));
        EXPECT_EQ(s_.stats().live_activations, 0U);
        EXPECT_EQ(s_.wrong(), 0);
    }
    [[nodiscard]] ebb_offload_args at_home(ebb_placement placement = EBB_PLACE_BY_POLICY) const {
        ebb_offload_args args{};
        args.home = &home_;
        args.placement = placement;
        return args;
    }

    session s_;
    ebb_stream compute_ = s_.stream();
    ebb_stream home_ = s_.stream();
    ebb_stream consumer_ = s_.stream();
    stream_gate &gate_ = s_.gate();
    std::vector<session::saved> later_;
};

}  // namespace ebb::test
