#include "program.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "interrupt.hpp"

namespace train {
namespace {

void print(const std::string &text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
}

void note_kept(const char *program, const std::vector<mode_result> &results) {
    for (const mode_result &r : results) {
        if (r.kept_by_necessity > 0) {
            fmt::print(stderr,
                       "{}: in mode {}, {} activations of each step stayed on the device: pinned memory ran out (see "
                       "--host-memory)\n",
                       program, r.mode, r.kept_by_necessity);
        }
        if (r.out_of_memory) {
            fmt::print(stderr, "{}: mode {} at micro batch {} does not fit, as its row says: {}\n", program, r.mode,
                       r.micro_batch, r.why);
        }
    }
}

}  // namespace

int run_program(const char *name, const std::function<int()> &body) {
    try {
        watch_for_interrupts();
        return body();
    } catch (const interrupted &) {
        fmt::print(stderr, "{}: interrupted; everything was released\n", name);
        return k_interrupted;
    } catch (const std::exception &failure) {
        fmt::print(stderr, "{}: {}\n", name, failure.what());
        return k_failed;
    }
}

int compare(const comparison &c) {
    if (!c.json) {
        print(c.context);
    }
    std::vector<mode_result> results;
    try {
        c.run(results);
    } catch (const std::exception &) {
        // What was measured before is worth showing; JSON is all or nothing.
        if (!c.json && !results.empty()) {
            print(c.table_text(results));
        }
        throw;
    }
    print(c.json ? c.json_text(results) : c.table_text(results));
    note_kept(c.program, results);
    if (const std::string why = difference(results); !why.empty()) {
        fmt::print(stderr, "{}: modes must not change what is computed, but {}\n", c.program, why);
        return k_failed;
    }
    return k_done;
}

}  // namespace train
