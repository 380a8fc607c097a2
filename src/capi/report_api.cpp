// Exported: the report, and what this build is.

#include <fmt/format.h>

#include <cstdlib>

#include "capi/session.hpp"
#include "device/registry.hpp"
#include "observe/report.hpp"

using namespace ebb;        // NOLINT(google-build-using-namespace): this file is the C ABI of that namespace
using namespace ebb::capi;  // NOLINT(google-build-using-namespace)

namespace {

// Names that a policy of patterns says nothing about, and that were kept for it. Empty for a policy of one word.
std::vector<std::string> names_without_pattern(ebb::runtime &core) {
    policy rules = core.rules();  // a copy, since it counts what it decides
    std::vector<std::string> names;
    const std::vector<name_counters> &by_name = core.by_name();
    for (uint32_t n = 0; n < by_name.size() && !rules.rules().empty(); ++n) {
        if (by_name[n].kept_by_reason[static_cast<size_t>(keep_reason::policy)] != 0 &&
            !rules.decide(core.names().path(n)).rule.has_value()) {
            names.push_back(core.names().path(n));
        }
    }
    return names;
}

std::string cuda_library() {
    const char *set = std::getenv("EBB_CUDA_LIBRARY");
    return set == nullptr ? "" : set;
}

}  // namespace

ebb_status ebb_report_write(ebb_runtime *runtime, ebb_report_format format, ebb_text_sink sink, void *context) {
    return on_runtime(runtime, [&](entry &e) -> status {
        if (sink == nullptr) {
            return {code::invalid_argument, "sink is null: it is called with the report's text"};
        }
        if (format != EBB_REPORT_TEXT && format != EBB_REPORT_JSON) {
            return {code::invalid_argument,
                    fmt::format("format is {}: use EBB_REPORT_TEXT or EBB_REPORT_JSON", format)};
        }
        const counters totals = e.core().snapshot();
        const report_input input{totals,
                                 e.core().by_name(),
                                 e.core().names(),
                                 e.core().rules().unmatched_rules(),
                                 names_without_pattern(e.core()),
                                 runtime->device->info().name};
        const std::string text = format == EBB_REPORT_TEXT ? report_text(input) : report_json(input);
        e.unlocked([&] { sink(context, text.data(), text.size()); });
        return {};
    });
}

const char *ebb_build_info(void) {
    // Built once: three functions return text, and none of them may fail.
    static const std::string info =
        fmt::format("ebb {}.{}.{}, {} {}, {} ({}), devices {}", EBB_VERSION_MAJOR, EBB_VERSION_MINOR, EBB_VERSION_PATCH,
#if defined(__clang__)
                    "clang", __clang_major__,
#else
                    "gcc", __GNUC__,
#endif
                    EBB_BUILD_TYPE[0] == '\0' ? "no build type" : EBB_BUILD_TYPE,
#if defined(__OPTIMIZE__)
                    "optimised",
#else
                    "not optimised",
#endif
                    device_names(cuda_library()));
    return info.c_str();
}
