// The simulated machine by name: what "sim" is, and what "sim:key=value,..." changes about it.
#pragma once

#include <string_view>

#include "base/status.hpp"
#include "device/sim/sim_machine.hpp"

namespace ebb {

// One GPU of a GB200 node and its half of the host, at measured rates.
[[nodiscard]] sim_machine default_sim_machine();

// Empty text: the default machine. Keys: device_bytes, host_bytes, d2h_bytes_per_second, h2d_bytes_per_second,
// latency_ns (of copies either way), integrated (on or off).
[[nodiscard]] result<sim_machine> parse_sim_machine(std::string_view text);

}  // namespace ebb
