"""What docs/jax.md says, where no other test looks."""

import re
import textwrap
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name
from models import WIDTH, assert_same, normal

import ebb.jax
import ebb.jax.flax

GUIDE = (Path(__file__).parents[3] / "docs" / "jax.md").read_text()
X = normal(3, 64, WIDTH)


def layer(p, x):
    x = checkpoint_name(x, "decoder_layer_input")
    up = checkpoint_name(x @ p["up"], "mlpwi")
    return x + jax.nn.gelu(up) @ p["down"]


def params(layers):
    return {"up": normal(1, layers, WIDTH, 4 * WIDTH), "down": normal(2, layers, 4 * WIDTH, WIDTH)}


def gradients(layer):
    loss = lambda p, x: jnp.sum(jax.lax.scan(lambda x, p: (layer(p, x), None), x, p)[0] ** 2)
    return jax.jit(jax.grad(loss, argnums=(0, 1)))


def temp_bytes(layer, layers):
    return gradients(layer).lower(params(layers), X).compile().memory_analysis().temp_size_in_bytes


def test_the_first_program():
    program = re.search(r"```python\n(import jax\n.*?)```", GUIDE, re.DOTALL).group(1)
    exec(compile(program, "docs/jax.md", "exec"), {"__name__": "guide"})
    assert re.search(r"^layer/up +8 +0 +8 +0 +16\.0 +16\.0 +16\.0 ", ebb.jax.report(), re.MULTILINE)


@pytest.mark.parametrize("names, inputs_kept", [(["decoder_layer_input", "mlpwi"], 0), (["mlpwi"], 1)])
def test_the_input_of_a_layer_moves_where_it_is_named(names, inputs_kept):
    moved = ebb.jax.offload(layer, names=names)
    by_layer = (temp_bytes(moved, 14) - temp_bytes(moved, 7)) / 7
    assert by_layer == pytest.approx(inputs_kept * X.nbytes, abs=0.05 * X.nbytes)
    saved = jax.checkpoint(layer, policy=jax.checkpoint_policies.save_only_these_names(*names))
    assert_same(gradients(moved)(params(7), X), gradients(saved)(params(7), X))


def test_offloading_of_xla_in_the_same_program():
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["mlpwi"],
        offload_src="device", offload_dst="pinned_host")
    by_xla = jax.checkpoint(layer, policy=policy)
    by_ebb = ebb.jax.offload(layer, names=["mlpwi"])
    saved = jax.checkpoint(layer, policy=jax.checkpoint_policies.save_only_these_names("mlpwi"))
    got = gradients(lambda p, x: by_xla(p, by_ebb(p, x)))(params(7), X)
    assert_same(got, gradients(lambda p, x: saved(p, saved(p, x)))(params(7), X))
    assert "layer/mlpwi " in ebb.jax.report()


class Block(nn.Module):
    """With arguments and names as MaxText's layers have them."""

    @nn.compact
    def __call__(self, x, segments, positions, deterministic, mode):
        x = checkpoint_name(x, "decoder_layer_input")
        normed = nn.LayerNorm()(x)
        q, k, v = (checkpoint_name(nn.Dense(WIDTH)(normed), f"{name}_proj") for name in ("query", "key", "value"))
        x = x + checkpoint_name(nn.Dense(WIDTH)(jax.nn.softmax(q @ k.T) @ v), "out_proj")
        up = nn.Dropout(0.1, deterministic=deterministic)(nn.gelu(checkpoint_name(nn.Dense(4 * WIDTH)(x), "mlpwi")))
        return x + checkpoint_name(nn.Dense(WIDTH)(up), "mlpwo"), None


class Decoder(nn.Module):
    block: type

    @nn.compact
    def __call__(self, x):
        scan = nn.scan(self.block, variable_axes={"params": 0}, split_rngs={"params": True, "dropout": True},
                       in_axes=(nn.broadcast,) * 4, length=4)
        return scan(name="layers")(x, None, None, False, "train")[0]


@pytest.mark.filterwarnings("error")
def test_the_block_of_maxtext():
    def gradients(block):
        keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
        variables = Decoder(block).init(keys, X)
        return jax.jit(jax.grad(lambda v: jnp.sum(Decoder(block).apply(v, X, rngs=keys) ** 2)))(variables)

    saved = ("decoder_layer_input", "query_proj", "key_proj", "value_proj", "out_proj")
    policy = jax.checkpoint_policies.save_only_these_names(*saved)
    there = {"ebb": ebb, "block": Block}
    exec(re.search(r"```python\n(block = .*?)```", GUIDE, re.DOTALL).group(1), there)
    got, want = (gradients(block) for block in (there["block"], nn.remat(Block, policy=policy, static_argnums=(4, 5))))
    assert_same(jax.block_until_ready(got), want)
    text = ebb.jax.report()
    assert all((f"Block/{name} " in text) == (name != "out_proj") for name in saved)


@pytest.mark.filterwarnings("error")
def test_all_names_of_a_configuration_as_maxtext_has_them():
    """Its own values: the input of a layer stays, and all else is computed again, whether the model has it or not."""
    names = re.search(r"are taken as they are: (.*?)\n  and the rest", GUIDE, re.DOTALL).group(1)
    policy = {name: "remat" for name in re.findall(r"`(\w+)`", names)} | {"decoder_layer_input": "device"}
    assert len(policy) > 12
    first = jax.tree.map(lambda p: p[0], params(1))
    program = lambda: jax.jit(jax.grad(lambda p, x: jnp.sum(ebb.jax.offload(layer, policy=policy)(p, x))))(first, X)
    jax.block_until_ready(program())
    assert ebb.jax.statistics() == {}
    policy["mlpwi"] = "offload"
    jax.block_until_ready(program())
    assert "layer/mlpwi " in ebb.jax.report()


def test_the_example_of_the_package_waits_for_what_it_reports(capsys):
    """The layer takes its time, so that a report that comes too early has nothing of it."""
    def layer(p, x):
        wide = jnp.ones((512, 512)) * jax.lax.stop_gradient(x[0, 0])
        late = jax.lax.fori_loop(0, 40, lambda _, w: jnp.sin(w @ w), wide)
        up = checkpoint_name((x + 0 * jnp.sum(late)) @ p["up"], "mlpwi_0")
        return jnp.tanh(checkpoint_name(jax.nn.gelu(up) @ p["down"], "query_proj"))

    there = {"jax": jax, "ebb": ebb, "layer": layer, "params": jax.tree.map(lambda p: p[0], params(1)), "batch": X}
    there["loss"] = lambda p, x: jnp.sum(there["layer"](p, x))
    exec(textwrap.dedent(ebb.jax.__doc__.split("\n\n", 1)[1]), there)
    said = capsys.readouterr().out
    assert re.search(r"^layer/mlpwi_0 +1 +0 +1 ", said, re.MULTILINE), said
    assert re.search(r"^layer/query_proj +1 +0 +1 ", said, re.MULTILINE), said


@pytest.mark.parametrize("forward", [
    lambda f: jax.jvp(f, (X,), (X,)), lambda f: jax.jacfwd(f)(X), lambda f: jax.linearize(f, X)[1](X)])
def test_forward_mode_stops_with_the_words_of_jax(forward):
    p = jax.tree.map(lambda p: p[0], params(1))
    moved = ebb.jax.offload(layer, names=["mlpwi"])
    with pytest.raises(TypeError) as why:
        forward(lambda x: moved(p, x))
    assert str(why.value).split("\n")[0] in GUIDE
