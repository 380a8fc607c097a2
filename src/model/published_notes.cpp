#include "model/published_notes.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.hpp"

namespace ebb {

namespace {

const published_prediction &predicted(const published_report &report, uint32_t table, uint32_t row) {
    const auto found = std::find_if(report.rows.begin(), report.rows.end(), [&](const published_prediction &p) {
        return p.published.table == table && p.published.row == row;
    });
    EBB_CHECK(found != report.rows.end());
    return *found;
}

double flipped_tflops(const published_prediction &row, const char *name) {
    const auto found = std::find_if(row.assumptions.begin(), row.assumptions.end(),
                                    [name](const published_sensitivity &s) { return s.name == name; });
    EBB_CHECK(found != row.assumptions.end());
    return found->flipped_tflops;
}

double part_gib(const published_prediction &row, const char *name) {
    const auto found = std::find_if(row.peak_parts.begin(), row.peak_parts.end(),
                                    [name](const named_gib &p) { return p.name == name; });
    return found == row.peak_parts.end() ? 0 : found->gib;
}

std::string fit_note(const published_report &report) {
    return fmt::format(
        "Fitted, and nothing else: DeepSeek-V3 compute to table 1 row 1 ({:.0f} TFLOP/s in products), collectives to "
        "table 1 row 4 ({:.0f} GB/s), Llama compute to table 2 row 2 ({:.0f} TFLOP/s in products).",
        report.fit.deepseek_flops_per_second / 1e12, report.fit.collective_bytes_per_second / 1e9,
        report.fit.llama_flops_per_second / 1e12);
}

std::string serial_note(const published_report &report) {
    const published_prediction &one = predicted(report, 1, 3);
    const published_prediction &two = predicted(report, 2, 3);
    return fmt::format(
        "The tables disagree on what is serial without LHS: with copies and collectives exposed, table 1 row 3 comes "
        "out "
        "at {:.1f} ({:.1f} published) but table 2 row 3 at {:.0f}; copies alone give {:.0f} there, and the published "
        "{:.0f} lies between.",
        *one.tflops, one.published.tflops, *two.tflops, flipped_tflops(two, "collectives without LHS"),
        two.published.tflops);
}

std::string recompute_note(const published_report &report) {
    const published_prediction &row = predicted(report, 1, 2);
    return fmt::format(
        "Table 1 row 2 has LHS on, yet its FLOPs give {:.1f} with collectives hidden and {:.1f} with collectives "
        "exposed; {:.1f} is published.",
        *row.tflops, flipped_tflops(row, "collectives with LHS"), row.published.tflops);
}

std::string buffers_note(const published_report &report) {
    const double deepseek = published_row_of(1, 1).peak_gib - published_row_of(1, 3).peak_gib;
    const double llama = published_row_of(2, 4).peak_gib - published_row_of(2, 2).peak_gib;
    return fmt::format(
        "One iteration in flight takes {:.1f} GiB of copy buffers on DeepSeek-V3, where rows 1 and 3 of table 1 differ "
        "by "
        "{:.1f}, and {:.3f} GiB on Llama, where rows 4 and 2 of table 2 differ by {:.1f}.",
        part_gib(predicted(report, 1, 1), "copy buffers"), deepseek, part_gib(predicted(report, 2, 4), "copy buffers"),
        llama);
}

std::string lhs_memory_note() {
    return fmt::format(
        "The tables disagree on what LHS costs in memory: {:.1f} GiB on Llama (table 2 row 1, which offloads nothing, "
        "over row 3), {:.1f} GiB on DeepSeek-V3 (table 1 row 2 over row 3), whose layers have more weights.",
        published_row_of(2, 1).peak_gib - published_row_of(2, 3).peak_gib,
        published_row_of(1, 2).peak_gib - published_row_of(1, 3).peak_gib);
}

// A row that table 1 does not have.
std::string lhs_alone_note(const published_workload &workload, const published_report &report) {
    published_row row = published_row_of(1, 1);
    row.pipelined = false;
    published_assumptions first;
    first.recompute_first = true;
    const double late = workload.run(row, {}, report.fit).tflops;
    const double early = workload.run(row, first, report.fit).tflops;
    return fmt::format(
        "No row of table 1 has LHS without pipelining, so what pipelining gains there is not measured; here it would "
        "be {:.1f}, or {:.1f} if recompute comes first in a layer's backward, against {:.1f} with it.",
        late, early, row.tflops);
}

std::string peak_note() {
    return "Peaks are sums of parts by one recipe for both models, made with the published values in view but with no "
           "number fitted to them; other recipes of this kind are up to a third lower. A range is without and with one "
           "layer of gathered weights.";
}

}  // namespace

std::vector<std::string> published_notes(const published_workload &workload, const published_report &report) {
    return {fit_note(report),
            serial_note(report),
            recompute_note(report),
            buffers_note(report),
            lhs_memory_note(),
            lhs_alone_note(workload, report),
            "Table 2 row 4 is predicted as a tie with row 2; whether pipelining helps or costs there is not claimed.",
            peak_note()};
}

}  // namespace ebb
