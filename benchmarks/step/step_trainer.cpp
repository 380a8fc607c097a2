#include "step_trainer.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "ebb_call.hpp"
#include "interrupt.hpp"
#include "random_values.hpp"

namespace step {
namespace {

// Ebb records the calls of a step and the time between them. So that nothing of the step lies outside, its first and
// its last call are about an array of this size, which stays on the device.
constexpr uint64_t k_span_bytes = 512;

// Text to train on: each byte follows from the one before and two random bits.
constexpr int64_t k_token_starts = 64;

struct saved_rule {
    const char *name;  // MaxText's, where it has one
    const char *expert_name;
    std::vector<size_t> sources;  // what it can be computed again from
};

const saved_rule &rule_of(size_t id) {
    static const std::array<saved_rule, k_saved_count> rules{{
        {"decoder_layer_input", nullptr, {}},
        {"query_proj", nullptr, {k_input}},
        {"key_proj", nullptr, {k_input}},
        {"value_proj", nullptr, {k_input}},
        {"context", nullptr, {k_query, k_key, k_value}},
        {"attention_log_sum", nullptr, {k_query, k_key, k_value}},
        {"out_proj", nullptr, {k_context}},
        {"mlpwi_0", "moe_mlpwi_0", {k_input, k_out_projection}},
        {"mlpwi_1", "moe_mlpwi_1", {k_input, k_out_projection}},
    }};
    return rules[id];
}

// The parts of the forward pass, and what each writes: [first, last).
struct forward_part {
    void (layer_math::*run)(const layer_arrays &);
    size_t first;
    size_t last;
};
constexpr forward_part k_parts[] = {
    {&layer_math::project, k_query, k_context},
    {&layer_math::attend, k_context, k_out_projection},
    {&layer_math::project_out, k_out_projection, k_gate},
    {&layer_math::mlp, k_gate, k_saved_count},
};

int64_t ffn_rows(const step_shape &shape, const device_routing *route) {
    return route == nullptr ? shape.tokens() : route->rows();
}

uint64_t saved_size(const step_shape &shape, const step_math &math, size_t id, const device_routing *route) {
    if (id == k_log_sum) {
        return static_cast<uint64_t>(shape.row_sum_elements()) * math.real_bytes();
    }
    const int64_t elements = id < k_gate ? shape.hidden_elements() : ffn_rows(shape, route) * shape.ffn;
    return static_cast<uint64_t>(elements) * math.element_bytes();
}

}  // namespace

step_trainer::step_trainer(step_device &device, const step_settings &s, const step_shape &shape, int64_t rank)
    : device_(device),
      training_(device.training()),
      math_(device.math()),
      settings_(s),
      shape_(shape),
      random_(s.seed + static_cast<uint64_t>(rank)),
      parameter_count_(offsets_of(shape).end),
      weights_(device.allocate(memory_kind::weights, static_cast<uint64_t>(parameter_count_) * math_.element_bytes())),
      gradients_(device.allocate(memory_kind::weights, static_cast<uint64_t>(parameter_count_) * math_.real_bytes())),
      first_moment_(
          device.allocate(memory_kind::weights, static_cast<uint64_t>(parameter_count_) * math_.real_bytes())),
      second_moment_(
          device.allocate(memory_kind::weights, static_cast<uint64_t>(parameter_count_) * math_.real_bytes())),
      layer_math_(device, shape, {weights_.get(), gradients_.get()}),
      routing_(device, shape, s.seed),
      span_("step", k_span_bytes) {
    const uint64_t state_bytes = static_cast<uint64_t>(parameter_count_) * math_.real_bytes();
    master_ =
        math_.element_bytes() == math_.real_bytes() ? weights_ : device.allocate(memory_kind::weights, state_bytes);
    math_.run(clear_call{first_moment_.get(), state_bytes});
    math_.run(clear_call{second_moment_.get(), state_bytes});
    fill_weights();
    make_tokens();
}

step_trainer::~step_trainer() {
    saved_.clear();
    try {
        training_.synchronize();  // what is still running uses memory that is freed here
    } catch (const train::call_failed &) {
        // The run has failed already, and has said why.
    }
}

void step_trainer::fill_weights() {
    auto fill = [&, number = uint64_t{0}](int64_t offset, int64_t elements, double middle, double deviation) mutable {
        const auto at = static_cast<uint64_t>(offset);
        math_.run(fill_call{static_cast<std::byte *>(weights_.get()) + at * math_.element_bytes(),
                            static_cast<std::byte *>(master_.get()) + at * math_.real_bytes(), elements,
                            random_bits(settings_.seed, number++), middle, deviation * std::sqrt(12.0)});
    };
    const int64_t width = shape_.width;
    const int64_t wide = wide_elements(shape_) * std::max<int64_t>(shape_.experts, 1);
    const double deviation = 1.0 / std::sqrt(static_cast<double>(width));
    const double residual = deviation / std::sqrt(2.0 * static_cast<double>(shape_.layers));
    const model_offsets outer = offsets_of(shape_);
    fill(0, outer.end, 0, 0);
    fill(outer.token_embedding, train::k_vocabulary * width, 0, 0.5);
    fill(outer.position_embedding, shape_.sequence * width, 0, 0.1);
    fill(outer.final_norm, width, 1, 0);
    fill(outer.head, width * train::k_vocabulary, 0, deviation);
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
        const layer_offsets at = offsets_of_layer(shape_, layer);
        fill(at.attention_norm, width, 1, 0);
        fill(at.mlp_norm, width, 1, 0);
        for (const int64_t square : {at.query, at.key, at.value}) {
            fill(square, width * width, 0, deviation);
        }
        fill(at.out, width * width, 0, residual);
        fill(at.router, width * shape_.experts, 0, deviation);
        fill(at.gate, wide, 0, deviation);
        fill(at.up, wide, 0, deviation);
        fill(at.down, wide, 0, residual);
    }
}

void step_trainer::make_tokens() {
    const auto count = static_cast<size_t>(shape_.micro_batch * (shape_.sequence + 1) + k_token_starts);
    std::vector<uint8_t> tokens(count);
    uint32_t byte = 1;
    for (size_t i = 0; i < count; ++i) {
        byte = (byte * 5 + 17 + static_cast<uint32_t>(random_bits(settings_.seed ^ 1U, i) & 3U)) % 256;
        tokens[i] = static_cast<uint8_t>(byte);
    }
    tokens_ = device_.allocate(memory_kind::scratch, count);
    device_.upload(tokens_.get(), tokens.data(), count);
}

// Where in the text a micro batch's sequences, which follow each other, begin.
const uint8_t *step_trainer::next_tokens() {
    return static_cast<const uint8_t *>(tokens_.get()) + random_() % k_token_starts;
}

train::loop_result step_trainer::run(const train::loop_settings &steps,
                                     const std::function<void(int64_t step)> &at_step, const train::progress &report) {
    const auto launch = [&](int64_t step) {
        at_step(step);
        launch_step(step);
    };
    return train::run_steps(training_, steps, launch, report);
}

void step_trainer::launch_step(int64_t step) {
    const std::shared_ptr<void> span = training_.allocate_bytes(k_span_bytes);
    span_.save(training_, span, 0, {}, EBB_PLACE_KEEP);
    math_.run(clear_call{gradients_.get(), static_cast<uint64_t>(parameter_count_) * math_.real_bytes()});
    for (int64_t micro_batch = 0; micro_batch < settings_.accumulation; ++micro_batch) {
        const uint8_t *const tokens = next_tokens();
        forward(step, micro_batch, tokens);
        layer_math_.head(tokens, hidden_.get(), 1.0 / static_cast<double>(shape_.tokens() * settings_.accumulation),
                         training_.loss_of(step));
        hidden_.reset();
        backward(micro_batch);
        layer_math_.embed_backward(tokens);
    }
    optimize(step);
    span_.fetch();
    span_.finish();
}

void step_trainer::optimize(int64_t step) {
    const model_offsets outer = offsets_of(shape_);
    device_.begin_collective();
    device_.average(static_cast<float *>(gradients_.get()), outer.layers);
    device_.wait_for_collectives();
    math_.run(adamw_call{parameter_count_, weights_.get(), master_.get(), gradients_.get(), first_moment_.get(),
                         second_moment_.get(), step + 1, settings_.learning_rate});
}

// ---------------------------------------------------------------------------------------------------- forward --

step_trainer::saved_layer step_trainer::new_saved_layer(const device_routing *route) const {
    saved_layer layer;
    layer.reserve(k_saved_count);
    for (size_t id = 0; id < k_saved_count; ++id) {
        const saved_rule &rule = rule_of(id);
        const bool of_experts = shape_.has_experts() && rule.expert_name != nullptr;
        layer.emplace_back(of_experts ? rule.expert_name : rule.name, saved_size(shape_, math_, id, route));
    }
    return layer;
}

void step_trainer::forward(int64_t step, int64_t micro_batch, const uint8_t *tokens) {
    saved_.clear();
    routes_.clear();
    hidden_ = training_.allocate_bytes(saved_size(shape_, math_, k_input, nullptr));
    layer_math_.embed(tokens, hidden_.get());
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
        train::check_interrupt();
        routes_.push_back(routing_.of(step, micro_batch, layer));
        saved_.push_back(new_saved_layer(routes_.back()));
        forward_layer(layer, micro_batch);
    }
}

// Every array is handed to Ebb as soon as the kernel that writes it was launched, so that its copy starts early.
// Parts that read it later keep it alive until they are launched: it has two owners until then.
void step_trainer::forward_layer(int64_t layer, int64_t micro_batch) {
    const train::layer_scope scope(training_.runtime(), layer);
    std::array<std::shared_ptr<void>, k_saved_count> arrays;
    const std::shared_ptr<void> output = training_.allocate_bytes(saved_.back()[k_input].size_bytes());
    now_ = {};
    now_.at = offsets_of_layer(shape_, layer);
    now_.route = routes_.back();
    now_.output = output.get();
    now_.saved[k_input] = hidden_.get();
    save(k_input, hidden_, micro_batch);
    for (const forward_part &part : k_parts) {
        for (size_t id = part.first; id < part.last; ++id) {
            arrays[id] = training_.allocate_bytes(saved_.back()[id].size_bytes());
            now_.saved[id] = arrays[id].get();
        }
        (layer_math_.*part.run)(now_);
        for (size_t id = part.first; id < part.last; ++id) {
            save(id, arrays[id], micro_batch);
        }
    }
    hidden_ = output;
}

void step_trainer::save(size_t id, const std::shared_ptr<void> &array, int64_t micro_batch) {
    saved_layer &layer = saved_.back();
    std::vector<const train::saved_tensor *> sources;
    for (const size_t source : rule_of(id).sources) {
        sources.push_back(&layer[source]);
    }
    layer[id].save(training_, array, micro_batch, sources);
    kept_by_necessity_ += static_cast<int64_t>(layer[id].kept_by_necessity());
}

// --------------------------------------------------------------------------------------------------- backward --

void step_trainer::backward(int64_t micro_batch) {
    for (int64_t layer = shape_.layers - 1; layer >= 0; --layer) {
        train::check_interrupt();
        backward_layer(layer, micro_batch == settings_.accumulation - 1);
        saved_.pop_back();
        routes_.pop_back();
    }
}

void step_trainer::backward_layer(int64_t layer, bool reduce) {
    now_ = {};
    now_.at = offsets_of_layer(shape_, layer);
    now_.route = routes_.back();
    fetch({k_gate, k_up, k_out_projection, k_input});
    layer_math_.mlp_backward(now_);
    finish({k_gate, k_up, k_out_projection});
    fetch({k_context, k_log_sum, k_query, k_key, k_value});
    layer_math_.attention_backward(now_);
    if (reduce) {
        finish_and_reduce(layer);
    } else {
        finish({k_value, k_key, k_query, k_log_sum, k_context, k_input});
    }
}

// The layer's gradients are complete. Prefetches that the returns make room for wait until they are summed: collectives
// and copies share the links.
void step_trainer::finish_and_reduce(int64_t layer) {
    const layer_offsets at = offsets_of_layer(shape_, layer);
    const int64_t count = at.end - at.begin;
    const uint64_t size_bytes = static_cast<uint64_t>(count) * sizeof(float);
    device_.begin_collective();
    train::check(ebb_collective_begin(training_.runtime(), device_.collective_stream(), size_bytes),
                 "ebb_collective_begin");
    finish({k_value, k_key, k_query, k_log_sum, k_context, k_input});
    device_.average(static_cast<float *>(gradients_.get()) + at.begin, count);
    train::check(ebb_collective_end(training_.runtime(), device_.collective_stream()), "ebb_collective_end");
}

void step_trainer::finish(std::initializer_list<size_t> ids) {
    for (const size_t id : ids) {
        saved_.back()[id].finish();
    }
}

void step_trainer::fetch(std::initializer_list<size_t> ids) {
    id_set missing;
    for (const size_t id : ids) {
        now_.saved[id] = saved_.back()[id].fetch();
        if (now_.saved[id] == nullptr) {
            add_missing(id, missing);
        }
    }
    if (missing.any()) {
        compute(missing);
    }
}

// What has to be computed for it, too.
void step_trainer::add_missing(size_t id, id_set &missing) const {
    missing.set(id);
    for (const size_t source : rule_of(id).sources) {
        if (saved_.back()[source].must_be_computed() && !missing.test(source)) {
            add_missing(source, missing);
        }
    }
}

// With the forward pass's own parts, which write what is missing and read the rest: a reloaded array is never written.
void step_trainer::compute(const id_set &missing) {
    saved_layer &layer = saved_.back();
    uint64_t missing_bytes = 0;
    for (size_t id = 0; id < k_saved_count; ++id) {
        missing_bytes += missing.test(id) ? layer[id].size_bytes() : 0;
    }
    const train::recompute_scope scope(training_.runtime(), missing_bytes);
    for (const forward_part &part : k_parts) {
        bool any = false;
        for (size_t id = part.first; id < part.last; ++id) {
            if (missing.test(id)) {
                prepare_to_compute(id);
                any = true;
            }
        }
        layer_arrays call = now_;
        for (size_t id = part.first; id < part.last; ++id) {
            call.saved[id] = missing.test(id) ? now_.saved[id] : nullptr;
        }
        if (any) {
            (layer_math_.*part.run)(call);
        }
    }
}

// Its sources are there, and an array to write it to.
void step_trainer::prepare_to_compute(size_t id) {
    saved_layer &layer = saved_.back();
    for (const size_t source : rule_of(id).sources) {
        now_.saved[source] = layer[source].fetch();
    }
    const std::shared_ptr<void> array = training_.allocate_bytes(layer[id].size_bytes());
    layer[id].set_computed(array);
    now_.saved[id] = array.get();
}

std::vector<float> step_trainer::state() {
    const auto count = static_cast<size_t>(parameter_count_);
    std::vector<float> all(2 * count);
    device_.download(all.data(), gradients_.get(), count * sizeof(float));
    device_.download(all.data() + count, master_.get(), count * sizeof(float));
    return all;
}

}  // namespace step
