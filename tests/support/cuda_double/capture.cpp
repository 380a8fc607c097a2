#include "cuda_double/capture.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "cuda_double/double_stream.hpp"

namespace ebb::test {

void graph_capture::add(double_stream &stream, stream_work work) {
    nodes.push_back({std::move(work), {stream.frontier.begin(), stream.frontier.end()}});
    stream.frontier = {nodes.size() - 1};
}

void graph_capture::join(const std::shared_ptr<graph_capture> &self, double_stream &stream, const node_set &behind) {
    members.push_back(&stream);
    stream.capture = self;
    stream.frontier = behind;
    // A node of its own, so that a member that does nothing has to be joined too.
    add(stream, {"joining the capture", [] {}, {}, work_kind::finite});
}

void graph_capture::end() {
    over = true;
    for (double_stream *member : members) {
        member->capture.reset();
        member->frontier.clear();
    }
    members.clear();
}

const double_stream *graph_capture::unjoined() const {
    const std::vector<std::vector<bool>> ancestors = ancestors_of(nodes);
    node_set reached = origin->frontier;
    for (const size_t node : origin->frontier) {
        for (size_t other = 0; other < node; ++other) {
            if (ancestors[node][other]) {
                reached.insert(other);
            }
        }
    }
    for (const double_stream *member : members) {
        if (member != origin &&
            !std::includes(reached.begin(), reached.end(), member->frontier.begin(), member->frontier.end())) {
            return member;
        }
    }
    return nullptr;
}

std::vector<std::vector<bool>> ancestors_of(const std::vector<graph_node> &nodes) {
    std::vector<std::vector<bool>> ancestors(nodes.size());
    for (size_t node = 0; node < nodes.size(); ++node) {
        ancestors[node].resize(node);
        for (const size_t before : nodes[node].behind) {
            ancestors[node][before] = true;
            for (size_t other = 0; other < before; ++other) {
                ancestors[node][other] = ancestors[node][other] || ancestors[before][other];
            }
        }
    }
    return ancestors;
}

std::optional<std::string> find_unordered(const std::vector<graph_node> &nodes) {
    const std::vector<std::vector<bool>> ancestors = ancestors_of(nodes);
    for (size_t later = 0; later < nodes.size(); ++later) {
        for (size_t earlier = 0; earlier < later; ++earlier) {
            if (ancestors[later][earlier]) {
                continue;
            }
            for (const memory_access &a : nodes[later].work.accesses) {
                for (const memory_access &b : nodes[earlier].work.accesses) {
                    if (a.conflicts(b)) {
                        return fmt::format(
                            "node {} ({}) and node {} ({}) use the same memory and do not depend on "
                            "each other",
                            later, nodes[later].work.what, earlier, nodes[earlier].work.what);
                    }
                }
            }
        }
    }
    return std::nullopt;
}

}  // namespace ebb::test
