"""What the compiler makes of it: memory that is not there any more."""

import re

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name
from models import Model, checkpointed, normal, scanned, unrolled

import ebb.jax

ROWS, WIDTH, WIDE = 512, 32, 480
NAMES = ("up", "down")
MOVED_BYTES = 4 * ROWS * (WIDE + WIDTH)  # of a layer


def layer(p, x):
    up = checkpoint_name(x @ p["up"], "up")
    down = checkpoint_name(jnp.sin(up) @ p["down"], "down")
    return x + jnp.sin(down)


def compiled(stack, wrap, layers):
    params = {"up": normal(1, layers, WIDTH, WIDE), "down": normal(2, layers, WIDE, WIDTH)}
    model = Model(layer, params, normal(3, ROWS, WIDTH), NAMES)
    return jax.jit(jax.grad(stack(model, wrap(layer), layers=layers), argnums=(0, 1))).lower(params, model.x).compile()


def temp_bytes(program):
    return program.memory_analysis().temp_size_in_bytes


def save(layer):
    return checkpointed(layer, NAMES)


def move(layer):
    return ebb.jax.offload(layer, names=NAMES)


def test_no_stack_of_what_is_moved():
    shape = rf"f32\[7,{ROWS},{WIDE}\]"
    assert re.search(shape, compiled(scanned, save, 7).as_text())
    assert not re.search(shape, compiled(scanned, move, 7).as_text())


def test_bytes_per_added_layer_fall_by_what_is_moved():
    added = [(temp_bytes(compiled(scanned, wrap, 14)) - temp_bytes(compiled(scanned, wrap, 7))) / 7 for wrap in (save, move)]
    assert added[0] - added[1] == pytest.approx(MOVED_BYTES, rel=0.05)


def test_unrolled_half_of_what_keeping_takes():
    keep = temp_bytes(compiled(unrolled, lambda layer: layer, 12))
    assert temp_bytes(compiled(unrolled, move, 12)) <= keep / 2
    assert temp_bytes(compiled(unrolled, lambda layer: ebb.jax.offload(layer, floor=1), 12)) <= keep / 2


def test_an_offload_stays_in_its_loop():
    """JAX takes what does not change out of the loop: an offload of it would be one, for all iterations."""
    moved = ebb.jax.offload(lambda w, x: x * jnp.sin(2 * w), params=None, floor=1)
    loss = lambda w, x: jnp.sum(jax.lax.scan(lambda x, _: (moved(w, x), None), x, None, length=7)[0])
    jax.block_until_ready(jax.jit(jax.grad(loss))(normal(1, ROWS, WIDTH), normal(3, ROWS, WIDTH)))
    calls = ebb.jax.statistics()["cpu"]["offload_calls"]
    assert calls > 0 and calls % 7 == 0


def test_what_depends_on_no_activation_stays():
    mask = normal(2, ROWS, WIDTH)
    moved = ebb.jax.offload(lambda p, x: x + jnp.sin(x @ p) * jnp.sin(mask), floor=1)
    loss = lambda params, x: jnp.sum(jax.lax.scan(lambda x, p: (moved(p, x), None), x, params)[0])
    jax.block_until_ready(jax.jit(jax.grad(loss))(normal(1, 7, WIDTH, WIDTH), normal(3, ROWS, WIDTH)))
    assert ebb.jax.statistics()["cpu"]["offload_calls"] == 7  # the cosine of the product, and not the sine of the mask


def test_calls_are_neither_merged_nor_doubled():
    text = compiled(unrolled, move, 5).as_text()
    assert len(re.findall(r'custom_call_target="ebb_offload"', text)) == 5
    assert len(re.findall(r'custom_call_target="ebb_reload"', text)) == 5
