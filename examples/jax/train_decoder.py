"""A small decoder over bytes, scanned over its layers, trained in several ways: what each costs in time and memory, and
that the losses are the same.

    python examples/jax/train_decoder.py                       # this project's documentation, on the CPU
    python examples/jax/train_decoder.py --layers 24 --width 512 --text FILE --modes keep,checkpoint,ebb-names

Modes: keep (JAX alone), checkpoint (jax.checkpoint around each layer, which is computed again), save-names
(jax.checkpoint that saves the values with names), xla-offload (the same, moved to the host by XLA), ebb
(ebb.jax.offload, automatic), ebb-offload (everything above the floor moves), ebb-names (the values with names move, the
rest is computed again). On the CPU there is nothing to gain by moving: it shows what moves and that nothing changes.

The losses are the same bits on the CPU. For that, this program asks two things of XLA: no fused multiply-adds (where
XLA_FLAGS is not set), which it may make wherever a product and a sum come to lie in one loop, in each mode elsewhere;
and no excess precision, by which it leaves out roundings to bfloat16. Without them last bits may differ, as they may
with jax.checkpoint. On other devices XLA chooses kernels for each program; nothing of this has been tried on a GPU.
"""

import argparse
import functools
import json
import os
import pathlib
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

import ebb.jax

WARM_UP_STEPS = 4  # Ebb records the first step and measures the next three
NAMES = ("qkv", "mixed", "up")
LEARNING_RATE, DECAY_1, DECAY_2, WEIGHT_DECAY = 3e-4, 0.9, 0.999, 0.01


# --------------------------------------------------------------------------------------------------------- model --

def init(options) -> dict:
    """Parameters of all layers are stacked: the scan takes one of them at a time."""
    keys = iter(jax.random.split(jax.random.key(options.seed), 6))
    width, layers = options.width, options.layers

    def weights(*shape):
        return (jax.random.normal(next(keys), shape) / shape[-2] ** 0.5).astype(options.dtype)

    return {
        "embed": weights(256, width), "position": weights(options.context, width),
        "layers": {"qkv": weights(layers, width, 3 * width), "out": weights(layers, width, width),
                   "up": weights(layers, width, 4 * width), "down": weights(layers, 4 * width, width)},
    }


def normed(x):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + 1e-6)).astype(x.dtype)


def layer(p, x, heads):
    qkv = checkpoint_name(normed(x) @ p["qkv"], "qkv")
    q, k, v = (part.reshape(*x.shape[:2], heads, -1) for part in jnp.split(qkv, 3, axis=-1))
    mixed = checkpoint_name(jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape), "mixed")
    x = x + mixed @ p["out"]
    up = checkpoint_name(normed(x) @ p["up"], "up")
    return x + jax.nn.gelu(up) @ p["down"]


def loss_of(params, rows, call):
    """`call(p, x)` runs a layer, in one of the modes."""
    tokens, targets = rows[:, :-1], rows[:, 1:]
    x = params["embed"][tokens] + params["position"]
    x, _ = jax.lax.scan(lambda x, p: (call(p, x), None), x, params["layers"])
    logits = (normed(x) @ params["embed"].T).astype(jnp.float32)
    likely = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)
    return -jnp.mean(likely)


MODES = {
    "keep": lambda run, floor: run,
    "checkpoint": lambda run, floor: jax.checkpoint(run),
    "save-names": lambda run, floor: jax.checkpoint(run, policy=jax.checkpoint_policies.save_only_these_names(*NAMES)),
    "xla-offload": lambda run, floor: jax.checkpoint(run, policy=jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=NAMES, offload_src="device",
        offload_dst="pinned_host")),
    "ebb": lambda run, floor: ebb.jax.offload(run, floor=floor),
    "ebb-offload": lambda run, floor: ebb.jax.offload(run, policy="offload", floor=floor),
    "ebb-names": lambda run, floor: ebb.jax.offload(run, names=NAMES),
}


# ------------------------------------------------------------------------------------------------------ training --

def adamw(params, gradients, moments, step):
    """New parameters and moments, in float32."""
    first, second = (
        jax.tree.map(lambda m, g: decay * m + (1 - decay) * g.astype(jnp.float32) ** power, of, gradients)
        for of, decay, power in ((moments[0], DECAY_1, 1), (moments[1], DECAY_2, 2)))

    def moved(p, m, v):
        by = m / (1 - DECAY_1**step) / (jnp.sqrt(v / (1 - DECAY_2**step)) + 1e-8)
        return (p - LEARNING_RATE * (by + WEIGHT_DECAY * p)).astype(p.dtype)

    return jax.tree.map(moved, params, first, second), (first, second)


def make_program(mode, options):
    def run(p, x):
        return layer(p, x, options.heads)

    call = MODES[mode](run, options.floor)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def train_step(params, moments, step, rows):
        loss, gradients = jax.value_and_grad(loss_of)(params, rows, call)
        return *adamw(params, gradients, moments, step), loss

    return lambda *args: train_step.lower(*args).compile(compiler_options={"xla_allow_excess_precision": False})


def train(mode, options, text) -> dict:
    random = np.random.default_rng(options.seed)
    compiled_for = make_program(mode, options)
    params = init(options)
    moments = tuple(jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params) for _ in range(2))
    times, losses, program = [], [], None
    for step in range(WARM_UP_STEPS + options.steps):
        starts = random.integers(0, len(text) - options.context, options.batch)
        rows = jnp.stack([text[at : at + options.context + 1] for at in starts])
        args = (params, moments, jnp.float32(step + 1), rows)
        if program is None or (step == WARM_UP_STEPS and mode == "ebb" and ebb.jax.replan()):
            program = compiled_for(*args)
        begin = time.perf_counter()
        params, moments, loss = jax.block_until_ready(program(*args))
        if step >= WARM_UP_STEPS:
            times.append(time.perf_counter() - begin)
        losses.append(loss.item())
    seconds = statistics.median(times)
    row = {"mode": mode, "step_ms": seconds * 1e3, "tokens_per_s": options.batch * options.context / seconds,
           "temp_mib": program.memory_analysis().temp_size_in_bytes / 2**20, "loss": losses[-1], "losses": losses}
    if mode.startswith("ebb"):
        for numbers in ebb.jax.statistics().values():  # of one device, or of none where nothing moved
            sampled = max(numbers["sampled_steps"], 1)
            row |= {"pinned_mib": numbers["pinned_peak_bytes"] / 2**20,
                    "hidden_ms": numbers["hidden_ns"] / sampled / 1e6,
                    "exposed_ms": numbers["exposed_ns"] / sampled / 1e6}
        if options.report:
            print(ebb.jax.report())
        ebb.jax.close()
    return row


# ------------------------------------------------------------------------------------------------------- command --

def read_text(path) -> np.ndarray:
    if path is None:
        root = pathlib.Path(__file__).resolve().parents[2]
        data = b"".join(page.read_bytes() for page in sorted(root.glob("docs/*.md")))
    else:
        data = pathlib.Path(path).read_bytes()
    return np.frombuffer(data, np.uint8).astype(np.int32)


def print_table(rows) -> None:
    columns = [("step_ms", "step, ms", ".1f"), ("tokens_per_s", "tokens/s", ".0f"),
               ("temp_mib", "XLA temp, MiB", ".1f"), ("pinned_mib", "pinned host, MiB", ".1f"),
               ("hidden_ms", "hidden, ms", ".1f"), ("exposed_ms", "exposed, ms", ".1f"), ("loss", "loss", ".6f")]
    print(f"{'mode':<12}" + "".join(f"  {title:>{max(len(title), 9)}}" for _, title, _ in columns))
    for row in rows:
        cells = (format(row[key], form) if key in row else "-" for key, _, form in columns)
        print(f"{row['mode']:<12}" + "".join(f"  {cell:>{max(len(title), 9)}}"
                                             for cell, (_, title, _) in zip(cells, columns, strict=True)))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", default=",".join(MODES), help="some of them, in order")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--text", help="file to train on")
    for name, default in {"layers": 4, "width": 256, "heads": 4, "context": 256, "batch": 8, "steps": 4, "seed": 1,
                          "floor": 1 << 20}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--machine", help="what automatic mode plans by: a file of profiles/machines, by name or path")
    parser.add_argument("--report", action="store_true", help="also print Ebb's report by name")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    options = parser.parse_args()
    options.modes = options.modes.split(",")
    unknown = [mode for mode in options.modes if mode not in MODES]
    if unknown:
        parser.error(f"no mode {unknown[0]!r}; there are: {', '.join(MODES)}")
    text = read_text(options.text)
    if len(text) <= options.context:
        parser.error(f"the text has {len(text)} bytes, and one sequence takes {options.context + 1}")
    if options.machine is not None:
        try:
            ebb.jax.configure(machine=options.machine)
        except ValueError as why:
            parser.error(str(why))
    return options, text


def main() -> int:
    options, text = parse()
    jax.config.update("jax_platforms", options.device)
    if options.device == "cpu":
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_max_isa=AVX")
    rows = [train(mode, options, text) for mode in options.modes]
    same = len({tuple(row["losses"]) for row in rows}) == 1
    if options.json:
        print(json.dumps({"jax": jax.__version__, "device": options.device, "rows": rows, "losses_are_the_same": same}))
    else:
        print_table(rows)
        print("the losses are the same, bit for bit" if same else "THE LOSSES DIFFER")
    return 0 if same or options.device != "cpu" else 1


if __name__ == "__main__":
    raise SystemExit(main())
