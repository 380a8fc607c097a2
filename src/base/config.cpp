#include "base/config.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "base/edit_distance.hpp"
#include "base/quantity.hpp"

namespace ebb {

namespace {

constexpr uint64_t k_max = std::numeric_limits<uint64_t>::max() / 4;  // far beyond any memory, and safe to add up
constexpr uint64_t k_max_u32 = std::numeric_limits<uint32_t>::max();
constexpr uint64_t k_max_i32 = std::numeric_limits<int32_t>::max();
constexpr std::string_view k_prefix = "EBB_";

// Where each option's value lives, in the table's order.
using member = std::variant<std::string config::*, int32_t config::*, uint32_t config::*, uint64_t config::*,
                            bool config::*, log_level config::*>;
const std::array<member, k_option_count> k_members{
    &config::device,
    &config::device_ordinal,
    &config::lanes,
    &config::device_budget_bytes,
    &config::staging_bytes,
    &config::max_activation_bytes,
    &config::host_bytes,
    &config::min_offload_bytes,
    &config::policy,
    &config::keep_last,
    &config::prefetch_bytes,
    &config::source_bytes,
    &config::chunk_bytes,
    &config::sample_every,
    &config::verify,
    &config::log_level,
    &config::host_processes,
    &config::host_device_bytes,
    &config::host_d2h_bytes_per_second,
    &config::host_h2d_bytes_per_second,
    &config::record,
    &config::calibrate,
    &config::nvtx,
    &config::cuda_library,
};

std::array<option_row, k_option_count> make_table() {
    using t = option_type;
    using o = option;
    const std::vector<option_word> none;
    const std::vector<option_word> learned{{"auto", k_auto}};
    const std::vector<option_word> unlimited{{"none", k_auto}};
    const std::vector<option_word> off_on{{"off", k_off}, {"on", k_on}, {"0", k_off}, {"1", k_on}};
    return {{
        {o::device,
         "device",
         "EBB_DEVICE",
         t::text,
         "auto",
         {{"auto", 0}, {"cuda", 0}, {"host", 0}, {"null", 0}, {"sim", 0}},
         0,
         0,
         "The device: auto takes the GPU, and host only where no NVIDIA driver is installed; null does nothing and "
         "measures Ebb's own cost; sim is a "
         "machine in "
         "virtual time, and takes settings as in sim:device_bytes=80G (docs/devices.md)."},
        {o::device_ordinal, "device_ordinal", "EBB_DEVICE_ORDINAL", t::count, "0", none, 0, k_max_i32,
         "Which device of that kind."},
        {o::lanes, "lanes", "EBB_LANES", t::count, "1", none, 1, 8, "Copy streams per direction."},
        {o::device_budget_bytes, "device_budget_bytes", "EBB_DEVICE_BUDGET_BYTES", t::bytes, "auto", learned, 1, k_max,
         "Target for kept activations, sources that were not given up yet and staging together; auto learns it."},
        {o::staging_bytes, "staging_bytes", "EBB_STAGING_BYTES", t::bytes, "auto", learned, 512, uint64_t{1} << 40U,
         "Cap of the device memory that reloads go to; auto takes a share of the device budget."},
        {o::max_activation_bytes, "max_activation_bytes", "EBB_MAX_ACTIVATION_BYTES", t::bytes, "auto", learned, 1,
         k_max, "Size of the largest activation that will be offloaded; auto learns it in the first step."},
        {o::host_bytes, "host_bytes", "EBB_HOST_BYTES", t::bytes, "auto", learned, 4096, k_max,
         "Cap of pinned host memory; auto takes what the limits of the control group and the system leave, divided by "
         "host_processes."},
        {o::min_offload_bytes, "min_offload_bytes", "EBB_MIN_OFFLOAD_BYTES", t::bytes, "1MiB", none, 1, k_max,
         "Smaller activations are kept; 1 offloads all."},
        {o::policy, "policy", "EBB_POLICY", t::text, "auto", none, 0, 0,
         "auto (planned from what is measured), offload, keep, or a list of pattern=value with the values remat, "
         "device, offload and auto; the first match counts."},
        {o::keep_last, "keep_last", "EBB_KEEP_LAST", t::count, "0", none, 0, k_max,
         "Keep an activation when fewer than this many younger ones are produced before its use."},
        {o::prefetch_bytes,
         "prefetch_bytes",
         "EBB_PREFETCH_BYTES",
         t::bytes,
         "auto",
         {{"auto", k_auto}, {"none", k_prefetch_none}, {"layer", k_prefetch_layer}},
         1,
         k_max,
         "How far reloads run ahead of their use: not at all, one layer, so many bytes, or as deep as the device "
         "budget "
         "allows."},
        {o::source_bytes,
         "source_bytes",
         "EBB_SOURCE_BYTES",
         t::bytes,
         "auto",
         {{"auto", k_auto}, {"none", k_sources_none}},
         1,
         k_max,
         "Cap on the bytes of sources that were not given up yet; none makes compute wait for each copy."},
        {o::chunk_bytes, "chunk_bytes", "EBB_CHUNK_BYTES", t::bytes, "auto", learned, 4096, k_max,
         "Copies are cut into chunks of this size; auto takes the device's."},
        {o::sample_every, "sample_every", "EBB_SAMPLE_EVERY", t::count, "16", none, 1, k_max_u32,
         "Measure exposed time in one step of this many."},
        {o::verify, "verify", "EBB_VERIFY", t::toggle, "off", off_on, 0, 0,
         "Compare checksums taken at the offload, after the copy and after the reload."},
        {o::log_level,
         "log_level",
         "EBB_LOG_LEVEL",
         t::word,
         "warning",
         {{"error", 1}, {"warning", 2}, {"info", 3}, {"debug", 4}},
         0,
         0,
         "The least important lines that are logged. So far only warnings are written."},
        {o::host_processes, "host_processes", "EBB_HOST_PROCESSES", t::count, "1", none, 1, 4096,
         "Processes that share this host's memory: each takes its part where host_bytes is auto."},
        {o::host_device_bytes, "host_device_bytes", "EBB_HOST_DEVICE_BYTES", t::bytes, "1GiB", none, 4096, k_max,
         "Host device: capacity of its device memory; by default half of what memory limits leave where that is less."},
        {o::host_d2h_bytes_per_second, "host_d2h_bytes_per_second", "EBB_HOST_D2H_BYTES_PER_SECOND", t::rate, "none",
         unlimited, 1, k_max, "Host device: rate limit of copies from the device."},
        {o::host_h2d_bytes_per_second, "host_h2d_bytes_per_second", "EBB_HOST_H2D_BYTES_PER_SECOND", t::rate, "none",
         unlimited, 1, k_max, "Host device: rate limit of copies to the device."},
        {o::record, "record", "EBB_RECORD", t::text, "none", none, 0, 0,
         "File that the recorded step is written to as JSON, for the program ebb; its times are measured for it."},
        {o::calibrate, "calibrate", "EBB_CALIBRATE", t::toggle, "off", off_on, 0, 0,
         "CUDA: measure the rates of the link when the runtime is created, instead of starting from what is usual."},
        {o::nvtx, "nvtx", "EBB_NVTX", t::toggle, "off", off_on, 0, 0,
         "CUDA: mark offloads, prefetches and waits as ranges for a profiler, in NVTX's domain ebb."},
        {o::cuda_library, "cuda_library", "EBB_CUDA_LIBRARY", t::text, "auto", none, 0, 0,
         "File of the CUDA backend; auto takes libebb_cuda.so from the folder that libebb lies in."},
    }};
}

const option_row &row_of(option o) {
    return options()[static_cast<size_t>(o)];
}

std::string format_number(option_type type, uint64_t value) {
    switch (type) {
        case option_type::bytes:
            return format_bytes(value);
        case option_type::rate:
            return format_rate(value);
        default:
            return fmt::format("{}", value);
    }
}

std::string join_words(const option_row &row) {
    std::string text;
    for (const option_word &word : row.words) {
        text += fmt::format("{}{}", text.empty() ? "" : ", ", word.text);
    }
    return text;
}

// What a value may be, for messages and for the docs.
std::string allowed_values(const option_row &row) {
    std::string text = join_words(row);
    const char *joint = text.empty() ? "" : ", or ";
    const std::string range = row.maximum == k_max ? fmt::format("{} or more", format_number(row.type, row.minimum))
                                                   : fmt::format("{} to {}", format_number(row.type, row.minimum),
                                                                 format_number(row.type, row.maximum));
    switch (row.type) {
        case option_type::bytes:
            return fmt::format("{}{}bytes, {} (units B, K, M, G, T, KiB, MiB, GiB, TiB)", text, joint, range);
        case option_type::rate:
            return fmt::format(
                "{}{}bytes per second, {} (units B/s, KB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, GiB/s, TiB/s)", text, joint,
                range);
        case option_type::count:
            return fmt::format("{}{}a whole number, {}", text, joint, range);
        case option_type::text:
            if (!row.words.empty()) {
                return text;
            }
            return row.id == option::policy ? "a policy (docs/concepts.md)"
                                            : fmt::format("{}, or a file's path", row.default_text);
        case option_type::toggle:
        case option_type::word:
            return text;
    }
    return text;
}

status malformed(const option_row &row, std::string_view called, std::string_view value) {
    return {code::invalid_argument, fmt::format("{} is \"{}\"; allowed: {}", called, value, allowed_values(row))};
}

std::optional<uint64_t> word_value(const option_row &row, std::string_view text) {
    for (const option_word &word : row.words) {
        if (word.text == text) {
            return word.value;
        }
    }
    return std::nullopt;
}

bool is_word(const option_row &row, uint64_t value) {
    return std::any_of(row.words.begin(), row.words.end(), [&](const option_word &w) { return w.value == value; });
}

std::optional<uint64_t> parse_number(option_type type, std::string_view text) {
    switch (type) {
        case option_type::bytes:
            return parse_bytes(text);
        case option_type::rate:
            return parse_rate(text);
        case option_type::count:
            return parse_count(text);
        default:
            return std::nullopt;
    }
}

bool in_range(const option_row &row, uint64_t value) {
    return value >= row.minimum && value <= row.maximum;
}

// The value that a text stands for; nothing when it is malformed or out of range.
std::optional<uint64_t> parse_value(const option_row &row, std::string_view text) {
    if (const std::optional<uint64_t> word = word_value(row, text)) {
        return word;
    }
    const std::optional<uint64_t> number = parse_number(row.type, text);
    return number && in_range(row, *number) ? number : std::nullopt;
}

void store_number(config &c, option o, uint64_t value) {
    std::visit(
        [&](auto pointer) {
            using field = std::decay_t<decltype(c.*pointer)>;
            if constexpr (std::is_same_v<field, bool>) {
                c.*pointer = value == k_on;
            } else if constexpr (!std::is_same_v<field, std::string>) {
                c.*pointer = static_cast<field>(value);
            }
        },
        k_members[static_cast<size_t>(o)]);
}

status store_text(config &c, const option_row &row, std::string_view called, std::string_view text) {
    if (row.type == option_type::text) {
        // What follows a colon is for whom the word names.
        if (text.empty() || (!row.words.empty() && !word_value(row, text.substr(0, text.find(':'))))) {
            return malformed(row, called, text);
        }
        c.*std::get<std::string config::*>(k_members[static_cast<size_t>(row.id)]) = text;
        return {};
    }
    const std::optional<uint64_t> value = parse_value(row, text);
    if (!value) {
        return malformed(row, called, text);
    }
    store_number(c, row.id, *value);
    return {};
}

// An explicit field holds the C ABI's number: one of the words' or one in range.
status store_field(config &c, const option_row &row, const config_overrides &overrides) {
    const auto &value = overrides.get(row.id);
    if (const auto *text = std::get_if<std::string>(&value)) {
        return store_text(c, row, row.name, *text);
    }
    const uint64_t number = std::get<uint64_t>(value);
    const bool only_words = row.type == option_type::toggle || row.type == option_type::word;
    if (!is_word(row, number) && (only_words || !in_range(row, number))) {
        return malformed(row, row.name, fmt::format("{}", number));
    }
    store_number(c, row.id, number);
    return {};
}

struct variable {
    std::string_view name;
    std::string_view value;
};

// The EBB_ variables that are set, empty ones left out: a shell's "EBB_LANES= command" means not set.
std::vector<variable> our_variables(const char *const *environment) {
    std::vector<variable> found;
    for (; environment != nullptr && *environment != nullptr; ++environment) {
        const std::string_view entry = *environment;
        const size_t equals = entry.find('=');
        if (entry.substr(0, k_prefix.size()) != k_prefix || equals == std::string_view::npos ||
            equals + 1 == entry.size()) {
            continue;
        }
        const std::string_view name = entry.substr(0, equals);
        const bool repeated =
            std::any_of(found.begin(), found.end(), [&](const variable &v) { return v.name == name; });
        if (!repeated) {  // as getenv: the first counts
            found.push_back({name, entry.substr(equals + 1)});
        }
    }
    return found;
}

void warn_of_unknown(const std::vector<variable> &variables, const logger &log) {
    for (const variable &v : variables) {
        size_t best = std::numeric_limits<size_t>::max();
        std::string_view nearest;
        for (const option_row &row : options()) {
            const size_t distance = edit_distance(v.name, row.variable);
            if (distance < best) {
                best = distance;
                nearest = row.variable;
            }
        }
        if (best != 0) {
            log.write(log_level::warning,
                      fmt::format("{} is set, but Ebb has no such variable; did you mean {}?", v.name, nearest));
        }
    }
}

std::string_view type_name(option_type type) noexcept {
    switch (type) {
        case option_type::bytes:
            return "bytes";
        case option_type::rate:
            return "rate";
        case option_type::count:
            return "count";
        case option_type::toggle:
            return "switch";
        case option_type::text:
        case option_type::word:
            return "text";
    }
    return "text";
}

}  // namespace

const std::array<option_row, k_option_count> &options() {
    static const std::array<option_row, k_option_count> table = make_table();
    return table;
}

std::string_view config::called(option o) const noexcept {
    const option_row &row = row_of(o);
    return origins[static_cast<size_t>(o)] == option_origin::environment ? row.variable : row.name;
}

result<config> resolve_config(const config_overrides &overrides, logger &log, const char *const *environment) {
    const std::vector<variable> variables = our_variables(environment == nullptr ? ::environ : environment);
    config resolved;
    for (const option_row &row : options()) {
        option_origin &origin = resolved.origins[static_cast<size_t>(row.id)];
        const auto set =
            std::find_if(variables.begin(), variables.end(), [&](const variable &v) { return v.name == row.variable; });
        // A malformed variable fails also where a field overrides it: it would bite in the next program.
        if (set != variables.end()) {
            EBB_TRY(store_text(resolved, row, row.variable, set->value));
            origin = option_origin::environment;
        } else {
            EBB_TRY(store_text(resolved, row, row.name, row.default_text));
        }
        if (!std::holds_alternative<std::monostate>(overrides.get(row.id))) {
            EBB_TRY(store_field(resolved, row, overrides));
            origin = option_origin::field;
        }
    }
    log.set_level(resolved.log_level);
    warn_of_unknown(variables, log);
    return resolved;
}

std::string format_option(const config &c, option o) {
    const option_row &row = row_of(o);
    return std::visit(
        [&](auto pointer) -> std::string {
            using field = std::decay_t<decltype(c.*pointer)>;
            if constexpr (std::is_same_v<field, std::string>) {
                return c.*pointer;
            } else {
                uint64_t value = 0;
                if constexpr (std::is_same_v<field, bool>) {
                    value = c.*pointer ? k_on : k_off;
                } else {
                    value = static_cast<uint64_t>(c.*pointer);
                }
                for (const option_word &word : row.words) {
                    if (word.value == value) {
                        return std::string(word.text);
                    }
                }
                return format_number(row.type, value);
            }
        },
        k_members[static_cast<size_t>(o)]);
}

std::string environment_docs() {
    std::string text =
        "# Options and environment variables\n\n"
        "Made by `ebb_environment_docs` from the table in src/base/config.cpp; a test compares the two. To change it, "
        "change\n"
        "the table and run `build/<preset>/bin/ebb_environment_docs > docs/environment.md`.\n\n"
        "Every option is a field of `ebb_runtime_options` (include/ebb/ebb.h) and a variable; only the fields "
        "`staging_memory`,\n"
        "`allocator`, `log` and `log_context` have none. The field counts if it is set (not zero), else the variable, "
        "else "
        "the\n"
        "default. An empty variable is not set. A malformed value makes `ebb_runtime_create` fail with a text that "
        "names "
        "it; an\n"
        "`EBB_` variable that is not listed here gives one warning.\n\n"
        "Bytes are written as a number with a unit: `K`, `M`, `G`, `T` or `KiB`, `MiB`, `GiB`, `TiB`, all powers of "
        "two.\n"
        "Rates take `KB/s`, `MB/s`, `GB/s`, `TB/s` (powers of ten) or `KiB/s` and so on. Both take fractions, as "
        "`1.5G`.\n";
    for (const option_row &row : options()) {
        text += fmt::format("\n## {}\n{}\n\n- field: `{}`\n- type: {}\n- default: {}\n- allowed: {}\n", row.variable,
                            row.meaning, row.name, type_name(row.type), row.default_text, allowed_values(row));
    }
    return text;
}

}  // namespace ebb
