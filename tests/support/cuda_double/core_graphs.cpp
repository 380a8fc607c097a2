// Graphs: a launch runs the nodes one after another, in an order that their dependencies allow and that is another one
// each time.
#include <fmt/core.h>

#include <numeric>

#include "cuda_double/double_core.hpp"

namespace ebb::test {

cudaError_t double_core::graph_instantiate(call &c, cudaGraphExec_t *exec, cudaGraph_t graph) {
    const auto found = graphs_.find(graph);
    if (found == graphs_.end()) {
        return misused(c, cuda_rule::handles_are_alive, "no graph, or it was destroyed", cudaErrorInvalidValue);
    }
    *exec = reinterpret_cast<cudaGraphExec_t>(next_handle_++);
    execs_[*exec].graph = found->second;
    return cudaSuccess;
}

std::vector<size_t> double_core::shuffled_order(const std::vector<graph_node> &nodes) {
    std::vector<size_t> left(nodes.size());
    std::vector<std::vector<size_t>> followers(nodes.size());
    std::vector<size_t> ready;
    for (size_t node = 0; node < nodes.size(); ++node) {
        left[node] = nodes[node].behind.size();
        for (const size_t before : nodes[node].behind) {
            followers[before].push_back(node);
        }
        if (left[node] == 0) {
            ready.push_back(node);
        }
    }
    std::vector<size_t> order;
    while (!ready.empty()) {
        std::swap(ready[random_() % ready.size()], ready.back());
        order.push_back(ready.back());
        ready.pop_back();
        for (const size_t follower : followers[order.back()]) {
            if (--left[follower] == 0) {
                ready.push_back(follower);
            }
        }
    }
    return order;
}

cudaError_t double_core::graph_launch(call &c, cudaGraphExec_t exec, cudaStream_t stream) {
    const auto found = execs_.find(exec);
    if (found == execs_.end()) {
        return misused(c, cuda_rule::handles_are_alive, "no executable graph, or it was destroyed",
                       cudaErrorInvalidValue);
    }
    double_stream *on = nullptr;
    if (const cudaError_t error = stream_for_work(c, stream, &on); error != cudaSuccess) {
        return error;
    }
    if (on->capture != nullptr) {
        return cudaErrorNotSupported;  // graphs in graphs
    }
    double_graph_exec &launched = found->second;
    stream_work work{"a graph", [] {}, {}, work_kind::may_stand};
    for (const graph_node &node : launched.graph->nodes) {
        for (const memory_access &access : node.work.accesses) {
            if (!memory_.is_live(access.block)) {
                return misused(c, cuda_rule::graph_memory_is_alive,
                               fmt::format("{} uses memory that was freed since", node.work.what),
                               cudaErrorInvalidValue);
            }
            work.accesses.push_back(access);
        }
    }
    work.run = [graph = launched.graph, order = shuffled_order(launched.graph->nodes)] {
        for (const size_t node : order) {
            graph->nodes[node].work.run();
        }
    };
    if (launched.last_launch != nullptr) {
        wait_for(*on, launched.last_launch);
        on->behind.merge(launched.behind);
    }
    const cudaError_t error = give(c, *on, std::move(work));
    launched.last_launch = mark(*on, engines_.markers);
    launched.behind = on->behind;
    return error;
}

cudaError_t double_core::graph_exec_destroy(call &c, cudaGraphExec_t exec) {
    const auto found = execs_.find(exec);
    if (found == execs_.end()) {
        return misused(c, cuda_rule::handles_are_alive, "no executable graph, or it was destroyed",
                       cudaErrorInvalidValue);
    }
    if (found->second.last_launch != nullptr) {
        engines_.markers.release(found->second.last_launch);
    }
    execs_.erase(found);
    return cudaSuccess;
}

cudaError_t double_core::graph_destroy(call &c, cudaGraph_t graph) {
    if (graphs_.erase(graph) == 0) {
        return misused(c, cuda_rule::handles_are_alive, "no graph, or it was destroyed", cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

}  // namespace ebb::test
