// Calls to Ebb as exceptions: for programs that give up when one fails.
#pragma once

#include <stdexcept>
#include <string>

#include "ebb/ebb.h"

namespace train {

// A call that did not return EBB_OK, with ebb_last_error's text; or one to the device that fails in the same way.
class call_failed : public std::runtime_error {
public:
    call_failed(ebb_status status, const std::string &call);
    call_failed(ebb_status status, const std::string &call, const std::string &why);
    [[nodiscard]] ebb_status status() const { return status_; }

private:
    ebb_status status_;
};

// Throws call_failed when status is not EBB_OK.
void check(ebb_status status, const char *call);

// The runtime's counters as they are now, timings read.
ebb_statistics statistics_of(ebb_runtime *runtime);

// Pushed for the scope's life, so that an exception pops it too.
class layer_scope {
public:
    layer_scope(ebb_runtime *runtime, int64_t layer);
    ~layer_scope() { ebb_scope_pop(runtime_); }
    layer_scope(const layer_scope &) = delete;
    layer_scope &operator=(const layer_scope &) = delete;

private:
    ebb_runtime *runtime_;
};

class recompute_scope {
public:
    recompute_scope(ebb_runtime *runtime, uint64_t size_bytes) : runtime_(runtime) {
        check(ebb_recompute_begin(runtime, size_bytes), "ebb_recompute_begin");
    }
    ~recompute_scope() { ebb_recompute_end(runtime_); }
    recompute_scope(const recompute_scope &) = delete;
    recompute_scope &operator=(const recompute_scope &) = delete;

private:
    ebb_runtime *runtime_;
};

}  // namespace train
