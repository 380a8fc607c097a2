"""Runs benchmark programs and turns what they print into figures: a value, its baseline from the same run, their ratio,
and whether the target is met. Called by benchmarks/run.sh.

A figure compares medians of repetitions that were interleaved, so that a machine that slows down slows down both sides.
"""

import argparse
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

# Repetitions and seconds of each: a measurement, and a look.
FULL = {"repetitions": 9, "min_time": 0.2, "train_runs": 7, "policy": [], "script_runs": 5}
QUICK = {"repetitions": 3, "min_time": 0.05, "train_runs": 3, "policy": ["--quick"], "script_runs": 1}

# Google Benchmark programs; one may hold several benchmarks, told apart by the first part of their names.
PROGRAMS = {"hot_path": "hot_path_bench", "arena_lifo": "arena_bench", "arena_moe": "arena_bench", "lane_copy": "lane_copy_bench",
            "sim_ops": "sim_ops_bench", "plan": "plan_bench"}
TRAIN_MODES = ["keep", "recompute", "offload-sync", "offload-lhs", "offload-pipelined", "offload-auto"]
STEP_MODES = ["keep", "checkpoint", "clone", "ebb", "ebb-offload"]
JAX_STEP_MODES = ["keep", "checkpoint", "save-names", "ebb-offload", "ebb-names"]
NANOSECONDS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
# What Google Benchmark appends to names by how a benchmark was set up.
NAME_SUFFIX = re.compile(r"/(real_time|manual_time|process_time|iterations:\d+|repeats:\d+|threads:\d+|min_time:[\d.]+)$")


class Failure(Exception):
    """A benchmark did not give what was asked of it."""


def figure(name, value, unit, baseline=None, baseline_value=None, at_most=None, below=None, at_least=None):
    """One entry. The target is a limit on ratio = value / baseline_value."""
    ratio = value / baseline_value if baseline_value else None
    target = met = None
    if ratio is not None:
        if at_most is not None:
            target, met = f"<= {at_most}", ratio <= at_most
        elif below is not None:
            target, met = f"< {below}", ratio < below
        elif at_least is not None:
            target, met = f">= {at_least}", ratio >= at_least
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "baseline": baseline,
        "baseline_value": baseline_value,
        "ratio": ratio,
        "target": target,
        "met": met,
    }


class Measurements:
    """Medians over repetitions, by the benchmark's name without suffixes."""

    def __init__(self, report):
        self.samples = {}
        for entry in report["benchmarks"]:
            if entry.get("run_type", "iteration") != "iteration":
                continue
            name = entry.get("run_name", entry["name"])
            while NAME_SUFFIX.search(name):
                name = NAME_SUFFIX.sub("", name)
            if entry.get("error_occurred"):
                raise Failure(f"{name}: {entry.get('error_message', 'failed without a message')}")
            self.samples.setdefault(name, []).append(entry)

    def names(self):
        return list(self.samples)

    def median(self, name, field):
        if name not in self.samples:
            raise Failure(f"the benchmark {name} was not run; there are: {', '.join(self.samples)}")
        values = [entry[field] for entry in self.samples[name] if field in entry]
        if len(values) != len(self.samples[name]):
            raise Failure(f"{name} does not give {field}")
        return statistics.median(values)

    def has(self, name, field):
        return all(field in entry for entry in self.samples[name])

    def nanoseconds(self, name):
        """Processor time, per operation where the benchmark counts them (items), else per iteration.

        What is asked for nanoseconds runs on one thread and never waits, so the time of others on the machine is left out.
        """
        if name in self.samples and self.has(name, "items_per_second"):
            return 1e9 / self.median(name, "items_per_second")
        return self.median(name, "cpu_time") * NANOSECONDS[self.samples[name][0].get("time_unit", "ns")]


def baselines_of(measurements, ours):
    """Names with another variant in the place of ours: arena_lifo/pmr beside arena_lifo/ours."""
    own = ours.split("/")
    for name in measurements.names():
        parts = name.split("/")
        if len(parts) == len(own) and parts[0] == own[0] and parts[2:] == own[2:] and parts[1] != own[1]:
            yield parts[1], name


def cases_of_ours(measurements, benchmark):
    """Each ours of a benchmark with what follows it in the name: ('', name) or ('.64MiB', name)."""
    found = False
    for name in measurements.names():
        parts = name.split("/")
        if parts[:2] == [benchmark, "ours"]:
            found = True
            yield "".join("." + part for part in parts[2:]), name
    if not found:
        raise Failure(f"{benchmark}/ours was not run; there are: {', '.join(measurements.names())}")


def hot_path_figures(measurements):
    per_live = {live: measurements.nanoseconds(f"hot_path/ours/{live}") for live in (100, 100000)}
    plain = {live: measurements.nanoseconds(f"hot_path/plain/{live}") for live in per_live}
    return [
        figure("hot_path.live_100000", per_live[100000], "ns", "ours at 100 live activations", per_live[100], at_most=1.5),
        figure("hot_path.plain_100000", per_live[100000], "ns", "plain at 100000 live activations", plain[100000], at_most=0.5),
        figure("hot_path.plain_100", per_live[100], "ns", "plain at 100 live activations", plain[100]),
    ]


def arena_figures(measurements, benchmark):
    figures = []
    for case, ours in cases_of_ours(measurements, benchmark):
        value = measurements.nanoseconds(ours)
        waste = measurements.median(ours, "waste")
        beside = list(baselines_of(measurements, ours))
        for variant, name in beside:
            figures.append(figure(f"{benchmark}.{variant}{case}", value, "ns", variant, measurements.nanoseconds(name), below=1.0))
        for variant, name in beside:
            if measurements.has(name, "waste"):
                figures.append(figure(f"{benchmark}.waste.{variant}{case}", waste, "of mapped", variant,
                                      measurements.median(name, "waste")))
        # What pinned pools elsewhere do to the same sizes.
        if measurements.has(ours, "waste_power_of_two"):
            figures.append(figure(f"{benchmark}.waste.power_of_two{case}", waste, "of mapped", "rounding to powers of two",
                                  measurements.median(ours, "waste_power_of_two")))
        if not beside:
            raise Failure(f"{benchmark} has no baseline beside {ours}")
    return figures


def lane_copy_figures(measurements):
    figures = []
    for case, ours in cases_of_ours(measurements, "lane_copy"):
        value = measurements.median(ours, "bytes_per_second")
        beside = list(baselines_of(measurements, ours))
        if not beside:
            raise Failure(f"lane_copy has no baseline beside {ours}")
        for variant, name in beside:
            figures.append(figure(f"lane_copy.{variant}{case}", value / 1e9, "GB/s", variant,
                                  measurements.median(name, "bytes_per_second") / 1e9, at_least=0.9))
    return figures


def sim_ops_figures(measurements):
    """Device operations per second of processor time; what they are compared with is a number, not a program."""
    wanted = 1e6
    value = measurements.median("sim_ops/ours", "items_per_second")
    return [figure("sim_ops.per_second", value / 1e6, "million/s", "what is wanted", wanted / 1e6, at_least=1.0)]


def plan_figures(measurements):
    """Processor time of making a plan, beside what is wanted, and beside growth by n log n from 126 layers."""
    wanted_ms, tensors = 50.0, 20
    ms = {layers: measurements.nanoseconds(f"plan/one_pool/{layers}") / 1e6 for layers in (63, 126, 252, 504)}
    figures = [
        figure("plan_126x20", ms[126], "ms", "what is wanted", wanted_ms, at_most=1.0),
        figure("plan_126x20.staging", measurements.nanoseconds("plan/staging/126") / 1e6, "ms", "what is wanted", wanted_ms, at_most=1.0),
    ]
    for layers in (252, 504):
        grown = ms[126] * layers * math.log(layers * tensors) / (126 * math.log(126 * tensors))
        figures.append(figure(f"plan_{layers}x20", ms[layers], "ms", "n log n from 126 layers", grown, at_most=1.0))
    for name in ("one_pool", "staging"):
        figures.append(figure(f"plan_126x20.gap.{name}", 100 * measurements.median(f"plan/{name}/126", "gap"), "% above the bound"))
    figures.append(figure("plan_126x20.evaluate", measurements.nanoseconds("plan/evaluate/126") / 1e3, "us", "what is wanted", 55.0))
    return figures


def train_figures(runs):
    """runs: for each mode the step times of its runs, None where it ended out of memory."""
    medians = {mode: statistics.median(times) for mode, times in runs.items() if None not in times}
    for mode in ("offload-sync", "offload-pipelined", "offload-auto"):
        if mode not in medians:
            raise Failure(f"mode {mode} ended out of memory at the default size")
    best = min((mode for mode in medians if mode != "offload-auto"), key=medians.get)
    figures = [
        figure("train_modes.pipelined", medians["offload-pipelined"], "ms per step", "offload-sync", medians["offload-sync"],
               at_most=1.02),
        figure("train_modes.auto", medians["offload-auto"], "ms per step", f"{best}, the best other mode that fits", medians[best],
               at_most=1.02),
    ]
    for mode, value in medians.items():
        if mode not in ("offload-auto", best):
            figures.append(figure(f"train_modes.auto.{mode}", medians["offload-auto"], "ms per step", mode, value))
    return figures


def policy_figures(report):
    """Simulated step times: nothing is repeated, since nothing varies."""
    figures = []
    for workload in report["workloads"]:
        name = workload["name"]
        if workload["step_ms"] is None or workload["automatic_ms"] is None:
            raise Failure(f"policy: Ebb has no plan that fits for {name}")
        if workload["best"] is None:
            raise Failure(f"policy: no baseline fits {name}: its budget is too small to compare anything")
        for suffix, step_ms in (("", workload["step_ms"]), (".automatic", workload["automatic_ms"])):
            figures.append(figure(f"policy.{re.sub('[^A-Za-z0-9.]+', '_', name)}{suffix}", step_ms, "ms per step",
                                  workload["best"], workload["best_ms"], at_most=1 + report["tie"]))
    return figures


def median_of(reports, read):
    return statistics.median(read(report) for report in reports)


def hook_cost_figures(reports):
    """Each report has medians of interleaved rounds; of several processes, since where code and data lie counts, too."""
    ns = {name: median_of(reports, lambda report, name=name: report["ns_per_saved_tensor"][name]) for name in ("empty", "passed", "moved")}
    return [figure(f"hook_cost.{name}", ns[name], "ns per saved tensor", "empty Python hooks", ns["empty"], at_most=at_most)
            for name, at_most in (("passed", 1.2), ("moved", 1.5))]


def torch_step_figures(reports):
    """Modes of a training step beside each other; no target: on the CPU there is nothing to gain by moving."""
    ms = {mode: [] for mode in STEP_MODES}
    for report in reports:
        for row in report["rows"]:
            if row["status"] != "ok":
                raise Failure(f"torch_step: mode {row['mode']} {row['status']}: {row['why']}")
            ms[row["mode"]].append(row["step_ms"])
        if not report["losses_are_the_same"]:
            raise Failure("torch_step: the losses differ")
    medians = {mode: statistics.median(values) for mode, values in ms.items()}
    beside = {"ebb": ("keep", "checkpoint"), "ebb-offload": ("clone", "keep", "checkpoint")}
    return [figure(f"torch_step.{ours}.{other}", medians[ours], "ms per step", other, medians[other])
            for ours, others in beside.items() for other in others]


def ffi_cost_figures(reports):
    """A pair of calls beside a pair that does nothing, in loops that take turns."""
    ns = {name: median_of(reports, lambda report, name=name: report["ns_per_pair"][name]) for name in ("nothing", "moved")}
    return [figure("ffi_cost", ns["moved"], "ns per offload and reload", "calls from XLA that do nothing", ns["nothing"], at_most=3)]


def jax_step_figures(reports):
    """Step times and XLA's temporary memory of modes beside each other; no target: on the CPU there is nothing to gain by moving."""
    rows = {mode: [] for mode in JAX_STEP_MODES}
    for report in reports:
        if not report["losses_are_the_same"]:
            raise Failure("jax_step: the losses differ")
        for row in report["rows"]:
            rows[row["mode"]].append(row)
    beside = {"ebb-offload": ("keep", "checkpoint"), "ebb-names": ("save-names", "checkpoint")}
    medians = {(mode, what): statistics.median(row[what] for row in of_mode)
               for mode, of_mode in rows.items() for what in ("step_ms", "temp_mib")}
    units = {"step_ms": "ms per step", "temp_mib": "MiB of XLA's temporaries"}
    return [figure(f"jax_step.{ours}.{other}.{what}", medians[ours, what], unit, other, medians[other, what])
            for what, unit in units.items() for ours, others in beside.items() for other in others]


def rotated(names, round_number):
    """Each round starts at another one, so that none is always the first on a cool processor."""
    start = round_number % len(names)
    return names[start:] + names[:start]


# Scripts that run with a framework: which, the script, its arguments in a round, and what its reports give.
SCRIPTS = {
    "hook_cost": ("torch", "torch/hook_cost.py", lambda round_number: [], hook_cost_figures),
    "torch_step": ("torch", "torch/decoder_modes.py", lambda round_number: ["--modes", ",".join(rotated(STEP_MODES, round_number))],
                   torch_step_figures),
    "ffi_cost": ("jax", "jax/ffi_cost.py", lambda round_number: [], ffi_cost_figures),
    "jax_step": ("jax", "../examples/jax/train_decoder.py",
                 lambda round_number: ["--modes", ",".join(rotated(JAX_STEP_MODES, round_number))], jax_step_figures),
}


def run_script(benchmark, pythons, effort):
    framework, script, arguments_of, figures_of = SCRIPTS[benchmark]
    if framework not in pythons:
        raise Failure(f"{benchmark} takes --python {framework}=PATH, of a Python with Ebb and {framework}")
    reports = []
    for number in range(effort["script_runs"]):
        progress(f"{benchmark}: run {number + 1} of {effort['script_runs']}")
        command = [pythons[framework], str(Path(__file__).parent / script), "--json", *arguments_of(number)]
        reports.append(json.loads(run_program(command, script)))
    return figures_of(reports), {"runs": reports}


def run_policy(bin_dir, effort):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        printed = run_program([str(bin_dir / "policy_bench"), "--out", str(out), *effort["policy"]], "policy_bench")
        return json.loads(out.read_text()), printed


def run_program(command, what):
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        sys.stderr.write(process.stderr)
        raise Failure(f"{what} ended with status {process.returncode}")
    return process.stdout


def run_google_benchmark(bin_dir, benchmark, effort):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            str(bin_dir / PROGRAMS[benchmark]),
            f"--benchmark_filter=^{benchmark}/",
            "--benchmark_format=console",
            f"--benchmark_out={report}",
            "--benchmark_out_format=json",
            "--benchmark_enable_random_interleaving=true",
            f"--benchmark_repetitions={effort['repetitions']}",
            f"--benchmark_min_time={effort['min_time']}",
        ]
        run_program(command, PROGRAMS[benchmark])
        return json.loads(report.read_text())


def run_train_modes(bin_dir, effort):
    runs = {mode: [] for mode in TRAIN_MODES}
    context = {}
    for round_number in range(effort["train_runs"]):
        for mode in rotated(TRAIN_MODES, round_number):
            progress(f"train_modes: run {round_number + 1} of {effort['train_runs']}, {mode}")
            report = json.loads(run_program([str(bin_dir / "train_transformer"), "--json", "--mode", mode], f"train_transformer --mode {mode}"))
            row = report["modes"][0]
            runs[mode].append(row["step_ms"] if row["status"] == "ok" else None)
            context = report.get("context", {})
    return runs, context


def progress(text):
    print(f"figures: {text}", file=sys.stderr, flush=True)


def measure(benchmark, bin_dir, effort, pythons):
    """The figures of one benchmark, and what it says of the machine."""
    progress(benchmark)
    if benchmark in SCRIPTS:
        return run_script(benchmark, pythons, effort)
    if benchmark == "train_modes":
        runs, context = run_train_modes(bin_dir, effort)
        return train_figures(runs), context
    if benchmark == "policy":
        report, printed = run_policy(bin_dir, effort)
        print(printed)
        return policy_figures(report), report
    report = run_google_benchmark(bin_dir, benchmark, effort)
    measurements = Measurements(report)
    if benchmark == "hot_path":
        figures = hot_path_figures(measurements)
    elif benchmark == "lane_copy":
        figures = lane_copy_figures(measurements)
    elif benchmark == "sim_ops":
        figures = sim_ops_figures(measurements)
    elif benchmark == "plan":
        figures = plan_figures(measurements)
    else:
        figures = arena_figures(measurements, benchmark)
    return figures, report.get("context", {})


def first_match(path, pattern):
    try:
        found = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    except OSError:
        return None
    return found.group(1) if found else None


def machine_context(bin_dir, quick):
    memory_kib = first_match("/proc/meminfo", r"^MemTotal:\s+(\d+)")
    cache = bin_dir.parent / "CMakeCache.txt"
    commit = subprocess.run(["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"], capture_output=True,
                            text=True, check=False).stdout.strip() if has_git() else ""
    build_type = first_match(cache, r"^CMAKE_BUILD_TYPE:\w+=(.*)$") or ""
    return {
        "processor": first_match("/proc/cpuinfo", r"^model name\s*: (.*)$") or platform.processor(),
        "processors": os.cpu_count(),
        "memory_bytes": int(memory_kib) * 1024 if memory_kib else None,
        "system": f"{platform.system()} {platform.release()}",
        "compiler": first_match(cache, r"^CMAKE_CXX_COMPILER:\w+=(.*)$"),
        "build_type": build_type or None,
        "flags": first_match(cache, rf"^CMAKE_CXX_FLAGS_{build_type.upper()}:\w+=(.*)$"),
        "load_average": list(os.getloadavg()),
        "commit": commit or None,
        "quick": quick,
    }


def has_git():
    return any(os.access(Path(folder) / "git", os.X_OK) for folder in os.environ.get("PATH", "").split(os.pathsep))


def number(value):
    if value is None:
        return "-"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"


def table(figures):
    rows = [["figure", "value", "unit", "baseline", "its value", "ratio", "target", "met"]]
    for f in figures:
        ratio = "-" if f["ratio"] is None else f"{f['ratio']:.3f}"
        met = "-" if f["met"] is None else ("yes" if f["met"] else "NO")
        rows.append([f["name"], number(f["value"]), f["unit"], f["baseline"] or "-", number(f["baseline_value"]), ratio,
                     f["target"] or "-", met])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    right = {1, 4, 5}
    lines = []
    for row in rows:
        cells = [cell.rjust(width) if column in right else cell.ljust(width)
                 for column, (cell, width) in enumerate(zip(row, widths))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin-dir", type=Path, required=True, help="where the benchmark programs are")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--python", action="append", default=[], metavar="FRAMEWORK=PATH", help="of a Python with Ebb and that framework")
    parser.add_argument("benchmarks", nargs="+", choices=[*PROGRAMS, "policy", "train_modes", *SCRIPTS])
    options = parser.parse_args(arguments)
    pythons = {framework: path for framework, _, path in (each.partition("=") for each in options.python)}
    context = machine_context(options.bin_dir, options.quick)
    context["benchmarks"] = {}
    figures = []
    try:
        for benchmark in options.benchmarks:
            measured, said = measure(benchmark, options.bin_dir, QUICK if options.quick else FULL, pythons)
            figures += measured
            context["benchmarks"][benchmark] = said
    except (Failure, OSError, ValueError, KeyError) as failure:
        print(f"figures: {failure}", file=sys.stderr)
        return 1
    built = f", {context['build_type']} {context['flags']}" if context["build_type"] else ""  # the programs; none is needed for scripts
    print(f"{context['processors']} x {context['processor']}, {context['system']}{built}")
    print(table(figures))
    if options.out:
        options.out.write_text(json.dumps({"context": context, "figures": figures}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
