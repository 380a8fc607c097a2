"""Small models, each a layer, the arguments of a stack of it, and the names that it gives."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

LAYERS, WIDTH, ROWS = 7, 32, 64


@dataclasses.dataclass(frozen=True)
class Model:
    layer: object  # (params, x) -> x
    params: object  # stacked over layers
    x: object
    names: tuple[str, ...]
    shares: bool = False  # one set of params for all layers


def normal(seed, *shape, dtype=jnp.float32):
    return (jax.random.normal(jax.random.key(seed), shape) / shape[-1] ** 0.5).astype(dtype)


def mlp_layer(p, x):
    up = checkpoint_name(x @ p["up"], "up")
    down = checkpoint_name(jax.nn.gelu(up) @ p["down"], "down")
    return x + jnp.tanh(down)


def mlp(dtype=jnp.float32):
    params = {"up": normal(1, LAYERS, WIDTH, 4 * WIDTH, dtype=dtype),
              "down": normal(2, LAYERS, 4 * WIDTH, WIDTH, dtype=dtype)}
    return Model(mlp_layer, params, normal(3, ROWS, WIDTH, dtype=dtype), ("up", "down"))


def rotate(x, angles):
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def attention_layer(p, x, angles, mask):
    batch, length, width = x.shape
    split = lambda y: y.reshape(batch, length, 4, width // 4)
    q = checkpoint_name(split(x @ p["q"]), "query")
    k = checkpoint_name(split(x @ p["k"]), "key")
    v = checkpoint_name(split(x @ p["v"]), "value")
    q, k = rotate(q, angles[None, :, None]), rotate(k, angles[None, :, None])
    scores = jnp.einsum("blhd,bmhd->bhlm", q, k)
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9).astype(jnp.float32)).astype(x.dtype)
    mixed = checkpoint_name(jnp.einsum("bhlm,bmhd->blhd", weights, v).reshape(x.shape), "mixed")
    return x + mixed @ p["out"]


def attention(dtype=jnp.float32):
    length = 16
    angles = jnp.arange(length)[:, None] / 10.0 ** jnp.arange(WIDTH // 8)
    mask = jnp.tril(jnp.ones((length, length), bool))
    params = {name: normal(i, LAYERS, WIDTH, WIDTH, dtype=dtype) for i, name in enumerate(("q", "k", "v", "out"))}
    layer = functools.partial(attention_layer, angles=angles, mask=mask)
    return Model(layer, params, normal(7, 4, length, WIDTH, dtype=dtype), ("query", "key", "value", "mixed"))


def shared_mlp():
    params = {"up": normal(1, WIDTH, 4 * WIDTH), "down": normal(2, 4 * WIDTH, WIDTH)}
    return Model(mlp_layer, params, normal(3, ROWS, WIDTH), ("up", "down"), shares=True)


def moe_layer(p, x):
    gate = checkpoint_name(x @ p["gate"], "gate")
    weight, chosen = jax.lax.top_k(jax.nn.softmax(gate), 2)
    up = checkpoint_name(jnp.einsum("rd,edh->reh", x, p["up"]), "up")
    down = jnp.einsum("reh,ehd->red", jax.nn.silu(up), p["down"])
    picked = jnp.take_along_axis(down, chosen[:, :, None], axis=1)
    return x + jnp.sum(picked * weight[:, :, None], axis=1)


def moe():
    params = {"gate": normal(1, LAYERS, WIDTH, 4), "up": normal(2, LAYERS, 4, WIDTH, WIDTH),
              "down": normal(3, LAYERS, 4, WIDTH, WIDTH)}
    return Model(moe_layer, params, normal(4, ROWS, WIDTH), ("gate", "up"))


MODELS = {"mlp": mlp, "mlp_bf16": functools.partial(mlp, jnp.bfloat16), "attention": attention,
          "attention_bf16": functools.partial(attention, jnp.bfloat16), "shared": shared_mlp, "moe": moe}


# ------------------------------------------------------------------------------------------------------ training --

def scanned(model: Model, layer, *, reverse=False, unroll=1, layers=LAYERS):
    def loss(params, x):
        step = lambda x, p: (layer(params if model.shares else p, x), None)
        y, _ = jax.lax.scan(step, x, None if model.shares else params, length=layers, reverse=reverse, unroll=unroll)
        return jnp.sum(jnp.square(y.astype(jnp.float32)))

    return loss


def unrolled(model: Model, layer, *, layers=LAYERS):
    def loss(params, x):
        for i in range(layers):
            x = layer(params if model.shares else jax.tree.map(lambda p: p[i], params), x)
        return jnp.sum(jnp.square(x.astype(jnp.float32)))

    return loss


STACKS = {"scan": scanned, "reversed": functools.partial(scanned, reverse=True),
          "unroll_2": functools.partial(scanned, unroll=2), "unrolled": unrolled}


def checkpointed(layer, names):
    return jax.checkpoint(layer, policy=jax.checkpoint_policies.save_only_these_names(*names))


def gradients(loss, model, runs=1, **jit_options):
    """Of the last of several runs of one program; the runs are alike."""
    program = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)), **jit_options)
    first = program(model.params, model.x)
    for _ in range(runs - 1):
        assert_same(program(model.params, model.x), first)
    return first


def assert_same(one, other):
    """Bit for bit."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for (path, _), (a, b) in zip(jax.tree_util.tree_leaves_with_path(one),
                            zip(jax.tree.leaves(one), jax.tree.leaves(other)), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert bool((jax.lax.bitcast_convert_type(a, f"uint{8 * a.dtype.itemsize}")
                     == jax.lax.bitcast_convert_type(b, f"uint{8 * b.dtype.itemsize}")).all()), path
