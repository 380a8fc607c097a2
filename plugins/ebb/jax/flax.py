"""ebb.jax.offload for modules of Flax: linen as a lifted transform like nn.remat, nnx through split and merge.

    Layer = ebb.jax.flax.offload(Layer, names=["up"])            # linen; also under nn.scan
    y = ebb.jax.flax.offload_nnx(Layer.__call__, names=["up"])(layer, x)
"""

import functools

import jax
from flax import nnx
from flax.core import lift
from flax.linen import transforms
from jax.tree_util import keystr

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


def offload_nnx(fn, *, static_argnums: int | tuple[int, ...] = (), **options):
    """`fn(module, *args)` of an nnx module, whose saved values move; `options` as of ebb.jax.offload.

    What `fn` changes in the module is changed afterwards, but for its parameters (nnx.Param), which it only reads.
    Further modules among the arguments are like it. static_argnums counts the module as 0.
    """
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)

    @functools.wraps(fn)
    def wrapped(module, *args, **kwargs):
        further = [n for n, arg in enumerate(args) if isinstance(arg, nnx.Module)]
        modules = [module, *(args[n] for n in further)]
        graph, params, rest = nnx.split(modules, nnx.Param, ...)

        def pure(params, rest, *args, **kwargs):
            before = _leaves(params)  # Variables that are written are those of `params`
            inside = nnx.merge(graph, params, rest)
            args = list(args)
            for n, one in zip(further, inside[1:]):
                args[n] = one
            out = fn(inside[0], *args, **kwargs)
            _, after, changed = nnx.split(inside, nnx.Param, ...)
            _check_that_it_only_reads(before, _leaves(after))
            return out, changed

        pure.__name__ = type(module).__name__
        at = tuple(n + 1 if n > 0 else n for n in static)
        given = [None if n in further else arg for n, arg in enumerate(args)]
        out, changed = _offload.offload(pure, params=(0, 1), static_argnums=at, **options)(
            params, rest, *given, **kwargs)
        nnx.update(modules, changed)
        return out

    return wrapped


def _leaves(state) -> dict:
    return dict(jax.tree_util.tree_leaves_with_path(state))


def _check_that_it_only_reads(before: dict, after: dict) -> None:
    """Otherwise what was written would be lost."""
    for path, leaf in after.items():
        if before.get(path) is not leaf:
            raise ValueError("ebb.jax.flax.offload_nnx: the function writes the parameter "
                             f"{keystr(path)}, which it may only read: what it changes is an nnx.Variable of another kind")
