"""A small decoder over bytes, scanned over its layers, trained in several ways: what each costs, and that losses are
the same.

    python examples/jax/train_decoder.py                       # this project's documentation, on the CPU
    python examples/jax/train_decoder.py --text FILE --layers 24 --width 1024 --modes keep,checkpoint,ebb

Modes: keep (JAX alone), checkpoint (jax.checkpoint, nothing saved), save-names (jax.checkpoint that saves the named
values),
ebb-names (the same values, in host memory meanwhile), ebb-offload (all that is saved), ebb (automatic: by the
machine's rates; on
a machine without a profile, such as a CPU, as ebb-offload). On the CPU there is nothing to gain by moving: it shows
what moves
and that nothing changes.
"""

import argparse
import functools
import json
import pathlib
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

import ebb.jax

NAMES = ("qkv", "attended", "up")
WARM_UP_STEPS = 2


def norm(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-6) * scale


def layer(p, x, heads):
    batch, length, width = x.shape
    qkv = checkpoint_name(norm(x, p["norm1"]) @ p["qkv"], "qkv")
    q, k, v = (part.reshape(batch, length, heads, width // heads) for part in jnp.split(qkv, 3, axis=-1))
    scores = jnp.einsum("blhd,bmhd->bhlm", q, k) / (width // heads) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    attended = checkpoint_name(jnp.einsum("bhlm,bmhd->blhd", jax.nn.softmax(scores), v).reshape(x.shape), "attended")
    x = x + attended @ p["out"]
    up = checkpoint_name(norm(x, p["norm2"]) @ p["up"], "up")
    return x + jax.nn.gelu(up) @ p["down"]


def make_params(key, layers, width, context):
    shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    keys = iter(jax.random.split(key, len(shapes) + 2))
    stack = {name: jax.random.normal(next(keys), (layers, *shape)) * 0.02 for name, shape in shapes.items()}
    stack |= {name: jnp.ones((layers, width)) for name in ("norm1", "norm2")}
    return {"stack": stack, "norm": jnp.ones(width), "embed": jax.random.normal(next(keys), (256, width)) * 0.02,
            "position": jax.random.normal(next(keys), (context, width)) * 0.02}


def loss_of(params, tokens, call):
    x = params["embed"][tokens[:, :-1]] + params["position"]
    x, _ = jax.lax.scan(lambda x, p: (call(p, x), None), x, params["stack"])
    scores = jax.nn.log_softmax(norm(x, params["norm"]) @ params["embed"].T)
    return -jnp.mean(jnp.take_along_axis(scores, tokens[:, 1:, None], axis=-1))


def modes_of(options) -> dict:
    plain = functools.partial(layer, heads=options.heads)
    offload = functools.partial(ebb.jax.offload, plain, floor=options.floor)
    named = jax.checkpoint_policies.save_only_these_names(*NAMES)
    return {
        "keep": lambda: plain,
        "checkpoint": lambda: jax.checkpoint(plain),
        "save-names": lambda: jax.checkpoint(plain, policy=named),
        "ebb-names": lambda: offload(names=NAMES),
        "ebb-offload": lambda: offload(policy="offload"),
        "ebb": offload,
    }


def train(mode, options, text) -> dict:
    call = modes_of(options)[mode]()
    params = make_params(jax.random.key(options.seed), options.layers, options.width, options.context)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(params, tokens):
        loss, gradients = jax.value_and_grad(loss_of)(params, tokens, call)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), loss

    random = np.random.default_rng(options.seed)
    sample = lambda: np.stack([text[at : at + options.context + 1] for at in
                               random.integers(0, len(text) - options.context - 1, options.batch)])
    compiled = step.lower(params, sample()).compile()
    temp_bytes = compiled.memory_analysis().temp_size_in_bytes
    times, loss = [], None
    for number in range(WARM_UP_STEPS + options.steps):
        tokens = sample()
        begin = time.perf_counter()
        params, loss = jax.block_until_ready(compiled(params, tokens))
        if number >= WARM_UP_STEPS:
            times.append(time.perf_counter() - begin)
    seconds = statistics.median(times)
    row = {"mode": mode, "step_ms": seconds * 1e3, "tokens_per_s": options.batch * options.context / seconds,
           "temp_mib": temp_bytes / 2**20, "loss": float(loss)}
    if mode.startswith("ebb"):
        for numbers in ebb.jax.statistics().values():  # of one device, or of none where all was below the floor
            row["pinned_mib"] = numbers["pinned_peak_bytes"] / 2**20
        if options.report:
            print(ebb.jax.report())
        ebb.jax.close()
    return row


def read_text(path) -> np.ndarray:
    if path is None:
        root = pathlib.Path(__file__).resolve().parents[2]
        data = b"".join(page.read_bytes() for page in sorted(root.glob("docs/*.md")))
    else:
        data = pathlib.Path(path).read_bytes()
    return np.frombuffer(data, np.uint8).astype(np.int32)


def print_table(rows) -> None:
    columns = [("step_ms", "step, ms", ".1f"), ("tokens_per_s", "tokens/s", ".0f"),
               ("temp_mib", "XLA temp, MiB", ".1f"),
               ("pinned_mib", "pinned host, MiB", ".1f"), ("loss", "loss", ".6f")]
    print(f"{'mode':<12}" + "".join(f"  {title:>{max(len(title), 9)}}" for _, title, _ in columns))
    for row in rows:
        cells = (format(row[key], form) if key in row else "-" for key, _, form in columns)
        print(f"{row['mode']:<12}" + "".join(f"  {cell:>{max(len(title), 9)}}"
                                             for cell, (_, title, _) in zip(cells, columns, strict=True)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", help="some of them, in order")
    parser.add_argument("--text", help="file to train on")
    for name, default in {"layers": 4, "width": 256, "heads": 4, "context": 256, "batch": 8, "steps": 4, "seed": 1,
                          "floor": 1 << 20}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--report", action="store_true", help="also print Ebb's report by name")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    options = parser.parse_args()
    known = modes_of(options)
    modes = options.modes.split(",") if options.modes else list(known)
    unknown = [mode for mode in modes if mode not in known]
    if unknown:
        parser.error(f"no mode {unknown[0]!r}; there are: {', '.join(known)}")
    text = read_text(options.text)
    if len(text) <= options.context + 1:
        parser.error(f"the text has {len(text)} bytes, and one sequence takes {options.context + 1}")
    rows = [train(mode, options, text) for mode in modes]
    losses = [row["loss"] for row in rows]
    # The compiler may add up in another order where a value is computed again.
    alike = max(losses) - min(losses) < 1e-4 * max(losses)
    if options.json:
        print(json.dumps({"jax": jax.__version__, "device": jax.devices()[0].device_kind, "rows": rows,
                          "losses_are_alike": alike}))
    else:
        print_table(rows)
        print("the losses are alike" if alike else "THE LOSSES DIFFER")
    return 0 if alike else 1


if __name__ == "__main__":
    raise SystemExit(main())
