#include <fmt/format.h>

#include <cstdio>

#include "program.hpp"
#include "step_report.hpp"
#include "step_runs.hpp"
#include "step_settings.hpp"
#include "training_check.hpp"

namespace {

constexpr const char *k_program = "step_bench";

int compare(const step::step_settings &s) {
    using results = std::vector<train::mode_result>;
    step::step_runs runs(s);
    return train::compare({k_program, s.json, step::context_text(s), [&](results &all) { runs.run_all(all); },
                           [&](const results &all) { return step::tables_text(all, runs); },
                           [&](const results &all) { return step::json_text(s, all, runs); }});
}

int check(const step::step_settings &s) {
    const step::check_results results = step::run_checks(s);
    const std::string text = s.json ? step::check_json(results) : step::check_text(results);
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (!results.good()) {
        fmt::print(stderr, "{}: what is computed is not what it must be\n", k_program);
        return train::k_failed;
    }
    return train::k_done;
}

}  // namespace

int main(int argc, char **argv) {
    const step::parsed command = step::parse_command_line(argc, argv);
    if (command.exit_code) {
        return *command.exit_code;
    }
    return train::run_program(k_program,
                              [&] { return command.values.check ? check(command.values) : compare(command.values); });
}
