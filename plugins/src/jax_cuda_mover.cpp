#include "jax_cuda_mover.hpp"

#include <dlfcn.h>

#include <cstring>
#include <type_traits>

namespace ebb_jax {
namespace {

ebb_stream number_of(void *stream) {
    const auto number = reinterpret_cast<std::uintptr_t>(stream);
    return number == 0 ? EBB_STREAM_LEGACY : static_cast<ebb_stream>(number);
}

failure failed_driver_call(const char *name, int status) {
    return {EBB_DEVICE_ERROR, std::string("ebb.jax: ") + name + " failed with CUDA's error " + std::to_string(status)};
}

class on_cuda : public mover {
public:
    on_cuda(const cuda_driver *driver, create_runtime create) : driver_(driver), create_(create) {}

    bool has_streams() const override { return true; }

    failure open(ebb_runtime_options options, std::int32_t ordinal, place &made) override {
        options.device = "cuda";
        options.device_ordinal = ordinal;
        made.name = "cuda:" + std::to_string(ordinal);
        const ebb_status status = create_(&options, &made.runtime);
        return status == EBB_OK ? failure{} : failed_call(status);
    }

    failure offload(place &home, const std::string &path, void *data, std::uint64_t size_bytes, void *stream,
                    part &made) override {
        const ebb_stream producer = number_of(stream);
        const ebb_offload_args args = moving(path, data, size_bytes, producer);
        ebb_offload_info info{};
        info.struct_size = sizeof info;
        const ebb_status status = ebb_offload_staged(home.runtime, &args, &info);
        if (status != EBB_OK) {
            return failed_call(status);
        }
        made = {info.activation, size_bytes, false};
        return {};
    }

    failure reload(place &home, const part &what, void *data, void *stream) override {
        const ebb_status status =
            ebb_reload_into(home.runtime, what.activation, data, what.size_bytes, number_of(stream));
        return status == EBB_OK ? failure{} : failed_call(status);
    }

    failure wait_for(place &, const part &) override { return {}; }  // the stream does

    failure fill_with_zeros(void *data, std::uint64_t size_bytes, void *stream) override {
        const auto device = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(data));
        return in_context(stream, [&]() -> failure {
            const int status = driver_->memset_d8_async(device, 0, size_bytes, stream);
            return status == 0 ? failure{} : failed_driver_call("cuMemsetD8Async", status);
        });
    }

    // The value is part of the call: no memory of ours has to outlive it.
    failure write_handle(void *to, std::uint64_t handle, void *stream) override {
        const auto device = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(to));
        unsigned halves[2];
        std::memcpy(halves, &handle, sizeof handle);
        return in_context(stream, [&]() -> failure {
            for (unsigned i = 0; i < 2; ++i) {
                const int status = driver_->memset_d32_async(device + i * sizeof halves[0], halves[i], 1, stream);
                if (status != 0) {
                    return failed_driver_call("cuMemsetD32Async", status);
                }
            }
            return {};
        });
    }

    // The handle is a value that the kernels before this call make: it can be read when they are done.
    failure read_handles(const void *from, std::uint64_t *handles, std::size_t count, void *stream) override {
        const auto device = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(from));
        return in_context(stream, [&]() -> failure {
            int status = driver_->memcpy_d_to_h_async(handles, device, count * sizeof *handles, stream);
            if (status != 0) {
                return failed_driver_call("cuMemcpyDtoHAsync", status);
            }
            status = driver_->stream_synchronize(stream);
            return status == 0 ? failure{} : failed_driver_call("cuStreamSynchronize", status);
        });
    }

private:
    // XLA does not say that the calling thread has the stream's context.
    template <typename call>
    failure in_context(void *stream, const call &inside) {
        if (driver_ == nullptr) {
            return {EBB_UNSUPPORTED, "ebb.jax: this process has no CUDA driver (libcuda.so.1)"};
        }
        void *context = nullptr;
        if (const int status = driver_->stream_get_ctx(stream, &context); status != 0) {
            return failed_driver_call("cuStreamGetCtx", status);
        }
        if (const int status = driver_->ctx_push_current(context); status != 0) {
            return failed_driver_call("cuCtxPushCurrent", status);
        }
        failure why = inside();
        driver_->ctx_pop_current(&context);
        return why;
    }

    const cuda_driver *driver_;
    create_runtime create_;
};

const cuda_driver *load_driver() {
    void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        return nullptr;
    }
    static cuda_driver table;
    bool complete = true;
    const auto load = [&](auto &function, const char *name) {
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
        complete = complete && function != nullptr;
    };
    load(table.stream_get_ctx, "cuStreamGetCtx");
    load(table.ctx_push_current, "cuCtxPushCurrent_v2");
    load(table.ctx_pop_current, "cuCtxPopCurrent_v2");
    load(table.memset_d8_async, "cuMemsetD8Async");
    load(table.memset_d32_async, "cuMemsetD32Async");
    load(table.memcpy_d_to_h_async, "cuMemcpyDtoHAsync_v2");
    load(table.stream_synchronize, "cuStreamSynchronize");
    return complete ? &table : nullptr;
}

}  // namespace

std::unique_ptr<mover> make_cuda_mover(const cuda_driver *driver, create_runtime create) {
    return std::make_unique<on_cuda>(driver, create);
}

mover &cuda_mover() {
    static const std::unique_ptr<mover> one = make_cuda_mover(load_driver(), &ebb_runtime_create);
    return *one;
}

}  // namespace ebb_jax
