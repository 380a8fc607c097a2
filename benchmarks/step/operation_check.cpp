#include "operation_check.hpp"

#include <functional>

#include "cpu_math.hpp"
#include "operands.hpp"
#include "routing.hpp"

namespace step {
namespace {

using array = operands::array;
// Where an array of the operation lies.
using place = std::function<void *(array which)>;
// Runs the operation on arrays that lie there.
using operation = std::function<void(step_math &math, const place &at)>;

struct operation_case {
    const char *name;
    operation (*prepare)(operands &o);
    double roundings = 1;  // how many times more of them than in others
};

constexpr int64_t k_rows = 320;
constexpr int64_t k_width = 256;
constexpr int64_t k_columns = 384;
constexpr batch_shape k_batch{3, 200};
constexpr int64_t k_vocabulary = 256;

std::vector<uint8_t> some_tokens(const batch_shape &batch) {
    std::vector<uint8_t> tokens(static_cast<size_t>(batch.sequences * (batch.length + 1)));
    for (size_t i = 0; i < tokens.size(); ++i) {
        tokens[i] = static_cast<uint8_t>(i * i % 251);
    }
    return tokens;
}

// Some slots have no row.
struct routed {
    step_shape shape;
    routing table;
};

const routed &some_routing() {
    static const routed made = [] {
        routed r;
        r.shape.sequence = 160;
        r.shape.micro_batch = 2;
        r.shape.experts = 8;
        r.shape.top_k = 3;
        r.shape.capacity_factor = 1.1;
        r.table = draw_routing(r.shape, 5);
        return r;
    }();
    return made;
}

operation clear_case(operands &o) {
    const array x = o.reals(1000);
    return [=](step_math &math, const place &at) { math.run(clear_call{at(x), 900 * math.real_bytes()}); };
}

operation fill_case(operands &o) {
    const array weights = o.elements(1000);
    const array master = o.reals(1000);
    return [=](step_math &math, const place &at) { math.run(fill_call{at(weights), at(master), 1000, 9, 0.5, 2}); };
}

operation embed_case(operands &o) {
    const array tokens = o.bytes(some_tokens(k_batch));
    const array embedding = o.elements(k_vocabulary * k_width);
    const array positions = o.elements(k_batch.length * k_width);
    const array output = o.elements(k_batch.tokens() * k_width);
    return [=](step_math &math, const place &at) {
        math.run(
            embed_call{k_batch, k_width, static_cast<uint8_t *>(at(tokens)), at(embedding), at(positions), at(output)});
    };
}

operation embed_backward_case(operands &o) {
    const array tokens = o.bytes(some_tokens(k_batch));
    const array derivative = o.elements(k_batch.tokens() * k_width);
    const array of_tokens = o.reals(k_vocabulary * k_width);
    const array of_positions = o.reals(k_batch.length * k_width);
    return [=](step_math &math, const place &at) {
        math.run(embed_backward_call{k_batch, k_width, static_cast<uint8_t *>(at(tokens)), at(derivative),
                                     at(of_tokens), at(of_positions)});
    };
}

operation norm_case(operands &o) {
    const array input = o.elements(k_rows * k_width);
    const array weight = o.elements(k_width, 1);
    const array output = o.elements(k_rows * k_width);
    return [=](step_math &math, const place &at) {
        math.run(norm_call{k_rows, k_width, at(input), nullptr, nullptr, at(weight), at(output)});
    };
}

operation norm_of_sum_case(operands &o) {
    const array input = o.elements(k_rows * k_width);
    const array plus = o.elements(k_rows * k_width);
    const array sum = o.elements(k_rows * k_width);
    const array weight = o.elements(k_width, 1);
    const array output = o.elements(k_rows * k_width);
    return [=](step_math &math, const place &at) {
        math.run(norm_call{k_rows, k_width, at(input), at(plus), at(sum), at(weight), at(output)});
    };
}

operation norm_backward_case(operands &o) {
    const array input = o.elements(k_rows * k_width);
    const array weight = o.elements(k_width, 1);
    const array upstream = o.elements(k_rows * k_width);
    const array gradient = o.reals(k_width);
    const array derivative = o.elements(k_rows * k_width);
    return [=](step_math &math, const place &at) {
        math.run(
            norm_backward_call{k_rows, k_width, at(input), at(weight), at(upstream), at(gradient), at(derivative)});
    };
}

operation multiply_case(operands &o) {
    const array left = o.elements(k_rows * k_width);
    const array right = o.elements(k_width * k_columns);
    const array output = o.elements(k_rows * k_columns);
    return [=](step_math &math, const place &at) {
        math.run(multiply_call{k_rows, k_width, k_columns, at(left), at(right), nullptr, at(output)});
    };
}

operation multiply_and_add_case(operands &o) {
    const array left = o.elements(k_rows * k_width);
    const array right = o.elements(k_width * k_columns);
    const array plus = o.elements(k_rows * k_columns, 0, 8);
    const array output = o.elements(k_rows * k_columns);
    return [=](step_math &math, const place &at) {
        math.run(multiply_call{k_rows, k_width, k_columns, at(left), at(right), at(plus), at(output)});
    };
}

operation multiply_back_case(operands &o) {
    const array left = o.elements(k_rows * k_columns);
    const array right = o.elements(k_width * k_columns);
    const array output = o.elements(k_rows * k_width, 0, 8);
    const array again = o.elements(k_rows * k_width);
    return [=](step_math &math, const place &at) {
        math.run(multiply_back_call{k_rows, k_width, k_columns, at(left), at(right), at(output), at(output)});
        math.run(multiply_back_call{k_rows, k_width, k_columns, at(left), at(right), nullptr, at(again)});
    };
}

operation weight_gradient_case(operands &o) {
    const array input = o.elements(k_rows * k_width);
    const array upstream = o.elements(k_rows * k_columns);
    const array gradient = o.reals(k_width * k_columns, 0, 8);
    return [=](step_math &math, const place &at) {
        math.run(weight_gradient_call{k_rows, k_width, k_columns, at(input), at(upstream), at(gradient)});
    };
}

template <int64_t length, int64_t head_width>
operation attention_case(operands &o) {
    constexpr batch_shape batch{2, length};
    constexpr int64_t heads = 2;
    constexpr int64_t count = batch.tokens() * heads * head_width;
    const array query = o.elements(count);
    const array key = o.elements(count);
    const array value = o.elements(count);
    const array context = o.elements(count);
    const array log_sum = o.reals(batch.tokens() * heads);
    const array d_context = o.elements(count);
    const array d_query = o.elements(count);
    const array d_key = o.elements(count);
    const array d_value = o.elements(count);
    return [=](step_math &math, const place &at) {
        const attention_call forward{batch, heads, head_width, at(query), at(key), at(value), at(context), at(log_sum)};
        math.run(forward);
        math.run(attention_backward_call{forward, at(d_context), at(d_query), at(d_key), at(d_value)});
    };
}

operation swiglu_case(operands &o) {
    const array gate = o.elements(k_rows * k_columns, 0, 4);
    const array up = o.elements(k_rows * k_columns);
    const array output = o.elements(k_rows * k_columns);
    const array derivative = o.elements(k_rows * k_columns);
    const array d_gate = o.elements(k_rows * k_columns);
    return [=](step_math &math, const place &at) {
        math.run(swiglu_call{k_rows, k_columns, at(gate), at(up), {}, at(output)});
        math.run(swiglu_backward_call{k_rows, k_columns, at(gate), at(up), {}, at(derivative), at(d_gate), nullptr});
    };
}

operation scaled_swiglu_case(operands &o) {
    const routed &r = some_routing();
    const int64_t rows = r.table.rows();
    const array gate = o.elements(rows * k_columns, 0, 4);
    const array up = o.elements(rows * k_columns);
    const array scale = o.reals(r.shape.slots(), 0.5, 0.5);
    const array slots = o.indices(r.table.slot_of_row);
    const array output = o.elements(rows * k_columns);
    const array derivative = o.elements(rows * k_columns);
    const array d_gate = o.elements(rows * k_columns);
    const array d_scale = o.reals(r.shape.slots());
    return [=](step_math &math, const place &at) {
        const row_scale by_slot{at(scale), static_cast<int32_t *>(at(slots))};
        math.run(swiglu_call{rows, k_columns, at(gate), at(up), by_slot, at(output)});
        math.run(
            swiglu_backward_call{rows, k_columns, at(gate), at(up), by_slot, at(derivative), at(d_gate), at(d_scale)});
    };
}

operation gates_case(operands &o) {
    const step_shape &shape = some_routing().shape;
    const array logits = o.elements(shape.tokens() * shape.experts, 0, 3);
    const array experts = o.indices(some_routing().table.expert_of_slot);
    const array gates = o.reals(shape.slots());
    const array d_gates = o.reals(shape.slots());
    const array d_logits = o.elements(shape.tokens() * shape.experts);
    return [=, tokens = shape.tokens(), count = shape.experts, top_k = shape.top_k](step_math &math, const place &at) {
        const auto *const of_slot = static_cast<int32_t *>(at(experts));
        math.run(gates_call{tokens, count, top_k, at(logits), of_slot, at(gates)});
        math.run(gates_backward_call{tokens, count, top_k, at(gates), at(d_gates), of_slot, at(d_logits)});
    };
}

operation gather_and_combine_case(operands &o) {
    const step_shape &shape = some_routing().shape;
    const int64_t rows = some_routing().table.rows();
    const array source = o.elements(shape.tokens() * k_width);
    const array tokens_of = o.indices(some_routing().table.token_of_row);
    const array rows_of = o.indices(some_routing().table.row_of_slot);
    const array gathered = o.elements(rows * k_width);
    const array plus = o.elements(shape.tokens() * k_width);
    const array combined = o.elements(shape.tokens() * k_width);
    const array alone = o.elements(shape.tokens() * k_width);
    return [=, tokens = shape.tokens(), top_k = shape.top_k](step_math &math, const place &at) {
        const auto *const row_of_slot = static_cast<int32_t *>(at(rows_of));
        math.run(gather_call{rows, k_width, at(source), static_cast<int32_t *>(at(tokens_of)), at(gathered)});
        math.run(combine_call{tokens, top_k, k_width, at(gathered), row_of_slot, at(plus), at(combined)});
        math.run(combine_call{tokens, top_k, k_width, at(gathered), row_of_slot, nullptr, at(alone)});
    };
}

operation cross_entropy_case(operands &o) {
    const array tokens = o.bytes(some_tokens(k_batch));
    const array logits = o.elements(k_batch.tokens() * k_vocabulary, 0, 4);
    const array loss = o.loss();
    return [=](step_math &math, const place &at) {
        math.run(cross_entropy_call{k_batch, k_vocabulary, static_cast<uint8_t *>(at(tokens)), at(logits), 0.125,
                                    static_cast<double *>(at(loss))});
    };
}

operation adamw_case(operands &o) {
    const array weights = o.elements(1000);
    const array master = o.reals(1000);
    const array gradients = o.reals(1000);
    const array first = o.reals(1000);
    const array second = o.reals(1000, 2);
    return [=](step_math &math, const place &at) {
        math.run(adamw_call{1000, at(weights), at(master), at(gradients), at(first), at(second), 3, 0.01});
    };
}

constexpr operation_case k_cases[] = {
    {"clear", clear_case},
    {"fill", fill_case},
    {"embed", embed_case},
    {"embed_backward", embed_backward_case},
    {"norm", norm_case},
    {"norm_of_sum", norm_of_sum_case},
    {"norm_backward", norm_backward_case},
    {"multiply", multiply_case},
    {"multiply_and_add", multiply_and_add_case},
    {"multiply_back", multiply_back_case},
    {"weight_gradient", weight_gradient_case},
    {"attention_64", attention_case<256, 64>, 2},
    {"attention_128", attention_case<640, 128>, 2},
    {"attention_odd_length", attention_case<200, 64>, 2},
    {"swiglu", swiglu_case},
    {"scaled_swiglu", scaled_swiglu_case},
    {"gates", gates_case},
    {"gather_and_combine", gather_and_combine_case},
    {"cross_entropy", cross_entropy_case},
    {"adamw", adamw_case},
};

// A few roundings of what the device stores, those of products in between included.
double tolerance_of(const step_math &math) {
    return math.element_bytes() == 2 ? 0.03 : 2e-5;
}

operation_result check_case(step_device &device, const operation_case &c) {
    operands own(1);
    const operation run = c.prepare(own);
    const auto there = [&own](array which) { return own.there(which); };
    own.upload(device);
    run(device.math(), there);
    const std::vector<std::byte> first = own.download(device);
    own.upload(device);
    run(device.math(), there);
    direct_math<double> exact;
    operation_result result{c.name, 0, c.roundings * tolerance_of(device.math()), own.download(device) == first};
    run(exact, [&own](array which) { return own.here(which); });
    result.error = own.difference(device);
    return result;
}

}  // namespace

std::vector<operation_result> check_operations(step_device &device) {
    std::vector<operation_result> results;
    for (const operation_case &c : k_cases) {
        results.push_back(check_case(device, c));
    }
    return results;
}

}  // namespace step
