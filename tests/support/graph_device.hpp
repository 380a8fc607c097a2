// A host device whose streams can be captured into graphs, with CUDA's rules: what is enqueued on a capturing stream
// runs when the graph is launched, again at each launch; a stream that waits for a captured event joins the capture.
// What breaks a rule is refused and noted, and ends the capture. A launch runs the captured work in an order that is
// drawn anew among all that its dependences allow, so that a missing one shows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/decorator.hpp"
#include "device/host/host_device.hpp"

namespace ebb::test {

struct host_device_holder {
    explicit host_device_holder(const host_device_options &options) : held(options) {}
    host_device held;
};

class graph_device final : private host_device_holder, public device_decorator {
public:
    struct node {
        std::function<status(stream_id)> run;  // on the stream that launches
        std::vector<size_t> after;
    };
    using graph = std::vector<node>;

    explicit graph_device(const host_device_options &options)
        : host_device_holder(options), device_decorator(held), info_(held.info()) {
        info_.captures = true;
    }
    host_device &host() noexcept { return held; }

    // ---- The caller's side.
    void begin_capture(stream_id stream) {
        capture &begun = open_[++last_id_];
        begun.id = last_id_;
        begun.origin = stream;
        begun.last[stream] = {};
    }
    // Of the capture that began there; without an argument, of the only one. Empty when it broke a rule.
    graph end_capture() { return open_.size() == 1 ? end_capture(open_.begin()->second.origin) : graph{}; }
    graph end_capture(stream_id origin) {
        capture *const ended = capture_with(origin);
        if (ended == nullptr) {
            return {};
        }
        for (const auto &[stream, last] : ended->last) {
            if (stream != ended->origin && !all_behind(*ended, ended->last[ended->origin], last)) {
                static_cast<void>(violate(ended, "a stream that takes part in the capture was not joined"));
            }
        }
        graph made = ended->invalid ? graph{} : std::move(ended->nodes);
        open_.erase(ended->id);  // its events stay what they are until they are recorded again
        return made;
    }
    void launch_graph(const graph &g, stream_id stream, std::mt19937_64 &random) {
        std::vector<size_t> left(g.size());
        std::vector<bool> done(g.size(), false);
        for (size_t i = 0; i < g.size(); ++i) {
            left[i] = i;
        }
        while (!left.empty()) {
            std::vector<size_t> ready;
            std::copy_if(left.begin(), left.end(), std::back_inserter(ready), [&](size_t i) {
                return std::all_of(g[i].after.begin(), g[i].after.end(), [&](size_t a) { return done[a]; });
            });
            const size_t next = ready[std::uniform_int_distribution<size_t>(0, ready.size() - 1)(random)];
            if (status s = g[next].run(stream); !s.ok()) {
                violations.push_back(s.text());
            }
            done[next] = true;
            left.erase(std::find(left.begin(), left.end(), next));
        }
    }
    // Makes the one come behind the other, as a caller does.
    status come_behind(stream_id stream, stream_id other) {
        const result<event_id> event = create_event(event_kind::plain);
        status done = event.ok() ? record_event(event.value(), other) : event.why();
        return done.ok() ? wait_event(stream, event.value()) : done;
    }
    // A kernel.
    status launch(stream_id stream, void (*function)(void *), void *argument) {
        return on(stream, [this, function, argument](stream_id s) { return host().launch(s, function, argument); });
    }

    std::vector<std::string> violations;
    int calls_until_invalid = -1;  // calls on capturing streams until their capture is given up, as for another
                                   // thread's call; -1: never

    // ---- The device.
    [[nodiscard]] const device_info &info() const noexcept override { return info_; }
    result<void *> alloc_device(uint64_t size_bytes) override {
        return allowed("alloc_device") ? inner().alloc_device(size_bytes) : refuse();
    }
    status free_device(void *data, uint64_t size_bytes) override {
        return allowed("free_device") ? inner().free_device(data, size_bytes) : refuse();
    }
    result<void *> map_host(uint64_t size_bytes) override {
        return allowed("map_host") ? inner().map_host(size_bytes) : refuse();
    }
    status unmap_host(void *data, uint64_t size_bytes) override {
        return allowed("unmap_host") ? inner().unmap_host(data, size_bytes) : refuse();
    }
    status destroy_stream(stream_id stream) override {
        capture *const in = capture_with(stream);
        return in != nullptr ? violate(in, "destroy_stream of a stream in a capture") : inner().destroy_stream(stream);
    }
    result<event_id> create_event(event_kind kind) override {
        result<event_id> made = inner().create_event(kind);
        if (made.ok() && kind == event_kind::timed) {
            timed_.insert(made.value());
        }
        return made;
    }
    status record_event(event_id event, stream_id stream) override {
        capture *const in = capture_with(stream);
        if (in == nullptr) {
            captured_events_.erase(event);
            return inner().record_event(event, stream);
        }
        if (timed_.count(event) != 0) {
            return violate(in, "a timed event in a capture");
        }
        if (gives_up(*in)) {
            return given_up();
        }
        captured_events_[event] = {in->id, in->last[stream]};
        return {};
    }
    status wait_event(stream_id stream, event_id event) override {
        capture *const in = capture_with(stream);
        const auto captured = captured_events_.find(event);
        if (captured == captured_events_.end()) {
            return in != nullptr ? violate(in, "a wait in a capture for an event outside of it")
                                 : inner().wait_event(stream, event);
        }
        capture *const of = capture_of(captured->second);
        if (of == nullptr || (in != nullptr && in != of)) {
            static_cast<void>(violate(in, "a wait for an event of another capture"));
            return violate(of, "a wait outside of the capture");
        }
        if (gives_up(*of)) {
            return given_up();
        }
        std::vector<size_t> &last = of->last[stream];
        last.insert(last.end(), captured->second.after.begin(), captured->second.after.end());
        return {};
    }
    result<bool> event_done(event_id event) override {
        const auto captured = captured_events_.find(event);
        return captured != captured_events_.end()
                   ? result<bool>(violate(capture_of(captured->second), "event_done of a captured event"))
                   : inner().event_done(event);
    }
    status synchronize_event(event_id event) override {
        const auto captured = captured_events_.find(event);
        return captured != captured_events_.end()
                   ? violate(capture_of(captured->second), "synchronize_event of a captured event")
                   : inner().synchronize_event(event);
    }
    status copy(stream_id stream, copy_direction direction, void *destination, const void *source,
                uint64_t size_bytes) override {
        return on(stream,
                  [=, this](stream_id s) { return inner().copy(s, direction, destination, source, size_bytes); });
    }
    status checksum(stream_id stream, const void *data, uint64_t size_bytes, uint64_t *accumulator) override {
        capture *const in = capture_with(stream);
        return in != nullptr ? violate(in, "checksum in a capture")
                             : inner().checksum(stream, data, size_bytes, accumulator);
    }
    result<capture_id> capture_of(stream_id stream) override {
        const capture *const in = capture_with(stream);
        if (in == nullptr) {
            return capture_id::none;
        }
        return in->invalid ? result<capture_id>(given_up()) : result<capture_id>(capture_id{in->id});
    }

private:
    struct capture {
        uint64_t id = 0;
        stream_id origin{};
        bool invalid = false;
        graph nodes;
        std::map<stream_id, std::vector<size_t>>
            last;  // of each stream that takes part: what its next node comes behind
    };
    struct captured_event {
        uint64_t capture = 0;
        std::vector<size_t> after;
    };

    [[nodiscard]] capture *capture_with(stream_id stream) {
        const auto found = std::find_if(open_.begin(), open_.end(),
                                        [stream](const auto &c) { return c.second.last.count(stream) != 0; });
        return found == open_.end() ? nullptr : &found->second;
    }
    [[nodiscard]] capture *capture_of(const captured_event &event) {
        const auto found = open_.find(event.capture);
        return found == open_.end() ? nullptr : &found->second;
    }
    status on(stream_id stream, std::function<status(stream_id)> run) {
        capture *const in = capture_with(stream);
        if (in == nullptr) {
            return run(stream);
        }
        if (gives_up(*in)) {
            return given_up();
        }
        std::vector<size_t> &last = in->last[stream];
        in->nodes.push_back({std::move(run), last});
        last = {in->nodes.size() - 1};
        return {};
    }
    [[nodiscard]] static bool all_behind(const capture &in, const std::vector<size_t> &ends,
                                         const std::vector<size_t> &wanted) {
        std::set<size_t> reached;
        std::vector<size_t> open(ends.begin(), ends.end());
        while (!open.empty()) {
            const size_t i = open.back();
            open.pop_back();
            if (reached.insert(i).second) {
                open.insert(open.end(), in.nodes[i].after.begin(), in.nodes[i].after.end());
            }
        }
        return std::all_of(wanted.begin(), wanted.end(), [&](size_t i) { return reached.count(i) != 0; });
    }
    [[nodiscard]] bool allowed(const char *call) {
        for (auto &[id, in] : open_) {
            static_cast<void>(violate(&in, std::string(call) + " while a capture is open"));
        }
        return open_.empty();
    }
    static status refuse() { return {code::device_error, "not while a capture is open"}; }
    [[nodiscard]] bool gives_up(capture &in) {
        in.invalid |= calls_until_invalid == 0;
        calls_until_invalid -= calls_until_invalid > 0 ? 1 : 0;
        return in.invalid;
    }
    static status given_up() { return {code::wrong_state, "the capture was given up"}; }
    status violate(capture *in, std::string what) {
        violations.push_back(std::move(what));
        if (in != nullptr) {
            in->invalid = true;
        }
        return {code::device_error, violations.back()};
    }

    device_info info_;
    std::map<uint64_t, capture> open_;
    uint64_t last_id_ = 0;
    std::map<event_id, captured_event> captured_events_;
    std::set<event_id> timed_;
};

}  // namespace ebb::test
