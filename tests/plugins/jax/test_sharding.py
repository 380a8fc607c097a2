"""Programs over several devices, in the three ways that they are written; each device moves its own shard."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from models import ROWS, WIDTH, assert_same, attention, checkpointed, mlp, normal, scanned, unrolled
from processes import in_two_processes

import ebb.jax
from ebb.jax import _primitives

COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter", "collective-broadcast")
DATA = P("data", None)
LAYOUTS = {  # of params and of x
    "data": ({"up": P(), "down": P()}, DATA),
    "all_for_data": ({"up": P(), "down": P()}, P(("data", "tensor"), None)),
    "tensor": ({"up": P(None, None, "tensor"), "down": P(None, "tensor", None)}, DATA),
    "fsdp": ({"up": P(None, "data", None), "down": P(None, None, "data")}, DATA),
    "sequence": ({"up": P(), "down": P()}, P(None, "tensor")),
}
MODEL = mlp()


def mesh_of(kind):
    return jax.make_mesh((4, 2), ("data", "tensor"), axis_types=(kind,) * 2)


def put(mesh, layout, model=MODEL):
    params, x = LAYOUTS[layout]
    return ({name: jax.device_put(value, NamedSharding(mesh, params[name])) for name, value in model.params.items()},
            jax.device_put(model.x, NamedSharding(mesh, x)))


def collectives(program, args):
    text = program.lower(*args).compile().as_text()
    return {name: len(re.findall(rf" {name}(?:-start)?\(", text)) for name in COLLECTIVES}


def varying(value, axis):
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(value, axis, to="varying")
    return jax.lax.pvary(value, axis)  # before JAX 0.9


def check(of_layer, args, model=MODEL, names=None):
    names = names or model.names
    plain = of_layer(checkpointed(model.layer, names))
    moved = of_layer(ebb.jax.offload(model.layer, names=names))
    want = plain(*args)
    for _ in range(2):
        assert_same(moved(*args), want)
    assert collectives(moved, args) == collectives(plain, args)


def differentiated(stack, model=MODEL):
    return lambda layer: jax.jit(jax.value_and_grad(stack(model, layer), argnums=(0, 1)))


@pytest.mark.parametrize("stack", [scanned, unrolled])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_automatic(layout, stack):
    args = put(mesh_of(AxisType.Auto), layout)
    check(differentiated(stack), args)
    moved = ebb.jax.statistics()["cpu"]
    ebb.jax.close()
    check(differentiated(stack), (MODEL.params, MODEL.x))  # on one device
    # What is replicated is moved by each device that has it; "up", four times as large as "down", may be split.
    copies = {"data": 2, "all_for_data": 1, "tensor": (4 * 1 + 1 * 2) / 5, "fsdp": 2, "sequence": (4 * 8 + 1 * 4) / 5}
    assert moved["d2h_bytes"] <= copies[layout] * ebb.jax.statistics()["cpu"]["d2h_bytes"]


def test_automatic_with_all_above_the_floor():
    args = put(mesh_of(AxisType.Auto), "tensor")
    exact = {"compiler_options": {"xla_allow_excess_precision": False}}
    of_layer = lambda layer: jax.jit(jax.value_and_grad(scanned(MODEL, layer), argnums=(0, 1)), **exact)
    want = of_layer(MODEL.layer)(*args)
    got = of_layer(ebb.jax.offload(MODEL.layer, floor=1))(*args)
    assert_same(got, want)


def test_automatic_inside_a_mesh_context():
    mesh = mesh_of(AxisType.Auto)
    with jax.set_mesh(mesh):
        check(differentiated(scanned), put(mesh, "tensor"))


def test_automatic_with_parameters_that_are_frozen():
    """What only their gradients need comes back all the same, to the devices that it left."""
    args = put(mesh_of(AxisType.Auto), "tensor")
    check(lambda layer: jax.jit(jax.grad(scanned(MODEL, layer), argnums=1)), args)
    exact = {"compiler_options": {"xla_allow_excess_precision": False}}
    of_layer = lambda layer: jax.jit(jax.grad(unrolled(MODEL, layer), argnums=1), **exact)
    assert_same(of_layer(ebb.jax.offload(MODEL.layer, floor=1))(*args), of_layer(MODEL.layer)(*args))


def test_automatic_outside_of_jit():
    p = {name: value[0] for name, value in put(mesh_of(AxisType.Auto), "tensor")[0].items()}
    x = put(mesh_of(AxisType.Auto), "tensor")[1]
    out, backward = jax.vjp(ebb.jax.offload(MODEL.layer, floor=1), p, x)
    want_out, want = jax.vjp(MODEL.layer, p, x)
    for _ in range(2):
        assert_same((out, backward(out)), (want_out, want(want_out)))
    assert ebb.jax.statistics()["cpu"]["d2h_bytes"] > 0


def test_automatic_of_parts_that_are_not_of_one_size():
    mesh = mesh_of(AxisType.Auto)

    def uneven_layer(p, x):
        up = jax.lax.with_sharding_constraint(x @ p["up"], NamedSharding(mesh, DATA))
        return x + jnp.tanh(jax.nn.gelu(jax.ad_checkpoint.checkpoint_name(up, "up")) @ p["down"])

    model = mlp()
    object.__setattr__(model, "layer", uneven_layer)
    check(differentiated(scanned, model), (model.params, model.x[:6]), model, ("up",))


def test_attention_over_heads():
    model = attention()
    mesh = mesh_of(AxisType.Auto)
    spec = {"q": P(None, None, "tensor"), "k": P(None, None, "tensor"), "v": P(None, None, "tensor"),
            "out": P(None, "tensor", None)}
    params = {name: jax.device_put(value, NamedSharding(mesh, spec[name])) for name, value in model.params.items()}
    check(differentiated(scanned, model), (params, jax.device_put(model.x, NamedSharding(mesh, P("data")))), model)


def test_one_function_with_two_shardings():
    mesh = mesh_of(AxisType.Auto)
    plain, moved = (differentiated(scanned)(wrap) for wrap in
                    (checkpointed(MODEL.layer, MODEL.names), ebb.jax.offload(MODEL.layer, names=MODEL.names)))
    for layout in ("data", "tensor", "data", "sequence", "tensor"):
        args = put(mesh, layout)
        assert_same(moved(*args), plain(*args))


def test_two_shardings_in_one_program():
    mesh = mesh_of(AxisType.Auto)

    def of_layer(layer):
        def both(params, x):
            pin = lambda value, *spec: jax.lax.with_sharding_constraint(value, NamedSharding(mesh, P(*spec)))
            loss = lambda params, x: jnp.sum(layer(params, x))
            return jax.grad(loss)(params, pin(x, "data", None)), jax.grad(loss)(params, pin(2 * x, None, "tensor"))
        return jax.jit(both)

    args = ({name: value[0] for name, value in MODEL.params.items()}, MODEL.x)
    got = of_layer(ebb.jax.offload(MODEL.layer, names=MODEL.names))(*args)
    want = of_layer(MODEL.layer)(*args)  # whose products the compiler may merge
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), got, want)


def explicit_layer(p, x):
    """As mlp_layer, saying where the result of the second product lies."""
    up = jax.ad_checkpoint.checkpoint_name(x @ p["up"], "up")
    down = jnp.einsum("rh,hd->rd", jax.nn.gelu(up), p["down"], out_sharding=DATA)
    return x + jnp.tanh(jax.ad_checkpoint.checkpoint_name(down, "down"))


@pytest.mark.parametrize("stack", [scanned, unrolled])
@pytest.mark.parametrize("layout", ["data", "tensor"])
def test_explicit(layout, stack):
    mesh = mesh_of(AxisType.Explicit)
    model = mlp()
    object.__setattr__(model, "layer", explicit_layer)
    with jax.set_mesh(mesh):
        check(differentiated(stack, model), put(mesh, layout), model)


@pytest.mark.parametrize("stack", [scanned, unrolled])
def test_explicit_axis_beside_an_automatic_one(stack):
    mesh = jax.make_mesh((4, 2), ("data", "tensor"), axis_types=(AxisType.Explicit, AxisType.Auto))
    with jax.set_mesh(mesh):
        args = ({name: jax.device_put(value[0], NamedSharding(mesh, spec)) for (name, value), spec in
                 zip(MODEL.params.items(), (P(None, "tensor"), P("tensor", None)))},
                jax.device_put(MODEL.x, NamedSharding(mesh, DATA)))
        model = mlp()
        object.__setattr__(model, "shares", True)
        check(lambda layer: jax.jit(jax.grad(stack(model, layer), argnums=1)), args, model)


def test_shard_map_over_one_of_two_explicit_axes():
    mesh = mesh_of(AxisType.Explicit)

    def of_layer(layer):
        of_x = jax.grad(lambda x, p: jnp.sum(layer(p, x) ** 2))
        over = dict(in_specs=(P("data"), P()), out_specs=P("data"), axis_names={"data"})
        return jax.jit(jax.shard_map(of_x, mesh=mesh, **over))

    with jax.set_mesh(mesh):
        p = {name: jax.device_put(value[0], NamedSharding(mesh, P())) for name, value in MODEL.params.items()}
        check(of_layer, (jax.device_put(MODEL.x, NamedSharding(mesh, DATA)), p))


def test_explicit_under_vmap():
    mesh = mesh_of(AxisType.Explicit)
    with jax.set_mesh(mesh):
        p = {"up": normal(1, WIDTH, 4 * WIDTH), "down": normal(2, 4 * WIDTH, WIDTH)}
        xs = jax.device_put(normal(3, 3, ROWS, WIDTH), NamedSharding(mesh, P(None, "data", None)))
        check(lambda layer: jax.jit(jax.vmap(jax.grad(lambda p, x: jnp.sum(layer(p, x))), in_axes=(None, 0))), (p, xs))


@pytest.mark.parametrize("inside", [True, False], ids=["grad_inside", "grad_outside"])
@pytest.mark.parametrize("check_vma", [True, False], ids=["vma", "no_vma"])
@pytest.mark.parametrize("stack", [scanned, unrolled])
def test_shard_map(stack, check_vma, inside):
    mesh = mesh_of(AxisType.Auto)

    def of_layer(layer):
        loss = stack(MODEL, layer)

        def gradients(params, x):
            if check_vma:
                params = jax.tree.map(lambda p: varying(p, "data"), params)
            value, (of_params, of_x) = jax.value_and_grad(loss, argnums=(0, 1))(params, x)
            return jax.lax.psum(value, "data"), (jax.lax.psum(of_params, "data"), of_x)

        over = dict(mesh=mesh, in_specs=(P(), P("data")), check_vma=check_vma)
        if inside:
            return jax.jit(jax.shard_map(gradients, out_specs=(P(), (P(), P("data"))), **over))
        total = jax.shard_map(lambda params, x: jax.lax.psum(loss(params, x), "data"), out_specs=P(), **over)
        return jax.jit(jax.value_and_grad(total, argnums=(0, 1)))

    check(of_layer, (MODEL.params, MODEL.x))


def test_shard_map_over_one_axis_of_two():
    mesh = mesh_of(AxisType.Auto)

    def of_layer(layer):
        loss = scanned(MODEL, layer)
        total = jax.shard_map(lambda params, x: jax.lax.psum(loss(params, x), "data"), mesh=mesh,
                              in_specs=(P(), P("data")), out_specs=P(), axis_names={"data"}, check_vma=False)
        return jax.jit(jax.value_and_grad(total, argnums=(0, 1)))

    check(of_layer, (MODEL.params, MODEL.x))


def test_a_reload_in_another_sharding_is_an_error():
    mesh = mesh_of(AxisType.Auto)
    rows, columns = (NamedSharding(mesh, P(*spec)) for spec in (("data", None), (None, "data")))
    call = _primitives.Call(1, "layer", ("up",))
    value = jax.device_put(jnp.arange(64.0).reshape(8, 8), rows)
    handle = jax.jit(lambda value: _primitives.offload(call, [value], []))(value)
    shapes = [_primitives.Shape.of(value)]
    reload = lambda handle: _primitives.reload(call, handle, shapes, [])[0]
    assert_same(jax.jit(reload, out_shardings=rows)(handle), value)
    with pytest.raises(Exception, match="layer: up is asked for in another sharding than it was offloaded"):
        jax.block_until_ready(jax.jit(reload, out_shardings=columns)(handle))


def test_another_partitioner_than_the_default_is_refused():
    args = put(mesh_of(AxisType.Auto), "tensor")
    program = differentiated(scanned)(ebb.jax.offload(MODEL.layer, names=MODEL.names))
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        with pytest.raises(NotImplementedError, match="needs JAX's default partitioner, Shardy"):
            program(*args)
        program(MODEL.params, MODEL.x)  # on one device there is nothing to partition
    finally:
        jax.config.update("jax_use_shardy_partitioner", True)


def test_two_processes():
    for text in in_two_processes("gradients"):
        assert "alike" in text, text
