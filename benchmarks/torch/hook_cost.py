"""What a saved tensor costs: pack and unpack, beside hooks that do nothing and none at all, in one run.

Prints the median time of a forward and backward through a chain of tiny operations, by saved tensor.
"""

import argparse
import contextlib
import json
import statistics
import time

import torch

import ebb
from ebb.torch import _process
from ebb.torch._settings import Settings

K_OPERATIONS = 200
K_STAGING_BYTES = 1 << 20


def chain(x):
    for _ in range(K_OPERATIONS):
        x = x.sin()  # saves its input, which the one before it made
    return x


def time_once(context, x) -> float:
    begin = time.perf_counter_ns()
    with context():
        y = chain(x)
    y.backward(torch.ones_like(y))
    return (time.perf_counter_ns() - begin) / K_OPERATIONS


def hooks(session):
    return torch.autograd.graph.saved_tensors_hooks(session.hooks.pack, session.hooks.unpack)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    passing = _process.of(Settings(floor=1 << 30))
    # The device that does nothing hands out addresses without memory behind them: reloads go to memory of ours.
    staging = torch.zeros(K_STAGING_BYTES + 512, dtype=torch.uint8)
    lent = staging.data_ptr() + -staging.data_ptr() % 512
    nothing = (("device", "null"), ("staging_memory", lent), ("staging_bytes", K_STAGING_BYTES))
    moving = _process.of(Settings(floor=1, policy="offload", more=nothing))
    contexts = {
        "none": contextlib.nullcontext,
        "empty": lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
        "passed": lambda: hooks(passing),
        "moved": lambda: hooks(moving),
    }
    x = torch.randn(64, requires_grad=True)
    times = {name: [] for name in contexts}
    for number in range(arguments.rounds):
        for name, context in contexts.items():
            time_ns = time_once(context, x)
            if name == "moved":
                moving.end_step()
            if number >= arguments.rounds // 5:
                times[name].append(time_ns)
    medians = {name: statistics.median(values) for name, values in times.items()}
    result = {
        "torch": torch.__version__,
        "built": ebb.build_info(),
        "operations": K_OPERATIONS,
        "ns_per_saved_tensor": medians,
        "passed_over_empty": medians["passed"] / medians["empty"],
        "moved_over_empty": medians["moved"] / medians["empty"],
        "moved_count": moving.hooks.moved_count,
    }
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"torch {torch.__version__}, {K_OPERATIONS} operations, median of {len(times['none'])} rounds")
    print("hooks     ns/tensor  over empty")
    for name, value in medians.items():
        print(f"{name:<9} {value:9.0f}  {value / medians['empty']:10.2f}")


if __name__ == "__main__":
    main()
