"""What has gone wrong in systems that do this job: one test or several for each kind that ebb.jax can have.

Loops that reload the right iteration (W10) are in test_same_gradients.py too, over all models, and here with copies
that are late.
"""

import functools
import re
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from models import STACKS, WIDTH, assert_same, checkpointed, mlp, mlp_layer, normal, scanned

import ebb.jax
from ebb.jax import _plan, _primitives

P = {"up": normal(1, WIDTH, 4 * WIDTH), "down": normal(2, 4 * WIDTH, WIDTH)}
X = normal(3, 64, WIDTH)
MOVED_BYTES = 5 * X.nbytes  # of one wrapped call
NAMES = ("up", "down")
offload = functools.partial(ebb.jax.offload, names=NAMES)
saved = checkpointed(mlp_layer, NAMES)

forward = jax.jit(lambda p, x: jax.vjp(offload(mlp_layer), p, x)[1])
backward = jax.jit(lambda f, ct: f(ct))
both = jax.jit(lambda p, x, ct: jax.vjp(saved, p, x)[1](ct))  # without Ebb


def loss_of(layer):
    return lambda p, x: jnp.sum(jnp.square(layer(p, layer(p, x))))


def grad_of(layer):
    return jax.jit(jax.grad(loss_of(layer), argnums=(0, 1)))


def numbers():
    return ebb.jax.statistics()["cpu"]


def inputs(count):
    return [X * (1 + i) for i in range(count)]


def forwards(xs):
    there = [forward(P, x) for x in xs]
    jax.block_until_ready(there)
    return there


# ------------------------------------------------------------------------------------------------- wrong numbers --

# W1: every reload depends on its own offload's completion, whoever asks and when.
def test_a_reload_waits_for_its_own_offload():
    ebb.jax.configure(host_d2h_bytes_per_second=1 << 20)  # 40 ms for one call
    x = inputs(1)[0]
    assert_same(grad_of(offload(mlp_layer))(P, x), grad_of(saved)(P, x))
    assert numbers()["offloaded_count"] == 4


# W1
def test_another_thread_or_program_that_reloads_waits_for_the_offload_too():
    ebb.jax.configure(host_d2h_bytes_per_second=1 << 20)
    xs, got = inputs(3), {}
    there = forwards(xs)
    asks = lambda i: got.setdefault(i, jax.block_until_ready(backward(there[i], X)))
    threads = [threading.Thread(target=asks, args=(i,)) for i in reversed(range(3))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for i, x in enumerate(xs):
        assert_same(got[i], both(P, x, X))


# W1
def test_state_that_is_brought_back_at_once_waits_for_its_offload():
    ebb.jax.configure(host_d2h_bytes_per_second=1 << 20)
    away = ebb.jax.offload_state(jax.tree.map(jnp.copy, P), floor=1)
    assert_same(ebb.jax.onload_state(away), P)


# W2: no schedule, legal or silly, changes a byte.
@pytest.mark.parametrize("options", [
    {"lanes": 4, "chunk_bytes": 4096}, {"chunk_bytes": 1 << 20}, {"host_d2h_bytes_per_second": 1 << 20},
    {"host_h2d_bytes_per_second": 1 << 20}, {"staging_bytes": 1 << 16}, {"device_budget_bytes": 1 << 12},
    {"lanes": 8, "chunk_bytes": 4096, "prefetch_bytes": 1, "host_d2h_bytes_per_second": 4 << 20},
], ids=str)
def test_no_schedule_changes_a_byte(options):
    ebb.jax.configure(**options)
    model = mlp()
    want = jax.jit(jax.grad(scanned(model, checkpointed(model.layer, model.names))))(model.params, model.x)
    program = jax.jit(jax.grad(scanned(model, offload(model.layer))))
    for _ in range(3):
        assert_same(program(model.params, model.x), want)


# W7: an address that is used again after it was freed is another array.
def test_an_address_that_is_used_again_is_another_array(monkeypatch):
    addresses, plain = [], _primitives.offload

    def watched(call, moved, order):
        addresses.extend(value.unsafe_buffer_pointer() for value in moved)
        return plain(call, moved, order)

    monkeypatch.setattr(_primitives, "offload", watched)
    square = ebb.jax.offload(lambda x: jnp.square(checkpoint_name(x * 2, "twice")), names=["twice"], params=None)
    there = []
    for number in range(100):
        there.append(jax.vjp(square, jnp.full((64, 64), float(number)))[1])
    assert len(set(addresses)) < len(addresses), "or this shows nothing"
    for number, one in enumerate(there):
        assert_same(one(jnp.ones((64, 64)))[0], jnp.full((64, 64), 8.0 * number))


# W7: nor is what a handle stood for found under that of another.
def test_a_handle_never_stands_for_what_came_after_it():
    first, = forwards(inputs(1))
    assert ebb.jax.release() == 1
    x = X * 7
    second, = forwards([x])
    with pytest.raises(jax.errors.JaxRuntimeError, match="mlp_layer: up, down offloaded is gone"):
        jax.block_until_ready(backward(first, X))
    assert_same(backward(second, X), both(P, x, X))


# W10: loops, reversed loops and unrolled loops reload the right iteration.
@pytest.mark.parametrize("stack", STACKS)
def test_an_iteration_gets_what_it_saved_though_copies_are_late(stack):
    ebb.jax.configure(host_d2h_bytes_per_second=4 << 20, lanes=4)
    model = mlp()
    want = jax.jit(jax.grad(STACKS[stack](model, checkpointed(model.layer, model.names))))(model.params, model.x)
    program = jax.jit(jax.grad(STACKS[stack](model, offload(model.layer))))
    for _ in range(2):
        assert_same(program(model.params, model.x), want)


# W12: micro-batches are told apart by explicit ids, in whatever order they come back, and though one saves nothing.
def test_micro_batches_that_are_interleaved_get_their_own():
    nothing = jax.jit(jax.grad(lambda p, x: jnp.sum(x @ p["up"])))
    empty = jax.jit(lambda p, x: jax.vjp(offload(mlp_layer), p, x)[1])
    xs = inputs(3)
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        there = []
        for x in xs:
            there.append(forward(P, x))
            nothing(P, X)
            without = empty(P, X[:0])
        assert_same(backward(without, X[:0])[1], X[:0])
        for i in order:
            assert_same(backward(there[i], xs[i]), both(P, xs[i], xs[i]))


# W14: what is computed again has the random numbers and the routing of the first time.
def test_dropout_and_routing_inside_what_is_computed_again():
    def layer(p, x, key):
        up = checkpoint_name(x @ p["up"], "up")
        kept = jax.random.bernoulli(key, 0.5, up.shape)
        _, chosen = jax.lax.top_k(up, 4)
        picked = jnp.take_along_axis(jnp.where(kept, jax.nn.gelu(up), 0), chosen, axis=1)
        return x + jnp.tanh(jnp.repeat(picked, WIDTH // 4, axis=1) * jnp.sum(p["down"][:, 0]))

    def program(layer):
        return jax.jit(jax.grad(lambda p, x, keys: jnp.sum(
            jax.lax.scan(lambda x, key: (layer(p, x, key), None), x, keys)[0]), argnums=(0, 1)))

    keys = jax.random.split(jax.random.key(9), 5)
    got = program(ebb.jax.offload(layer, names=["up"]))(P, X, keys)
    assert_same(got, program(checkpointed(layer, ["up"]))(P, X, keys))
    # Against one that computes nothing again: XLA rounds it otherwise.
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(program(layer)(P, X, keys)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------------------------------- leaks and memory --

# M1: what was offloaded dies though it is never reloaded. JAX does not say when a handle is dropped.
def test_forwards_without_backward_are_bounded():
    ebb.jax.configure(survivor_memory=10 * MOVED_BYTES)
    for _ in range(100):
        there = forward(P, X)
    jax.block_until_ready(there)
    assert numbers()["live_activations"] <= 2 * 11  # the cap, and the newest run
    assert_same(backward(there, X), both(P, X, X))


# M1. State that nobody has any more is in test_state.py, what exceptions leave in test_life.py.
def test_what_was_dropped_is_given_back():
    xs = inputs(100)
    there = forwards(xs)
    assert numbers()["live_activations"] == 200
    del there[::2]
    assert_same(backward(there[0], X), both(P, xs[1], X))
    assert numbers()["pinned_used_bytes"] >= 100 * MOVED_BYTES
    there.clear()
    assert ebb.jax.release() == 100
    assert numbers()["live_activations"] == numbers()["pinned_used_bytes"] == 0


# M1: the arena is back at its baseline.
def test_a_thousand_steps_leave_nothing():
    program = grad_of(offload(mlp_layer))
    want = jax.block_until_ready(program(P, X))
    first = numbers()
    for i in range(1000):
        got = program(P, X)
        if i % 100 == 0:
            assert_same(got, want)
            assert numbers()["live_activations"] <= 4  # of one run
    jax.block_until_ready(got)
    last = numbers()
    assert last["steps"] >= 990
    assert (last["live_activations"], last["pinned_used_bytes"]) == (
        first["live_activations"], first["pinned_used_bytes"])
    ebb.jax.release()
    assert numbers()["live_activations"] == numbers()["pinned_used_bytes"] == 0
    assert numbers()["pinned_bytes"] < 4 << 20


# M2: a step has any number of passes, also a forward without backward.
def test_three_forwards_and_one_more_before_three_backwards():
    xs = inputs(3)
    for _ in range(3):
        there = [forward(P, x) for x in xs]
        forward(P, X)
        for i, one in enumerate(there):
            assert_same(backward(one, X), both(P, xs[i], X))
        jax.block_until_ready(there)
        ebb.jax.step()
    assert numbers()["steps"] >= 3
    ebb.jax.release()
    assert numbers()["live_activations"] == 0


# M9: running out of host memory says so, how much was asked, what the cap is and how to raise it.
def test_a_host_cap_is_told_with_what_it_takes_and_training_goes_on(capfd):
    ebb.jax.configure(host_memory=1 << 16)
    x = normal(3, 4096, WIDTH)
    assert_same(grad_of(offload(mlp_layer))(P, x), grad_of(saved)(P, x))
    assert numbers()["kept_count"] > 0 and numbers()["pinned_peak_bytes"] <= 1 << 16
    said = capfd.readouterr().err
    wanted = 4 * WIDTH * len(x) * 4
    assert f"'mlp_layer/up' is kept on the device: pinned host memory is at its cap ({wanted} bytes wanted, " in said
    assert re.search(r", \d+ held, cap 65536\); raise host_bytes", said)
    assert re.search(r"^mlp_layer/up +2 +2 +0 ", ebb.jax.report(), re.MULTILINE)  # two calls, both kept
    ebb.jax.close()
    ebb.jax.configure(host_bytes=64 << 20)  # as it says
    jax.block_until_ready(grad_of(offload(mlp_layer))(P, x))
    assert numbers()["kept_count"] == 0


# -------------------------------------------------------------------------------------------------------- wiring --

# G1: an evaluation pass neither consumes nor spoils what was learned.
def test_evaluation_between_steps_changes_nothing():
    def run(evaluates):
        layer = offload(mlp_layer)
        program, evaluate = grad_of(layer), jax.jit(loss_of(layer))
        for i in range(6):
            assert_same(program(P, X), want)
            if evaluates:
                jax.block_until_ready((evaluate(P, normal(i, 16, WIDTH)), layer(P, X)))  # inside jit and outside
        counts = {name: numbers()[name] for name in (
            "steps", "order_mismatches", "offload_calls", "offloaded_count", "d2h_bytes", "h2d_bytes",
            "live_activations", "reloads_prefetched", "reloads_on_demand")}
        ebb.jax.close()
        return counts

    want = jax.block_until_ready(grad_of(saved)(P, X))
    without = run(False)
    assert run(True) == without
    assert without["order_mismatches"] == 0 and without["steps"] == 5


# G1
def test_evaluation_in_another_size_leaves_the_plan_alone():
    ebb.jax.configure(machine="h200-pcie5")
    moved = ebb.jax.offload(mlp_layer, floor=1)
    jax.block_until_ready(grad_of(moved)(P, X))
    planned = _plan.report()
    assert "mlp_layer: automatic" in planned
    jax.block_until_ready(jax.jit(loss_of(moved))(P, normal(5, 4096, WIDTH)))
    moved(P, normal(5, 2048, WIDTH))
    assert _plan.report() == planned


# G2: one offload can be reloaded twice. Twice in one program: test_situations.py.
def test_the_same_bytes_twice():
    there = forward(P, X)
    once, twice = backward(there, X), backward(there, X)
    assert_same(once, twice)
    assert_same(once, both(P, X, X))


def moved_names(layer, *args, grads=(0, 1)):
    jax.block_until_ready(jax.jit(jax.grad(lambda *args: jnp.sum(layer(*args)), argnums=grads))(*args))
    text = ebb.jax.report()
    ebb.jax.close()
    names = [line[:line.index("  ")] for line in text.splitlines() if "/" in line and "  " in line]
    return [name.split("/", 1)[1] for name in names]


# G3: parameters, buffers, arguments and results are never offloaded.
def test_parameters_arguments_and_results_stay():
    """A linear layer needs its argument and its parameters: nothing moves, though all is above the floor."""
    assert moved_names(ebb.jax.offload(lambda p, x: x @ p, floor=1), P["up"], X) == []
    assert moved_names(ebb.jax.offload(lambda p, x: jnp.exp(x), floor=1), P, X, grads=1) == []  # saved, and the result


# G3
def test_of_a_linear_layer_only_what_it_was_given_moves():
    buffer = normal(8, WIDTH, WIDTH)  # closed over

    def layer(p, x):
        weights = p["up"] @ p["down"]  # saved, and of parameters alone
        return jnp.exp(checkpoint_name(jnp.sin(x), "input") @ weights @ buffer)

    names = moved_names(ebb.jax.offload(layer, floor=1), P, X)
    assert [name.split()[0] for name in names] == ["cos", "input"]  # for the sine, and for the linear layer
    assert moved_names(ebb.jax.offload(layer, names=["input"]), P, X) == ["input"]


def with_work_behind(layer):
    """Its backward comes when something that takes a while is done."""
    def loss(p, x):
        x = layer(p, x)
        wide = jnp.ones((256, 256)) * jax.lax.stop_gradient(x[0, 0])
        late = jax.lax.fori_loop(0, 200, lambda _, w: jnp.sin(w @ w), wide)
        return jnp.sum(jnp.square(x + 0 * jnp.sum(late)))

    return jax.jit(jax.grad(loss))


# G6: a user can see what was offloaded, by name, and how much of it was hidden.
@pytest.mark.parametrize("slow", ["d2h", "h2d"])
def test_the_report_has_bytes_and_times_by_name(slow):
    ebb.jax.configure(**{f"host_{slow}_bytes_per_second": 16 << 20}, sample_every=1)
    program = with_work_behind(offload(mlp_layer))
    x = normal(3, 512, WIDTH)  # what is smaller the thread copies itself, and nothing hides it

    def times_of(name, calls, size):
        found = re.search(rf"^mlp_layer/{name} +{calls} +0 +{calls} +0 +{size} +{size} +{size} +([\d.]+) +([\d.]+)$",
                          ebb.jax.report(), re.MULTILINE)
        assert found, ebb.jax.report()
        return map(float, found.groups())

    for _ in range(8):
        jax.block_until_ready(program(P, x))
    assert re.search("7 training steps, times from [67] sampled steps", ebb.jax.report()), ebb.jax.report()
    times_of("up", 8, "2.0")
    times_of("down", 8, "0.5")
    # What leaves slowly does so behind the work; for what comes back slowly there is nothing left to hide it. On a busy
    # machine not in every step.
    for calls in range(8, 100):
        hidden, exposed = zip(times_of("up", calls, r"[\d.]+"), times_of("down", calls, r"[\d.]+"))
        if min(hidden if slow == "d2h" else exposed) > 0:
            break
        jax.block_until_ready(program(P, x))
    assert min(hidden if slow == "d2h" else exposed) > 0, ebb.jax.report()


# G6
@pytest.mark.parametrize("names, says", [
    (["upp"], "nothing is moved for 'upp': no value of mlp_layer has such a name; it has down, up"),
    (["up", "gone"], "nothing is moved for 'gone'"),
])
def test_a_name_that_nothing_has_is_told(names, says):
    with pytest.warns(UserWarning, match=says):
        jax.jit(jax.grad(lambda p, x: jnp.sum(ebb.jax.offload(mlp_layer, names=names)(p, x))))(P, X)


# G7: every run can be checked, by checksums from end to end.
def test_a_changed_byte_is_caught_and_named():
    ebb.jax.configure(verify=True)
    value = jnp.full((64, WIDTH), 1234567.0)
    layer = ebb.jax.offload(lambda x: jnp.sin(checkpoint_name(x * 1.5, "half_more")), names=["half_more"], params=None)
    there = jax.jit(lambda x: jax.vjp(layer, x)[1])(value)
    jax.block_until_ready(there)
    assert change_byte(np.full(64 * WIDTH, 1234567.0 * 1.5, np.float32).tobytes())
    with pytest.raises(jax.errors.JaxRuntimeError, match="half_more"):
        jax.block_until_ready(backward(there, value))


def change_byte(content: bytes) -> bool:
    """In every mapping of this process that has these bytes, but for the heap, where copies of them may be."""
    found = False
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "r+b", buffering=0) as memory:
        for line in maps.read().splitlines():
            span, mode, *rest = line.split()
            first, last = (int(part, 16) for part in span.split("-"))
            if not mode.startswith("rw") or rest[-1].startswith("["):
                continue
            try:
                memory.seek(first)
                at = memory.read(last - first).find(content)
                if at >= 0:
                    middle = at + len(content) // 2
                    memory.seek(first + middle)
                    memory.write(bytes([content[middle - at] ^ 1]))
                    found = True
            except OSError:  # gone meanwhile
                continue
    return found
