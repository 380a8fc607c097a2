// A device to train on: memory by what it is for, the operations, and what only the program asks of it. The training
// loop's side of it is training().
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ebb/ebb.h"
#include "memory_account.hpp"
#include "step_math.hpp"
#include "training_device.hpp"

namespace step {

// Of copies between device memory and pinned memory, one direction at a time; 0: without a limit.
struct copy_rates {
    double d2h_bytes_per_second = 0;
    double h2d_bytes_per_second = 0;
};

struct device_facts {
    std::string name;
    std::string attention;
    std::string collectives;
    std::string note;  // for people; may be empty
};

class step_device {
public:
    step_device() = default;
    virtual ~step_device() = default;
    step_device(const step_device &) = delete;
    step_device &operator=(const step_device &) = delete;

    [[nodiscard]] virtual train::training_device &training() = 0;
    [[nodiscard]] virtual step_math &math() = 0;
    [[nodiscard]] memory_account &account() { return account_; }

    // As training_device's allocate_bytes, which counts as activations.
    virtual std::shared_ptr<void> allocate(memory_kind kind, uint64_t size_bytes) = 0;
    // Block.
    virtual void upload(void *to, const void *from, uint64_t size_bytes) = 0;
    virtual void download(void *to, const void *from, uint64_t size_bytes) = 0;

    // Averages over the devices that train together, in place, enqueued on collective_stream(): behind what the compute
    // stream had done at the last begin_collective(). The compute stream goes on, and waits for all of them in
    // wait_for_collectives().
    [[nodiscard]] virtual ebb_stream collective_stream() = 0;
    virtual void begin_collective() = 0;
    virtual void average(float *values, int64_t count) = 0;
    virtual void wait_for_collectives() = 0;

    // The most that was in use on the device, whoever used it; looked at in this call, too.
    [[nodiscard]] virtual uint64_t peak_used_bytes() = 0;
    [[nodiscard]] virtual copy_rates measure_copies() = 0;
    // What carries out what, for the reader of the results.
    [[nodiscard]] virtual device_facts facts() const = 0;

protected:
    // Counts the memory until its last owner lets go.
    std::shared_ptr<void> counted(memory_kind kind, uint64_t size_bytes, std::shared_ptr<void> memory) {
        account_.add(kind, size_bytes);
        void *const data = memory.get();
        return {data, [this, kind, size_bytes, owner = std::move(memory)](void * /*data*/) mutable {
                    account_.remove(kind, size_bytes);
                    owner.reset();
                }};
    }

private:
    memory_account account_;
};

}  // namespace step
