"""Run twice, with a port and a rank: a stack over the devices of two processes, with and without Ebb."""

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

LAYOUTS = {
    "data": ({"up": P(), "down": P()}, P(("data", "tensor"))),
    "tensor": ({"up": P(None, None, "tensor"), "down": P(None, "tensor", None)}, P("data", None)),
    "fsdp": ({"up": P(None, "data", None), "down": P(None, None, "data")}, P("data", None)),
}


def everywhere(mesh, value, spec):
    value = np.asarray(value)
    return jax.make_array_from_callback(value.shape, NamedSharding(mesh, spec), lambda index: value[index])


def main():
    assert jax.device_count() == 4 and jax.local_device_count() == 2
    model = mlp()
    mesh = jax.make_mesh((2, 2), ("data", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    for layout, (params, x) in LAYOUTS.items():
        args = ({name: everywhere(mesh, value, params[name]) for name, value in model.params.items()},
                everywhere(mesh, model.x, x))
        for stack in (scanned, unrolled):
            of_layer = lambda layer: jax.jit(jax.value_and_grad(stack(model, layer), argnums=(0, 1)))
            want = of_layer(checkpointed(model.layer, model.names))(*args)
            program = of_layer(ebb.jax.offload(model.layer, names=model.names))
            for _ in range(2):
                got = program(*args)
                for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
                    for a, b in zip(one.addressable_shards, other.addressable_shards, strict=True):
                        assert np.array_equal(np.asarray(a.data), np.asarray(b.data)), layout
    assert ebb.jax.statistics()["cpu"]["d2h_bytes"] > 0
    print("alike")


main()
