"""Builds Ebb for the GPU of this machine, tests it there and measures it, in parts that each have a limit of time. A part
that fails does not stop the rest. Called by benchmarks/gpu/run_all.sh."""

import argparse
import datetime
import functools
import json
import math
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))
from figures import Failure, figure, first_match, table  # noqa: E402

BUILD = ROOT / "build" / "gpu"
PACKAGES = BUILD / "python"  # the Python package and what builds it, for the parts that take them
BUILD_LIMIT_S = 130
ALL_LIMIT_S = 480
LOG_LINES_SHOWN = 15
MIB = 1 << 20


class Part:
    """What is run: a command of the build's programs, the targets that it takes and how long it may take. `read` makes a report
    and figures of what it prints. `needs`: a library without which the build has no such target. Parts of the Python package
    have scripts for commands."""

    def __init__(self, name, what, limit_s, targets, command, read, needs=None):
        self.name = name
        self.what = what
        self.limit_s = limit_s
        self.targets = targets
        self.command = command
        self.read = read
        self.needs = needs


def read_tests(printed):
    """A program of tests that ran none has not passed."""
    ran = re.search(r"^\[=+\] (\d+) tests? from .* ran\.", printed, re.MULTILINE)
    if ran is None or int(ran.group(1)) == 0:
        raise Failure("no test ran")
    return {"tests": int(ran.group(1))}, []


def read_text(printed):
    return {"printed": printed}, []


def read_link(printed):
    report = json.loads(printed)
    figures = []
    for cell in report["cells"]:
        target = {"at_least": 0.97} if cell["size_bytes"] >= 16 * MIB else {}
        figures.append(figure("link." + cell["name"].replace(" ", "."), cell["ebb"]["bytes_per_second"] / 1e9, "GB/s",
                              "plain copies", cell["plain"]["bytes_per_second"] / 1e9, **target))
    for calls in report["calls"]:
        size = f"{calls['size_bytes'] // MIB}MiB"
        cuda = calls["cuda"]
        if cuda is None:
            raise Failure("link_bench counted no calls to CUDA: it did not run on a GPU")
        figures.append(figure(f"calls.own_time.{size}", cuda["own_ns"], "ns", "one cudaMemcpyAsync", cuda["memcpy_ns"], below=1.0))
        for way in ("d2h", "h2d"):
            figures.append(figure(f"calls.cuda_calls.{way}.{size}", cuda[f"{way}_calls"], "calls",
                                  f"{calls['chunks']} chunks and four", calls["promised_calls"], at_most=1.0))
    return report, figures


def read_check(printed):
    report = json.loads(printed)
    if not report["good"]:
        raise Failure("an operation or a gradient is not as it should be")
    return report, []


def read_step(printed):
    """Modes that ran out of memory have no times. Where the planner sees no exposed time, automatic mode is held to keep."""
    report = json.loads(printed)
    model = report["context"]["model"]
    modes = {mode["mode"]: mode for mode in report["modes"] if mode["status"] == "ok"}
    figures = []
    for name, mode in modes.items():
        if mode.get("difference") is not None:
            figures.append(figure(f"step.{model}.prediction.{name}", 100 * abs(mode["difference"]), "% off", "what is allowed", 3.0,
                                  at_most=1.0))
    keep, automatic = modes.get("keep"), modes.get("offload-auto")
    if keep is None or automatic is None:
        return report, figures
    hidden = bool(keep.get("predicted_ms")) and (automatic.get("predicted_ms") or keep["predicted_ms"] * 2) <= keep["predicted_ms"] * 1.001
    figures.append(figure(f"step.{model}.automatic", automatic["step_ms"], "ms per step", "keep", keep["step_ms"],
                          **({"at_most": 1.01} if hidden else {})))
    for name in ("recompute", "offload-sync", "offload-pipelined"):
        if name in modes:
            figures.append(figure(f"step.{model}.automatic.{name}", automatic["step_ms"], "ms per step", name, modes[name]["step_ms"]))
    return report, figures


def read_pytest(printed):
    """A run that left its tests of a GPU out has not passed: it is what it was for."""
    ran = re.search(r"^(?:.* )?(\d+) passed\b", printed, re.MULTILINE)
    if ran is None:
        raise Failure("no test ran")
    left_out = re.search(r"^gpu: not run.*$", printed, re.MULTILINE)
    if left_out:
        raise Failure(left_out.group(0))
    return {"tests": int(ran.group(1))}, []


def read_decoder(name, printed):
    """Ebb beside each other mode: step time, and peak memory. What ran out of memory has neither."""
    report = json.loads(printed)
    if report["losses_are_the_same"] is None:
        raise Failure("no mode came to an end")
    rows = {row["mode"]: row for row in report["rows"] if row["status"] == "ok"}
    figures = []
    for ours in ("ebb", "ebb-offload"):
        for other in ("keep", "checkpoint", "save-on-cpu"):
            if ours in rows and other in rows:
                figures.append(figure(f"{name}.{ours}.step.{other}", rows[ours]["step_ms"], "ms per step", other, rows[other]["step_ms"]))
                figures.append(figure(f"{name}.{ours}.peak.{other}", rows[ours]["device_peak_mib"], "MiB", other,
                                      rows[other]["device_peak_mib"]))
    return report, figures


def read_jax_decoder(name, printed):
    """Ebb beside each other mode: step time, and XLA's temporary memory."""
    report = json.loads(printed)
    rows = {row["mode"]: row for row in report["rows"]}
    figures = []
    for ours in ("ebb", "ebb-offload", "ebb-names"):
        for other in ("keep", "checkpoint", "save-names", "xla-offload"):
            if ours in rows and other in rows:
                figures.append(figure(f"{name}.{ours}.step.{other}", rows[ours]["step_ms"], "ms per step", other, rows[other]["step_ms"]))
                figures.append(figure(f"{name}.{ours}.temp.{other}", rows[ours]["temp_mib"], "MiB", other, rows[other]["temp_mib"]))
    if not figures:
        raise Failure("no mode stands beside another")
    return report, figures


# In the order in which they run. The limits, with the build's, stay below ALL_LIMIT_S: a part that is added takes its time
# from the others.
PARTS = [
    Part("contract", "the device contract suite, and where pinned memory lies", 40, ["gpu_contract"], ["gpu_contract"], read_tests),
    Part("tests", "what must hold on a GPU: gradients bit for bit, graphs, errors", 60, ["gpu_tests", "ebb_cuda"], ["gpu_tests"],
         read_tests),
    Part("custom_loop", "the example of a training loop in C", 10, ["custom_loop", "ebb_cuda"], ["custom_loop", "--device", "cuda"],
         read_text),
    Part("nccl_overlap", "the example of collectives beside offloads", 10, ["nccl_overlap", "ebb_cuda"], ["nccl_overlap"], read_text,
         needs="NCCL"),
    Part("link", "copies, plain ones and Ebb's, and what calls cost", 60, ["link_bench"],
         ["link_bench", "--device", "cuda", "--json"], read_link),
    Part("step_check", "the step benchmark's operations against double precision", 30, ["step_bench", "ebb_cuda"],
         ["step_bench", "--device", "cuda", "--check", "--json"], read_check),
    Part("step_dense", "whole training steps of a dense model", 80, ["step_bench", "ebb_cuda"],
         ["step_bench", "--device", "cuda", "--json", "--model", "dense", "--modes", "keep,recompute,offload-sync,offload-pipelined,offload-auto"],
         read_step),
    Part("step_moe", "whole training steps of a model with experts", 60, ["step_bench", "ebb_cuda"],
         ["step_bench", "--device", "cuda", "--json", "--model", "moe", "--modes", "keep,recompute,offload-auto"], read_step),
]

# Those of the Python package, by framework: run on their own, with the package built and installed in place of the programs.
# Of the decoder's memory, weights and Adam's state take 7.3 GB and activations 7.6 GB, by count; an update takes 12 GB. A mode
# that hangs leaves the others their time.
DECODER = [sys.executable, "benchmarks/torch/decoder_modes.py", "--device", "cuda", "--json", "--layers", "12", "--width", "2048",
           "--heads", "16", "--context", "2048", "--batch", "4"]
JAX_DECODER = [sys.executable, "examples/jax/train_decoder.py", "--device", "cuda", "--json", "--dtype", "bfloat16", "--layers", "12",
               "--width", "2048", "--heads", "16", "--context", "1024", "--batch", "8", "--steps", "8"]
# With which XLA's own offloading is published.
XLA_FLAGS = "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true --xla_gpu_enable_pipelined_host_offloading=true"
PLUGIN_PARTS = {
    "jax": [
        Part("jax_decoder", "a decoder trained in six ways with JAX", 180, [],
             [*JAX_DECODER, "--modes", "keep,checkpoint,save-names,ebb,ebb-offload,ebb-names"],
             functools.partial(read_jax_decoder, "jax_decoder")),
        Part("jax_decoder_flags", "the same beside XLA's own offloading, with its flags", 120, [],
             ["env", XLA_FLAGS, *JAX_DECODER, "--modes", "xla-offload,ebb-names,ebb-offload"],
             functools.partial(read_jax_decoder, "jax_decoder_flags")),
    ],
    "torch": [
        Part("torch_tests", "ebb.torch's tests, those of a GPU among them", 170, [],
             [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "tests/plugins/torch"], read_pytest),
        Part("torch_decoder", "a decoder trained in five ways with PyTorch", 100, [],
             [*DECODER, "--limit-s", "20", "--modes", "keep,checkpoint,save-on-cpu,ebb,ebb-offload"],
             functools.partial(read_decoder, "torch_decoder")),
        Part("torch_decoder_short", "the same where keeping takes more memory than there is", 80, [],
             [*DECODER, "--limit-s", "20", "--memory-gib", "13.5", "--modes", "keep,checkpoint,ebb,ebb-offload"],
             functools.partial(read_decoder, "torch_decoder_short")),
    ],
}


def say(text=""):
    print(text, flush=True)


def output_of(*command):
    """Standard output of a command, stripped; "" where it fails or does not exist."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def gpu_is_present():
    return bool(output_of("nvidia-smi", "-L")) or bool(list(Path("/dev").glob("nvidia[0-9]*")))


def architectures():
    """Compute capabilities of the GPUs present, as nvcc numbers them: {"90"}."""
    return sorted({line.replace(".", "") for line in output_of("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader").split()})


def commit():
    described = output_of("git", "describe", "--always", "--dirty")
    if described:
        return described
    noted = HERE / "bundle" / "commit.txt"
    return noted.read_text().strip() + " (when the bundle was made)" if noted.exists() else None


def numa_layout():
    """Nodes with their processors and memory, and each GPU's node, as the system tells them."""
    nodes = {}
    for node in sorted(Path("/sys/devices/system/node").glob("node[0-9]*")):
        memory_kib = first_match(node / "meminfo", r"MemTotal:\s+(\d+)")
        nodes[node.name] = {"processors": first_match(node / "cpulist", r"(.*)"), "memory_bytes": int(memory_kib or 0) * 1024}
    gpus = {}
    for bus in output_of("nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader").split():
        # sysfs has the domain in four digits.
        gpus[bus] = first_match(f"/sys/bus/pci/devices/{bus[-12:].lower()}/numa_node", r"(-?\d+)")
    return {"nodes": nodes, "gpus": gpus}


def machine_context():
    smi = output_of("nvidia-smi", "--query-gpu=name,driver_version,memory.total,pci.bus_id", "--format=csv,noheader")
    memory_kib = first_match("/proc/meminfo", r"^MemTotal:\s+(\d+)")
    return {
        "gpus": smi.splitlines(),
        "driver": first_match("/proc/driver/nvidia/version", r"^NVRM version:\s*(.*)$"),
        "cuda": nvcc_release(),
        "processor": first_match("/proc/cpuinfo", r"^model name\s*: (.*)$") or platform.processor(),
        "processors": os.cpu_count(),
        "memory_bytes": int(memory_kib) * 1024 if memory_kib else None,
        "numa": numa_layout(),
        "system": f"{platform.system()} {platform.release()}",
        "commit": commit(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def nvcc_release():
    nvcc = first_match(BUILD / "CMakeCache.txt", r"^CUDAToolkit_NVCC_EXECUTABLE:\w+=(.*)$") or "nvcc"
    found = re.search(r"release (\S+),", output_of(nvcc, "--version"))
    return found.group(1) if found else None


class Deadline:
    """What is left of the time that all of it may take."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def limit(self, seconds):
        return min(seconds, self.end - time.monotonic())


def run_limited(command, limit_s, environment, log):
    """Standard output, or None and why. Both outputs go to the log. What the command started ends with it."""
    log.write(f"\n==== {' '.join(map(str, command))}\n")
    log.flush()
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT, env=environment,
                                   start_new_session=True)
    except OSError as failure:
        return None, str(failure)
    try:
        printed, _ = process.communicate(timeout=None if math.isinf(limit_s) else max(limit_s, 0))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        printed, _ = process.communicate()
        log.write(printed)
        return None, f"took longer than {limit_s:.0f} s"
    log.write(printed)
    log.flush()
    if process.returncode != 0:
        how = f"signal {-process.returncode}" if process.returncode < 0 else f"status {process.returncode}"
        return None, f"ended with {how}"
    return printed, None


def outcome(name, status, seconds, why=None, figures=(), report=None):
    return {"name": name, "status": status, "seconds": round(seconds, 1), "why": why, "figures": list(figures), "report": report}


def run_part(part, bin_dir, deadline, environment, log):
    limit_s = deadline.limit(part.limit_s)
    if limit_s <= 0:
        return outcome(part.name, "not run", 0, f"the {ALL_LIMIT_S} s for all parts are over")
    if part.needs and not (bin_dir / part.command[0]).exists():
        return outcome(part.name, "not run", 0, f"{part.needs} was not found when this was built")
    begin = time.monotonic()
    printed, why = run_limited([str(bin_dir / part.command[0]), *part.command[1:]], limit_s, environment, log)
    seconds = time.monotonic() - begin
    if why:
        return outcome(part.name, "FAILED", seconds, why)
    try:
        report, figures = part.read(printed)
    except (ValueError, KeyError, TypeError, Failure) as failure:
        return outcome(part.name, "FAILED", seconds, f"what it printed cannot be used: {failure!r}")
    return outcome(part.name, "passed", seconds, None, figures, report)


def build_environment():
    # Options from outside would change what is tested and measured.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EBB_")}
    before = environment.get("PYTHONPATH")
    return environment | {"PYTHONPATH": os.pathsep.join([str(PACKAGES), *([before] if before else [])])}


def definitions():
    """Of the build, as CMake takes them."""
    defined = {"EBB_CUDA": "ON", "EBB_WARNINGS_AS_ERRORS": "OFF"}
    if (HERE / "bundle").is_dir():
        defined["CMAKE_PROJECT_ebb_INCLUDE"] = str(HERE / "bundle.cmake")
    present = architectures()
    if present:
        defined["EBB_CUDA_ARCHITECTURES"] = ";".join(f"{number}-real" for number in present)
    return defined


def configure_command():
    return ["cmake", "--preset", "release", "-B", str(BUILD), "--log-level=WARNING", "-GNinja",
            *(f"-D{name}={value}" for name, value in definitions().items())]


def install_commands():
    """Nothing is fetched: the build backend comes from the bundle, or is there. A folder, since PyTorch may itself be in a
    virtual environment, which another one would not see."""
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--disable-pip-version-check", "--upgrade", "--target", str(PACKAGES)]
    commands = []
    wheels = HERE / "bundle" / "wheels"
    if wheels.is_dir():
        commands.append([*pip, *(str(wheel) for wheel in sorted(wheels.glob("*.whl")))])
    settings = {f"cmake.define.{name}": value for name, value in definitions().items()} | {"build-dir": str(BUILD / "plugins")}
    commands.append([*pip, "--no-build-isolation", "--no-deps", *(f"--config-settings={name}={value}" for name, value in settings.items()),
                     str(ROOT / "plugins")])
    return commands


def is_built(part):
    """Whether the configured build has all of the part's targets. Only those that need a library may be missing."""
    rules = (BUILD / "build.ninja").read_text()
    return all(f"\nbuild {target}: phony" in rules for target in part.targets)


def install(deadline, limit_s, log):
    """None, or why it failed."""
    for command in install_commands():
        _, why = run_limited(command, deadline.limit(limit_s), build_environment(), log)
        if why:
            return f"pip install {why}"
    return None


def build(parts, deadline, limit_s, log):
    """None, or why it failed. What has no target is of the Python package."""
    if not any(part.targets for part in parts):
        return install(deadline, limit_s, log)
    _, why = run_limited(configure_command(), deadline.limit(limit_s), build_environment(), log)
    if why:
        return f"cmake {why}"
    targets = sorted({target for part in parts if not part.needs or is_built(part) for target in part.targets})
    _, why = run_limited(["cmake", "--build", str(BUILD), "--parallel", str(os.cpu_count()), "--target", *targets],
                         deadline.limit(limit_s), build_environment(), log)
    return f"cmake --build {why}" if why else None


def end_of(path):
    return path.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]


def show_failure(failed, log_path):
    """The end of the log also goes into the results: they may be all that comes back from the machine."""
    failed["log"] = end_of(log_path)
    say(f"  FAILED: {failed['why']}; the end of {log_path}:\n    " + "\n    ".join(failed["log"]))


def page(context, outcomes):
    lines = [f"Ebb {context['commit']} on {'; '.join(context['gpus']) or 'no GPU'}",
             f"CUDA {context['cuda']}, {context['processors']} x {context['processor']}, {context['system']}, {context['date']}", ""]
    width = max(len(part["name"]) for part in outcomes)
    lines += [f"{part['name']:<{width}}  {part['status']:<8}  {part['seconds']:>6.1f} s  {part['why'] or ''}".rstrip() for part in outcomes]
    figures = [each for part in outcomes for each in part["figures"]]
    if figures:
        lines += ["", table(figures)]
    return "\n".join(lines)


def write_results(folder, context, outcomes):
    folder.mkdir(parents=True, exist_ok=True)
    gpu = context["gpus"][0].split(",")[0] if context["gpus"] else "no gpu"
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"gpu {gpu} {context['date']}").strip("-").lower()
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"context": context, "parts": outcomes}, indent=2) + "\n")
    return path


def run_parts(parts, bin_dir, deadline, log_path):
    outcomes = []
    for part in parts:
        say(f"{part.name}: {part.what}")
        with open(log_path, "a", encoding="utf-8") as log:
            outcomes.append(run_part(part, bin_dir, deadline, build_environment(), log))
        if outcomes[-1]["status"] == "FAILED":
            show_failure(outcomes[-1], log_path)
    return outcomes


def build_alone(parts, log_path):
    """Without a limit: on a small machine it takes as long as it takes."""
    begin = time.monotonic()
    with open(log_path, "w", encoding="utf-8") as log:
        why = build(parts, Deadline(math.inf), math.inf, log)
    built = outcome("build", "FAILED" if why else "passed", time.monotonic() - begin, why)
    if why:
        show_failure(built, log_path)
        return 1
    say(f"Built in {built['seconds']} s, in {BUILD}.")
    return 0


def run(parts, out, log_path):
    deadline = Deadline(ALL_LIMIT_S)
    begin = time.monotonic()
    with open(log_path, "w", encoding="utf-8") as log:
        why = build(parts, deadline, BUILD_LIMIT_S, log)
    outcomes = [outcome("build", "FAILED" if why else "passed", time.monotonic() - begin, why)]
    if why:
        show_failure(outcomes[0], log_path)
        outcomes += [outcome(part.name, "not run", 0, "the build failed") for part in parts]
    else:
        outcomes += run_parts(parts, BUILD / "bin", deadline, log_path)
    context = machine_context()
    say("\n" + page(context, outcomes))
    say(f"\nin {write_results(out, context, outcomes)}")
    return 0 if all(each["status"] == "passed" for each in outcomes) else 1


def described(part):
    return f"{part.name}, {part.what} (at most {part.limit_s} s)"


def arguments_of(arguments):
    parser = argparse.ArgumentParser(
        prog="run_all.sh",
        description=f"Builds Ebb for the GPU of this machine, tests and measures it there, in {ALL_LIMIT_S // 60} minutes at most, and prints "
        "one page. Builds from benchmarks/gpu/bundle where benchmarks/gpu/bundle.sh has made one, else from what is installed.",
        epilog="Parts: " + "; ".join(map(described, PARTS)) +
        ". Exit status: 0 all passed (a target that is not met is a result), 1 something failed, was not run, or there is no GPU, 2 wrong usage.")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results", metavar="DIR",
                        help="where the results are written as JSON (default: benchmarks/results)")
    parser.add_argument("--plugin", choices=PLUGIN_PARTS, help="in place of all that: build, test and measure the Python package with this "
                        f"framework, which Python has; parts: {'; '.join(map(described, sum(PLUGIN_PARTS.values(), [])))}")
    parser.add_argument("--part", action="append", metavar="NAME", help="only this part; may be given several times")
    parser.add_argument("--build-only", action="store_true", help="build, run nothing: works without a GPU")
    options = parser.parse_args(arguments)
    there_are = PLUGIN_PARTS[options.plugin] if options.plugin else PARTS
    unknown = set(options.part or ()) - {part.name for part in there_are}
    if unknown:
        parser.error(f"no part {sorted(unknown)[0]!r}; there are: {', '.join(part.name for part in there_are)}")
    options.parts = [part for part in there_are if options.part is None or part.name in options.part]
    return options


def main(arguments):
    options = arguments_of(arguments)
    parts = options.parts
    BUILD.mkdir(parents=True, exist_ok=True)
    log_path = BUILD / "run_all.log"
    if options.build_only:
        return build_alone(parts, log_path)
    if gpu_is_present():
        return run(parts, options.out.resolve(), log_path)
    status = build_alone(parts, log_path)
    say("There is no GPU on this machine: nothing was run.")
    return status or 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
