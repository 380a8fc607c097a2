"""What functions are wrapped in, and what they are made of."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from models import assert_same, normal

import ebb.jax

WIDTH = 16
offload = functools.partial(ebb.jax.offload, floor=1)


def layer(p, x):
    return x + jnp.tanh(jnp.sin(x @ p["in"]) @ p["out"])


def params(*batch):
    return {"in": normal(1, *batch, WIDTH, 2 * WIDTH), "out": normal(2, *batch, 2 * WIDTH, WIDTH)}


P, X = params(), normal(3, 8, WIDTH)


def moved_bytes():
    return sum(numbers["d2h_bytes"] for numbers in ebb.jax.statistics().values())


def check(with_layer, *args, moves=True, runs=2, layer=layer, wrap=offload, **jit_options):
    """with_layer(layer) is a program; it is the same with the layer wrapped."""
    want = jax.jit(with_layer(layer), **jit_options)(*args)
    program = jax.jit(with_layer(wrap(layer)), **jit_options)
    before = moved_bytes()
    for _ in range(runs):
        assert_same(program(*args), want)
    assert (moved_bytes() > before) == moves


def loss_of(layer):
    return lambda p, x: jnp.sum(jnp.square(layer(p, layer(p, x))))


def test_vmap_of_grad():
    check(lambda layer: jax.vmap(jax.grad(loss_of(layer), argnums=(0, 1)), in_axes=(None, 1)), P,
          normal(3, 8, 5, WIDTH))


def test_vmap_is_one_transfer():
    program = jax.jit(jax.vmap(jax.grad(lambda p, x: jnp.sum(offload(layer)(p, x))), in_axes=(None, 0)))
    jax.block_until_ready(program(P, normal(3, 5, 8, WIDTH)))
    one = ebb.jax.statistics()["cpu"]["offload_calls"]
    ebb.jax.close()
    jax.block_until_ready(jax.jit(jax.grad(lambda p, x: jnp.sum(offload(layer)(p, x))))(P, X))
    assert ebb.jax.statistics()["cpu"]["offload_calls"] == one


def test_vmap_of_vmap_and_of_params():
    check(lambda layer: jax.vmap(jax.vmap(jax.grad(loss_of(layer)), in_axes=(None, 0)), in_axes=(0, None), out_axes=1),
          params(3), normal(3, 5, 8, WIDTH))


def test_grad_of_vmap():
    # What is differentiated as one gives its gradients by example, which are then added.
    as_one = jax.custom_vjp(layer)
    as_one.defvjp(lambda p, x: jax.vjp(layer, p, x), lambda backward, ct: backward(ct))
    check(lambda layer: jax.grad(lambda p, xs: jnp.sum(jax.vmap(loss_of(layer), in_axes=(None, 0))(p, xs))), P,
          normal(3, 5, 8, WIDTH), layer=as_one, wrap=lambda _: offload(layer))


def test_vmap_over_cotangents():
    def program(layer):
        def jacobian(p, x):
            out, backward = jax.vjp(lambda x: layer(p, x)[:, 0], x)
            return jax.vmap(backward)(jnp.eye(len(out)))
        return jacobian
    check(program, P, X)


def test_cond():
    def program(layer):
        def loss(p, x, flag):
            return jnp.sum(jax.lax.cond(flag, layer, lambda p, x: jnp.cos(x), p, layer(p, x)))
        return jax.grad(loss)
    check(program, P, X, True)
    check(program, P, X, False)


@pytest.mark.parametrize("which", [[0, 1, 2, 1], [1, 1, 1, 1], [2, 2, 2, 2], [3, 0, 0, 3]], ids=str)
@pytest.mark.parametrize("outside", [lambda f: f, jax.checkpoint], ids=["plain", "checkpoint"])
def test_branches_of_a_batch(which, outside):
    """A cond over a batch computes all branches and chooses: nobody reads arrays of those that nobody took."""
    wide = lambda p, x: jnp.cos(x @ p["in"]) @ p["out"]

    def program(layer):
        moves = (lambda f: f) if layer is plain else offload
        branches = [moves(plain), lambda p, x: jnp.cos(x), moves(wide), lambda p, x: moves(plain)(p, 2 * x)]

        def loss(p, x, which):
            return jnp.sum(outside(lambda p, x: jax.lax.switch(which, branches, p, jnp.sin(x)))(p, x))
        return jax.vmap(jax.grad(loss, argnums=(0, 1)), in_axes=(None, 0, 0))

    plain = layer
    check(program, P, normal(3, 4, 8, WIDTH), jnp.array(which))


def test_an_empty_batch():
    check(lambda layer: jax.vmap(jax.grad(loss_of(layer)), in_axes=(None, 0)), P, jnp.zeros((0, 8, WIDTH)), moves=False)


def test_grad_inside_while():
    def program(layer):
        def descend(p, x):
            down = lambda p: jax.tree.map(lambda p, g: p - 0.01 * g, p, jax.grad(loss_of(layer))(p, x))
            step = lambda state: (state[0] + 1, down(state[1]))
            return jax.lax.while_loop(lambda state: state[0] < 5, step, (0, p))
        return descend
    check(program, P, X)


def test_nested_scans():
    def program(layer):
        def loss(p, x):
            inner = lambda x, _: (layer(p, x), None)
            outer = lambda x, _: (jax.lax.scan(inner, x, None, length=3)[0], None)
            return jnp.sum(jax.lax.scan(outer, x, None, length=2)[0])
        return jax.grad(loss, argnums=(0, 1))
    check(program, P, X)


def test_wrap_in_a_wrap():
    def two(wrap):
        inner = wrap(layer)
        return wrap(lambda p, x: jnp.sin(inner(p, jnp.cos(inner(p, x)))))
    want = jax.jit(jax.grad(lambda p, x: jnp.sum(two(lambda f: f)(p, x)), argnums=(0, 1)))(P, X)
    program = jax.jit(jax.grad(lambda p, x: jnp.sum(two(offload)(p, x)), argnums=(0, 1)))
    for _ in range(3):
        assert_same(program(P, X), want)


@pytest.mark.parametrize("policy", [None, jax.checkpoint_policies.everything_saveable,
                                    jax.checkpoint_policies.dots_saveable], ids=["nothing", "everything", "dots"])
def test_checkpoint_outside(policy):
    check(lambda layer: jax.grad(loss_of(jax.checkpoint(layer, policy=policy)), argnums=(0, 1)), P, X)
    scan = lambda layer: lambda p, x: jnp.sum(jax.lax.scan(lambda x, _: (layer(p, x), None), x, None, length=3)[0])
    check(lambda layer: jax.grad(scan(jax.checkpoint(layer, policy=policy)), argnums=(0, 1)), P, X)


def test_checkpoint_inside():
    def with_inner(p, x):
        return x + jnp.sin(jax.checkpoint(layer)(p, jnp.cos(x)))
    check(lambda layer: jax.grad(loss_of(layer), argnums=(0, 1)), P, X, layer=with_inner)


def test_jit_inside_and_custom_rules_inside():
    @jax.custom_vjp
    def twice(x):
        return 2 * jnp.sin(x)

    twice.defvjp(lambda x: (twice(x), jnp.cos(x)), lambda saved, ct: (2 * saved * ct,))

    def with_rules(p, x):
        return x + jax.jit(lambda x: twice(jax.nn.silu(x @ p["in"])) @ p["out"])(x)

    check(lambda layer: jax.grad(loss_of(layer), argnums=(0, 1)), P, X, layer=with_rules)


def test_donation():
    def program(layer):
        return jax.value_and_grad(loss_of(layer), argnums=(0, 1))
    want = jax.jit(program(layer))(P, X)
    moved = jax.jit(program(offload(layer)), donate_argnums=(0, 1))
    for _ in range(3):
        assert_same(moved(jax.tree.map(jnp.copy, P), X.copy()), want)


def test_gradient_accumulation():
    def program(layer):
        def total(p, xs):
            add = lambda g, x: (jax.tree.map(jnp.add, g, jax.grad(loss_of(layer))(p, x)), None)
            return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, p), xs)[0]
        return total
    check(program, P, normal(4, 4, 8, WIDTH))


def test_evaluation_moves_nothing():
    check(loss_of, P, X, moves=False)


def test_a_gradient_that_nobody_uses_is_not_computed():
    def program(layer):
        return lambda p, x: jax.vjp(loss_of(layer), p, x)[0]
    check(program, P, X, moves=False)


def test_an_unused_aux_comes_first():
    def with_aux(p, x):
        return jnp.zeros(3), layer(p, x)

    def program(layer):
        def loss(p, x):
            for _ in range(3):
                _, x = layer(p, x)
            return jnp.sum(x)
        return jax.grad(loss, argnums=(0, 1))
    check(program, P, X, layer=with_aux)


def test_odd_arrays():
    def odd(p, x, key, number, flag, nothing):
        noise = jax.random.bernoulli(key, 0.5, x.shape)
        big = jnp.where(noise & flag, x * number, jnp.sin(x)).astype(jnp.float8_e4m3fn).astype(jnp.float32)
        return jnp.tanh(x @ p["in"]) @ p["out"] * jnp.cos(x) + big, jnp.sum(nothing), noise, jnp.argmax(x)

    def program(layer):
        def loss(p, x, *rest):
            y, a, b, c = layer(p, x, *rest)
            y, *_ = layer(p, y, *rest)
            return jnp.sum(y) + a + jnp.sum(b) + c
        return jax.grad(loss, argnums=(0, 1))
    check(program, P, X, jax.random.key(3), 3, True, jnp.zeros((0, 4)), layer=odd)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e5m2", "int8", "uint32", "bool"])
def test_kinds_of_elements(dtype):
    def cast(p, x):
        y = checkpoint_name((x * 3).astype(dtype), "cast")
        return x * y.astype(jnp.float32) + jnp.where(y != 0, jnp.sin(x), x)
    saved = jax.checkpoint(cast, policy=jax.checkpoint_policies.save_only_these_names("cast"))
    want = jax.jit(jax.grad(lambda x: jnp.sum(saved(P, x))))(X)
    got = jax.jit(jax.grad(lambda x: jnp.sum(ebb.jax.offload(cast, names=["cast"])(P, x))))(X)
    assert_same(got, want)
    assert "cast/cast " in ebb.jax.report()


def test_complex_numbers():
    def turn(p, x):
        z = jnp.exp(1j * x)
        return x + (z * jnp.conj(z * z)).real + jnp.abs(jnp.sin(z))
    check(lambda layer: jax.grad(loss_of(layer), argnums=1), P, X, layer=turn)


def test_closures_keywords_and_static_arguments():
    def with_all(p, x, kind, *, scale, shift=None):
        f = {"sin": jnp.sin, "cos": jnp.cos}[kind]
        return x + f(x @ p["in"] * scale) @ p["out"] + (0 if shift is None else shift)

    def program(wrap):
        def loss(p, x, scale, shift):
            inner = wrap(with_all)
            def over(x):  # closes over values that are differentiated and ones that are not
                return jnp.sin(x @ p["in"]) @ p["out"] * scale + inner(p, x, "sin", scale=scale, shift=shift)
            x = wrap(over)(x)
            return jnp.sum(inner(p, x, "cos", scale=scale))
        return jax.grad(loss, argnums=(0, 1, 2))

    wrap = functools.partial(offload, static_argnums=2)
    plain = lambda f: f
    args = (P, X, jnp.float32(0.5), X * 2)
    want = jax.jit(program(plain))(*args)
    moved = jax.jit(program(lambda f: wrap(f) if f is with_all else offload(f, params=None)))
    for _ in range(2):
        got = moved(*args)
        # Gradients of one argument from several calls are added in another order.
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, want)
    assert moved_bytes() > 0


def test_eager():
    out, backward = jax.vjp(offload(layer), P, X)
    want_out, want = jax.vjp(layer, P, X)
    ct = jnp.ones_like(out)
    once, twice = backward(ct), backward(ct)
    assert_same(once, twice)
    assert_same((out, once), (want_out, want(ct)))
    assert moved_bytes() > 0


def test_jit_is_switched_off():
    def program(layer):
        return jax.grad(lambda p, x: jnp.sum(jax.lax.scan(lambda x, _: (layer(p, x), None), x, None, length=3)[0]))
    with jax.disable_jit():
        want = program(layer)(P, X)
        for _ in range(2):
            assert_same(program(offload(layer))(P, X), want)
    assert moved_bytes() > 0


def test_a_trace_that_is_evaluated():
    program = jax.grad(loss_of(offload(layer)))
    closed = jax.make_jaxpr(program)(P, X)
    want = jax.jit(program)(P, X)
    got = jax.extend.core.jaxpr_as_fun(closed)(*jax.tree.leaves((P, X)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, jax.tree.leaves(want))
    assert ebb.jax.statistics()["cpu"]["h2d_bytes"] > 0


def test_types_that_are_weak_stay_weak():
    f = lambda x, y: jnp.sin(x) * y
    for within in (lambda f: f, jax.jit):
        got, want = (within(jax.value_and_grad(f))(2.0, 3.0) for f in (offload(f, params=None), f))
        for one, other in zip(got, want):
            assert jax.typeof(one) == jax.typeof(other)
    assert moved_bytes() > 0


def test_two_forwards_then_two_backwards():
    forward = jax.jit(lambda p, x: jax.vjp(offload(layer), p, x))
    plain = jax.jit(lambda p, x: jax.vjp(layer, p, x))
    backward = jax.jit(lambda f, ct: f(ct))
    ct = jnp.ones_like(X)
    (_, first), (_, second) = forward(P, X), forward(P, 2 * X)
    assert_same(backward(second, ct), backward(plain(P, 2 * X)[1], ct))
    for _ in range(2):  # any number of times
        assert_same(backward(first, ct), backward(plain(P, X)[1], ct))


def test_a_vjp_called_twice_in_one_program():
    def program(layer):
        def both(p, x):
            out, backward = jax.vjp(layer, p, x)
            return backward(out), backward(jnp.sin(out))
        return both
    check(program, P, X, runs=4)
    check(lambda layer: program(jax.jit(layer)), P, X, runs=4)


def test_a_vjp_called_in_a_loop():
    def program(layer):
        def loop(p, x, n):
            out, backward = jax.vjp(layer, p, x)
            return jax.lax.fori_loop(0, n, lambda i, x: x + backward(x)[1], out)
        return loop
    for make in (program, lambda layer: program(jax.jit(layer))):
        want = jax.jit(make(layer))
        moved = jax.jit(make(offload(layer)))
        for n in (1, 3, 0, 1, 4):
            assert_same(moved(P, X, n), want(P, X, n))


def test_second_derivatives_are_refused():
    f = lambda x: jnp.sum(offload(layer)(P, x))
    with pytest.raises(NotImplementedError, match="Second derivatives do not work through ebb.jax.offload"):
        jax.jit(jax.grad(lambda x: jnp.sum(jax.grad(f)(x) ** 2)))(X)
    with pytest.raises(NotImplementedError, match="use jax.checkpoint"):
        jax.jvp(jax.grad(f), (X,), (X,))
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(f, (X,), (X,))


def test_derivatives_by_a_cotangent():
    """A gradient is linear in its cotangent: that is no second derivative of the function."""
    def program(layer):
        return jax.grad(lambda y, x: jnp.sum(jnp.sin(jax.grad(lambda x: jnp.sum(y * layer(P, x)))(x))))
    check(program, normal(5, 8, WIDTH), X)


def test_two_programs_take_turns():
    one = jax.jit(jax.grad(loss_of(offload(layer))))
    other = jax.jit(jax.grad(lambda p, x: jnp.sum(jnp.cos(offload(layer)(p, x)))))
    want = jax.jit(jax.grad(loss_of(layer)))(P, X), jax.jit(jax.grad(lambda p, x: jnp.sum(jnp.cos(layer(p, x)))))(P, X)
    for _ in range(4):
        assert_same((one(P, X), other(P, X)), want)


def test_runs_that_overlap():
    program = jax.jit(jax.grad(loss_of(offload(layer))))
    want = jax.jit(jax.grad(loss_of(layer)))
    inputs = [normal(i, 512, WIDTH) for i in range(20)]
    got = [program(P, x) for x in inputs]
    for one, x in zip(got, inputs):
        assert_same(one, want(P, x))
