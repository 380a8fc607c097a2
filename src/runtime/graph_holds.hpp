// Memory that graphs use, of one kind: pinned blocks, or slots. Work that was captured finds it at the same address at
// every launch, so it is kept for the graphs that use it until each of them is released, whatever becomes of the
// activations. While its capture goes on, what a graph alone holds and nobody uses is used again by that capture.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/ticket.hpp"
#include "device/device.hpp"

namespace ebb {

class graph_holds {
public:
    struct held {
        std::vector<uint64_t> graphs;
        uint64_t key = 0;  // what is used again has the same: size, and what else must fit
        uint64_t size_bytes = 0;
        bool aside = false;  // no activation uses it
        bool retired = false;
        uint64_t turn = 0;   // when it was put aside
        ticket_set readers;  // behind which it may be used again
        stream_id home{};
    };

    [[nodiscard]] bool empty() const noexcept { return all_.empty(); }

    void hold(uint64_t graph, uint32_t id, uint64_t key, uint64_t size_bytes) {
        held &h = all_[id];
        if (std::find(h.graphs.begin(), h.graphs.end(), graph) == h.graphs.end()) {
            h.graphs.push_back(graph);
        }
        h.key = key;
        h.size_bytes = size_bytes;
    }

    // True: graphs hold it, and it stays theirs.
    bool put_aside(uint32_t id, const ticket_set &readers, stream_id home) {
        const auto found = all_.empty() ? all_.end() : all_.find(id);
        if (found == all_.end()) {
            return false;
        }
        held &h = found->second;
        h.aside = true;
        h.turn = ++turn_;
        h.readers = readers;
        h.home = home;
        return true;
    }

    // Its capture does not use it again: a copy that failed half-way may be part of the graph.
    void retire(uint64_t graph, uint32_t id) {
        hold(graph, id, all_[id].key, all_[id].size_bytes);
        all_[id].retired = true;
    }

    // What that graph alone holds, has that key and may be used, the first put aside. usable(readers) says so.
    template <class Usable>
    std::optional<uint32_t> take(uint64_t graph, uint64_t key, std::vector<ticket> &waits, Usable &&usable) {
        auto best = all_.end();
        for (auto at = all_.begin(); at != all_.end(); ++at) {
            const held &h = at->second;
            if (h.aside && !h.retired && h.key == key && h.graphs.size() == 1 && h.graphs[0] == graph &&
                usable(h.readers) && (best == all_.end() || h.turn < best->second.turn)) {
                best = at;
            }
        }
        if (best == all_.end()) {
            return std::nullopt;
        }
        best->second.aside = false;
        waits.insert(waits.end(), best->second.readers.begin(), best->second.readers.end());
        return best->first;
    }

    // give_back(id, readers, home) for what no graph and no activation uses any more.
    template <class GiveBack>
    void release(uint64_t graph, GiveBack &&give_back) {
        for (auto at = all_.begin(); at != all_.end();) {
            std::vector<uint64_t> &graphs = at->second.graphs;
            graphs.erase(std::remove(graphs.begin(), graphs.end(), graph), graphs.end());
            if (!graphs.empty()) {
                ++at;
                continue;
            }
            const uint32_t id = at->first;
            const held last = std::move(at->second);
            at = all_.erase(at);
            if (last.aside) {
                give_back(id, last.readers, last.home);
            }
        }
    }

    [[nodiscard]] uint64_t size_bytes() const noexcept {
        uint64_t sum = 0;
        for (const auto &[id, h] : all_) {
            sum += h.size_bytes;
        }
        return sum;
    }

private:
    std::map<uint32_t, held> all_;
    uint64_t turn_ = 0;
};

}  // namespace ebb
