#include "comparison.hpp"
#include "ebb_call.hpp"
#include "program.hpp"
#include "report.hpp"
#include "result_table.hpp"
#include "settings.hpp"
#include "text_data.hpp"
#include "trainer.hpp"

namespace {

// A runtime for this mode, and a training run in it.
train::mode_result run_mode(const train::mode &m, const train::settings &s, const train::text_data &text) {
    train::mode_result result;
    result.mode = m.name;
    result.micro_batch = s.shape.micro_batch;
    train::host_training_device device(train::options_of(m, s.offload, train::saved_by(s.shape)), s.steps);
    const auto train = [&] {
        train::progress_line line(result);
        train::trainer run(device, s, text);
        train::take_times(run.run(line.of_steps(s.steps)), s.tokens_per_step(), result);
        result.kept_by_necessity = run.kept_by_necessity() / s.steps;
    };
    train::run_or_note_why(train, result);
    train::check(ebb_host_memory(device.runtime(), nullptr, nullptr, &result.device_peak_bytes), "ebb_host_memory");
    result.pinned_peak_bytes = train::statistics_of(device.runtime()).pinned_peak_bytes;
    return result;
}

int compare(const train::settings &s) {
    const int64_t least = s.shape.sequence + 1;
    const train::text_data text =
        s.text_path.empty() ? train::read_documentation(TRAIN_SOURCE_DIR, least) : train::read_text(s.text_path, least);
    using results = std::vector<train::mode_result>;
    const auto run = [&](const train::mode &m, int64_t micro_batch) {
        train::settings own = s;
        own.shape.micro_batch = micro_batch;
        return run_mode(m, own, text);
    };
    return train::compare({"train_transformer", s.json, train::context_text(s, text),
                           [&](results &all) { train::run_modes(s, run, all); },
                           [](const results &all) { return train::table(all); },
                           [&](const results &all) { return train::json_text(s, text, all); }});
}

}  // namespace

int main(int argc, char **argv) {
    const train::parsed command = train::parse_command_line(argc, argv);
    if (command.exit_code) {
        return *command.exit_code;
    }
    return train::run_program("train_transformer", [&] { return compare(command.values); });
}
