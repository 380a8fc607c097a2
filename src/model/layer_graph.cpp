#include "model/layer_graph.hpp"

#include "model/layer_parts.hpp"

namespace ebb {

uint64_t layer_graph::bytes_of(tensor_role role) const noexcept {
    uint64_t sum = 0;
    for (const layer_tensor &t : tensors) {
        sum += t.role == role ? t.size_bytes : 0;
    }
    return sum;
}

double layer_graph::forward_flops(work_rate rate) const noexcept {
    double sum = 0;
    for (const layer_step &s : forward) {
        sum += s.what == layer_step_kind::work && s.work.rate == rate ? s.work.flops : 0;
    }
    return sum;
}

layer_graph make_layer_graph(const model_profile &model, const mlp_profile &mlp, const layer_shape &shape) {
    layer_writer to(shape);
    const auto hidden = static_cast<double>(model.hidden);
    attention_part attention(model, to);
    mlp_part feed_forward(model, mlp, to);

    to.forward();
    const uint32_t input = to.produce({"decoder_layer_input", to.activations(hidden)});
    const uint32_t after_attention = attention.forward(input);
    feed_forward.forward(input, after_attention);

    to.backward();
    if (shape.recompute_first) {
        to.backward_begins();
    }
    feed_forward.backward();
    // The second norm and the residual sum before it.
    to.use(after_attention);
    to.use(input);
    to.run(to.memory("post_attention_norm_gradient", 5 * hidden));
    to.release(after_attention);
    attention.backward();
    to.run(to.memory("pre_attention_norm_gradient", 5 * hidden));
    to.release(input);
    return to.take();
}

}  // namespace ebb
