"""Run twice, with a port, a rank and the name of a function below: a stack over the devices of two processes."""

import json
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2 --xla_cpu_max_isa=AVX " \
    "--xla_backend_optimization_level=0"
os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.insert(0, os.path.dirname(__file__))

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

port, rank = sys.argv[1], int(sys.argv[2])
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=rank)

from models import checkpointed, mlp, scanned, unrolled

import ebb.jax
from ebb.jax import _plan

LAYOUTS = {
    "data": ({"up": P(), "down": P()}, P(("data", "tensor"))),
    "tensor": ({"up": P(None, None, "tensor"), "down": P(None, "tensor", None)}, P("data", None)),
    "fsdp": ({"up": P(None, "data", None), "down": P(None, None, "data")}, P("data", None)),
}


def everywhere(mesh, value, spec):
    value = np.asarray(value)
    return jax.make_array_from_callback(value.shape, NamedSharding(mesh, spec), lambda index: value[index])


def put(model, layout):
    mesh = jax.make_mesh((2, 2), ("data", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    params, x = LAYOUTS[layout]
    return ({name: everywhere(mesh, value, params[name]) for name, value in model.params.items()},
            everywhere(mesh, model.x, x))


def assert_same_here(got, want, why):
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        for a, b in zip(one.addressable_shards, other.addressable_shards, strict=True):
            assert np.array_equal(np.asarray(a.data), np.asarray(b.data)), why


def gradients():
    """With and without Ebb."""
    model = mlp()
    for layout in LAYOUTS:
        args = put(model, layout)
        for stack in (scanned, unrolled):
            of_layer = lambda layer: jax.jit(jax.value_and_grad(stack(model, layer), argnums=(0, 1)))
            want = of_layer(checkpointed(model.layer, model.names))(*args)
            program = of_layer(ebb.jax.offload(model.layer, names=model.names))
            for _ in range(2):
                assert_same_here(program(*args), want, layout)
    assert ebb.jax.statistics()["cpu"]["d2h_bytes"] > 0
    print("alike")


def replan(machine, measuring_rank):
    """Only one of them measures anything: that its link is slow."""
    if rank == int(measuring_rank):
        ebb.jax.configure(machine=machine, sample_every=1, host_h2d_bytes_per_second=4 << 20)
    else:
        ebb.jax.configure(machine=machine)
        ebb.jax.step()  # steps are marked, and then no other one is
    model = mlp()
    args = put(model, "fsdp")
    traced = []
    layer = ebb.jax.offload(lambda p, x: (traced.append(1), model.layer(p, x))[1], floor=1)
    program = jax.jit(jax.value_and_grad(scanned(model, layer), argnums=(0, 1)))
    want = jax.block_until_ready(program(*args))
    moved = lambda: ebb.jax.statistics()["cpu"]["d2h_bytes"]
    first, traces = moved(), len(traced)
    for _ in range(4):
        assert_same_here(program(*args), want, "before")
    sampled = ebb.jax.statistics()["cpu"]["sampled_steps"]
    text = ebb.jax.replan()
    before = moved()
    assert_same_here(program(*args), want, "after")
    again = moved() - before
    new_traces = len(traced) - traces
    print(json.dumps({"plan": {"text": text, "scales": _plan._scales, "report": _plan.report(),
                               "moved": [first, again], "new_traces": new_traces},
                      "sampled": sampled, "exposed": ebb.jax.statistics()["cpu"]["exposed_ns"]}))


if __name__ == "__main__":
    {"gradients": gradients, "replan": replan}[sys.argv[3]](*sys.argv[4:])
