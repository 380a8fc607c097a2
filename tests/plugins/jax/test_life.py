"""How long what was offloaded lives, and what is said where it is gone. More of that is in test_field_reports.py."""

import functools
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import pytest
from models import WIDTH, assert_same, mlp_layer, normal

import ebb
import ebb.jax

P = {"up": normal(1, WIDTH, 4 * WIDTH), "down": normal(2, 4 * WIDTH, WIDTH)}
X = normal(3, 64, WIDTH)
offload = functools.partial(ebb.jax.offload, names=["up", "down"])
saved = jax.checkpoint(mlp_layer, policy=jax.checkpoint_policies.save_only_these_names("up", "down"))


def live():
    return ebb.jax.statistics()["cpu"]["live_activations"]


def grad_of(layer):
    return jax.jit(jax.grad(lambda p, x: jnp.sum(jnp.square(layer(p, layer(p, x)))), argnums=(0, 1)))


forward = jax.jit(lambda p, x: jax.vjp(offload(mlp_layer), p, x)[1])
backward = jax.jit(lambda f, ct: f(ct))


def test_the_oldest_goes_first_and_a_later_reload_says_so():
    ebb.jax.configure(survivor_memory=2 * 5 * X.nbytes)
    all_saved = [forward(P, X * i) for i in range(6)]
    jax.block_until_ready(all_saved)
    want = jax.jit(lambda p, x, ct: jax.vjp(saved, p, x)[1](ct))
    for i in (5, 4):
        assert_same(backward(all_saved[i], X), want(P, X * i, X))
    with pytest.raises(jax.errors.JaxRuntimeError, match="what mlp_layer: up, down offloaded is gone.*survivor_memory"):
        jax.block_until_ready(backward(all_saved[0], X))


def test_a_later_program_may_have_larger_arrays():
    jax.block_until_ready(grad_of(offload(mlp_layer))(P, X))
    before = ebb.jax.statistics()["cpu"]["d2h_bytes"]
    larger = jnp.tile(X, (50, 1))
    assert_same(grad_of(offload(mlp_layer))(P, larger), grad_of(saved)(P, larger))
    numbers = ebb.jax.statistics()["cpu"]
    assert numbers["kept_count"] == 0 and numbers["d2h_bytes"] - before == 2 * 5 * larger.nbytes


def test_release_and_close_are_told():
    first = forward(P, X)
    jax.block_until_ready(first)
    assert ebb.jax.release() == 1
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"mlp_layer: up, down offloaded is gone: ebb.jax.release\(\)"):
        jax.block_until_ready(backward(first, X))
    second = forward(P, X)
    jax.block_until_ready(second)
    ebb.jax.close()
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"ebb.jax.close\(\) ended it"):
        jax.block_until_ready(backward(second, X))


def test_exceptions_leave_little():
    def fail(x):
        if fail.now:
            raise ValueError("on purpose")
        return x

    def program(p, x):
        layer = offload(mlp_layer)
        y = layer(p, x)
        y = jax.pure_callback(fail, jax.ShapeDtypeStruct(y.shape, y.dtype), jax.lax.stop_gradient(y)) + y
        return jnp.sum(layer(p, y))

    program = jax.jit(jax.grad(program))
    fail.now = False
    want = jax.block_until_ready(program(P, X))
    for i in range(100):
        fail.now = i % 2 == 0
        if fail.now:
            with pytest.raises(Exception, match="on purpose"):
                jax.block_until_ready(program(P, X))
        else:
            assert_same(program(P, X), want)
    assert live() <= 2 * 2 * 34  # of the runs that might be under way


def test_options_that_cannot_be():
    with pytest.raises(TypeError, match="no field 'hots_bytes'"):
        ebb.jax.configure(hots_bytes=1)
    jax.block_until_ready(forward(P, X))
    with pytest.raises(RuntimeError, match="comes before the first program that offloads"):
        ebb.jax.configure(verify=True)


@pytest.mark.parametrize("options, kind, says", [
    ({"host_memory": "4 GiB"}, TypeError, "host_memory is '4 GiB': it is a number of bytes"),
    ({"host_memory": -1}, ValueError, "host_memory is -1"),
    ({"host_memory": 10}, ebb.EbbError, "host_bytes is \"10\"; allowed: auto, or bytes, 4KiB or more"),
    ({"survivor_memory": None}, TypeError, "survivor_memory is None"),
    ({"survivor_memory": -1}, ValueError, "survivor_memory is -1"),
    ({"machine": 3}, TypeError, "machine is 3"),
    ({"policy": 3}, TypeError, "policy is 3: it is a text"),  # an address, for ctypes
    ({"policy": "away"}, ebb.EbbError, "\"away\" is not pattern=value"),
    ({"lanes": -1}, ValueError, "lanes is -1"),
    ({"lanes": 1 << 33}, ValueError, "nor larger than its field"),
    ({"lanes": 100}, ebb.EbbError, "lanes is \"100\"; allowed: a whole number, 1 to 8"),
    ({"allocator": 16}, TypeError, "no field 'allocator' for it"),
    ({"struct_size": 4}, TypeError, "no field 'struct_size' for it"),
], ids=str)
def test_options_are_checked_where_they_are_given(options, kind, says):
    with pytest.raises(kind, match=says):
        ebb.jax.configure(**options)
    jax.block_until_ready(grad_of(offload(mlp_layer))(P, X))  # by the options before


def test_reports_while_another_thread_closes():
    """Each sees a runtime that is there until it has read it."""
    program = grad_of(offload(mlp_layer))
    want, over, wrong = program(P, X), threading.Event(), []

    def watch():
        while not over.is_set():
            try:
                ebb.jax.report()
                ebb.jax.statistics()
            except Exception as why:
                wrong.append(why)

    threads = [threading.Thread(target=watch, daemon=True) for _ in range(2)]
    for one in threads:
        one.start()
    try:
        for _ in range(100):
            jax.block_until_ready(program(P, X))
            ebb.jax.close()
        assert_same(program(P, X), want)
    finally:
        over.set()
        for one in threads:
            one.join()
    assert not wrong, wrong[0]


FORKED = """
import os, sys, warnings
warnings.simplefilter("ignore")  # JAX warns of forks
import jax, jax.numpy as jnp, ebb.jax
out, backward = jax.vjp(ebb.jax.offload(lambda x: jnp.sin(x) * x, params=None, floor=1), jnp.ones(64))
jax.block_until_ready(out)
child = os.fork()
if child == 0:
    assert ebb.jax.statistics() == {} and ebb.jax.release() == 0
    ebb.jax.report(), ebb.jax.step(), ebb.jax.close()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
jax.block_until_ready(backward(out))
assert ebb.jax.statistics()["cpu"]["h2d_bytes"] > 0
"""


def test_a_child_that_was_forked_waits_for_nobody():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_threads():
    programs = [grad_of(offload(mlp_layer)) for _ in range(2)]
    inputs = [X * i for i in range(4)]
    want = [grad_of(saved)(P, x) for x in inputs]
    wrong = []

    def work(i):
        for _ in range(10):
            try:
                assert_same(programs[i % 2](P, inputs[i]), want[i])
            except Exception as why:
                wrong.append(why)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong, wrong[0]


def test_steps_are_marked():
    program = grad_of(offload(mlp_layer))
    for _ in range(4):
        jax.block_until_ready(program(P, X))
    assert ebb.jax.statistics()["cpu"]["steps"] == 3
    ebb.jax.step()
    assert ebb.jax.statistics()["cpu"]["steps"] == 4
    jax.block_until_ready(program(P, X))  # steps are the caller's from now on
    assert ebb.jax.statistics()["cpu"]["steps"] == 4


def test_micro_batches_in_one_program_take_the_memory_of_one():
    layer = offload(mlp_layer)

    def accumulated(layer):
        loss = lambda p, x: jnp.sum(jnp.square(layer(p, layer(p, x))))

        def add(total, x):
            return jax.tree.map(jnp.add, total, jax.grad(loss)(P, x)), None

        return jax.jit(lambda xs: jax.lax.scan(add, jax.tree.map(jnp.zeros_like, P), xs)[0])

    peaks = []
    for count in (2, 20):
        xs = jnp.stack([X * i for i in range(count)])
        assert_same(accumulated(layer)(xs), accumulated(saved)(xs))
        peaks.append(live())
    assert peaks[0] == peaks[1] == 4  # of the last one
