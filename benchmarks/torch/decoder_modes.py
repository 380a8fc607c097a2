"""A small GPT (that of examples/pytorch) trained in several ways, each in a process of its own: step time, tokens per
second and peak memory of each, and whether the losses are the same.

    python benchmarks/torch/decoder_modes.py --device cuda --layers 12 --width 2048 --heads 16 --context 2048 --batch 4
    python benchmarks/torch/decoder_modes.py --device cuda --memory-gib 13.5 ...      # as if the GPU had no more

Modes: keep (PyTorch alone), checkpoint (torch.utils.checkpoint around each block), save-on-cpu
(torch.autograd.graph.save_on_cpu with pinned memory), clone (hooks that copy on the device, both ways), ebb
(ebb.torch.offload, automatic), ebb-offload (everything above the floor). A mode that runs out of memory, fails or takes
longer than its limit is a row that says so.

Exit status: 0 done (a mode without enough memory is a result), 1 a mode failed or losses differ, 2 wrong usage.
"""

import argparse
import contextlib
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODES = ("keep", "checkpoint", "save-on-cpu", "clone", "ebb", "ebb-offload")
SIZES = {"layers": 4, "width": 256, "heads": 4, "context": 256, "batch": 8, "warm-up": 6, "steps": 8, "seed": 1,
         "floor": 1 << 20}
OUT_OF_MEMORY = "out of memory"


# ------------------------------------------------------------------------------------- in the process of one mode --


def cloning_hooks(model, floor):
    """Of what Ebb would move: nothing small, and no parameters."""
    import torch

    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def pack(tensor):
        moves = tensor.nbytes >= floor and tensor.untyped_storage().data_ptr() not in parameters
        return (moves, tensor.clone() if moves else tensor)

    def unpack(packed):
        return packed[1].clone() if packed[0] else packed[1]

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


def way_of(mode, options):
    """How a block is called, and the context around a forward pass of a model."""
    sys.path.insert(0, str(ROOT / "examples" / "pytorch"))
    import train_gpt

    if mode == "clone":
        return train_gpt.plainly, functools.partial(cloning_hooks, floor=options.floor)
    call, context = train_gpt.MODES[mode]
    more = {"floor": options.floor} if mode.startswith("ebb") else {}
    if mode.startswith("ebb") and options.device_memory_mib is not None:
        more["device_memory"] = options.device_memory_mib << 20
    return call, lambda model: context(**more)


def limit_memory(device, gib) -> None:
    import torch

    if gib is not None:
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(gib * 2**30 / total, 1.0), device)


def train(mode, options) -> dict:
    """Losses of all steps, and what the last `steps` of them took."""
    import torch

    call, context = way_of(mode, options)
    from train_gpt import Gpt  # which way_of() found

    device = torch.device(options.device)
    on_gpu = device.type == "cuda"
    if on_gpu:
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)
        limit_memory(device, options.memory_gib)
        torch.use_deterministic_algorithms(True, warn_only=True)  # or losses differ from run to run
        torch.utils.deterministic.fill_uninitialized_memory = False  # which would take time of all modes
    torch.manual_seed(options.seed)
    with device:  # or making it would take longer than training
        model = Gpt(options.layers, options.width, options.heads, options.context, call)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    autocast = functools.partial(torch.autocast, device.type, torch.bfloat16) if options.dtype == "bfloat16" \
        else contextlib.nullcontext
    losses, times = [], []
    for step in range(options.warm_up + options.steps):
        rows = torch.randint(0, 256, (options.batch, options.context + 1)).to(device)
        if on_gpu:
            torch.cuda.synchronize()
            if step == options.warm_up:
                torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        with context(model), autocast():
            loss = model(rows[:, :-1], rows[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())  # waits
        if step >= options.warm_up:
            times.append(time.perf_counter() - begin)
    seconds = statistics.median(times)
    row = {"mode": mode, "status": "ok", "step_ms": seconds * 1e3,
           "tokens_per_s": options.batch * options.context / seconds, "losses": losses}
    if on_gpu:
        row["device_peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
    return row | (said_by_ebb() if mode.startswith("ebb") else {})


def said_by_ebb() -> dict:
    import ebb.torch

    said = {"report": ebb.torch.report()}
    for numbers in ebb.torch.statistics().values():  # of one device, or of none where all was below the floor
        sampled = max(numbers["sampled_steps"], 1)
        said |= {"pinned_mib": numbers["pinned_peak_bytes"] / 2**20, "hidden_ms": numbers["hidden_ns"] / sampled / 1e6,
                 "exposed_ms": numbers["exposed_ns"] / sampled / 1e6,
                 "ebb_peak_mib": numbers["device_peak_bytes"] / 2**20, "offloaded_count": numbers["offloaded_count"]}
    ebb.torch.close()
    return said


def is_out_of_memory(error) -> bool:
    import torch

    # The CPU's allocator has no type of its own for it.
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)


def run_as_child(mode, options) -> int:
    import torch

    import ebb

    on_gpu = options.device.startswith("cuda") and torch.cuda.is_available()
    about = {"torch": torch.__version__, "built": ebb.build_info(),
             "gpu": torch.cuda.get_device_name() if on_gpu else None}
    try:
        row = train(mode, options)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        row = {"mode": mode, "status": OUT_OF_MEMORY, "why": str(error).splitlines()[0]}
    print(json.dumps(row | {"about": about}))
    return 0


# ------------------------------------------------------------------------------------------ around the processes --


def failed(mode, why) -> dict:
    return {"mode": mode, "status": "failed", "why": why}


def run_mode(mode, options) -> dict:
    command = [sys.executable, __file__, "--child", *options.given, "--modes", mode]
    # What deterministic products on a GPU take; and on the CPU, threads that spin while they wait would take the
    # processors from those that copy.
    environment = os.environ | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "OMP_WAIT_POLICY": "passive"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit_s, env=environment,
                              check=False)
    except subprocess.TimeoutExpired:
        return failed(mode, f"took longer than {options.limit_s} s")
    sys.stderr.write(done.stderr)
    if done.returncode != 0:
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        return failed(mode, (done.stderr.strip().splitlines() or [f"ended with {ended}"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


def table(rows) -> str:
    columns = [("step_ms", "step, ms", ".1f"), ("over_keep", "/ keep", ".3f"), ("tokens_per_s", "tokens/s", ".0f"),
               ("device_peak_mib", "device peak, MiB", ".1f"), ("pinned_mib", "pinned host, MiB", ".1f"),
               ("hidden_ms", "hidden, ms", ".1f"), ("exposed_ms", "exposed, ms", ".1f"), ("loss", "loss", ".6f")]
    widths = [max(len(title), 9) for _, title, _ in columns]
    titles = (title for _, title, _ in columns)
    lines = [f"{'mode':<12}" + "".join(f"  {title:>{width}}" for title, width in zip(titles, widths, strict=True))]
    for row in rows:
        if row["status"] != "ok":
            why = row["status"] if row["status"] == OUT_OF_MEMORY else f"{row['status']}: {row['why']}"
            lines.append(f"{row['mode']:<12}  {why}")
            continue
        cells = (format(row[key], form) if row.get(key) is not None else "-" for key, _, form in columns)
        lines.append(f"{row['mode']:<12}"
                     + "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True)))
    return "\n".join(lines)


def compare(options) -> dict:
    rows = []
    for mode in options.modes:
        print(f"decoder_modes: {mode}", file=sys.stderr, flush=True)
        rows.append(run_mode(mode, options))
    about = next((row.pop("about") for row in rows if "about" in row), {})
    keep = next((row["step_ms"] for row in rows if row["mode"] == "keep" and row["status"] == "ok"), None)
    for row in rows:
        row.pop("about", None)
        if row["status"] == "ok":
            row["loss"] = row["losses"][-1]
            row["over_keep"] = row["step_ms"] / keep if keep else None
    seen = {tuple(row["losses"]) for row in rows if row["status"] == "ok"}
    sizes = {name.replace("-", "_"): getattr(options, name.replace("-", "_")) for name in SIZES}
    return about | {"device": options.device, "dtype": options.dtype, "memory_gib": options.memory_gib, "sizes": sizes,
                    "rows": rows, "losses_are_the_same": len(seen) == 1 if seen else None}


def arguments_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--modes", default=",".join(MODES), help="some of them, in order")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], help="bfloat16: by autocast; default on a GPU")
    parser.add_argument("--memory-gib", type=float, help="of the GPU's memory, PyTorch may take this much")
    parser.add_argument("--device-memory-mib", type=int, help="Ebb's device_memory, in MiB; learned by default")
    parser.add_argument("--limit-s", type=float, default=300, help="of each mode")
    for name, default in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    options = parser.parse_args(arguments)
    options.given = [argument for argument in arguments if argument != "--json"]
    options.modes = options.modes.split(",")
    options.dtype = options.dtype or ("bfloat16" if options.device.startswith("cuda") else "float32")
    unknown = [mode for mode in options.modes if mode not in MODES]
    if unknown:
        parser.error(f"no mode {unknown[0]!r}; there are: {', '.join(MODES)}")
    if options.memory_gib is not None and not options.device.startswith("cuda"):
        parser.error("--memory-gib is for a GPU: add --device cuda")
    small = [name for name in SIZES if name not in ("warm-up", "seed", "floor") and getattr(options, name) < 1]
    if small:
        parser.error(f"--{small[0]} is {getattr(options, small[0])}; it takes at least 1")
    return options


def main(arguments) -> int:
    options = arguments_of(arguments)
    if options.child:
        return run_as_child(options.modes[0], options)
    result = compare(options)
    if options.json:
        print(json.dumps(result))
    else:
        print(table(result["rows"]))
        print({True: "the losses are the same, bit for bit", False: "THE LOSSES DIFFER",
               None: "no mode came to an end"}[result["losses_are_the_same"]])
    failures = [row for row in result["rows"] if row["status"] == "failed"]
    return 1 if failures or result["losses_are_the_same"] is False else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
