"""What moving a value costs inside jit: an offload and a reload, beside two calls from XLA that do nothing, in one run.

Prints medians by pair of calls, of loops compiled once. Needs g++ for the calls that do nothing.
"""

import argparse
import ctypes
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import jax
import jax.numpy as jnp

import ebb.jax
from ebb.jax import _primitives

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "plugins" / "src"
CALLS = 1000


def register_nothing() -> None:
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(folder) / "nothing.so"
        source = pathlib.Path(__file__).with_name("nothing.cpp")
        subprocess.run(["g++", "-O2", "-std=c++20", "-shared", "-fPIC", "-I", SOURCES, source, "-o", library],
                       check=True)
        handler = ctypes.CDLL(library).nothing
    jax.ffi.register_ffi_target("nothing", jax.ffi.pycapsule(handler), platform="cpu")


def nothing(x):
    """As many operands, results and attributes as Ebb's pair of calls has."""
    attributes = _primitives.Call(1, "layer", ("x",)).attributes("")
    call = lambda *shape: jax.ffi.ffi_call("nothing", jax.ShapeDtypeStruct(*shape), has_side_effect=True)
    handle = call((2,), jnp.uint32)(x, x, **attributes)
    return call(x.shape, x.dtype)(handle, x, **attributes)


def moved(x):
    call = _primitives.Call(1, "layer", ("x",))
    handle = _primitives.offload(call, [x], [x])
    return _primitives.reload(call, handle, [_primitives.Shape.of(x)], [x])[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=4096)
    parser.add_argument("--device", default="null", help="null (default), or host: with threads that copy")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    register_nothing()
    if arguments.device == "null":  # what the calls themselves cost: nothing is copied
        ebb.jax.configure(device="null")
    x = jnp.ones(arguments.bytes // 4)
    loop = lambda pair: jax.jit(lambda x: jax.lax.fori_loop(0, CALLS, lambda i, x: pair(x) + 1, x))
    programs = {"nothing": loop(nothing), "moved": loop(moved)}
    times = {name: [] for name in programs}
    for number in range(arguments.rounds + 3):
        for name, program in programs.items():
            begin = time.perf_counter_ns()
            jax.block_until_ready(program(x))
            if number >= 3:
                times[name].append((time.perf_counter_ns() - begin) / CALLS)
    medians = {name: statistics.median(values) for name, values in times.items()}
    result = {"jax": jax.__version__, "bytes": arguments.bytes, "ns_per_pair": medians,
              "moved_over_nothing": medians["moved"] / medians["nothing"]}
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"jax {jax.__version__}, {arguments.bytes} bytes, {CALLS} pairs in a loop, "
          f"median of {arguments.rounds} rounds")
    print("pair       ns/pair  over nothing")
    for name, value in medians.items():
        print(f"{name:<9} {value:8.0f}  {value / medians['nothing']:12.2f}")


if __name__ == "__main__":
    main()
