"""The persistent compilation cache, over two processes, and programs that are exported."""

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import export
from models import assert_same, mlp, scanned

import ebb.jax

PROGRAM = """
import sys
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
sys.path.insert(0, {folder!r})
from models import checkpointed, mlp, scanned, assert_same
import ebb.jax

jax.config.update("jax_compilation_cache_dir", {cache!r})
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
jax.config.update("jax_remove_custom_partitioning_ptr_from_cache_key", True)
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name) if name.endswith("cache_hits") else None)
model = mlp()
mesh = jax.make_mesh((4, 2), ("data", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
for x in (model.x, jax.device_put(model.x, NamedSharding(mesh, P("data", None)))):
    gradients = lambda layer: jax.jit(jax.grad(scanned(model, layer)))
    program = gradients(ebb.jax.offload(model.layer, names=model.names))
    for _ in range(2):
        before = len(hits)
        found = jax.block_until_ready(program(model.params, x))
        print("hit" if len(hits) > before else "compiled or ran")
    assert_same(found, gradients(checkpointed(model.layer, model.names))(model.params, x))
assert ebb.jax.statistics()["cpu"]["d2h_bytes"] > 0
"""


def test_a_second_process_finds_its_programs(tmp_path):
    program = PROGRAM.format(folder=str(Path(__file__).parent), cache=str(tmp_path))
    found = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr[-4000:]
        found.append(done.stdout.split("\n")[:-1])
    other = "compiled or ran"
    assert found == [[other] * 4, ["hit", other] * 2]


def test_export_with_its_check_disabled():
    model = mlp()
    program = jax.jit(jax.grad(scanned(model, ebb.jax.offload(model.layer, names=model.names))))
    checks = [export.DisabledSafetyCheck.custom_call(name) for name in ("ebb_offload", "ebb_reload")]
    again = jax.jit(export.export(program, disabled_checks=checks)(model.params, model.x).call)
    for _ in range(2):
        assert_same(again(model.params, model.x), program(model.params, model.x))


def test_export_for_sizes_that_are_told_later():
    """What has such a size stays on the device; the rest moves."""
    def layer(p, x):
        return jnp.sin(x @ jnp.tanh(p)) + jnp.sum(jnp.cos(jnp.sum(x, 0) * p))

    program = jax.jit(jax.grad(lambda p, x: jnp.sum(ebb.jax.offload(layer, floor=1)(p, x)), argnums=(0, 1)))
    checks = [export.DisabledSafetyCheck.custom_call(name) for name in ("ebb_offload", "ebb_reload")]
    rows, = export.symbolic_shape("rows")
    p = jnp.arange(64.0).reshape(8, 8) / 64
    shapes = p, jax.ShapeDtypeStruct((rows, 8), jnp.float32)
    again = export.export(program, disabled_checks=checks)(*shapes).call
    for count in (3, 5):
        x = jnp.arange(8.0 * count).reshape(count, 8)
        assert_same(jax.jit(again)(p, x), jax.jit(jax.grad(lambda p, x: jnp.sum(layer(p, x)), argnums=(0, 1)))(p, x))
    assert ebb.jax.statistics()["cpu"]["d2h_bytes"] > 0
