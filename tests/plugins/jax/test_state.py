"""Parameters and optimizer state between uses."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from models import assert_same, mlp, scanned

import ebb.jax


def state_statistics():
    return ebb.jax.statistics()["cpu state"]


def test_it_comes_back():
    tree = {"a": jnp.arange(1000.0), "b": [jnp.ones((3, 5), jnp.bfloat16), 7, None], "small": jnp.int32(3),
            "key": jax.random.key(1)}
    want = jax.tree.map(lambda x: x.copy() if isinstance(x, jax.Array) and x.dtype != tree["key"].dtype else x, tree)
    away = ebb.jax.offload_state(tree, floor=8)
    assert tree["a"].is_deleted() and tree["b"][0].is_deleted() and not tree["small"].is_deleted()
    assert state_statistics()["pinned_used_bytes"] >= 4030
    back = ebb.jax.onload_state(away)
    assert back["b"][1:] == [7, None]
    assert bool((jax.random.key_data(back["key"]) == jax.random.key_data(want["key"])).all())
    del back["key"], want["key"]
    assert_same({"a": back["a"], "b": back["b"][0]}, {"a": want["a"], "b": want["b"][0]})
    jax.block_until_ready(back)
    assert state_statistics()["pinned_used_bytes"] == 0
    with pytest.raises(RuntimeError, match="brought back already"):
        ebb.jax.onload_state(away)


def test_shardings_come_back():
    mesh = jax.make_mesh((4, 2), ("data", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    specs = {"whole": P(), "rows": P("data"), "both": P("tensor", "data")}
    values = {name: np.arange(64 * 8, dtype=np.float32).reshape(64, 8) + i for i, name in enumerate(specs)}
    put = {name: jax.device_put(values[name], NamedSharding(mesh, spec)) for name, spec in specs.items()}
    put["elsewhere"] = jax.device_put(values["whole"], jax.devices()[3])
    places = jax.tree.map(lambda x: x.sharding, put)
    back = ebb.jax.onload_state(ebb.jax.offload_state(put, floor=1))
    for name, value in back.items():
        assert value.sharding.is_equivalent_to(places[name], 2)
        assert_same(value, values.get(name, values["whole"]))


def test_training_with_the_optimizer_state_away():
    model = mlp()
    optimizer = optax.adamw(1e-2)

    @jax.jit
    def update(params, state, gradients):
        changes, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, changes), state

    gradients = jax.jit(jax.grad(scanned(model, ebb.jax.offload(model.layer, names=model.names))))

    def train(moves):
        params, state = model.params, optimizer.init(model.params)
        for _ in range(4):
            state = moves(state)
            found = gradients(params, model.x)
            state = ebb.jax.onload_state(state) if isinstance(state, ebb.jax._state.OffloadedState) else state
            params, state = update(params, state, found)
        return params, state

    assert_same(train(lambda state: ebb.jax.offload_state(state, floor=1)), train(lambda state: state))


def test_what_nobody_has_is_freed_and_release_leaves_the_rest():
    one, other = (ebb.jax.offload_state([jnp.arange(1000.0)], floor=1) for _ in range(2))
    jax.block_until_ready([group.handle for state in (one, other) for group in state._groups])
    assert "0.0 MiB in host memory" in repr(one)
    del one
    gc.collect()
    assert state_statistics()["live_activations"] == 1
    assert ebb.jax.release() == 0
    assert_same(ebb.jax.onload_state(other)[0], jnp.arange(1000.0))


def test_inside_of_jit_it_is_refused():
    with pytest.raises(TypeError, match="outside of jit"):
        jax.jit(lambda x: ebb.jax.offload_state([x], floor=1))(jnp.ones(4))


def test_what_cannot_be_moved_is_told_and_the_rest_stays():
    here, gone = jnp.arange(1000.0), jax.device_put(jnp.arange(1000.0), jax.devices()[1])
    gone.delete()
    with pytest.raises(ValueError, match=r"\['gone'\] was deleted .*nothing has been moved"):
        ebb.jax.offload_state({"here": here, "gone": gone}, floor=1)
    assert not here.is_deleted()
    away = ebb.jax.offload_state([here], floor=1)
    with pytest.raises(TypeError, match=r"\['a'\] was moved already"):
        ebb.jax.offload_state({"a": away}, floor=1)
    for wrong in ([here], None):
        with pytest.raises(TypeError, match="takes what ebb.jax.offload_state gave, and this is of type"):
            ebb.jax.onload_state(wrong)
    with pytest.raises(TypeError, match="floor is a number of bytes, not '1 MiB'"):
        ebb.jax.offload_state([], floor="1 MiB")
    ebb.jax.onload_state(away)


def test_a_failure_in_the_middle_leaves_nothing(monkeypatch):
    """As an interrupt would, between the arrays of one device and those of another."""
    tree = [jax.device_put(jnp.arange(1000.0), device) for device in jax.devices()[:2]]
    offload, calls = ebb.jax._state._offload, []

    def second_fails(of_call):
        calls.append(of_call)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return offload(of_call)

    monkeypatch.setattr(ebb.jax._state, "_offload", second_fails)
    with pytest.raises(KeyboardInterrupt):
        ebb.jax.offload_state(tree, floor=1)
    assert not any(one.is_deleted() for one in tree)
    assert state_statistics()["live_activations"] == 0


def test_without_jit():
    with jax.disable_jit():
        away = ebb.jax.offload_state([jnp.arange(1000.0)], floor=1)
        assert ebb.jax.release() == 0
        assert_same(ebb.jax.onload_state(away)[0], jnp.arange(1000.0))
