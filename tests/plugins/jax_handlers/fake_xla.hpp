// XLA's side of a call of ours: the frame that it passes, and its table of functions.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "xla_ffi_table.hpp"

namespace ebb_jax::xla {

struct context {
    std::int64_t run = 1;
    std::int32_t ordinal = 0;
    void *stream = nullptr;
};
struct error {
    std::string text;
    error_code code;
};

}  // namespace ebb_jax::xla

namespace ebb_jax::test {

class fake_call {
public:
    fake_call(std::int64_t run, std::int32_t ordinal, void *stream) : context_{run, ordinal, stream} {}

    fake_call &argument(void *data, std::vector<std::int64_t> shape, std::int32_t type = k_f32) {
        arguments_.push_back(buffer(data, std::move(shape), type));
        return *this;
    }
    fake_call &result(void *data, std::vector<std::int64_t> shape, std::int32_t type = k_f32) {
        results_.push_back(buffer(data, std::move(shape), type));
        return *this;
    }
    fake_call &says(const std::string &text) {
        names_.push_back(span_of("call"));
        kinds_.push_back(xla::k_string_attribute);
        values_.push_back(span_of(text));
        return *this;
    }

    // Null: it went well.
    template <typename handler>
    std::unique_ptr<xla::error> make(const handler &call, xla::extension *extension = nullptr,
                                     std::int32_t stage = xla::k_execute) {
        xla::call_frame frame{};
        frame.struct_size = sizeof frame;
        frame.extensions = extension;
        frame.table = &table();
        frame.ctx = &context_;
        frame.stage = stage;
        frame.arguments.size = static_cast<std::int64_t>(arguments_.size());
        frame.arguments.buffers = arguments_.data();
        frame.results.size = static_cast<std::int64_t>(results_.size());
        frame.results.buffers = results_.data();
        frame.attrs.size = static_cast<std::int64_t>(kinds_.size());
        frame.attrs.kinds = kinds_.data();
        frame.attrs.names = names_.data();
        frame.attrs.values = values_.data();
        return std::unique_ptr<xla::error>(call(&frame));
    }

    static constexpr std::int32_t k_f32 = 11, k_u32 = 8;

private:
    void *buffer(void *data, std::vector<std::int64_t> shape, std::int32_t type) {
        shapes_.push_back(std::move(shape));
        return &buffers_.emplace_back(xla::buffer{sizeof(xla::buffer), nullptr, type, data,
                                                  static_cast<std::int64_t>(shapes_.back().size()),
                                                  shapes_.back().data()});
    }
    xla::span *span_of(const std::string &text) {
        texts_.push_back(text);
        return &spans_.emplace_back(xla::span{texts_.back().data(), texts_.back().size()});
    }
    static const xla::api &table() {
        static const xla::api one = [] {
            xla::api made{};
            made.struct_size = sizeof made;
            made.api_version.minor = 3;
            made.error_create = [](xla::error_create_args *args) { return new xla::error{args->message, args->code}; };
            made.stream_get = [](xla::stream_get_args *args) -> xla::error * {
                args->stream = args->ctx->stream;
                return nullptr;
            };
            made.run_id_get = [](xla::run_id_get_args *args) -> xla::error * {
                args->run_id = args->ctx->run;
                return nullptr;
            };
            made.device_ordinal_get = [](xla::device_ordinal_get_args *args) -> xla::error * {
                args->device_ordinal = args->ctx->ordinal;
                return nullptr;
            };
            return made;
        }();
        return one;
    }

    xla::context context_;
    std::list<std::string> texts_;
    std::list<xla::span> spans_;
    std::list<xla::buffer> buffers_;
    std::list<std::vector<std::int64_t>> shapes_;
    std::vector<void *> arguments_, results_, values_;
    std::vector<std::int32_t> kinds_;
    std::vector<xla::span *> names_;
};

}  // namespace ebb_jax::test
