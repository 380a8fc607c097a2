"""ebb.jax.offload for modules of Flax: linen as a lifted transform like nn.remat, nnx through split and merge.

    Layer = ebb.jax.flax.offload(Layer, names=["up"])            # linen; also under nn.scan
    y = ebb.jax.flax.offload_nnx(Layer.__call__, names=["up"])(layer, x)
"""

import functools

from flax import nnx
from flax.core import lift
from flax.linen import transforms

from ebb.jax import _offload


def _lifted(fn, name: str, static_argnums: tuple[int, ...], options: dict):
    """`fn` of a scope, its variables and random numbers made arguments that are no activations."""

    def inner(scope_fn, repack, variables, rngs, *args, **kwargs):
        def pure(variables, rngs, *args, **kwargs):
            scope = scope_fn(variables, rngs)
            return fn(scope, *args, **kwargs), repack(scope)

        pure.__name__ = name
        at = tuple(n + 2 for n in static_argnums)
        return _offload.offload(pure, params=(0, 1), static_argnums=at, **options)(variables, rngs, *args, **kwargs)

    return lift.pack(inner, (True,), (True,), (True,), name="offload", enable_kwargs=True)


def offload(target, *, methods=None, static_argnums: int | tuple[int, ...] = (), **options):
    """A linen module class, or a method of one, whose saved values move; `options` as of ebb.jax.offload.

    methods: names of the methods, "__call__" if none are given. static_argnums counts self as 0, as nn.remat does.
    """
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    name = getattr(target, "__name__", type(target).__name__)

    def offloaded(fn):  # modules that are given no name are called by this one
        return _lifted(fn, name, tuple(n - 1 for n in static), options)

    return transforms.lift_transform(offloaded, target, methods=methods)


def offload_nnx(fn, **options):
    """`fn(module, *args)` of an nnx module, whose saved values move; `options` as of ebb.jax.offload.

    What `fn` changes in the module is changed afterwards, but for its parameters (nnx.Param), which it only reads.
    """

    @functools.wraps(fn)
    def wrapped(module, *args, **kwargs):
        graph, params, rest = nnx.split(module, nnx.Param, ...)

        def pure(params, rest, *args, **kwargs):
            inside = nnx.merge(graph, params, rest)
            out = fn(inside, *args, **kwargs)
            return out, nnx.split(inside, nnx.Param, ...)[2]

        pure.__name__ = type(module).__name__
        out, changed = _offload.offload(pure, params=(0, 1), **options)(params, rest, *args, **kwargs)
        nnx.update(module, changed)
        return out

    return wrapped
