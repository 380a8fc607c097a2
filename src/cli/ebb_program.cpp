#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "cli/command_line.hpp"
#include "cli/commands.hpp"
#include "cli/exit_status.hpp"
#include "ebb/ebb.h"

namespace ebb::cli {

namespace {

struct program_command {
    const char *name;
    const char *summary;
    int (*run)(const arguments &, terminal &);
};

constexpr program_command k_commands[] = {
    {"machines", "the machines that are known, with the source of every number", machines_command},
    {"models", "the models that are known, with the tensors of their layers", models_command},
    {"plan", "what to keep, offload and recompute within a budget, and what that gives", plan_command},
    {"simulate", "a training step through the real runtime on a simulated machine", simulate_command},
    {"tables", "two published tables of host offloading, explained, and our plans on the same workloads",
     tables_command},
};

std::string program_help() {
    std::string text =
        "ebb: will a training step fit, how fast will it be, and what should be kept, offloaded or recomputed.\n"
        "\nusage: ebb COMMAND [arguments]      ebb COMMAND --help says all about one\n\nCommands:\n";
    for (const program_command &c : k_commands) {
        text += fmt::format("  {:<10} {}\n", c.name, c.summary);
    }
    return text +
           "\nExamples:\n"
           "  ebb plan --model llama-3.1-405b --micro-batch 2 --sequence 8192 --shards 128 --format fp4\n"
           "  ebb simulate --machine h100-pcie5 --model generic-dense --shards 8 --policy offload\n"
           "\n--json prints one JSON object on standard output and nothing else there.\n"
           "Exit status: 0 done, 1 the work failed and why, 2 wrong usage, 130 interrupted.\n";
}

int refuse_command(const std::string &given, terminal &io) {
    std::vector<std::string> names;
    for (const program_command &c : k_commands) {
        names.emplace_back(c.name);
    }
    const std::string near = nearest_of(given, names);
    std::string listed;
    for (const std::string &name : names) {
        listed += (listed.empty() ? "" : ", ") + name;
    }
    io.err << fmt::format("ebb: there is no command \"{}\"; allowed: {}{} (ebb --help says more)\n", given, listed,
                          near.empty() ? "" : fmt::format("; did you mean {}?", near));
    return k_wrong_usage;
}

int run_command(const program_command &command, const arguments &args, terminal &io) {
    try {
        const int ended = command.run(arguments(args.begin() + 1, args.end()), io);
        if (!io.out.flush()) {
            io.err << "ebb: standard output could not be written\n";
            return k_failed;
        }
        return ended;
    } catch (const std::exception &failure) {
        io.err << "ebb " << command.name << ": " << failure.what() << '\n';
        return k_failed;
    }
}

}  // namespace

int run_ebb(const arguments &args, terminal &io) {
    if (args.empty()) {
        io.err << program_help();
        return k_wrong_usage;
    }
    if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
        io.out << program_help();
        return k_done;
    }
    if (args[0] == "--version") {
        io.out << ebb_build_info() << '\n';
        return k_done;
    }
    const auto *found = std::find_if(std::begin(k_commands), std::end(k_commands),
                                     [&](const program_command &c) { return args[0] == c.name; });
    return found == std::end(k_commands) ? refuse_command(args[0], io) : run_command(*found, args, io);
}

}  // namespace ebb::cli
