#include "trainer.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "ebb_call.hpp"
#include "interrupt.hpp"

namespace train {
namespace {

struct copy_tokens_args {
    const uint8_t *text;
    const uint64_t *offsets;
    uint8_t *tokens;
    int64_t sequences;
    int64_t length;
};

void copy_tokens(const copy_tokens_args &args) {
    for (int64_t i = 0; i < args.sequences; ++i) {
        std::memcpy(args.tokens + i * args.length, args.text + args.offsets[i], static_cast<size_t>(args.length));
    }
}

struct clear_args {
    float *memory;
    int64_t elements;
};

void clear(const clear_args &args) {
    std::fill_n(args.memory, args.elements, 0.0F);
}

// A saved tensor and where the kernels expect its array.
struct slot {
    saved_tensor saved_layer::*tensor;
    float *layer_tensors<float>::*array;
};
using tensors = layer_tensors<float>;

constexpr slot k_slots[] = {
    {&saved_layer::gate, &tensors::gate},
    {&saved_layer::up, &tensors::up},
    {&saved_layer::out_projection, &tensors::out_projection},
    {&saved_layer::input, &tensors::input},
    {&saved_layer::context, &tensors::context},
    {&saved_layer::log_sum, &tensors::log_sum},
    {&saved_layer::query, &tensors::query},
    {&saved_layer::key, &tensors::key},
    {&saved_layer::value, &tensors::value},
};

uint64_t bytes_of(int64_t elements) {
    return static_cast<uint64_t>(elements) * sizeof(float);
}

// The first of these are what mlp_backward reads, and the last but input what attention_backward reads.
constexpr size_t k_mlp_slots = 4;
constexpr size_t k_input_slot = 3;

}  // namespace

saved_layer::saved_layer(const model_shape &shape)
    : input("decoder_layer_input", bytes_of(shape.hidden_elements())),
      query("query_proj", bytes_of(shape.hidden_elements())),
      key("key_proj", bytes_of(shape.hidden_elements())),
      value("value_proj", bytes_of(shape.hidden_elements())),
      context("context", bytes_of(shape.hidden_elements())),
      log_sum("attention_log_sum", bytes_of(shape.row_sum_elements())),
      out_projection("out_proj", bytes_of(shape.hidden_elements())),
      gate("mlpwi_0", bytes_of(shape.ffn_elements())),
      up("mlpwi_1", bytes_of(shape.ffn_elements())) {}

trainer::trainer(host_training_device &device, const settings &s, const text_data &text)
    : device_(device), settings_(s), text_(text), shape_(s.shape), random_(s.seed) {
    const int64_t elements = weight_elements(shape_);
    weights_ = device_.allocate(elements);
    gradients_ = device_.allocate(elements);
    first_moment_ = device_.allocate(elements);
    second_moment_ = device_.allocate(elements);
    workspace_ = device_.allocate(workspace_elements(shape_));
    derivative_ = device_.allocate(shape_.hidden_elements());
    const int64_t token_bytes = shape_.micro_batch * (shape_.sequence + 1);
    tokens_ = device_.allocate((token_bytes + 3) / 4);
    device_.launch(initialise<float>, {shape_, weights_.get(), s.seed});
    device_.launch(clear, {first_moment_.get(), elements});
    device_.launch(clear, {second_moment_.get(), elements});
}

trainer::~trainer() {
    // Kernels may still be running; their memory is freed here.
    ebb_host_stream_synchronize(device_.runtime(), device_.stream());
}

loop_result trainer::run(const progress &report) {
    return run_steps(
        device_, {settings_.steps, settings_.warm_up_steps}, [this](int64_t step) { launch_step(step); }, report);
}

void trainer::launch_step(int64_t step) {
    const int64_t elements = weight_elements(shape_);
    device_.launch(clear, {gradients_.get(), elements});
    for (int64_t micro_batch = 0; micro_batch < settings_.accumulation; ++micro_batch) {
        load_tokens();
        forward(micro_batch);
        device_.launch(head_loss<float>,
                       {shape_, outer_weights(weights_.get(), shape_), outer_weights(gradients_.get(), shape_),
                        reinterpret_cast<const uint8_t *>(tokens_.get()), hidden_.get(), derivative_.get(),
                        1.0 / static_cast<double>(shape_.tokens() * settings_.accumulation), device_.loss_of(step),
                        workspace_.get()});
        hidden_.reset();
        backward();
    }
    device_.launch(adamw<float>, {elements, weights_.get(), gradients_.get(), first_moment_.get(), second_moment_.get(),
                                  step + 1, settings_.learning_rate});
}

// Sequences begin anywhere in the text. Which ones is decided here, in the order of the micro batches; the
// bytes are copied on the compute stream.
void trainer::load_tokens() {
    const auto count = static_cast<size_t>(shape_.micro_batch);
    const int64_t length = shape_.sequence + 1;
    const uint64_t starts = text_.bytes.size() - static_cast<uint64_t>(length) + 1;
    auto *const offsets =
        static_cast<uint64_t *>(device_.arguments().take(count * sizeof(uint64_t), alignof(uint64_t)));
    std::generate_n(offsets, count, [&] { return random_() % starts; });
    device_.launch(copy_tokens, {text_.bytes.data(), offsets, reinterpret_cast<uint8_t *>(tokens_.get()),
                                 shape_.micro_batch, length});
}

layer_args<float> trainer::arguments_of(int64_t layer) const {
    layer_args<float> args{};
    args.shape = shape_;
    args.weights = weights_of_layer(weights_.get(), shape_, layer);
    args.gradients = weights_of_layer(gradients_.get(), shape_, layer);
    args.derivative = derivative_.get();
    args.workspace = workspace_.get();
    return args;
}

embed_args<float> trainer::embed_arguments(float *hidden) const {
    return {shape_, outer_weights(weights_.get(), shape_), outer_weights(gradients_.get(), shape_),
            reinterpret_cast<const uint8_t *>(tokens_.get()), hidden};
}

void trainer::forward(int64_t micro_batch) {
    saved_.clear();
    hidden_ = device_.allocate(shape_.hidden_elements());
    device_.launch(embed<float>, embed_arguments(hidden_.get()));
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
        check_interrupt();
        hidden_ = forward_layer(layer, hidden_, micro_batch);
    }
}

// Every array is handed to Ebb as soon as the kernel that writes it was launched, so that its copy starts early.
// Forward kernels that read it later keep it alive until they are launched: it has two owners until then.
device_array trainer::forward_layer(int64_t layer, const device_array &input, int64_t micro_batch) {
    const layer_scope scope(device_.runtime(), layer);
    saved_layer &saved = saved_.emplace_back(shape_);
    layer_args<float> args = arguments_of(layer);
    args.saved.input = input.get();
    saved.input.save(device_, input, micro_batch, {});

    const device_array out_projection = forward_attention(args, saved, micro_batch);
    const device_array gate = device_.allocate(shape_.ffn_elements());
    const device_array up = device_.allocate(shape_.ffn_elements());
    device_array output = device_.allocate(shape_.hidden_elements());
    args.saved.gate = gate.get();
    args.saved.up = up.get();
    args.output = output.get();
    device_.launch(mlp<float>, args);
    saved.gate.save(device_, gate, micro_batch, {&saved.input, &saved.out_projection});
    saved.up.save(device_, up, micro_batch, {&saved.input, &saved.out_projection});
    count(saved);
    return output;
}

device_array trainer::forward_attention(layer_args<float> &args, saved_layer &saved, int64_t micro_batch) {
    const int64_t hidden = shape_.hidden_elements();
    const device_array query = device_.allocate(hidden);
    const device_array key = device_.allocate(hidden);
    const device_array value = device_.allocate(hidden);
    args.saved.query = query.get();
    args.saved.key = key.get();
    args.saved.value = value.get();
    device_.launch(project<float>, args);
    saved.query.save(device_, query, micro_batch, {&saved.input});
    saved.key.save(device_, key, micro_batch, {&saved.input});
    saved.value.save(device_, value, micro_batch, {&saved.input});

    const device_array context = device_.allocate(hidden);
    const device_array log_sum = device_.allocate(shape_.row_sum_elements());
    args.saved.context = context.get();
    args.saved.log_sum = log_sum.get();
    device_.launch(attend<float>, args);
    saved.context.save(device_, context, micro_batch, {&saved.query, &saved.key, &saved.value});
    saved.log_sum.save(device_, log_sum, micro_batch, {&saved.query, &saved.key});

    device_array out_projection = device_.allocate(hidden);
    args.saved.out_projection = out_projection.get();
    device_.launch(project_out<float>, args);
    saved.out_projection.save(device_, out_projection, micro_batch, {&saved.context});
    return out_projection;
}

void trainer::count(const saved_layer &layer) {
    for (const slot &s : k_slots) {
        kept_by_necessity_ += static_cast<int64_t>((layer.*s.tensor).kept_by_necessity());
    }
}

void trainer::backward() {
    for (int64_t layer = shape_.layers - 1; layer >= 0; --layer) {
        check_interrupt();
        backward_layer(layer);
        saved_.pop_back();
    }
    device_.launch(embed_backward<float>, embed_arguments(derivative_.get()));
}

void trainer::backward_layer(int64_t layer) {
    saved_layer &saved = saved_.back();
    layer_args<float> args = arguments_of(layer);
    fetch(args, saved, 0, k_mlp_slots);
    device_.launch(mlp_backward<float>, args);
    for (size_t i = 0; i < k_input_slot; ++i) {
        (saved.*k_slots[i].tensor).finish();
    }
    fetch(args, saved, k_mlp_slots, std::size(k_slots));
    device_.launch(attention_backward<float>, args);
    for (size_t i = std::size(k_slots); i-- > k_input_slot;) {
        (saved.*k_slots[i].tensor).finish();
    }
}

void trainer::fetch(layer_args<float> &args, saved_layer &saved, size_t first, size_t last) {
    bool missing = false;
    for (size_t i = first; i < last; ++i) {
        auto *const array = static_cast<float *>((saved.*k_slots[i].tensor).fetch());
        args.saved.*k_slots[i].array = array;
        missing = missing || array == nullptr;
    }
    if (missing) {
        compute_missing(args, saved);
    }
}

// Fetches what there is of a layer and computes the rest again, with the forward pass's own kernels.
void trainer::compute_missing(layer_args<float> &args, saved_layer &saved) {
    uint64_t missing_bytes = 0;
    for (const slot &s : k_slots) {
        if ((saved.*s.tensor).finished()) {
            continue;
        }
        args.saved.*s.array = static_cast<float *>((saved.*s.tensor).fetch());
        if (args.saved.*s.array == nullptr) {
            missing_bytes += (saved.*s.tensor).size_bytes();
        }
    }
    const recompute_scope scope(device_.runtime(), missing_bytes);
    layer_tensors<float> missing{};
    for (const slot &s : k_slots) {
        if (args.saved.*s.array == nullptr && !(saved.*s.tensor).finished()) {
            const std::shared_ptr<void> array = device_.allocate_bytes((saved.*s.tensor).size_bytes());
            (saved.*s.tensor).set_computed(array);
            args.saved.*s.array = static_cast<float *>(array.get());
            missing.*s.array = args.saved.*s.array;
        }
    }
    launch_missing(args, missing);
}

// A kernel writes what is missing and reads the rest: a reloaded array is never written.
void trainer::launch_missing(const layer_args<float> &args, const layer_tensors<float> &missing) {
    layer_args<float> call = args;
    if (missing.query != nullptr || missing.key != nullptr || missing.value != nullptr) {
        call.saved.query = missing.query;
        call.saved.key = missing.key;
        call.saved.value = missing.value;
        device_.launch(project<float>, call);
    }
    if (missing.context != nullptr || missing.log_sum != nullptr) {
        call.saved = args.saved;
        call.saved.context = missing.context;
        call.saved.log_sum = missing.log_sum;
        device_.launch(attend<float>, call);
    }
    call.saved = args.saved;
    if (missing.out_projection != nullptr) {
        device_.launch(project_out<float>, call);
    }
    if (missing.gate != nullptr || missing.up != nullptr) {
        call.saved.gate = missing.gate;
        call.saved.up = missing.up;
        device_.launch(mlp<float>, call);
    }
}

}  // namespace train
