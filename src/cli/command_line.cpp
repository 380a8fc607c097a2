#include "cli/command_line.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/edit_distance.hpp"
#include "base/quantity.hpp"
#include "cli/exit_status.hpp"

namespace ebb::cli {

struct command_line::parser {
    parser(const std::string &name, const std::string &what_it_does) : app(what_it_does, name) {}
    CLI::App app;
};

namespace {

constexpr size_t k_help_width = 110;
constexpr size_t k_help_column = 34;

std::string wrapped_text(const std::string &text, size_t width) {
    std::string lines;
    std::istringstream words(text);
    size_t used = 0;
    for (std::string word; words >> word;) {
        const bool fits = used == 0 || used + 1 + word.size() <= width;
        lines += used == 0 ? "" : fits ? " " : "\n";
        used = used == 0 || !fits ? word.size() : used + 1 + word.size();
        lines += word;
    }
    return lines;
}

std::string help_text(const std::string &meaning) {
    return wrapped_text(meaning, k_help_width - k_help_column);
}

// Thrown inside CLI11's parse(), which command_line::parse() catches.
[[noreturn]] void refuse_value(const std::string &name, const std::string &value, const std::string &allowed) {
    throw CLI::ValidationError(fmt::format("{} \"{}\"", name, value), "allowed is " + allowed);
}

std::optional<double> parse_real(const std::string &text) {
    try {
        size_t used = 0;
        const double value = std::stod(text, &used);
        return used == text.size() && std::isfinite(value) ? std::optional<double>(value) : std::nullopt;
    } catch (const std::exception &) {
        return std::nullopt;
    }
}

std::string did_you_mean(const std::string &text, const std::vector<std::string> &names) {
    const std::string near = nearest_of(text, names);
    return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

}  // namespace

std::string nearest_of(const std::string &text, const std::vector<std::string> &names) {
    std::string nearest;
    size_t least = std::max<size_t>(text.size() / 2, 1) + 1;
    for (const std::string &name : names) {
        const size_t distance = edit_distance(text, name);
        if (distance < least) {
            least = distance;
            nearest = name;
        }
    }
    return nearest;
}

command_line::command_line(const std::string &name, const std::string &what_it_does)
    : name_(name),
      group_("Options"),
      parser_(std::make_unique<parser>(name, wrapped_text(what_it_does, k_help_width))) {
    parser_->app.get_formatter()->column_width(k_help_column);
    parser_->app.set_help_flag();  // set last, so that --help does not begin with itself
}

command_line::~command_line() = default;

void command_line::option(const std::string &name, const std::string &type, const std::string &now,
                          const std::string &meaning, const std::function<void(const std::string &)> &read) {
    CLI::Option *added = parser_->app.add_option_function<std::string>(
        name, [read](const std::string &value) { read(value); }, help_text(meaning));
    added->group(group_)->type_name(type)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    if (!now.empty()) {
        added->default_str(now);
    }
}

void command_line::positional(const std::string &name, std::string &to, const std::string &meaning) {
    option(name, "", "", meaning, [&to](const std::string &value) { to = value; });
}

void command_line::flag(const std::string &name, bool &to, const std::string &meaning) {
    parser_->app.add_flag(name, to, help_text(meaning))->group(group_);
}

void command_line::text(const std::string &name, std::string &to, const std::string &type, const std::string &meaning) {
    option(name, type, to, meaning, [&to](const std::string &value) { to = value; });
}

void command_line::count(const std::string &name, uint64_t &to, uint64_t low, uint64_t high,
                         const std::string &meaning) {
    option(name, "N", fmt::format("{}", to), meaning, [&to, name, low, high](const std::string &value) {
        const std::optional<uint64_t> read = parse_count(value);
        if (!read || *read < low || *read > high) {
            refuse_value(name, value, fmt::format("a whole number from {} to {}", low, high));
        }
        to = *read;
    });
}

void command_line::number(const std::string &name, double &to, double low, double high, const std::string &meaning) {
    option(name, "X", fmt::format("{}", to), meaning, [&to, name, low, high](const std::string &value) {
        const std::optional<double> read = parse_real(value);
        if (!read || *read < low || *read > high) {
            refuse_value(name, value, fmt::format("a number from {} to {}", low, high));
        }
        to = *read;
    });
}

void command_line::bytes(const std::string &name, std::optional<uint64_t> &to, const std::string &meaning) {
    option(name, "BYTES", "", meaning, [&to, name](const std::string &value) {
        const std::optional<uint64_t> read = parse_bytes(value);
        if (!read || *read == 0) {
            refuse_value(name, value, "a size above zero such as 40GiB, 512MiB or 1073741824");
        }
        to = read;
    });
}

void command_line::choice(const std::string &name, const std::vector<std::string> &words, const std::string &now,
                          const std::string &meaning, const std::function<void(size_t)> &chosen) {
    option(name, fmt::format("{}", fmt::join(words, "|")), now, meaning,
           [name, words, chosen](const std::string &value) {
               const auto found = std::find(words.begin(), words.end(), value);
               if (found == words.end()) {
                   refuse_value(name, value, fmt::format("{}{}", fmt::join(words, ", "), did_you_mean(value, words)));
               }
               chosen(static_cast<size_t>(found - words.begin()));
           });
}

void command_line::examples(const std::string &text) {
    parser_->app.footer("Examples:\n" + text +
                        "\nExit status: 0 done, 1 the work failed and why, 2 wrong usage, 130 interrupted.");
}

// One that nobody declared.
std::string command_line::complaint_about(const std::string &argument) const {
    const std::string name = argument.substr(0, argument.find('='));
    if (name.empty() || name[0] != '-') {
        return fmt::format("\"{}\" is one argument too many", argument);
    }
    std::vector<std::string> names;
    for (const CLI::Option *o : parser_->app.get_options()) {
        for (const std::string &known : o->get_lnames()) {
            names.push_back("--" + known);
        }
    }
    return fmt::format("there is no option {}{}", name, did_you_mean(name, names));
}

std::optional<int> command_line::parse(const std::vector<std::string> &arguments, terminal &io) {
    parser_->app.set_help_flag("-h,--help", "print this and exit")->group(group_);
    try {
        parser_->app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
        return std::nullopt;
    } catch (const CLI::CallForHelp &) {
        io.out << parser_->app.help();
        return k_done;
    } catch (const CLI::ExtrasError &) {
        const std::vector<std::string> extra = parser_->app.remaining();
        return refuse(complaint_about(extra.empty() ? "" : extra.front()), io);
    } catch (const CLI::ParseError &error) {
        return refuse(error.what(), io);
    }
}

bool command_line::was_given(const std::string &name) const {
    return parser_->app.count(name) > 0;
}

int command_line::fail(const status &failure, terminal &io) const {
    io.err << name_ << ": " << failure.text() << '\n';
    return exit_status_of(failure);
}

int command_line::refuse(const std::string &why, terminal &io) const {
    io.err << name_ << ": " << why << " (" << name_ << " --help says more)\n";
    return k_wrong_usage;
}

}  // namespace ebb::cli
