// Built where cuDNN and the headers of its graph API for C++, cudnn_frontend, are found; else cudnn_missing.cpp.
#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "cuda_attention.hpp"
#include "cuda_calls.hpp"

namespace step {
namespace {

namespace fe = cudnn_frontend;

constexpr uint64_t k_element_bytes = 2;

// Numbers of the tensors in the graphs.
enum tensor_number : int64_t {
    k_query = 1,
    k_key,
    k_value,
    k_context,
    k_log_sum,
    k_d_context,
    k_d_query,
    k_d_key,
    k_d_value
};

void check(fe::error_t error, const char *call) {
    if (error.is_bad()) {
        throw train::call_failed(EBB_DEVICE_ERROR, call, error.get_message());
    }
}

void check(cudnnStatus_t status, const char *call) {
    if (status != CUDNN_STATUS_SUCCESS) {
        throw train::call_failed(EBB_DEVICE_ERROR, call, cudnnGetErrorString(status));
    }
}

using tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using shape_of_call = std::tuple<int64_t, int64_t, int64_t, int64_t>;

shape_of_call shape_of(const attention_call &c) {
    return {c.batch.sequences, c.batch.length, c.heads, c.head_width};
}

// A graph for one shape, and the memory that it works in.
struct built_graph {
    std::unique_ptr<fe::graph::Graph> graph;
    uint64_t workspace_bytes = 0;
};

std::vector<int64_t> dimensions(const attention_call &c) {
    return {c.batch.sequences, c.heads, c.batch.length, c.head_width};
}

std::vector<int64_t> strides(const attention_call &c) {
    const int64_t width = c.heads * c.head_width;
    return {c.batch.length * width, c.head_width, width, 1};
}

tensor input(fe::graph::Graph &g, const attention_call &c, const char *name, tensor_number number) {
    return g.tensor(fe::graph::Tensor_attributes()
                        .set_name(name)
                        .set_uid(number)
                        .set_dim(dimensions(c))
                        .set_stride(strides(c))
                        .set_data_type(fe::DataType_t::BFLOAT16));
}

void output(const tensor &t, const attention_call &c, tensor_number number) {
    t->set_output(true)
        .set_uid(number)
        .set_dim(dimensions(c))
        .set_stride(strides(c))
        .set_data_type(fe::DataType_t::BFLOAT16);
}

// [sequences, heads, length, 1] floats.
fe::graph::Tensor_attributes &as_log_sum(fe::graph::Tensor_attributes &t, const attention_call &c) {
    return t.set_uid(k_log_sum)
        .set_dim({c.batch.sequences, c.heads, c.batch.length, 1})
        .set_stride({c.heads * c.batch.length, c.batch.length, 1, 1})
        .set_data_type(fe::DataType_t::FLOAT);
}

std::unique_ptr<fe::graph::Graph> new_graph() {
    auto g = std::make_unique<fe::graph::Graph>();
    g->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    return g;
}

float scale_of(const attention_call &c) {
    return 1.0F / std::sqrt(static_cast<float>(c.head_width));
}

class graph_attention final : public cudnn_attention {
public:
    graph_attention() { check(cudnnCreate(&handle_), "cudnnCreate"); }
    ~graph_attention() override { cudnnDestroy(handle_); }

    void use(const attention_tools &tools, const attention_call &shape) override {
        tools_ = tools;
        check(cudnnSetStream(handle_, tools.stream), "cudnnSetStream");
        forward_graph(shape);
        backward_graph(shape);
    }
    [[nodiscard]] std::string name() const override { return fmt::format("cuDNN {}", cudnnGetVersion()); }

    void run(const attention_call &c) override;
    void run(const attention_backward_call &c) override;

private:
    built_graph &forward_graph(const attention_call &c);
    built_graph &backward_graph(const attention_call &c);
    void build(built_graph &b);
    void execute(built_graph &b, std::unordered_map<int64_t, void *> arrays, void *workspace);

    attention_tools tools_{};
    cudnnHandle_t handle_ = nullptr;
    std::map<shape_of_call, built_graph> forward_, backward_;
};

void graph_attention::build(built_graph &b) {
    check(b.graph->build(handle_, {fe::HeurMode_t::A}), "cudnn_frontend::graph::Graph::build");
    int64_t size_bytes = 0;
    check(b.graph->get_workspace_size(size_bytes), "cudnn_frontend::graph::Graph::get_workspace_size");
    b.workspace_bytes = static_cast<uint64_t>(size_bytes);
}

built_graph &graph_attention::forward_graph(const attention_call &c) {
    built_graph &b = forward_[shape_of(c)];
    if (b.graph != nullptr) {
        return b;
    }
    auto g = new_graph();
    const auto [context, log_sum] =
        g->sdpa(input(*g, c, "query", k_query), input(*g, c, "key", k_key), input(*g, c, "value", k_value),
                fe::graph::SDPA_attributes()
                    .set_name("attention")
                    .set_generate_stats(true)
                    .set_causal_mask(true)
                    .set_attn_scale(scale_of(c)));
    output(context, c, k_context);
    as_log_sum(*log_sum, c).set_output(true);
    b.graph = std::move(g);
    build(b);
    return b;
}

built_graph &graph_attention::backward_graph(const attention_call &c) {
    built_graph &b = backward_[shape_of(c)];
    if (b.graph != nullptr) {
        return b;
    }
    auto g = new_graph();
    fe::graph::Tensor_attributes log_sum;
    log_sum.set_name("log_sum");
    const auto derivatives = g->sdpa_backward(input(*g, c, "query", k_query), input(*g, c, "key", k_key),
                                              input(*g, c, "value", k_value), input(*g, c, "context", k_context),
                                              input(*g, c, "d_context", k_d_context), g->tensor(as_log_sum(log_sum, c)),
                                              fe::graph::SDPA_backward_attributes()
                                                  .set_name("attention_backward")
                                                  .set_causal_mask(true)
                                                  .set_attn_scale(scale_of(c))
                                                  .set_deterministic_algorithm(true));
    output(derivatives[0], c, k_d_query);
    output(derivatives[1], c, k_d_key);
    output(derivatives[2], c, k_d_value);
    b.graph = std::move(g);
    build(b);
    return b;
}

void graph_attention::execute(built_graph &b, std::unordered_map<int64_t, void *> arrays, void *workspace) {
    check(b.graph->execute(handle_, arrays, workspace), "cudnn_frontend::graph::Graph::execute");
}

// What is not wanted is written beside the workspace.
void graph_attention::run(const attention_call &c) {
    built_graph &b = forward_graph(c);
    const auto rows = static_cast<uint64_t>(c.batch.tokens() * c.heads);
    const uint64_t context_bytes =
        c.context == nullptr ? rows * static_cast<uint64_t>(c.head_width) * k_element_bytes : 0;
    const uint64_t log_sum_bytes = c.log_sum == nullptr ? rows * sizeof(float) : 0;
    auto *const memory =
        static_cast<std::byte *>(tools_.workspace->at_least(context_bytes + log_sum_bytes + b.workspace_bytes));
    execute(b,
            {{k_query, const_cast<void *>(c.query)},
             {k_key, const_cast<void *>(c.key)},
             {k_value, const_cast<void *>(c.value)},
             {k_context, c.context == nullptr ? memory : c.context},
             {k_log_sum, c.log_sum == nullptr ? memory + context_bytes : c.log_sum}},
            memory + context_bytes + log_sum_bytes);
}

void graph_attention::run(const attention_backward_call &c) {
    built_graph &b = backward_graph(c.forward);
    const attention_call &f = c.forward;
    execute(b,
            {{k_query, const_cast<void *>(f.query)},
             {k_key, const_cast<void *>(f.key)},
             {k_value, const_cast<void *>(f.value)},
             {k_context, f.context},
             {k_log_sum, f.log_sum},
             {k_d_context, const_cast<void *>(c.d_context)},
             {k_d_query, c.d_query},
             {k_d_key, c.d_key},
             {k_d_value, c.d_value}},
            tools_.workspace->at_least(b.workspace_bytes));
}

}  // namespace

std::unique_ptr<cudnn_attention> make_cudnn_attention() {
    return std::make_unique<graph_attention>();
}

}  // namespace step
