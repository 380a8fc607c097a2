#include "cuda_kernels.hpp"

#include <cuda_bf16.h>

#include <cmath>

#include "../random_values.hpp"
#include "adamw_step.hpp"

namespace step {
namespace {

using bf16 = __nv_bfloat16;

// Tests run the kernels on the CPU, where a block's threads take turns (tests/cuda_on_cpu).
#if defined(__CUDACC__)
constexpr int k_threads = 256;  // of a block
#define EBB_STEP_LAUNCH(kernel, grid, stream) kernel<<<grid, k_threads, 0, stream>>>
#else
constexpr int k_threads = 64;
#define EBB_STEP_LAUNCH(kernel, grid, stream) cuda_on_cpu::launch_of(kernel, grid, k_threads, stream)
#endif
constexpr int k_pack = 8;            // elements that a thread reads at once: 16 bytes
constexpr int k_rows_per_sum = 128;  // rows whose terms one partial sum holds
constexpr float k_norm_epsilon = 1e-5F;

// As they lie in memory.
struct alignas(16) stored_pack {
    __nv_bfloat162 pairs[k_pack / 2];
};

struct pack {
    float value[k_pack];
};

__device__ pack load(const void *array, int64_t index) {
    const stored_pack stored = static_cast<const stored_pack *>(array)[index];
    pack p;
    for (int i = 0; i < k_pack / 2; ++i) {
        const float2 two = __bfloat1622float2(stored.pairs[i]);
        p.value[2 * i] = two.x;
        p.value[2 * i + 1] = two.y;
    }
    return p;
}

__device__ void store(void *array, int64_t index, const pack &p) {
    stored_pack stored;
    for (int i = 0; i < k_pack / 2; ++i) {
        stored.pairs[i] = __floats2bfloat162_rn(p.value[2 * i], p.value[2 * i + 1]);
    }
    static_cast<stored_pack *>(array)[index] = stored;
}

// As it will be when it was stored.
__device__ float rounded(float value) {
    return __bfloat162float(__float2bfloat16_rn(value));
}

__device__ float sigmoid(float x) {
    return 1.0F / (1.0F + expf(-x));
}

__device__ int64_t thread_index() {
    return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ int64_t tokens_in(const batch_shape &batch) {
    return batch.sequences * batch.length;
}

__device__ int64_t token_at(const uint8_t *tokens, int64_t t, int64_t length) {
    return tokens[t / length * (length + 1) + t % length];
}

struct add {
    template <class number>
    __device__ number operator()(number a, number b) const {
        return a + b;
    }
};

struct larger {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// The values of a block's threads together, in all of them, always in the same order.
template <class number, class operation>
__device__ number reduce_block(number value, operation together) {
    __shared__ number of_warp[32];
    for (int distance = 16; distance > 0; distance /= 2) {
        value = together(value, __shfl_xor_sync(0xffffffffU, value, distance));
    }
    const unsigned warp = threadIdx.x / 32;
    __syncthreads();  // the reduction before may still be read
    if (threadIdx.x % 32 == 0) {
        of_warp[warp] = value;
    }
    __syncthreads();
    number all = of_warp[0];
    for (unsigned w = 1; w < blockDim.x / 32; ++w) {
        all = together(all, of_warp[w]);
    }
    return all;
}

unsigned blocks_for(int64_t threads) {
    return static_cast<unsigned>((threads + k_threads - 1) / k_threads);
}

// ---------------------------------------------------------------------------------------------- weights, tokens --

__global__ void fill(fill_call c) {
    const int64_t i = thread_index();
    if (i < c.elements) {
        const double unit = random_unit(c.seed, static_cast<uint64_t>(i));
        const auto value = static_cast<float>(c.middle + (unit - 0.5) * c.range);
        static_cast<float *>(c.master)[i] = value;
        static_cast<bf16 *>(c.weights)[i] = __float2bfloat16_rn(value);
    }
}

__global__ void embed(embed_call c) {
    const int64_t i = thread_index();
    const int64_t packs = c.width / k_pack;
    const int64_t t = i / packs;
    if (t < tokens_in(c.batch)) {
        pack sum = load(c.token_embedding, token_at(c.tokens, t, c.batch.length) * packs + i % packs);
        const pack position = load(c.position_embedding, t % c.batch.length * packs + i % packs);
        for (int k = 0; k < k_pack; ++k) {
            sum.value[k] += position.value[k];
        }
        store(c.output, i, sum);
    }
}

// blockIdx.y is a byte of the vocabulary: its gradient is the sum over all places where it stands.
__global__ void embed_token_gradient(embed_backward_call c) {
    const int64_t packs = c.width / k_pack;
    const int64_t column = thread_index();
    if (column >= packs) {
        return;
    }
    pack sum = {};
    int64_t t = 0;
    for (int64_t s = 0; s < c.batch.sequences; ++s) {
        const uint8_t *const tokens = c.tokens + s * (c.batch.length + 1);
        for (int64_t at = 0; at < c.batch.length; ++at, ++t) {
            if (tokens[at] == blockIdx.y) {
                const pack d = load(c.derivative, t * packs + column);
                for (int k = 0; k < k_pack; ++k) {
                    sum.value[k] += d.value[k];
                }
            }
        }
    }
    float *const gradient = static_cast<float *>(c.token_gradient) + blockIdx.y * c.width + column * k_pack;
    for (int k = 0; k < k_pack; ++k) {
        gradient[k] += sum.value[k];
    }
}

__global__ void embed_position_gradient(embed_backward_call c) {
    const int64_t packs = c.width / k_pack;
    const int64_t i = thread_index();
    if (i >= c.batch.length * packs) {
        return;
    }
    pack sum = {};
    for (int64_t s = 0; s < c.batch.sequences; ++s) {
        const pack d = load(c.derivative, s * c.batch.length * packs + i);
        for (int k = 0; k < k_pack; ++k) {
            sum.value[k] += d.value[k];
        }
    }
    for (int k = 0; k < k_pack; ++k) {
        static_cast<float *>(c.position_gradient)[i * k_pack + k] += sum.value[k];
    }
}

// -------------------------------------------------------------------------------------------------------- norms --

__device__ float norm_scale(float sum_of_squares, int64_t width) {
    return rsqrtf(sum_of_squares / static_cast<float>(width) + k_norm_epsilon);
}

// A block for each row.
__global__ void norm(norm_call c) {
    const int64_t packs = c.width / k_pack;
    const int64_t first = blockIdx.x * packs;
    float squares = 0;
    for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
        pack x = load(c.input, first + i);
        if (c.plus != nullptr) {
            const pack plus = load(c.plus, first + i);
            for (int k = 0; k < k_pack; ++k) {
                x.value[k] = rounded(x.value[k] + plus.value[k]);
            }
            store(c.sum != nullptr ? c.sum : c.output, first + i, x);
        }
        for (int k = 0; k < k_pack; ++k) {
            squares += x.value[k] * x.value[k];
        }
    }
    const float scale = norm_scale(reduce_block(squares, add()), c.width);
    const void *const input = c.plus == nullptr ? c.input : (c.sum != nullptr ? c.sum : c.output);
    for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
        pack x = load(input, first + i);  // what this thread stored above
        const pack weight = load(c.weight, i);
        for (int k = 0; k < k_pack; ++k) {
            x.value[k] *= scale * weight.value[k];
        }
        store(c.output, first + i, x);
    }
}

// A block for each row; leaves its scale for the gradient of the weights.
__global__ void norm_backward(norm_backward_call c, float *scales) {
    const int64_t packs = c.width / k_pack;
    const int64_t first = blockIdx.x * packs;
    float squares = 0;
    float along = 0;
    for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
        const pack x = load(c.input, first + i);
        const pack upstream = load(c.upstream, first + i);
        const pack weight = load(c.weight, i);
        for (int k = 0; k < k_pack; ++k) {
            squares += x.value[k] * x.value[k];
            along += upstream.value[k] * weight.value[k] * x.value[k];
        }
    }
    const float scale = norm_scale(reduce_block(squares, add()), c.width);
    along = reduce_block(along, add()) / static_cast<float>(c.width) * scale * scale;
    for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
        const pack x = load(c.input, first + i);
        const pack upstream = load(c.upstream, first + i);
        const pack weight = load(c.weight, i);
        pack derivative = load(c.derivative, first + i);
        for (int k = 0; k < k_pack; ++k) {
            derivative.value[k] += (upstream.value[k] * weight.value[k] - x.value[k] * along) * scale;
        }
        store(c.derivative, first + i, derivative);
    }
    if (threadIdx.x == 0) {
        scales[blockIdx.x] = scale;
    }
}

// partial[blockIdx.y, column]: the sum over some rows.
__global__ void norm_weight_terms(norm_backward_call c, const float *scales, float *partial) {
    const int64_t packs = c.width / k_pack;
    const int64_t column = thread_index();
    if (column >= packs) {
        return;
    }
    const int64_t first = static_cast<int64_t>(blockIdx.y) * k_rows_per_sum;
    const int64_t last = first + k_rows_per_sum < c.rows ? first + k_rows_per_sum : c.rows;
    pack sum = {};
    for (int64_t r = first; r < last; ++r) {
        const pack x = load(c.input, r * packs + column);
        const pack upstream = load(c.upstream, r * packs + column);
        for (int k = 0; k < k_pack; ++k) {
            sum.value[k] += upstream.value[k] * x.value[k] * scales[r];
        }
    }
    for (int k = 0; k < k_pack; ++k) {
        partial[blockIdx.y * c.width + column * k_pack + k] = sum.value[k];
    }
}

__global__ void add_partial_sums(const float *partial, int64_t sums, int64_t width, float *gradient) {
    const int64_t column = thread_index();
    if (column < width) {
        float sum = gradient[column];
        for (int64_t i = 0; i < sums; ++i) {
            sum += partial[i * width + column];
        }
        gradient[column] = sum;
    }
}

int64_t row_sums(int64_t rows) {
    return (rows + k_rows_per_sum - 1) / k_rows_per_sum;
}

// ------------------------------------------------------------------------------------------------------- SwiGLU --

__device__ float scale_of_row(const row_scale &scale, int64_t r) {
    return scale.values == nullptr ? 1.0F : static_cast<const float *>(scale.values)[scale.slot_of_row[r]];
}

__global__ void swiglu(swiglu_call c) {
    const int64_t i = thread_index();
    const int64_t packs = c.columns / k_pack;
    if (i < c.rows * packs) {
        const float scale = scale_of_row(c.scale, i / packs);
        pack gate = load(c.gate, i);
        const pack up = load(c.up, i);
        for (int k = 0; k < k_pack; ++k) {
            gate.value[k] *= sigmoid(gate.value[k]) * up.value[k] * scale;
        }
        store(c.output, i, gate);
    }
}

// A block for each row.
__global__ void swiglu_backward(swiglu_backward_call c) {
    const int64_t packs = c.columns / k_pack;
    const int64_t first = blockIdx.x * packs;
    const float scale = scale_of_row(c.scale, blockIdx.x);
    float of_scale = 0;
    for (int64_t i = first + threadIdx.x; i < first + packs; i += blockDim.x) {
        const pack gate = load(c.gate, i);
        const pack up = load(c.up, i);
        const pack d = load(c.derivative, i);
        pack d_gate;
        pack d_up;
        for (int k = 0; k < k_pack; ++k) {
            const float s = sigmoid(gate.value[k]);
            const float silu = gate.value[k] * s;
            of_scale += d.value[k] * silu * up.value[k];
            d_gate.value[k] = d.value[k] * scale * up.value[k] * s * (1.0F + gate.value[k] * (1.0F - s));
            d_up.value[k] = d.value[k] * scale * silu;
        }
        store(c.d_gate, i, d_gate);
        store(c.derivative, i, d_up);
    }
    if (c.d_scale != nullptr) {
        of_scale = reduce_block(of_scale, add());
        if (threadIdx.x == 0) {
            static_cast<float *>(c.d_scale)[c.scale.slot_of_row[blockIdx.x]] = of_scale;
        }
    }
}

// ------------------------------------------------------------------------------------------------------ experts --

// A thread for each token: it goes to few experts.
__global__ void gates(gates_call c) {
    const int64_t t = thread_index();
    if (t >= c.tokens) {
        return;
    }
    const bf16 *const logits = static_cast<const bf16 *>(c.logits) + t * c.experts;
    const int32_t *const expert = c.expert_of_slot + t * c.top_k;
    float *const gate = static_cast<float *>(c.gates) + t * c.top_k;
    float largest = -INFINITY;
    for (int64_t k = 0; k < c.top_k; ++k) {
        gate[k] = __bfloat162float(logits[expert[k]]);
        largest = fmaxf(largest, gate[k]);
    }
    float sum = 0;
    for (int64_t k = 0; k < c.top_k; ++k) {
        gate[k] = expf(gate[k] - largest);
        sum += gate[k];
    }
    for (int64_t k = 0; k < c.top_k; ++k) {
        gate[k] /= sum;
    }
}

__global__ void gates_backward(gates_backward_call c) {
    const int64_t t = thread_index();
    if (t >= c.tokens) {
        return;
    }
    const float *const gate = static_cast<const float *>(c.gates) + t * c.top_k;
    const float *const d_gate = static_cast<const float *>(c.d_gates) + t * c.top_k;
    float along = 0;
    for (int64_t k = 0; k < c.top_k; ++k) {
        along += gate[k] * d_gate[k];
    }
    bf16 *const d_logits = static_cast<bf16 *>(c.d_logits) + t * c.experts;
    for (int64_t k = 0; k < c.top_k; ++k) {
        d_logits[c.expert_of_slot[t * c.top_k + k]] = __float2bfloat16_rn(gate[k] * (d_gate[k] - along));
    }
}

__global__ void gather(gather_call c) {
    const int64_t i = thread_index();
    const int64_t packs = c.width / k_pack;
    if (i < c.rows * packs) {
        const int64_t token = c.token_of_row[i / packs];
        static_cast<stored_pack *>(c.output)[i] =
            static_cast<const stored_pack *>(c.source)[token * packs + i % packs];
    }
}

__global__ void combine(combine_call c) {
    const int64_t i = thread_index();
    const int64_t packs = c.width / k_pack;
    const int64_t t = i / packs;
    if (t >= c.tokens) {
        return;
    }
    pack sum = {};
    if (c.plus != nullptr) {
        sum = load(c.plus, i);
    }
    for (int64_t k = 0; k < c.top_k; ++k) {
        const int64_t row = c.row_of_slot[t * c.top_k + k];
        if (row >= 0) {
            const pack part = load(c.source, row * packs + i % packs);
            for (int n = 0; n < k_pack; ++n) {
                sum.value[n] += part.value[n];
            }
        }
    }
    store(c.output, i, sum);
}

// --------------------------------------------------------------------------------------------- loss and optimizer --

// A block for each token.
__global__ void cross_entropy(cross_entropy_call c, double *losses) {
    bf16 *const logits = static_cast<bf16 *>(c.logits) + blockIdx.x * c.columns;
    const int64_t sequence = blockIdx.x / c.batch.length;
    const int64_t target = c.tokens[sequence * (c.batch.length + 1) + blockIdx.x % c.batch.length + 1];
    const float of_target = __bfloat162float(logits[target]);
    float largest = -INFINITY;
    for (int64_t i = threadIdx.x; i < c.columns; i += blockDim.x) {
        largest = fmaxf(largest, __bfloat162float(logits[i]));
    }
    largest = reduce_block(largest, larger());
    float sum = 0;
    for (int64_t i = threadIdx.x; i < c.columns; i += blockDim.x) {
        sum += expf(__bfloat162float(logits[i]) - largest);
    }
    sum = reduce_block(sum, add());
    const auto scale = static_cast<float>(c.scale);
    for (int64_t i = threadIdx.x; i < c.columns; i += blockDim.x) {
        const float d = expf(__bfloat162float(logits[i]) - largest) / sum - (i == target ? 1.0F : 0.0F);
        logits[i] = __float2bfloat16_rn(d * scale);
    }
    if (threadIdx.x == 0) {
        losses[blockIdx.x] = static_cast<double>(logf(sum) + largest - of_target);
    }
}

// One block.
__global__ void add_losses(const double *losses, int64_t count, double scale, double *loss) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
        sum += losses[i];
    }
    sum = reduce_block(sum, add());
    if (threadIdx.x == 0) {
        *loss += sum * scale;
    }
}

struct adamw_constants {
    explicit adamw_constants(const train::adamw_step &s)
        : beta1(static_cast<float>(s.k_beta1)),
          beta2(static_cast<float>(s.k_beta2)),
          rate(static_cast<float>(s.rate)),
          correction(static_cast<float>(s.correction)),
          keep(static_cast<float>(s.keep)) {}

    float beta1, beta2, rate, correction, keep;
};

__global__ void adamw(adamw_call c, adamw_constants k) {
    const int64_t i = thread_index();
    if (i >= c.elements) {
        return;
    }
    const float gradient = static_cast<const float *>(c.gradients)[i];
    float &first = static_cast<float *>(c.first_moment)[i];
    float &second = static_cast<float *>(c.second_moment)[i];
    float &master = static_cast<float *>(c.master)[i];
    first = first * k.beta1 + gradient * (1.0F - k.beta1);
    second = second * k.beta2 + gradient * gradient * (1.0F - k.beta2);
    master = master * k.keep - first * k.rate / (sqrtf(second * k.correction) + 1e-8F);
    static_cast<bf16 *>(c.weights)[i] = __float2bfloat16_rn(master);
}

// ------------------------------------------------------------------------------------------------ own attention --

__device__ int64_t keys_of(const attention_rows &r) {
    return r.first + r.rows;
}

// blockIdx.x is a row, blockIdx.y a head: where its scores begin.
__device__ int64_t score_row(const attention_rows &r) {
    return (blockIdx.y * r.rows + blockIdx.x) * keys_of(r);
}

__global__ void softmax(attention_rows r, const float *scores, void *probabilities, float *log_sum) {
    const float *const row = scores + score_row(r);
    bf16 *const output = static_cast<bf16 *>(probabilities) + score_row(r);
    const int64_t seen = r.first + blockIdx.x + 1;
    float largest = -INFINITY;
    for (int64_t i = threadIdx.x; i < seen; i += blockDim.x) {
        largest = fmaxf(largest, row[i]);
    }
    largest = reduce_block(largest, larger());
    float sum = 0;
    for (int64_t i = threadIdx.x; i < seen; i += blockDim.x) {
        sum += expf(row[i] - largest);
    }
    sum = reduce_block(sum, add());
    for (int64_t i = threadIdx.x; i < keys_of(r); i += blockDim.x) {
        output[i] = __float2bfloat16_rn(i < seen ? expf(row[i] - largest) / sum : 0.0F);
    }
    if (threadIdx.x == 0 && log_sum != nullptr) {
        log_sum[blockIdx.y * r.length + r.first + blockIdx.x] = largest + logf(sum);
    }
}

__global__ void softmax_backward_kernel(softmax_backward b) {
    const int64_t width = b.at.heads * b.head_width;
    const int64_t token = b.at.first + blockIdx.x;
    const int64_t own = token * width + blockIdx.y * b.head_width;
    float along = 0;
    for (int64_t i = threadIdx.x; i < b.head_width; i += blockDim.x) {
        along += __bfloat162float(static_cast<const bf16 *>(b.context)[own + i]) *
                 __bfloat162float(static_cast<const bf16 *>(b.d_context)[own + i]);
    }
    along = reduce_block(along, add());
    const int64_t first = score_row(b.at);
    const float log_sum = b.log_sum[blockIdx.y * b.at.length + token];
    for (int64_t i = threadIdx.x; i < keys_of(b.at); i += blockDim.x) {
        const bool seen = i <= token;
        const float p = seen ? expf(b.scores[first + i] - log_sum) : 0.0F;
        const float d = seen ? p * (b.d_probabilities[first + i] - along) * b.scale : 0.0F;
        static_cast<bf16 *>(b.probabilities)[first + i] = __float2bfloat16_rn(p);
        static_cast<bf16 *>(b.d_scores)[first + i] = __float2bfloat16_rn(d);
    }
}

__global__ void to_elements(const float *from, bf16 *to, int64_t count) {
    const int64_t i = thread_index();
    if (i < count) {
        to[i] = __float2bfloat16_rn(from[i]);
    }
}

}  // namespace

void launch(const fill_call &c, cudaStream_t stream) {
    EBB_STEP_LAUNCH(fill, (blocks_for(c.elements)), stream)(c);
}

void launch(const embed_call &c, cudaStream_t stream) {
    EBB_STEP_LAUNCH(embed, (blocks_for(c.batch.tokens() * c.width / k_pack)), stream)(c);
}

void launch(const embed_backward_call &c, cudaStream_t stream) {
    constexpr unsigned k_bytes = 256;
    const int64_t packs = c.width / k_pack;
    EBB_STEP_LAUNCH(embed_token_gradient, (dim3(blocks_for(packs), k_bytes)), stream)(c);
    EBB_STEP_LAUNCH(embed_position_gradient, (blocks_for(c.batch.length * packs)), stream)(c);
}

void launch(const norm_call &c, cudaStream_t stream) {
    EBB_STEP_LAUNCH(norm, (static_cast<unsigned>(c.rows)), stream)(c);
}

uint64_t scratch_bytes(const norm_backward_call &c) {
    return static_cast<uint64_t>(c.rows + row_sums(c.rows) * c.width) * sizeof(float);
}

void launch(const norm_backward_call &c, void *scratch, cudaStream_t stream) {
    auto *const scales = static_cast<float *>(scratch);
    float *const partial = scales + c.rows;
    const int64_t sums = row_sums(c.rows);
    EBB_STEP_LAUNCH(norm_backward, (static_cast<unsigned>(c.rows)), stream)(c, scales);
    EBB_STEP_LAUNCH(norm_weight_terms, (dim3(blocks_for(c.width / k_pack), static_cast<unsigned>(sums))), stream)
    (c, scales, partial);
    EBB_STEP_LAUNCH(add_partial_sums, (blocks_for(c.width)), stream)
    (partial, sums, c.width, static_cast<float *>(c.weight_gradient));
}

void launch(const swiglu_call &c, cudaStream_t stream) {
    EBB_STEP_LAUNCH(swiglu, (blocks_for(c.rows * c.columns / k_pack)), stream)(c);
}

void launch(const swiglu_backward_call &c, cudaStream_t stream) {
    EBB_STEP_LAUNCH(swiglu_backward, (static_cast<unsigned>(c.rows)), stream)(c);
}

void launch(const gates_call &c, cudaStream_t stream) {
    EBB_STEP_LAUNCH(gates, (blocks_for(c.tokens)), stream)(c);
}

void launch(const gates_backward_call &c, cudaStream_t stream) {
    EBB_STEP_LAUNCH(gates_backward, (blocks_for(c.tokens)), stream)(c);
}

void launch(const gather_call &c, cudaStream_t stream) {
    EBB_STEP_LAUNCH(gather, (blocks_for(c.rows * c.width / k_pack)), stream)(c);
}

void launch(const combine_call &c, cudaStream_t stream) {
    EBB_STEP_LAUNCH(combine, (blocks_for(c.tokens * c.width / k_pack)), stream)(c);
}

uint64_t scratch_bytes(const cross_entropy_call &c) {
    return static_cast<uint64_t>(c.batch.tokens()) * sizeof(double);
}

void launch(const cross_entropy_call &c, void *scratch, cudaStream_t stream) {
    auto *const losses = static_cast<double *>(scratch);
    EBB_STEP_LAUNCH(cross_entropy, (static_cast<unsigned>(c.batch.tokens())), stream)(c, losses);
    EBB_STEP_LAUNCH(add_losses, (1), stream)(losses, c.batch.tokens(), c.scale, c.loss);
}

void launch(const adamw_call &c, cudaStream_t stream) {
    EBB_STEP_LAUNCH(adamw, (blocks_for(c.elements)), stream)
    (c, adamw_constants(train::adamw_step(c.step, c.learning_rate)));
}

void launch_softmax(const attention_rows &r, const float *scores, void *probabilities, float *log_sum,
                    cudaStream_t stream) {
    EBB_STEP_LAUNCH(softmax, (dim3(static_cast<unsigned>(r.rows), static_cast<unsigned>(r.heads))), stream)
    (r, scores, probabilities, log_sum);
}

void launch_softmax_backward(const softmax_backward &b, cudaStream_t stream) {
    EBB_STEP_LAUNCH(softmax_backward_kernel,
                    (dim3(static_cast<unsigned>(b.at.rows), static_cast<unsigned>(b.at.heads))), stream)
    (b);
}

void launch_to_elements(const float *from, void *to, int64_t count, cudaStream_t stream) {
    EBB_STEP_LAUNCH(to_elements, (blocks_for(count)), stream)(from, static_cast<bf16 *>(to), count);
}

}  // namespace step
