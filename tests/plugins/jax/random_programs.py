"""Programs at random, with wrapped functions in whatever JAX has around functions, and with none wrapped: what they compute
must be the same. They compute with whole numbers, small enough for float64 to be exact, so that no order of summation and no
fused operation excuses a difference. For more of them than the test runs:
python tests/plugins/jax/random_programs.py FIRST_SEED END_SEED"""

import functools
import random
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

import ebb.jax

ROWS, WIDTH = 4, 4
NAMES = ("one", "two", "three")
LARGEST = 2.0**53


def matrix(p, x):
    return x @ p["matrix"]


def bias(p, x):
    return x + p["bias"]


def square(p, x):
    return x * x - 2


def masked(p, x):
    return jnp.where(x > 0, x, -2 * x) * p["bias"]


def gathered(p, x):
    return x[jnp.argsort(x[..., 0])] * x


def gated(p, x):
    gate, value = jnp.split(jnp.concatenate([x, x @ p["matrix"]], -1), 2, axis=-1)
    return jax.nn.relu(gate) * value


def dropped(p, x):
    return x * jax.random.bernoulli(jax.random.key(7), 0.7, x.shape) * 2


def summed(p, x):
    return x * jnp.cumsum(x, axis=-1) - x.sum(0, keepdims=True)


OPERATIONS = [matrix, bias, square, masked, gathered, gated, dropped, summed]


def small(x):
    """So that products of several stay exact."""
    return jnp.clip(x, -3, 3)


def operation(rng, wrap, left):
    what, name = rng.choice(OPERATIONS), rng.choice(NAMES)
    return lambda p, x: small(checkpoint_name(what(p, x), name))


def sequence(rng, wrap, left):
    first, second = function(rng, wrap, left // 2), function(rng, wrap, left // 2)
    return lambda p, x: second(p, first(p, x))


def scanned(rng, wrap, left):
    length, reverse, unroll = rng.choice([2, 3]), rng.random() < 0.5, rng.choice([1, 2])
    body = function(rng, wrap, left // length)

    def whole(p, x):
        each = jnp.arange(length, dtype=x.dtype)
        return jax.lax.scan(lambda x, i: (small(body(p, x) - i), None), x, each, reverse=reverse, unroll=unroll)[0]

    return whole


def chosen(rng, wrap, left):
    one, other = function(rng, wrap, left), function(rng, wrap, left)
    return lambda p, x: jax.lax.cond(x.sum() > 0, one, other, p, x)


def mapped(rng, wrap, left):
    inner = function(rng, wrap, left)
    return lambda p, x: jax.vmap(inner, in_axes=(None, 0))(p, jnp.stack([x, x - 1])).sum(0) / 1


def compiled(rng, wrap, left):
    return jax.jit(function(rng, wrap, left))


def recomputed(rng, wrap, left):
    return jax.checkpoint(function(rng, wrap, left))


def twice(rng, wrap, left):
    inner = function(rng, wrap, left // 2)
    return lambda p, x: small(inner(p, x) + inner(p, x - 1))


def closed_over(rng, wrap, left):
    """What is wrapped has an activation in a closure."""
    inner = function(rng, lambda rng: lambda f: f, left)
    options = wrap(rng)
    return lambda p, x: small(options(lambda p, y: inner(p, y) * x)(p, x))


def wrapped(rng, wrap, left):
    return wrap(rng)(function(rng, wrap, left))


AROUND = [sequence, sequence, scanned, chosen, mapped, compiled, recomputed, twice, closed_over, *[wrapped] * 5]


def function(rng, wrap, left):
    """Of about that many operations in a row."""
    if left <= 1:
        return operation(rng, wrap, left)
    return rng.choice(AROUND)(rng, wrap, left)


def offloads(rng):
    how = rng.choice(["all", "names", "policy", "values"])
    names = rng.sample(NAMES, rng.randint(1, 3))
    values = {name: rng.choice(["offload", "device", "remat"]) for name in names}
    if "remat" not in values.values():
        values["*"] = rng.choice(["offload", "device", "remat"])
    options = {"all": {}, "names": {"names": names}, "values": {"policy": "offload"}, "policy": {"policy": values}}[how]
    return functools.partial(ebb.jax.offload, floor=1, **options)


def as_it_is(rng):
    offloads(rng)  # of the same random numbers
    return lambda f: f


def loss_of(f):
    return lambda p, x: jnp.sum(f(p, x) * jnp.arange(1.0, 1 + x.size).reshape(x.shape) % 5)


def once(f, p, x):
    return jax.jit(jax.value_and_grad(loss_of(f), argnums=(0, 1)))(p, x)


def micro_batches(f, p, x):
    def step(total, x):
        gradient = jax.grad(loss_of(f))(p, x)
        return jax.tree.map(jnp.add, total, gradient), None

    return jax.jit(lambda: jax.lax.scan(step, jax.tree.map(jnp.zeros_like, p), jnp.stack([x, -x, x + 1]))[0])()


def each_example(f, p, x):
    return jax.jit(jax.vmap(jax.grad(loss_of(f), argnums=(0, 1)), in_axes=(None, 0)))(p, jnp.stack([x, -x]))


def eagerly(f, p, x):
    """Two forwards, of which the first goes backward twice."""
    forward = jax.jit(f)
    y, back = jax.vjp(forward, p, x)
    z, other_back = jax.vjp(forward, p, -x)
    return back(jnp.ones_like(y)), other_back(z), back(y)


def forward_only(f, p, x):
    return jax.jit(f)(p, x)


WAYS = [once, once, micro_batches, each_example, eagerly, forward_only]


def run(seed: int, wrap):
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)
    p = {"matrix": jnp.asarray(numbers.integers(-1, 2, (WIDTH, WIDTH)), jnp.float64),
         "bias": jnp.asarray(numbers.integers(-2, 3, (WIDTH,)), jnp.float64)}
    way, runs = rng.choice(WAYS), rng.choice([1, 3])
    f = function(rng, wrap, rng.randint(3, 8))
    return [jax.device_get(way(f, p, jnp.asarray(numbers.integers(-3, 4, (ROWS, WIDTH)), jnp.float64))) for _ in range(runs)]


def check(seed: int) -> None:
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="ebb")  # names that nothing has
        want, got = (jax.tree.leaves(run(seed, wrap)) for wrap in (as_it_is, offloads))
        assert all(np.abs(leaf).max() < LARGEST for leaf in want), f"program {seed} computes with numbers that are too large"
        wrong = [number for number, (one, other) in enumerate(zip(want, got, strict=True)) if not np.array_equal(one, other)]
        assert not wrong, f"program {seed}: of {len(want)} results these differ: {wrong}"


if __name__ == "__main__":
    wrong = 0
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        try:
            check(seed)
        except Exception as error:
            wrong += 1
            print(f"{seed}: {type(error).__name__}: {error}"[:500], flush=True)
        ebb.jax.release()
        jax.clear_caches()
    print(f"{wrong} wrong; {ebb.jax.statistics()['cpu']['d2h_bytes']} bytes were moved")
    sys.exit(wrong != 0)
