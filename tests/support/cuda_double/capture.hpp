// A capture of streams into a graph: what was enqueued becomes nodes, with the dependencies that stream order and
// events made.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cuda_double/stream_work.hpp"

namespace ebb::test {

struct double_stream;
using node_set = std::set<size_t>;

struct graph_node {
    stream_work work;
    std::vector<size_t> behind;  // earlier nodes
};

struct graph_capture {
    unsigned long long id = 0;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    double_stream *origin = nullptr;
    uint64_t thread = 0;  // that began it
    bool over = false;
    bool spoilt = false;
    std::vector<graph_node> nodes;
    std::vector<double_stream *> members;  // with the origin

    void add(double_stream &stream, stream_work work);
    // The stream becomes a member, behind those nodes.
    void join(const std::shared_ptr<graph_capture> &self, double_stream &stream, const node_set &behind);
    // Takes all members out.
    void end();
    // A member, other than the origin, whose last node the origin does not come behind.
    [[nodiscard]] const double_stream *unjoined() const;
};

// By node: the nodes that it comes behind.
[[nodiscard]] std::vector<std::vector<bool>> ancestors_of(const std::vector<graph_node> &nodes);
// Two nodes that use the same memory, one writing, and do not depend on each other.
[[nodiscard]] std::optional<std::string> find_unordered(const std::vector<graph_node> &nodes);

}  // namespace ebb::test
