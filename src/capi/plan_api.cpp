// Exported: the recorded step and the plan, in and out.

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "capi/record_file.hpp"
#include "capi/session.hpp"
#include "observe/plan_json.hpp"
#include "observe/step_model_json.hpp"

using namespace ebb;        // NOLINT(google-build-using-namespace): this file is the C ABI of that namespace
using namespace ebb::capi;  // NOLINT(google-build-using-namespace)

namespace ebb::capi {

namespace {

status no_record_yet() {
    return {code::wrong_state, "no step is recorded yet: call ebb_step once more after the first training step"};
}

status write_file(const std::string &path, const std::string &text) {
    const auto close = [](std::FILE *f) { static_cast<void>(std::fclose(f)); };
    std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "we"), close);
    const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() &&
                         std::fflush(file.get()) == 0;
    return written ? status() : status{code::invalid_argument, std::strerror(errno)};
}

}  // namespace

void write_record(entry &e, ebb_runtime &r) {
    if (r.record_path.empty() || !e.core().has_record()) {
        return;
    }
    const std::string path = std::exchange(r.record_path, std::string());
    const std::string text = step_model_to_json(e.core().recorded_model().model);
    status written;
    e.unlocked([&] { written = write_file(path, text); });
    if (!written.ok()) {
        e.unlocked([&] {
            r.log.write(log_level::warning,
                        fmt::format("record \"{}\" (EBB_RECORD) was not written: {}; give a file that "
                                    "can be created",
                                    path, written.text()));
        });
    }
}

}  // namespace ebb::capi

ebb_status ebb_record_export(ebb_runtime *runtime, ebb_text_sink sink, void *context) {
    return on_runtime(runtime, [&](entry &e) -> status {
        if (sink == nullptr) {
            return {code::invalid_argument, "sink is null: it is called with the record's text"};
        }
        if (!e.core().has_record()) {
            return no_record_yet();
        }
        const std::string text = step_model_to_json(e.core().recorded_model().model);
        e.unlocked([&] { sink(context, text.data(), text.size()); });
        return {};
    });
}

ebb_status ebb_plan_export(ebb_runtime *runtime, ebb_text_sink sink, void *context) {
    return on_runtime(runtime, [&](entry &e) -> status {
        if (sink == nullptr) {
            return {code::invalid_argument, "sink is null: it is called with the plan's text"};
        }
        if (!e.core().has_record()) {
            return no_record_yet();
        }
        plan followed;
        if (!e.core().followed_plan(followed)) {
            return {code::wrong_state,
                    "there is no plan: what the policy leaves open (auto) is planned once three steps "
                    "after the recorded one were measured"};
        }
        std::vector<uint32_t> view_of;
        const step_model saves = e.core().recorded_saves(view_of);
        const std::string text = plan_to_json(followed, saves, view_of);
        e.unlocked([&] { sink(context, text.data(), text.size()); });
        return {};
    });
}

ebb_status ebb_plan_import(ebb_runtime *runtime, const char *text, uint64_t size_bytes) {
    return on_runtime(runtime, [&](entry &e) -> status {
        if (text == nullptr) {
            return {code::invalid_argument, "text is null: it is a plan as ebb_plan_export writes it"};
        }
        if (!e.core().has_record()) {
            return no_record_yet();
        }
        std::vector<uint32_t> view_of;
        const step_model saves = e.core().recorded_saves(view_of);
        result<plan> read = plan_from_json({text, size_bytes}, saves, "text", view_of);
        if (!read.ok()) {
            return read.why();
        }
        e.core().follow_plan(read.value());
        return {};
    });
}
