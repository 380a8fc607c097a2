#include "ebb_call.hpp"

#include <fmt/format.h>

namespace train {

call_failed::call_failed(ebb_status status, const std::string &call) : call_failed(status, call, ebb_last_error()) {}

call_failed::call_failed(ebb_status status, const std::string &call, const std::string &why)
    : std::runtime_error(fmt::format("{}: {}: {}", call, ebb_status_name(status), why)), status_(status) {}

void check(ebb_status status, const char *call) {
    if (status != EBB_OK) {
        throw call_failed(status, call);
    }
}

ebb_statistics statistics_of(ebb_runtime *runtime) {
    ebb_statistics s{};
    s.struct_size = sizeof(s);
    check(ebb_progress(runtime), "ebb_progress");
    check(ebb_stats(runtime, &s), "ebb_stats");
    return s;
}

layer_scope::layer_scope(ebb_runtime *runtime, int64_t layer) : runtime_(runtime) {
    check(ebb_scope_push(runtime, fmt::format("layer.{}", layer).c_str()), "ebb_scope_push");
}

}  // namespace train
