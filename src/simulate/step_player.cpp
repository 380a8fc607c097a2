#include "simulate/step_player.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.hpp"
#include "capi/session.hpp"

namespace ebb {
namespace {

status player_failed(const char *call) {
    return {code::internal, fmt::format("{}: {}", call, ebb_last_error())};
}

status player_called(ebb_status s, const char *call) {
    return s == EBB_OK ? status() : player_failed(call);
}

void drop_line(void *, int32_t, const char *) {}

constexpr uint64_t k_player_alignment = 512;

uint64_t player_aligned(uint64_t size_bytes) noexcept {
    return (size_bytes + k_player_alignment - 1) / k_player_alignment * k_player_alignment;
}

}  // namespace

step_player::step_player(const step_model &model, const play_options &options)
    : model_(model), options_(options), random_(options.sizes.seed) {}

step_player::~step_player() {
    if (runtime_ != nullptr) {
        static_cast<void>(ebb_runtime_close(runtime_, EBB_CLOSE_FORCE));
    }
}

result<std::unique_ptr<step_player>> step_player::make(const step_model &model, const play_options &options) {
    std::unique_ptr<step_player> made(new step_player(model, options));
    EBB_TRY(made->init());
    return made;
}

status step_player::init() {
    uint64_t all_bytes = 0;
    uint64_t largest_bytes = 0;
    offset_.resize(model_.tensors.size());
    for (size_t t = 0; t < model_.tensors.size(); ++t) {
        offset_[t] = all_bytes;
        all_bytes += player_aligned(most_bytes(model_.tensors[t]));
        largest_bytes = std::max(largest_bytes, most_bytes(model_.tensors[t]));
        size_bytes_.push_back(model_.tensors[t].size_bytes);
    }
    place_recomputes();
    live_.resize(model_.tensors.size());

    // Addresses for the framework's tensors and for staging: what may be used is the runtime's budget.
    const uint64_t copies = options_.sizes.wanted ? 8 : 2;
    options_.machine.device_bytes =
        copies * all_bytes + options_.core.staging_bytes + 4 * largest_bytes + (64ULL << 20U);
    auto dev = std::make_unique<sim_device>(options_.machine);
    device_ = dev.get();
    options_.core.lent_allocator = options_.mode == memory_mode::one_pool;
    const ebb_allocator allocator{lend, take_back, nullptr, this};
    result<ebb_runtime *> made =
        capi::make_runtime(std::move(dev), nullptr, options_.core, logger(drop_line, nullptr, log_level::error),
                           options_.core.lent_allocator ? &allocator : nullptr);
    if (!made.ok()) {
        return made.why();
    }
    runtime_ = made.value();
    for (stream_id *stream : {&compute_, &collective_}) {
        result<stream_id> fresh = device_->create_stream(stream_role::compute);
        if (!fresh.ok()) {
            return fresh.why();
        }
        *stream = fresh.value();
    }
    for (event_id *event : {&begin_, &end_, &joined_}) {
        result<event_id> fresh = device_->create_event(event == &joined_ ? event_kind::plain : event_kind::timed);
        if (!fresh.ok()) {
            return fresh.why();
        }
        *event = fresh.value();
    }
    result<void *> memory = device_->alloc_device(std::max(all_bytes, k_player_alignment));
    if (!memory.ok()) {
        return memory.why();
    }
    memory_ = static_cast<std::byte *>(memory.value());
    return {};
}

uint64_t step_player::most_bytes(const step_tensor &tensor) const noexcept {
    const double most = options_.sizes.wanted ? std::max(options_.sizes.most, 1.0) : 1;
    return static_cast<uint64_t>(std::ceil(most * static_cast<double>(tensor.size_bytes)));
}

void step_player::redraw_sizes() {
    if (!options_.sizes.wanted || steps_played_ == 0) {
        return;
    }
    for (size_t t = 0; t < size_bytes_.size(); ++t) {
        const auto whole_bytes = static_cast<double>(model_.tensors[t].size_bytes);
        const auto least = static_cast<uint64_t>(std::ceil(options_.sizes.least * whole_bytes / k_player_alignment));
        const auto most = static_cast<uint64_t>(options_.sizes.most * whole_bytes / k_player_alignment);
        size_bytes_[t] =
            k_player_alignment * (least < most ? least + random_() % (most - least + 1) : std::max<uint64_t>(most, 1));
    }
}

// Where the model says or at the first use; what is computed from something that is recomputed too needs it there, so
// that one comes with it at the latest.
void step_player::place_recomputes() {
    recompute_at_.resize(model_.events.size());
    if (options_.fixed == nullptr) {
        return;  // computed again when the runtime says so
    }
    std::vector<uint32_t> place(model_.tensors.size(), k_no_index);
    for (uint32_t e = static_cast<uint32_t>(model_.events.size()); e-- > 0;) {
        const step_event &event = model_.events[e];
        if (event.what == step_event_kind::use) {
            place[event.tensor] = e;
        }
    }
    for (uint32_t t = static_cast<uint32_t>(place.size()); t-- > 0;) {
        if (options_.fixed->placement[t] != tensor_placement::recompute) {
            continue;
        }
        const step_tensor &tensor = model_.tensors[t];
        place[t] = std::min(place[t], tensor.recompute_at);
        for (const uint32_t from : place[t] == k_no_index ? std::vector<uint32_t>() : tensor.recompute_from) {
            place[from] = std::min(place[from], place[t]);
        }
    }
    for (uint32_t t = 0; t < place.size(); ++t) {  // in the order of their production
        if (place[t] != k_no_index && options_.fixed->placement[t] == tensor_placement::recompute) {
            recompute_at_[place[t]].push_back(t);
        }
    }
}

// Stream-ordered memory of one stream: what was given back may be given out again at once. Of sizes that change there
// would be ever more blocks, so those come in powers of two.
uint64_t step_player::lent_bytes(uint64_t size_bytes) const noexcept {
    uint64_t block_bytes = k_player_alignment;
    while (options_.sizes.wanted && block_bytes < size_bytes) {
        block_bytes *= 2;
    }
    return std::max(block_bytes, size_bytes);
}

void *step_player::lend(void *context, uint64_t size_bytes, uint64_t, ebb_stream) {
    auto *self = static_cast<step_player *>(context);
    const uint64_t block_bytes = self->lent_bytes(size_bytes);
    std::vector<void *> &unused = self->lent_[block_bytes];
    if (!unused.empty()) {
        void *given = unused.back();
        unused.pop_back();
        return given;
    }
    result<void *> fresh = self->device_->alloc_device(block_bytes);
    return fresh.ok() ? fresh.value() : nullptr;
}

void step_player::take_back(void *context, void *data, uint64_t size_bytes, ebb_stream) {
    auto *self = static_cast<step_player *>(context);
    self->lent_[self->lent_bytes(size_bytes)].push_back(data);
}

ebb_statistics step_player::statistics() {
    ebb_statistics s{};
    s.struct_size = sizeof(s);
    static_cast<void>(ebb_stats(runtime_, &s));
    return s;
}

// ------------------------------------------------------------------------------------------------------- steps --

result<step_player::step_result> step_player::play() {
    result_ = {};
    redraw_sizes();
    ++steps_played_;
    device_->synchronize();
    EBB_TRY(player_called(ebb_step(runtime_, EBB_PHASE_TRAIN), "ebb_step"));
    EBB_TRY(device_->record_event(begin_, compute_));
    EBB_TRY(play_events());
    EBB_TRY(device_->record_event(end_, compute_));
    device_->synchronize();
    result<uint64_t> time = device_->elapsed_ns(begin_, end_);
    if (!time.ok()) {
        return time.why();
    }
    result_.step_ns = static_cast<double>(time.value());
    return result_;
}

status step_player::play_events() {
    for (uint32_t e = 0; e < model_.events.size(); ++e) {
        EBB_TRY(recompute_due(e));
        EBB_TRY(play_event(e));
        if (options_.after_event) {
            options_.after_event();
        }
    }
    return {};
}

status step_player::play_event(uint32_t e) {
    const step_event &event = model_.events[e];
    switch (event.what) {
        case step_event_kind::work:
            return compute(event.time_ns, event.hbm_fraction);
        case step_event_kind::collective_begin:
            return begin_collective(event);
        case step_event_kind::hold_begin:
            return begin_hold(event);
        case step_event_kind::hold_end:
            return player_called(ebb_collective_end(runtime_, static_cast<ebb_stream>(collective_)),
                                 "ebb_collective_end");
        case step_event_kind::collective_end:
            return end_collective();
        case step_event_kind::produce:
            return produce(event.tensor);
        case step_event_kind::use:
            return use(event.tensor);
        case step_event_kind::done:
            return done(event.tensor);
        case step_event_kind::release:
            return release(event.tensor);
    }
    return {};
}

status step_player::compute(double time_ns, double hbm_fraction) {
    sim_kernel kernel;
    kernel.duration_ps = static_cast<sim_time_ps>(std::llround(time_ns * factor_ * 1e3));
    kernel.hbm_fraction = hbm_fraction;
    return device_->launch(compute_, kernel);
}

status step_player::begin_collective(const step_event &e) {
    EBB_TRY(device_->record_event(joined_, compute_));
    EBB_TRY(device_->wait_event(collective_, joined_));
    sim_kernel kernel;
    kernel.engine = sim_engine::collective;
    kernel.duration_ps = static_cast<sim_time_ps>(std::llround(e.time_ns * factor_ * 1e3));
    return device_->launch(collective_, kernel);
}

status step_player::begin_hold(const step_event &e) {
    EBB_TRY(device_->record_event(joined_, compute_));
    EBB_TRY(device_->wait_event(collective_, joined_));
    EBB_TRY(
        player_called(ebb_collective_begin(runtime_, static_cast<ebb_stream>(collective_), 0), "ebb_collective_begin"));
    sim_kernel kernel;
    kernel.engine = sim_engine::collective;
    kernel.duration_ps = static_cast<sim_time_ps>(std::llround(e.time_ns * factor_ * 1e3));
    return device_->launch(collective_, kernel);
}

status step_player::end_collective() {
    EBB_TRY(device_->record_event(joined_, collective_));
    return device_->wait_event(compute_, joined_);
}

status step_player::produce(uint32_t t) {
    const step_tensor &tensor = model_.tensors[t];
    const auto stream = static_cast<ebb_stream>(compute_);
    ebb_offload_args args{};
    args.struct_size = sizeof(args);
    args.data = memory_ + offset_[t];
    args.size_bytes = size_bytes_[t];
    args.producers = &stream;
    args.producer_count = 1;
    args.micro_batch = tensor.micro_batch;
    args.stage = tensor.stage;
    args.flags = tensor.can_recompute ? EBB_OFFLOAD_CAN_RECOMPUTE : 0;
    args.recompute_cost_ns = static_cast<uint64_t>(tensor.recompute_ns);
    std::vector<ebb_activation> from;
    for (const uint32_t f : tensor.recompute_from) {
        from.push_back(live_[f].activation);
    }
    args.recompute_from = from.data();
    args.recompute_from_count = from.size();
    if (options_.fixed != nullptr) {
        args.placement = static_cast<ebb_placement>(options_.fixed->placement[t]);
    }
    ebb_offload_info info{};
    info.struct_size = sizeof(info);
    EBB_TRY(in_scopes(tensor.name, args, info));
    live_[t] = {};
    live_[t].activation = info.activation;
    live_[t].placement = info.placement;
    result_.kept[static_cast<size_t>(info.reason)] += info.placement == EBB_PLACE_KEEP ? 1 : 0;
    return {};
}

// "decoder/layer.3/gate" is "gate" in two scopes.
status step_player::in_scopes(const std::string &name, ebb_offload_args &args, ebb_offload_info &info) {
    size_t begin = 0;
    size_t scopes = 0;
    for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', begin)) {
        EBB_TRY(player_called(ebb_scope_push(runtime_, name.substr(begin, slash - begin).c_str()), "ebb_scope_push"));
        begin = slash + 1;
        ++scopes;
    }
    args.name = name.c_str() + begin;
    status offloaded = player_called(ebb_offload(runtime_, &args, &info), "ebb_offload");
    for (; scopes != 0; --scopes) {
        static_cast<void>(ebb_scope_pop(runtime_));
    }
    return offloaded;
}

// Claims its bytes; without room for a slot they go into the memory that the tensor had.
status step_player::bring(uint32_t t, bool &recompute) {
    live_tensor &l = live_[t];
    recompute = false;
    if (l.here) {
        return {};
    }
    ebb_reload_info info{};
    info.struct_size = sizeof(info);
    const auto stream = static_cast<ebb_stream>(compute_);
    ebb_status s = ebb_reload(runtime_, l.activation, stream, &info);
    if (s == EBB_RECOMPUTE) {
        recompute = true;
        return {};
    }
    l.here = true;
    if (s == EBB_OK) {
        l.claim = info.claim;
        return {};
    }
    if (s != EBB_NO_SLOT) {
        return player_failed("ebb_reload");
    }
    ++result_.no_slot;
    return player_called(ebb_reload_into(runtime_, l.activation, memory_ + offset_[t], size_bytes_[t], stream),
                         "ebb_reload_into");
}

status step_player::use(uint32_t t) {
    bool again = false;
    EBB_TRY(bring(t, again));
    return again ? recompute(t) : status();
}

// It and what it is computed from that is nowhere either, in the order of their production. No recursion: chains of
// inputs may be long.
std::vector<uint32_t> step_player::needed_again(uint32_t t) const {
    std::vector<uint32_t> needed{t};
    for (size_t next = 0; next < needed.size(); ++next) {
        for (const uint32_t f : model_.tensors[needed[next]].recompute_from) {
            const bool nowhere = live_[f].placement == EBB_PLACE_RECOMPUTE && !live_[f].here;
            if (nowhere && std::find(needed.begin(), needed.end(), f) == needed.end()) {
                needed.push_back(f);
            }
        }
    }
    std::sort(needed.begin(), needed.end());
    return needed;
}

// All in one section, since they do not nest.
status step_player::recompute(uint32_t t) {
    const std::vector<uint32_t> needed = needed_again(t);
    uint64_t size_bytes = 0;
    for (const uint32_t n : needed) {
        size_bytes += size_bytes_[n];
    }
    EBB_TRY(player_called(ebb_recompute_begin(runtime_, size_bytes), "ebb_recompute_begin"));
    for (const uint32_t n : needed) {
        bool again = true;
        if (n != t) {
            EBB_TRY(bring(n, again));  // the runtime learns that it is there from now on
        }
        EBB_TRY(compute_again(n));
    }
    return player_called(ebb_recompute_end(runtime_), "ebb_recompute_end");
}

// What it is computed from is claimed for that long; a copy that backward needs again stays where it is.
status step_player::compute_again(uint32_t t) {
    const step_tensor &tensor = model_.tensors[t];
    std::vector<uint32_t> brought;
    for (const uint32_t f : tensor.recompute_from) {
        if (live_[f].here) {
            continue;
        }
        bool again = false;
        EBB_TRY(bring(f, again));
        if (again) {
            return {code::internal,
                    fmt::format("'{}' is computed from '{}', which is not there", tensor.name, model_.tensors[f].name)};
        }
        brought.push_back(f);
    }
    EBB_TRY(compute(tensor.recompute_ns, 0));
    for (const uint32_t f : brought) {
        EBB_TRY(done(f));
    }
    live_[t].here = true;  // it stays for its own use
    live_[t].recomputed = true;
    recomputed_bytes_ += size_bytes_[t];
    return {};
}

status step_player::recompute_due(uint32_t e) {
    for (const uint32_t t : recompute_at_[e]) {
        if (!live_[t].here) {
            EBB_TRY(use(t));
        }
    }
    return {};
}

status step_player::done(uint32_t t) {
    live_tensor &l = live_[t];
    l.here = false;
    if (std::exchange(l.recomputed, false)) {
        recomputed_bytes_ -= size_bytes_[t];
    }
    if (l.claim == 0) {
        return {};
    }
    return player_called(ebb_return(runtime_, std::exchange(l.claim, 0), static_cast<ebb_stream>(compute_)),
                         "ebb_return");
}

status step_player::release(uint32_t t) {
    EBB_TRY(done(t));
    return player_called(ebb_release(runtime_, live_[t].activation), "ebb_release");
}

}  // namespace ebb
