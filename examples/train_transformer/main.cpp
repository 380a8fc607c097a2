#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "comparison.hpp"
#include "interrupt.hpp"
#include "report.hpp"
#include "settings.hpp"
#include "text_data.hpp"

namespace {

constexpr int k_failed = 1;
constexpr int k_interrupted = 130;

void print(const std::string &text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
}

void note_kept(const std::vector<train::mode_result> &results) {
    for (const train::mode_result &r : results) {
        if (r.kept_by_necessity > 0) {
            fmt::print(stderr,
                       "train_transformer: in mode {}, {} activations of each step stayed on the device: pinned memory "
                       "ran out (see --host-memory)\n",
                       r.mode, r.kept_by_necessity);
        }
        if (r.out_of_memory) {
            fmt::print(stderr, "train_transformer: mode {} at micro batch {} stopped: {}\n", r.mode, r.micro_batch,
                       r.why);
        }
    }
}

int compare(const train::settings &s) {
    const int64_t least = s.shape.sequence + 1;
    const train::text_data text =
        s.text_path.empty() ? train::read_documentation(TRAIN_SOURCE_DIR, least) : train::read_text(s.text_path, least);
    if (!s.json) {
        print(train::context_text(s, text));
    }
    std::vector<train::mode_result> results;
    try {
        train::run_all(s, text, results);
    } catch (const std::exception &) {
        // What was measured before is worth showing; JSON is all or nothing.
        if (!s.json && !results.empty()) {
            print(train::table(results));
        }
        throw;
    }
    print(s.json ? train::json_text(s, text, results) : train::table(results));
    note_kept(results);
    if (const std::string why = train::difference(results); !why.empty()) {
        fmt::print(stderr, "train_transformer: modes must not change what is computed, but {}\n", why);
        return k_failed;
    }
    return 0;
}

}  // namespace

int main(int argc, char **argv) {
    try {
        const train::parsed command = train::parse_command_line(argc, argv);
        if (command.exit_code) {
            return *command.exit_code;
        }
        train::watch_for_interrupts();
        return compare(command.values);
    } catch (const train::interrupted &) {
        fmt::print(stderr, "train_transformer: interrupted; everything was released\n");
        return k_interrupted;
    } catch (const std::exception &failure) {
        fmt::print(stderr, "train_transformer: {}\n", failure.what());
        return k_failed;
    }
}
