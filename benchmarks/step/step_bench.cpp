#include "program.hpp"
#include "step_report.hpp"
#include "step_runs.hpp"
#include "step_settings.hpp"

namespace {

constexpr const char *k_program = "step_bench";

int compare(const step::step_settings &s) {
    using results = std::vector<train::mode_result>;
    step::step_runs runs(s);
    return train::compare({k_program, s.json, step::context_text(s), [&](results &all) { runs.run_all(all); },
                           [&](const results &all) { return step::tables_text(all, runs.details()); },
                           [&](const results &all) { return step::json_text(s, all, runs.details()); }});
}

}  // namespace

int main(int argc, char **argv) {
    const step::parsed command = step::parse_command_line(argc, argv);
    if (command.exit_code) {
        return *command.exit_code;
    }
    return train::run_program(k_program, [&] { return compare(command.values); });
}
