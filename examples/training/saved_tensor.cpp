#include "saved_tensor.hpp"

#include <utility>

#include "ebb_call.hpp"

namespace train {
namespace {

// The deleter that Ebb runs when the memory may be reused behind the compute stream.
void let_go(void *context) {
    delete static_cast<std::shared_ptr<void> *>(context);
}

}  // namespace

saved_tensor::saved_tensor(saved_tensor &&other) noexcept
    : name_(other.name_),
      size_bytes_(other.size_bytes_),
      device_(other.device_),
      activation_(std::exchange(other.activation_, 0)),
      claim_(std::exchange(other.claim_, 0)),
      claimed_(other.claimed_),
      own_(std::move(other.own_)),
      recompute_(other.recompute_),
      kept_by_necessity_(other.kept_by_necessity_) {}

void saved_tensor::save(training_device &device, std::shared_ptr<void> array, int64_t micro_batch,
                        const std::vector<const saved_tensor *> &sources, ebb_placement placement) {
    device_ = &device;
    std::vector<ebb_activation> from;
    for (const saved_tensor *source : sources) {
        from.push_back(source->activation_);
    }
    const ebb_stream stream = device.stream();
    auto context = std::make_unique<std::shared_ptr<void>>(std::move(array));

    ebb_offload_args args{};
    args.struct_size = sizeof(args);
    args.name = name_;
    args.data = context->get();
    args.size_bytes = size_bytes_;
    args.producers = &stream;
    args.producer_count = 1;
    args.deleter = let_go;
    args.deleter_context = context.get();
    args.micro_batch = static_cast<uint64_t>(micro_batch);
    args.placement = placement;
    if (!from.empty()) {
        args.flags = EBB_OFFLOAD_CAN_RECOMPUTE;
        args.recompute_from = from.data();
        args.recompute_from_count = from.size();
    }
    ebb_offload_info info{};
    info.struct_size = sizeof(info);
    check(ebb_offload(device.runtime(), &args, &info), "ebb_offload");
    context.release();  // the deleter's now
    activation_ = info.activation;
    recompute_ = info.placement == EBB_PLACE_RECOMPUTE;
    kept_by_necessity_ = info.reason == EBB_REASON_HOST_CAP || info.reason == EBB_REASON_PINNING ||
                         info.reason == EBB_REASON_COPY_ERROR || info.reason == EBB_REASON_LARGER_THAN_SLOT;
}

void *saved_tensor::fetch() {
    if (own_ != nullptr) {
        return own_.get();
    }
    if (claim_ != 0) {
        return claimed_;
    }
    ebb_reload_info info{};
    info.struct_size = sizeof(info);
    const ebb_status status = ebb_reload(device_->runtime(), activation_, device_->stream(), &info);
    if (status == EBB_RECOMPUTE) {
        return nullptr;
    }
    if (status == EBB_NO_SLOT) {
        own_ = device_->allocate_bytes(size_bytes_);
        check(ebb_reload_into(device_->runtime(), activation_, own_.get(), size_bytes_, device_->stream()),
              "ebb_reload_into");
        return own_.get();
    }
    check(status, "ebb_reload");
    claim_ = info.claim;
    claimed_ = info.data;
    return claimed_;
}

void saved_tensor::finish() {
    own_.reset();
    if (claim_ != 0) {
        check(ebb_return(device_->runtime(), std::exchange(claim_, 0), device_->stream()), "ebb_return");
    }
    check(ebb_release(device_->runtime(), std::exchange(activation_, 0)), "ebb_release");
}

// After a failure: the statuses say nothing new.
void saved_tensor::discard() noexcept {
    own_.reset();
    if (claim_ != 0) {
        ebb_return(device_->runtime(), std::exchange(claim_, 0), device_->stream());
    }
    if (activation_ != 0) {
        ebb_release(device_->runtime(), std::exchange(activation_, 0));
    }
}

}  // namespace train
