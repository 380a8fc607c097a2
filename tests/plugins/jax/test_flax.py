"""Modules of Flax."""

import functools
from unittest import mock

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from models import assert_same, normal

import ebb.jax
import ebb.jax.flax

WIDTH = 16
X = normal(1, 8, WIDTH)
NAMES = ("up",)
SAVED = jax.checkpoint_policies.save_only_these_names(*NAMES)


class Layer(nn.Module):
    factor: int = 4

    @nn.compact
    def __call__(self, x, train: bool = True):
        up = checkpoint_name(nn.Dense(self.factor * WIDTH)(nn.LayerNorm()(x)), "up")
        up = nn.Dropout(0.5, deterministic=not train)(nn.gelu(up))
        seen = self.variable("seen", "count", lambda: jnp.zeros((), jnp.int32))
        if self.is_mutable_collection("seen"):
            seen.value += 1
        return x + nn.Dense(WIDTH)(up)


class Scanned(nn.Module):
    layer: type

    @nn.compact
    def __call__(self, x):
        scan = nn.scan(lambda layer, x, _: (layer(x, True), None), variable_axes={"params": 0, "seen": 0},
                       split_rngs={"params": True, "dropout": True}, length=4)
        return scan(self.layer(name="layer"), x, None)[0]


class Unrolled(nn.Module):
    layer: type

    @nn.compact
    def __call__(self, x):
        for i in range(3):
            x = self.layer(name=f"layer_{i}")(x, True)
        return x


@pytest.mark.parametrize("stack", [Scanned, Unrolled])
def test_linen(stack):
    wraps = functools.partial(nn.remat, policy=SAVED, static_argnums=2), functools.partial(
        ebb.jax.flax.offload, names=NAMES, static_argnums=2)
    plain, moved = (stack(wrap(Layer)) for wrap in wraps)
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    variables = plain.init(keys, X)
    assert_same(jax.tree.map(jnp.asarray, moved.init(keys, X)), variables)

    def gradients(model):
        def loss(params, x):
            y, changed = model.apply({**variables, "params": params}, x, rngs={"dropout": keys["dropout"]},
                                     mutable="seen")
            return jnp.sum(y**2), changed
        return jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))

    want = gradients(plain)(variables["params"], X)
    for _ in range(2):
        assert_same(gradients(moved)(variables["params"], X), want)
    assert "Layer/up " in ebb.jax.report()


class NnxLayer(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs), nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.norm = nnx.BatchNorm(WIDTH, rngs=rngs)

    def __call__(self, x):
        up = checkpoint_name(self.up(self.norm(x)), "up")
        return x + self.down(self.dropout(nnx.gelu(up)))


def test_nnx():
    def gradients(call):
        layer = NnxLayer(nnx.Rngs(0))

        @nnx.jit
        def program(layer, x):
            return nnx.grad(lambda layer, x: jnp.sum(call(layer, call(layer, x)) ** 2), argnums=(0, 1))(layer, x)

        got = [program(layer, X) for _ in range(3)]
        return got, nnx.state(layer, nnx.BatchStat)

    moved = ebb.jax.flax.offload_nnx(NnxLayer.__call__, names=NAMES)
    with mock.patch.object(ebb.jax.flax._offload, "offload", lambda f, **_: jax.checkpoint(f, policy=SAVED)):
        want = gradients(moved)
    plain = gradients(nnx.remat(NnxLayer.__call__, policy=SAVED))
    for one, other in zip(jax.tree.leaves(want), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    got = gradients(moved)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert bool((one == other).all()), abs(one - other).max()
    assert "NnxLayer/up " in ebb.jax.report()


class Counted(nnx.Module):
    def __init__(self, rngs):
        self.layer, self.calls = nnx.Linear(WIDTH, WIDTH, rngs=rngs), nnx.Variable(jnp.zeros(()))

    def __call__(self, x):
        self.calls[...] += 1
        return jnp.sin(checkpoint_name(self.layer(x), "up"))


def test_nnx_with_two_modules_and_a_static_argument():
    def both(one, x, other, kind):
        return one(x) + {"cos": jnp.cos}[kind](other(x))

    def gradients(call):
        modules = Counted(nnx.Rngs(0)), Counted(nnx.Rngs(1))
        loss = lambda one, other: jnp.sum(call(one, X, other, "cos") ** 2)
        got = nnx.jit(lambda one, other: nnx.grad(loss, argnums=(0, 1))(one, other))(*modules)
        return jax.tree.leaves(got), [float(module.calls[...]) for module in modules]

    got = gradients(ebb.jax.flax.offload_nnx(both, names=NAMES, static_argnums=3))
    want = gradients(nnx.remat(both, policy=SAVED, static_argnums=3))
    assert got[1] == want[1] == [1.0, 1.0]
    for one, other in zip(got[0], want[0], strict=True):
        assert bool((one == other).all())


def test_nnx_tells_of_a_parameter_that_is_written():
    def double(module, x):
        module.layer.kernel[...] *= 2
        return module(x)

    with pytest.raises(ValueError, match="writes the parameter .*kernel.*, which it may only read"):
        ebb.jax.flax.offload_nnx(double)(Counted(nnx.Rngs(0)), X)
