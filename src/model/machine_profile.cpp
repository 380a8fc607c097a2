#include "model/machine_profile.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "observe/json_fields.hpp"

namespace ebb {

namespace {

constexpr std::string_view k_format_names[k_number_formats] = {"bf16", "fp8", "fp4"};
constexpr std::string_view k_kind_names[] = {"measured", "vendor", "assumed"};
constexpr double k_ps_per_ns = 1e3;

// The object around a number: what is common to all.
template <class T>
json_value sourced_value(const json_value &at, sourced<T> &to) {
    json_object o = at.object();
    json_value value = o.field("value");
    to.source = o.text("source");
    to.kind = static_cast<source_kind>(o.field("kind").word({k_kind_names[0], k_kind_names[1], k_kind_names[2]}));
    o.end();
    return value;
}

sourced<double> sourced_number(const json_value &at, const number_limits &limits) {
    sourced<double> read;
    read.value = sourced_value(at, read).number(limits);
    return read;
}

sourced<uint64_t> sourced_count(const json_value &at, uint64_t low) {
    sourced<uint64_t> read;
    read.value = sourced_value(at, read).count(low);
    return read;
}

sourced<bool> sourced_flag(const json_value &at) {
    sourced<bool> read;
    read.value = sourced_value(at, read).boolean();
    return read;
}

sourced<std::vector<sim_link::point>> sourced_curve(const json_value &at) {
    sourced<std::vector<sim_link::point>> read;
    const json_value points = sourced_value(at, read);
    const size_t count = points.size("points, [bytes, fraction of the rate] each");
    for (size_t i = 0; i < count; ++i) {
        const json_value point = points.item(i);
        if (point.size("bytes and fraction of the rate") != 2) {
            point.fail("must have two numbers: bytes and fraction of the rate");
            break;
        }
        const uint64_t least = read.value.empty() ? 1 : read.value.back().size_bytes + 1;
        read.value.push_back({point.item(0).count(least), point.item(1).number(k_fraction_above_zero)});
    }
    return read;
}

link_profile read_link(const json_value &at) {
    json_object o = at.object();
    link_profile link;
    link.bytes_per_second = sourced_number(o.field("bytes_per_second"), k_above_zero);
    link.both_bytes_per_second = sourced_number(o.field("both_bytes_per_second"), k_above_zero);
    link.latency_ns = sourced_number(o.field("latency_ns"), k_not_negative);
    link.curve = sourced_curve(o.field("curve"));
    o.end();
    return link;
}

void read_device(const json_value &at, machine_profile &to) {
    json_object o = at.object();
    to.device_bytes = sourced_count(o.field("memory_bytes"), 1);
    to.hbm_bytes_per_second = sourced_number(o.field("hbm_bytes_per_second"), k_above_zero);
    to.hbm_reached = sourced_number(o.field("hbm_reached"), k_fraction_above_zero);
    json_object peaks = o.field("peak_flops").object();
    to.peak_flops[0] = sourced_number(peaks.field(k_format_names[0]), k_above_zero);
    for (size_t f = 1; f < k_number_formats; ++f) {
        if (const std::optional<json_value> peak = peaks.optional_field(k_format_names[f])) {
            to.peak_flops[f] = sourced_number(*peak, k_above_zero);
        }
    }
    peaks.end();
    to.flops_reached = sourced_number(o.field("flops_reached"), k_fraction_above_zero);
    o.end();
}

void read_host(const json_value &at, machine_profile &to) {
    json_object o = at.object();
    to.host_bytes = sourced_count(o.field("memory_bytes"), 1);
    to.pinnable = sourced_number(o.field("pinnable"), k_fraction_above_zero);
    to.gpus_per_host_memory = sourced_count(o.field("gpus_per_memory"), 1);
    to.host_dram_bytes_per_second = sourced_number(o.field("dram_bytes_per_second"), k_above_zero);
    to.host_call_ns = sourced_number(o.field("call_ns"), k_not_negative);
    o.end();
}

sim_link to_sim_link(const link_profile &link) {
    sim_link to;
    to.bytes_per_second = link.bytes_per_second.value;
    to.both_bytes_per_second = link.both_bytes_per_second.value;
    to.latency_ps = static_cast<sim_time_ps>(std::llround(link.latency_ns.value * k_ps_per_ns));
    to.curve = link.curve.value;
    return to;
}

plan_link link_for_chunks(const link_profile &link, uint64_t chunk_bytes, double most) {
    const double fraction = chunk_bytes == 0 ? 1 : to_sim_link(link).fraction_at(chunk_bytes);
    return {std::min(link.bytes_per_second.value * fraction, most), link.latency_ns.value, chunk_bytes};
}

}  // namespace

std::string_view source_kind_name(source_kind kind) noexcept {
    return k_kind_names[static_cast<size_t>(kind)];
}

std::string_view number_format_name(number_format format) noexcept {
    return k_format_names[static_cast<size_t>(format)];
}

double number_format_bytes(number_format format) noexcept {
    constexpr double k_scale_bytes = 1.0 / 16;
    constexpr double k_bytes[k_number_formats] = {2, 1 + k_scale_bytes, 0.5 + k_scale_bytes};
    return k_bytes[static_cast<size_t>(format)];
}

result<machine_profile> parse_machine_profile(std::string_view text, std::string called) {
    json_file file(std::move(called), text);
    json_object top = file.root().object();
    machine_profile read;
    (void)top.count("ebb_machine", 1, 1);
    read.name = top.text("name");
    read.title = top.text("title");
    if (const std::optional<json_value> notes = top.optional_field("notes")) {
        const size_t count = notes->size("sentences");
        for (size_t i = 0; i < count; ++i) {
            read.notes.push_back(notes->item(i).text());
        }
    }
    read_device(top.field("device"), read);
    json_object links = top.field("links").object();
    read.d2h = read_link(links.field("d2h"));
    read.h2d = read_link(links.field("h2d"));
    read.half_duplex = sourced_flag(links.field("half_duplex"));
    links.end();
    read_host(top.field("host"), read);
    json_object collectives = top.field("collectives").object();
    read.collective_bytes_per_second = sourced_number(collectives.field("bytes_per_second"), k_above_zero);
    read.collective_loss = sourced_number(collectives.field("loss_under_d2h"), {0, true, 0.99});
    collectives.end();
    top.end();
    EBB_TRY(file.outcome());
    return read;
}

uint64_t pinnable_bytes(const machine_profile &profile) noexcept {
    return static_cast<uint64_t>(static_cast<double>(profile.host_bytes.value) * profile.pinnable.value /
                                 static_cast<double>(profile.gpus_per_host_memory.value));
}

sim_machine to_sim_machine(const machine_profile &profile) {
    sim_machine to;
    to.device_bytes = profile.device_bytes.value;
    to.host_bytes = pinnable_bytes(profile);
    to.d2h = to_sim_link(profile.d2h);
    to.h2d = to_sim_link(profile.h2d);
    to.half_duplex = profile.half_duplex.value;
    to.hbm_bytes_per_second = profile.hbm_bytes_per_second.value * profile.hbm_reached.value;
    to.host_dram_bytes_per_second = profile.host_dram_bytes_per_second.value;
    to.gpus_per_host_memory = static_cast<uint32_t>(profile.gpus_per_host_memory.value);
    to.collective_loss = profile.collective_loss.value;
    to.host_call_ps = static_cast<sim_time_ps>(std::llround(profile.host_call_ns.value * k_ps_per_ns));
    return to;
}

machine_links to_plan_links(const machine_profile &profile, uint64_t chunk_bytes, bool shared_host) {
    const double share =
        profile.host_dram_bytes_per_second.value / static_cast<double>(profile.gpus_per_host_memory.value);
    const double most = shared_host ? share : HUGE_VAL;
    return {link_for_chunks(profile.d2h, chunk_bytes, most), link_for_chunks(profile.h2d, chunk_bytes, most)};
}

}  // namespace ebb
