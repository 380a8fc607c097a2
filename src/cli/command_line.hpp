// The arguments of one command: declared one by one, parsed with CLI11, which nothing else here includes. Every
// complaint names the argument, the value and what is allowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "cli/terminal.hpp"

namespace ebb::cli {

class command_line {
public:
    command_line(const std::string &name, const std::string &what_it_does);
    ~command_line();
    command_line(const command_line &) = delete;
    command_line &operator=(const command_line &) = delete;

    // Heading in --help for what is declared next.
    void group(const std::string &heading) { group_ = heading; }
    void positional(const std::string &name, std::string &to, const std::string &meaning);
    void flag(const std::string &name, bool &to, const std::string &meaning);
    // A default that is no part of `to` is said in `meaning`.
    void text(const std::string &name, std::string &to, const std::string &type, const std::string &meaning);
    void count(const std::string &name, uint64_t &to, uint64_t low, uint64_t high, const std::string &meaning);
    void number(const std::string &name, double &to, double low, double high, const std::string &meaning);
    // As people write them: 40GiB, 512MiB.
    void bytes(const std::string &name, std::optional<uint64_t> &to, const std::string &meaning);
    // One of some words, each with its value.
    template <class T>
    void word(const std::string &name, T &to, const std::vector<std::pair<const char *, T>> &words,
              const std::string &meaning) {
        std::vector<std::string> names;
        std::string now;
        for (const auto &w : words) {
            names.emplace_back(w.first);
            now = w.second == to ? w.first : now;
        }
        choice(name, names, now, meaning, [&to, words](size_t i) { to = words[i].second; });
    }
    void examples(const std::string &text);

    // An exit status when there is nothing more to do: --help was answered, or usage was wrong and has been said.
    [[nodiscard]] std::optional<int> parse(const std::vector<std::string> &arguments, terminal &io);

    // After parse().
    [[nodiscard]] bool was_given(const std::string &name) const;

    // Writes the failure as the command's; gives the exit status.
    int fail(const status &failure, terminal &io) const;
    int refuse(const std::string &why, terminal &io) const;

private:
    struct parser;

    void choice(const std::string &name, const std::vector<std::string> &words, const std::string &now,
                const std::string &meaning, const std::function<void(size_t)> &chosen);
    void option(const std::string &name, const std::string &type, const std::string &now, const std::string &meaning,
                const std::function<void(const std::string &)> &read);
    [[nodiscard]] std::string complaint_about(const std::string &argument) const;

    std::string name_;
    std::string group_;
    std::unique_ptr<parser> parser_;
};

// Of these the one that is most like the text; empty if none is.
[[nodiscard]] std::string nearest_of(const std::string &text, const std::vector<std::string> &names);

}  // namespace ebb::cli
