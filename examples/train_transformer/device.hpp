// The device that the example trains on: a runtime of Ebb with its host device, one compute stream, memory of the
// device's arena, and kernel launches whose arguments lie in a preallocated arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ebb/ebb.h"

namespace train {

// A call to Ebb that did not return EBB_OK, with ebb_last_error's text.
class call_failed : public std::runtime_error {
public:
    call_failed(ebb_status status, const std::string &call);
    [[nodiscard]] ebb_status status() const { return status_; }

private:
    ebb_status status_;
};

// Throws call_failed when status is not EBB_OK.
void check(ebb_status status, const char *call);

// Room for the arguments of the kernels of one step, reused when that step is over.
class argument_arena {
public:
    void *take(size_t bytes, size_t alignment);
    void clear();  // only when no launched kernel reads from it any more

private:
    struct block {
        std::unique_ptr<std::byte[]> memory;
        size_t bytes = 0;
        size_t used = 0;
    };
    std::vector<block> blocks_;
    size_t current_ = 0;
};

using device_array = std::shared_ptr<float>;

class training_device {
public:
    explicit training_device(const ebb_runtime_options &options);
    ~training_device();
    training_device(const training_device &) = delete;
    training_device &operator=(const training_device &) = delete;

    [[nodiscard]] ebb_runtime *runtime() const { return runtime_; }
    [[nodiscard]] ebb_stream stream() const { return stream_; }

    // Freed when the last owner lets go; the arena's memory is reused in the order of the compute stream.
    device_array allocate(int64_t elements);
    void synchronize();

    // Runs kernel(arguments) on the compute stream, after everything launched before.
    template <class arguments>
    void launch(void (*kernel)(const arguments &), const arguments &values) {
        struct call {
            void (*kernel)(const arguments &);
            arguments values;
        };
        void *const memory = arguments_->take(sizeof(call), alignof(call));
        launch_call([](void *c) { static_cast<call *>(c)->kernel(static_cast<call *>(c)->values); },
                    new (memory) call{kernel, values});
    }
    // Where the next launches' arguments go.
    void use_arguments(argument_arena &arena) { arguments_ = &arena; }
    argument_arena &arguments() { return *arguments_; }

private:
    void launch_call(void (*function)(void *), void *argument);

    ebb_runtime *runtime_ = nullptr;
    ebb_stream stream_ = 0;
    argument_arena first_arguments_;
    argument_arena *arguments_ = &first_arguments_;
};

}  // namespace train
