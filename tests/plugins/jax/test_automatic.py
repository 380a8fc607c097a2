"""Automatic mode: what is decided when a function is traced, and by measurement afterwards."""

import json

import jax
import jax.numpy as jnp
import pytest
from models import MODELS, assert_same, gradients, normal, scanned
from processes import in_two_processes

import ebb.jax
from ebb.jax import _plan

ROWS = 256


def layer(p, x):
    return x + jnp.tanh(jnp.sin(x @ p["up"]) @ p["down"])


def stack(width, depth=4):
    """Products grow with the width, and bytes do not: a layer that is wide enough hides all it saves."""
    p = {"up": normal(1, width, width), "down": normal(2, width, width)}
    moved = ebb.jax.offload(layer, floor=1)
    loss = lambda p, x: jnp.sum(jax.lax.scan(lambda x, _: (moved(p, x), None), x, None, length=depth)[0])
    return jax.jit(jax.grad(loss)), (p, normal(3, ROWS, width))


def moved_bytes():
    return sum(numbers["d2h_bytes"] for numbers in ebb.jax.statistics().values())


def test_an_unknown_machine_moves_all_above_the_floor():
    program, args = stack(32)
    jax.block_until_ready(program(*args))
    assert moved_bytes() > 0 and "layer: automatic" not in ebb.jax.report()


@pytest.mark.parametrize("name, moves", [("h200-pcie5", False), ("slow.json", True)])
def test_what_does_not_hide_stays(name, moves, tmp_path):
    ebb.jax.configure(machine=slow_machine(tmp_path) if name == "slow.json" else name)
    program, args = stack(32)
    jax.block_until_ready(program(*args))
    assert (moved_bytes() > 0) == moves
    assert "layer: automatic: " in ebb.jax.report()


def slow_machine(folder, flops=1e9, link=1e12):
    text = (_plan._FOLDER / "h200-pcie5.json").read_text()
    profile = json.loads(text)
    profile["device"]["peak_flops"]["bf16"]["value"] = flops
    for way in ("d2h", "h2d"):
        profile["links"][way]["both_bytes_per_second"]["value"] = link
    (folder / "slow.json").write_text(json.dumps(profile))
    return str(folder / "slow.json")


@pytest.mark.parametrize("name", MODELS)
def test_gradients(name, tmp_path):
    ebb.jax.configure(machine=slow_machine(tmp_path, link=1e9))
    model = MODELS[name]()
    exact = {"compiler_options": {"xla_allow_excess_precision": False}}
    # Light operations are computed again where that saves bytes; jax.checkpoint does the same with what it is told to
    # save.
    saved = jax.checkpoint(model.layer, policy=lambda primitive, *_, **__: primitive.name not in _plan.LIGHT)
    want = gradients(scanned(model, saved), model, **exact)
    got = gradients(scanned(model, ebb.jax.offload(model.layer, floor=1)), model, runs=2, **exact)
    assert_same(got, want)
    assert moved_bytes() > 0


def test_cheap_values_are_computed_again(tmp_path):
    """Of gelu, whose backward needs six values, what it is computed from moves."""
    ebb.jax.configure(machine=slow_machine(tmp_path))
    wide = lambda p, x: x + jax.nn.gelu(x @ p["up"]) @ p["down"]
    p, x = {"up": normal(1, 32, 128), "down": normal(2, 128, 32)}, normal(3, ROWS, 32)
    jax.block_until_ready(jax.jit(jax.grad(lambda p, x: jnp.sum(ebb.jax.offload(wide, floor=1)(p, x))))(p, x))
    assert moved_bytes() == ROWS * 128 * 4


def test_the_estimate_counts_products_and_loops():
    on = _plan.Machine(flops_per_second=1e9, memory_bytes_per_second=1e12, link_bytes_per_second=1)
    product = lambda x: x @ x
    one = _plan.seconds(jax.make_jaxpr(product)(jnp.ones((100, 100))).jaxpr, on)
    assert one == pytest.approx(2 * 100**3 / 1e9)
    loop = lambda x: jax.lax.scan(lambda x, _: (jax.jit(product)(x), None), x, None, length=5)[0]
    assert _plan.seconds(jax.make_jaxpr(loop)(jnp.ones((100, 100))).jaxpr, on) == pytest.approx(5 * one)
    image, kernel = jnp.ones((1, 8, 10, 10)), jnp.ones((16, 8, 3, 3))
    conv = jax.make_jaxpr(lambda a, b: jax.lax.conv(a, b, (1, 1), "SAME"))(image, kernel).jaxpr
    assert _plan.seconds(conv, on) == pytest.approx(2 * 16 * 100 * 8 * 9 / 1e9)


def test_a_new_plan_is_taken_by_one_trace(tmp_path):
    ebb.jax.configure(machine=slow_machine(tmp_path))
    traced = []
    moved = ebb.jax.offload(lambda p, x: (traced.append(1), layer(p, x))[1], floor=1)
    program = jax.jit(jax.grad(lambda p, x: jnp.sum(moved(p, x))))
    p, x = {"up": normal(1, 32, 32), "down": normal(2, 32, 32)}, normal(3, ROWS, 32)
    want = jax.block_until_ready(program(p, x))
    first, traces = moved_bytes(), len(traced)
    assert first > 0
    assert ebb.jax.replan() == ""  # nothing was measured
    jax.block_until_ready(program(p, x))
    assert len(traced) == traces
    text = _plan.replan({"<lambda>": (1, 10**9)})  # all of it was waited for
    assert "<lambda>: 100% of its transfers were waited for: fewer bytes move" in text
    before = moved_bytes()
    assert_same(program(p, x), want)
    assert len(traced) == 2 * traces and moved_bytes() == before
    program(p, x)
    assert len(traced) == 2 * traces


@pytest.mark.parametrize("measuring", [0, 1])
def test_two_processes_that_measured_different_things_have_one_plan(measuring, tmp_path):
    texts = in_two_processes("replan", slow_machine(tmp_path), str(measuring))
    said = [json.loads(text.splitlines()[-1]) for text in texts]
    assert said[measuring]["sampled"] > 0 and said[measuring]["exposed"] > 0
    assert said[1 - measuring]["sampled"] == said[1 - measuring]["exposed"] == 0, "or this shows nothing"
    assert said[0]["plan"] == said[1]["plan"]
    first, again = said[0]["plan"]["moved"]
    if measuring == 0:  # counts for all
        assert "of its transfers were waited for: fewer bytes move" in said[0]["plan"]["text"]
        assert again < first and said[0]["plan"]["new_traces"] > 0
    else:
        assert said[0]["plan"]["text"] == "" and again == first > 0 and said[0]["plan"]["new_traces"] == 0


def test_a_machine_that_is_none():
    with pytest.raises(ValueError, match="no machine 'h20'; there are .*h200-pcie5"):
        ebb.jax.configure(machine="h20")
