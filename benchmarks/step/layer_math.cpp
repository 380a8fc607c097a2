#include "layer_math.hpp"

#include <utility>

namespace step {
namespace {

// Hands out pieces of one array; with a null base it only counts.
class piece_of_memory {
public:
    explicit piece_of_memory(void *base) : base_(static_cast<std::byte *>(base)) {}

    void *take(int64_t elements, uint64_t element_bytes) {
        constexpr uint64_t k_align = 512;
        void *const piece = base_ == nullptr ? nullptr : base_ + used_;
        used_ += (static_cast<uint64_t>(elements) * element_bytes + k_align - 1) / k_align * k_align;
        return piece;
    }
    [[nodiscard]] uint64_t used() const { return used_; }

private:
    std::byte *base_;
    uint64_t used_ = 0;
};

}  // namespace

layer_math::layer_math(step_device &device, const step_shape &shape, const parameters &of)
    : math_(device.math()), shape_(shape), of_(of) {
    const auto carve = [&](piece_of_memory &from) {
        const auto elements = [&](int64_t count) { return from.take(count, math_.element_bytes()); };
        const auto reals = [&](int64_t count) { return from.take(count, math_.real_bytes()); };
        for (element **array : {&derivative_, &normed_, &d_normed_, &residual_, &d_query_, &d_key_, &d_value_}) {
            *array = elements(shape_.hidden_elements());
        }
        d_context_ = residual_;
        const int64_t rows = shape_.most_ffn_rows();
        activated_ = elements(rows * shape_.ffn);
        d_activated_ = elements(rows * shape_.ffn);
        const int64_t expert_rows = shape_.has_experts() ? rows : 0;
        expert_input_ = elements(expert_rows * shape_.width);
        expert_output_ = elements(expert_rows * shape_.width);
        router_logits_ = elements(shape_.tokens() * shape_.experts);
        logits_ = elements(shape_.tokens() * train::k_vocabulary);
        gates_ = reals(shape_.slots());
        d_gates_ = reals(shape_.slots());
    };
    piece_of_memory counter(nullptr);
    carve(counter);
    memory_ = device.allocate(memory_kind::scratch, counter.used());
    piece_of_memory from(memory_.get());
    carve(from);
}

// ---------------------------------------------------------------------------------------------------- forward --

// output = normed * weight, where that is wanted.
void layer_math::into(int64_t offset, void *output, int64_t columns) {
    if (output != nullptr) {
        math_.run(multiply_call{shape_.tokens(), shape_.width, columns, normed_, weight(offset), nullptr, output});
    }
}

void layer_math::project(const layer_arrays &a) {
    math_.run(norm_call{shape_.tokens(), shape_.width, a.saved[k_input], nullptr, nullptr, weight(a.at.attention_norm),
                        normed_});
    into(a.at.query, a.saved[k_query], shape_.width);
    into(a.at.key, a.saved[k_key], shape_.width);
    into(a.at.value, a.saved[k_value], shape_.width);
}

attention_call layer_math::attention_of(const layer_arrays &a) const {
    return {batch(),        shape_.heads,     shape_.head_width(), a.saved[k_query],
            a.saved[k_key], a.saved[k_value], a.saved[k_context],  a.saved[k_log_sum]};
}

void layer_math::attend(const layer_arrays &a) {
    math_.run(attention_of(a));
}

void layer_math::project_out(const layer_arrays &a) {
    math_.run(multiply_call{shape_.tokens(), shape_.width, shape_.width, a.saved[k_context], weight(a.at.out), nullptr,
                            a.saved[k_out_projection]});
}

void layer_math::mlp(const layer_arrays &a) {
    math_.run(norm_call{shape_.tokens(), shape_.width, a.saved[k_input], a.saved[k_out_projection], residual_,
                        weight(a.at.mlp_norm), normed_});
    if (shape_.has_experts()) {
        experts_forward(a);
        return;
    }
    into(a.at.gate, a.saved[k_gate], shape_.ffn);
    into(a.at.up, a.saved[k_up], shape_.ffn);
    if (a.output != nullptr) {
        math_.run(swiglu_call{shape_.tokens(), shape_.ffn, a.saved[k_gate], a.saved[k_up], {}, activated_});
        math_.run(multiply_call{shape_.tokens(), shape_.ffn, shape_.width, activated_, weight(a.at.down), residual_,
                                a.output});
    }
}

void layer_math::experts_forward(const layer_arrays &a) {
    math_.run(gather_call{a.route->rows(), shape_.width, normed_, a.route->token_of_row, expert_input_});
    for (const auto &[id, offset] : {std::pair(k_gate, a.at.gate), std::pair(k_up, a.at.up)}) {
        element *const output = a.saved[id];
        const int64_t first = offset;
        if (output == nullptr) {
            continue;
        }
        for_each_expert(a, [&](int64_t expert, int64_t rows, int64_t own) {
            math_.run(multiply_call{rows, shape_.width, shape_.ffn, rows_of(a, expert, expert_input_, shape_.width),
                                    weight(first + own), nullptr, rows_of(a, expert, output, shape_.ffn)});
        });
    }
    if (a.output != nullptr) {
        experts_output(a);
    }
}

void layer_math::route(const layer_arrays &a) {
    into(a.at.router, router_logits_, shape_.experts);
    math_.run(
        gates_call{shape_.tokens(), shape_.experts, shape_.top_k, router_logits_, a.route->expert_of_slot, gates_});
}

void layer_math::experts_output(const layer_arrays &a) {
    route(a);
    const row_scale scale{gates_, a.route->slot_of_row};
    math_.run(swiglu_call{a.route->rows(), shape_.ffn, a.saved[k_gate], a.saved[k_up], scale, activated_});
    for_each_expert(a, [&](int64_t expert, int64_t rows, int64_t own) {
        math_.run(multiply_call{rows, shape_.ffn, shape_.width, rows_of(a, expert, activated_, shape_.ffn),
                                weight(a.at.down + own), nullptr, rows_of(a, expert, expert_output_, shape_.width)});
    });
    math_.run(combine_call{shape_.tokens(), shape_.top_k, shape_.width, expert_output_, a.route->row_of_slot, residual_,
                           a.output});
}

// --------------------------------------------------------------------------------------------------- backward --

void layer_math::mlp_backward(const layer_arrays &a) {
    math_.run(norm_call{shape_.tokens(), shape_.width, a.saved[k_input], a.saved[k_out_projection], residual_,
                        weight(a.at.mlp_norm), normed_});
    if (shape_.has_experts()) {
        experts_backward(a);
    } else {
        dense_backward(a);
    }
    math_.run(norm_backward_call{shape_.tokens(), shape_.width, residual_, weight(a.at.mlp_norm), d_normed_,
                                 gradient(a.at.mlp_norm), derivative_});
}

void layer_math::dense_backward(const layer_arrays &a) {
    const int64_t tokens = shape_.tokens();
    const int64_t width = shape_.width;
    const int64_t ffn = shape_.ffn;
    math_.run(swiglu_call{tokens, ffn, a.saved[k_gate], a.saved[k_up], {}, activated_});
    math_.run(weight_gradient_call{tokens, ffn, width, activated_, derivative_, gradient(a.at.down)});
    math_.run(multiply_back_call{tokens, ffn, width, derivative_, weight(a.at.down), nullptr, d_activated_});
    element *const d_gate = activated_;
    element *const d_up = d_activated_;
    math_.run(swiglu_backward_call{tokens, ffn, a.saved[k_gate], a.saved[k_up], {}, d_activated_, d_gate, nullptr});
    math_.run(weight_gradient_call{tokens, width, ffn, normed_, d_gate, gradient(a.at.gate)});
    math_.run(weight_gradient_call{tokens, width, ffn, normed_, d_up, gradient(a.at.up)});
    math_.run(multiply_back_call{tokens, width, ffn, d_gate, weight(a.at.gate), nullptr, d_normed_});
    math_.run(multiply_back_call{tokens, width, ffn, d_up, weight(a.at.up), d_normed_, d_normed_});
}

void layer_math::experts_backward(const layer_arrays &a) {
    route(a);
    experts_down_backward(a);
    experts_up_backward(a);
    router_backward(a);
}

// Leaves the derivatives by gate in activated_, those by up in d_activated_ and those by the gates in d_gates_.
void layer_math::experts_down_backward(const layer_arrays &a) {
    const row_scale scale{gates_, a.route->slot_of_row};
    element *const d_output = expert_output_;
    math_.run(gather_call{a.route->rows(), shape_.width, derivative_, a.route->token_of_row, d_output});
    math_.run(swiglu_call{a.route->rows(), shape_.ffn, a.saved[k_gate], a.saved[k_up], scale, activated_});
    for_each_expert(a, [&](int64_t expert, int64_t rows, int64_t own) {
        const element *const upstream = rows_of(a, expert, d_output, shape_.width);
        math_.run(weight_gradient_call{rows, shape_.ffn, shape_.width, rows_of(a, expert, activated_, shape_.ffn),
                                       upstream, gradient(a.at.down + own)});
        math_.run(multiply_back_call{rows, shape_.ffn, shape_.width, upstream, weight(a.at.down + own), nullptr,
                                     rows_of(a, expert, d_activated_, shape_.ffn)});
    });
    // Slots without a row have no part in the loss.
    math_.run(clear_call{d_gates_, static_cast<uint64_t>(shape_.slots()) * math_.real_bytes()});
    math_.run(swiglu_backward_call{a.route->rows(), shape_.ffn, a.saved[k_gate], a.saved[k_up], scale, d_activated_,
                                   activated_, d_gates_});
}

// Leaves in d_normed_ what comes through the experts.
void layer_math::experts_up_backward(const layer_arrays &a) {
    math_.run(gather_call{a.route->rows(), shape_.width, normed_, a.route->token_of_row, expert_input_});
    for_each_expert(a, [&](int64_t expert, int64_t rows, int64_t own) {
        const element *const input = rows_of(a, expert, expert_input_, shape_.width);
        const element *const d_gate = rows_of(a, expert, activated_, shape_.ffn);
        const element *const d_up = rows_of(a, expert, d_activated_, shape_.ffn);
        element *const d_input = rows_of(a, expert, expert_output_, shape_.width);
        math_.run(weight_gradient_call{rows, shape_.width, shape_.ffn, input, d_gate, gradient(a.at.gate + own)});
        math_.run(weight_gradient_call{rows, shape_.width, shape_.ffn, input, d_up, gradient(a.at.up + own)});
        math_.run(
            multiply_back_call{rows, shape_.width, shape_.ffn, d_gate, weight(a.at.gate + own), nullptr, d_input});
        math_.run(multiply_back_call{rows, shape_.width, shape_.ffn, d_up, weight(a.at.up + own), d_input, d_input});
    });
    math_.run(combine_call{shape_.tokens(), shape_.top_k, shape_.width, expert_output_, a.route->row_of_slot, nullptr,
                           d_normed_});
}

void layer_math::router_backward(const layer_arrays &a) {
    element *const d_logits = router_logits_;
    math_.run(gates_backward_call{shape_.tokens(), shape_.experts, shape_.top_k, gates_, d_gates_,
                                  a.route->expert_of_slot, d_logits});
    math_.run(
        weight_gradient_call{shape_.tokens(), shape_.width, shape_.experts, normed_, d_logits, gradient(a.at.router)});
    math_.run(multiply_back_call{shape_.tokens(), shape_.width, shape_.experts, d_logits, weight(a.at.router),
                                 d_normed_, d_normed_});
}

void layer_math::attention_backward(const layer_arrays &a) {
    const int64_t tokens = shape_.tokens();
    const int64_t width = shape_.width;
    math_.run(weight_gradient_call{tokens, width, width, a.saved[k_context], derivative_, gradient(a.at.out)});
    math_.run(multiply_back_call{tokens, width, width, derivative_, weight(a.at.out), nullptr, d_context_});
    math_.run(attention_backward_call{attention_of(a), d_context_, d_query_, d_key_, d_value_});
    math_.run(norm_call{tokens, width, a.saved[k_input], nullptr, nullptr, weight(a.at.attention_norm), normed_});
    const element *plus = nullptr;
    for (const auto &[d, offset] :
         {std::pair(d_query_, a.at.query), std::pair(d_key_, a.at.key), std::pair(d_value_, a.at.value)}) {
        math_.run(weight_gradient_call{tokens, width, width, normed_, d, gradient(offset)});
        math_.run(multiply_back_call{tokens, width, width, d, weight(offset), plus, d_normed_});
        plus = d_normed_;
    }
    math_.run(norm_backward_call{tokens, width, a.saved[k_input], weight(a.at.attention_norm), d_normed_,
                                 gradient(a.at.attention_norm), derivative_});
}

// -------------------------------------------------------------------------------------------------- both ends --

void layer_math::embed(const uint8_t *tokens, element *output) {
    const model_offsets at = offsets_of(shape_);
    math_.run(
        embed_call{batch(), shape_.width, tokens, weight(at.token_embedding), weight(at.position_embedding), output});
}

void layer_math::embed_backward(const uint8_t *tokens) {
    const model_offsets at = offsets_of(shape_);
    math_.run(embed_backward_call{batch(), shape_.width, tokens, derivative_, gradient(at.token_embedding),
                                  gradient(at.position_embedding)});
}

void layer_math::head(const uint8_t *tokens, const element *hidden, double scale, double *loss) {
    const model_offsets at = offsets_of(shape_);
    const int64_t rows = shape_.tokens();
    const int64_t width = shape_.width;
    math_.run(norm_call{rows, width, hidden, nullptr, nullptr, weight(at.final_norm), normed_});
    math_.run(multiply_call{rows, width, train::k_vocabulary, normed_, weight(at.head), nullptr, logits_});
    math_.run(cross_entropy_call{batch(), train::k_vocabulary, tokens, logits_, scale, loss});
    math_.run(weight_gradient_call{rows, width, train::k_vocabulary, normed_, logits_, gradient(at.head)});
    math_.run(multiply_back_call{rows, width, train::k_vocabulary, logits_, weight(at.head), nullptr, d_normed_});
    math_.run(clear_call{derivative_, static_cast<uint64_t>(shape_.hidden_elements()) * math_.element_bytes()});
    math_.run(norm_backward_call{rows, width, hidden, weight(at.final_norm), d_normed_, gradient(at.final_norm),
                                 derivative_});
}

}  // namespace step
