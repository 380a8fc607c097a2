// The frame of a program that compares modes: what it prints where, and its exit status.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comparison.hpp"

namespace train {

constexpr int k_done = 0;
constexpr int k_failed = 1;
constexpr int k_wrong_usage = 2;
constexpr int k_interrupted = 130;

// Calls body, with interrupts watched for, and returns its status; after an exception, which is explained, that of a
// failure or an interruption.
int run_program(const char *name, const std::function<int()> &body);

using results_text = std::function<std::string(const std::vector<mode_result> &results)>;

struct comparison {
    const char *program;
    bool json;
    std::string context;  // above the table
    std::function<void(std::vector<mode_result> &results)> run;
    results_text table_text;
    results_text json_text;
};

// Runs it and prints the results: after a failure those that there are. Returns the program's status.
int compare(const comparison &c);

}  // namespace train
