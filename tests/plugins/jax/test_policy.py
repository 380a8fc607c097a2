"""What moves, what it is called, and what is said where nothing does."""

import functools
import re
import warnings

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name
from models import WIDTH, assert_same, checkpointed, mlp, mlp_layer, normal, scanned, unrolled

import ebb.jax

P = {"up": normal(1, WIDTH, 4 * WIDTH), "down": normal(2, 4 * WIDTH, WIDTH)}
X = normal(3, 64, WIDTH)


def moved(layer, *args, grads=(0, 1)):
    """Names of what a gradient moves."""
    jax.block_until_ready(jax.jit(jax.grad(lambda *args: jnp.sum(layer(*args)), argnums=grads))(*args))
    text = ebb.jax.report()
    ebb.jax.close()
    names = [line[:line.index("  ")] for line in text.splitlines() if "/" in line and "  " in line]
    return [name.split("/", 1)[1] for name in names]


def test_names_as_maxtext_has_them():
    policy = {"up": "offload", "down": "device"}
    assert moved(ebb.jax.offload(mlp_layer, policy=policy), P, X) == ["up"]
    assert moved(ebb.jax.offload(mlp_layer, policy={"up": "remat", "down": "offload"}), P, X) == ["down"]
    assert moved(ebb.jax.offload(mlp_layer, policy={"u*": "offload"}), P, X) == ["up"]
    assert moved(ebb.jax.offload(mlp_layer, policy="device"), P, X) == []


@pytest.mark.parametrize("policy", [{"up": "offload", "down": "device"}, {"up": "remat", "down": "offload"},
                                    {"up": "offload", "down": "offload"}, {"up": "device"}])
def test_policies_give_the_gradients_of_checkpoint(policy):
    model = mlp()
    saved = [name for name, value in policy.items() if value != "remat"]
    for stack in (scanned, unrolled):
        want = jax.jit(jax.grad(stack(model, checkpointed(model.layer, saved))))(model.params, model.x)
        got = jax.jit(jax.grad(stack(model, ebb.jax.offload(model.layer, policy=policy))))(model.params, model.x)
        assert_same(got, want)


def test_what_depends_on_parameters_alone_stays():
    def cast(p, x):
        half = p["up"].astype(jnp.bfloat16)
        return jnp.sin(x.astype(jnp.bfloat16) @ half).astype(jnp.float32)

    names = moved(ebb.jax.offload(cast, floor=1), P, X)
    assert names
    assert len(moved(ebb.jax.offload(cast, floor=1, params=None), P, X)) == len(names) + 1  # the cast weights
    inside = jax.jit(cast)
    assert len(moved(ebb.jax.offload(inside, floor=1), P, X)) == len(names)


def test_what_depends_on_no_argument_stays():
    def masked(p, x):
        mask = jnp.sin(jnp.arange(X.size, dtype=jnp.float32)).reshape(X.shape)
        return jnp.tanh(x) * mask

    assert all("sin" not in name for name in moved(ebb.jax.offload(masked, floor=1), P, X, grads=1))


def test_the_floor():
    assert moved(ebb.jax.offload(mlp_layer, floor=X.size * 4 + 1), P, X)
    assert moved(ebb.jax.offload(mlp_layer), P, X) == []  # 1 MiB


def test_a_value_without_a_name_is_called_by_its_operation_and_line():
    def layer(p, x):
        return jnp.sin(x) * 2

    line = layer.__code__.co_firstlineno + 1
    assert moved(ebb.jax.offload(layer, floor=1), P, X, grads=1) == [f"cos test_policy.py:{line}"]


def test_a_name_is_found_behind_casts_shapes_and_inner_scans():
    def inner_scan(p, x):
        step = lambda x, _: (jnp.sin(checkpoint_name(x * 2, "in_scan")), None)
        y = jax.lax.scan(step, x, None, length=3)[0]
        return jnp.sin(checkpoint_name(y, "flat").reshape(-1)).astype(jnp.bfloat16)

    names = moved(ebb.jax.offload(inner_scan, names=["in_scan", "flat"]), P, X, grads=1)
    assert sorted(names) == ["flat", "in_scan"]


def test_two_values_of_one_name_are_told_apart():
    def twice(p, x):
        return jnp.sin(checkpoint_name(jnp.sin(checkpoint_name(x * 2, "y")) * 3, "y"))

    assert moved(ebb.jax.offload(twice, names=["y"]), P, X, grads=1) == ["y", "y #2"]


def test_names_that_end_in_a_number_are_rows_apart():
    def layer(p, x):
        gate, up = (checkpoint_name(x @ p["up"] * n, f"mlpwi_{n - 1}") for n in (1, 2))
        return (jax.nn.silu(gate) * up) @ p["down"]

    assert moved(ebb.jax.offload(layer, names=["mlpwi_0", "mlpwi_1"]), P, X) == ["mlpwi_0", "mlpwi_1"]


def test_a_slash_in_a_name():
    layer = lambda p, x: jnp.sin(checkpoint_name(x * 2, "mlp/up"))
    names = moved(ebb.jax.offload(layer, names=["mlp/up"]), P, X, grads=1)
    assert names == ["mlp.up"]


def test_a_name_that_the_backward_does_not_need_is_told():
    layer = lambda p, x: checkpoint_name(x * 2, "doubled") @ P["up"]
    with pytest.warns(UserWarning, match="the backward of <lambda> does not need"):
        jax.grad(lambda x: jnp.sum(ebb.jax.offload(layer, names=["doubled"])(P, x)))(X)


def warned(layer, *args, loss=lambda layer, *args: jnp.sum(layer(*args)), times=1):
    """What is said while a gradient is traced."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(times):
            jax.jit(jax.grad(lambda *args: loss(layer, *args))).lower(*args)
    return [re.search("is (moved|kept on the device) for '(.*?)'", str(one.message)).groups() for one in said]


def test_an_idle_name_is_told_once_though_a_function_is_traced_many_times():
    def many(layer, p, x):
        step = lambda x, _: (layer(p, x), None)
        return jnp.sum(layer(p, layer(p, jax.lax.scan(step, x, None, length=3)[0])))

    layer = ebb.jax.offload(mlp_layer, names=["up", "gone", "lost"])
    assert warned(layer, P, X, loss=many, times=3) == [("moved", "gone"), ("moved", "lost")]
    assert warned(layer, P, X[:8]) == []
    again = ebb.jax.offload(mlp_layer, policy={"gone": "offload", "away*": "offload"})
    assert warned(again, P, X) == [("moved", "away*")]  # wrapped anew it is the same function
    other = ebb.jax.offload(lambda p, x: mlp_layer(p, x), names=["up", "gone"])
    assert warned(other, P, X) == [("moved", "gone")]
    ebb.jax.close()
    assert warned(other, P, X) == [("moved", "gone")]


def test_of_names_that_are_not_there_those_that_were_to_be_saved_are_told():
    policy = {"up": "offload", "moe_*": "remat", "context": "remat", "querry": "device", "kv": "offload"}
    told = warned(ebb.jax.offload(mlp_layer, policy=policy), P, X)
    assert told == [("kept on the device", "querry"), ("moved", "kv")]


def test_a_pattern_whose_names_were_taken_before_it_is_not_told():
    policy = {"up": "offload", "down": "remat", "*p": "offload", "do*": "offload"}
    assert warned(ebb.jax.offload(mlp_layer, policy=policy), P, X) == []


def test_no_warning_without_cause():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert moved(ebb.jax.offload(mlp_layer, names=["up", "down"]), P, X) == ["up", "down"]


def test_names_are_any_iterable_and_any_text():
    layer = lambda p, x: jnp.sin(checkpoint_name(x * 2, "blocks[0].up"))
    assert moved(ebb.jax.offload(layer, names=(name for name in ["blocks[0].up"])), P, X, grads=1) == ["blocks[0].up"]


def test_params_may_be_counted_from_the_last():
    def cast(x, p):
        half = p["up"].astype(jnp.bfloat16)
        return jnp.sin(x.astype(jnp.bfloat16) @ half).astype(jnp.float32)

    from_last, from_first = (moved(ebb.jax.offload(cast, params=n, floor=1), X, P) for n in (-1, 1))
    assert from_last == from_first


def test_a_partial_function_has_the_name_of_its_function():
    layer = functools.partial(mlp_layer, P)
    jax.block_until_ready(jax.jit(jax.grad(lambda x: jnp.sum(
        ebb.jax.offload(layer, names=["up"], params=None)(x))))(X))
    assert "mlp_layer/up " in ebb.jax.report()


@pytest.mark.parametrize("static", [5, (2,), -4])
def test_static_arguments_that_are_not_there_are_told(static):
    with pytest.raises(ValueError, match="mlp_layer was called with 2 positional arguments"):
        ebb.jax.offload(mlp_layer, names=["up"], static_argnums=static)(P, X)


@pytest.mark.parametrize("wrong, kind, says", [
    (dict(names="up"), TypeError, "names is a list"),
    (dict(names=[3]), TypeError, "names is a list"),
    (dict(names=["a"], policy="device"), ValueError, "give one of them"),
    (dict(policy={"up": "host"}), ValueError, "'up': 'host', and a value is one of"),
    (dict(policy="away"), ValueError, "'away'"),
    (dict(policy={"up": "remat", "*": "device"}), ValueError, "leave '\\*' out"),
    (dict(names=3), TypeError, "names is a list"),
    (dict(policy=jax.checkpoint_policies.dots_saveable), TypeError, "policies of jax.checkpoint are for"),
    (dict(policy={3: "offload"}), TypeError, "policy has 3 for a name"),
    (dict(floor="1 MiB"), TypeError, "floor is a number of bytes, not '1 MiB'"),
    (dict(params="p"), TypeError, "params is the number of an argument or several, not 'p'"),
    (dict(static_argnums=True), TypeError, "static_argnums is the number"),
    (dict(static_argnums=1.5), TypeError, "static_argnums is the number"),
])
def test_wrong_arguments(wrong, kind, says):
    with pytest.raises(kind, match=says):
        ebb.jax.offload(mlp_layer, **wrong)


def test_what_is_no_function_is_told():
    with pytest.raises(TypeError, match="the first argument is the function, not 'up'"):
        ebb.jax.offload("up")
