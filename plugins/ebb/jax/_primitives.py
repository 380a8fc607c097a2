"""The two calls that a traced program makes: offload() gives a handle for arrays, reload() gives the arrays for it.

They are custom calls inside custom_partitioning inside custom_vmap, in this order. As far as JAX knows they have no effect: so
they go through jax.checkpoint, and an offload whose handle nobody uses is dropped. XLA is told that they have one: so it neither
merges nor moves them. What keeps them in order is data: a reload has the handle as an operand, and both have what they come behind.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

_HANDLE = ((2,), np.dtype(np.uint32))
SECOND_DERIVATIVE = (
    "ebb.jax: what a wrapped function saved is differentiated again. Second derivatives do not work through "
    "ebb.jax.offload: use jax.checkpoint around the function, or the function itself, where they are needed"
)


class Call:
    """What a traced program has of one wrapped call: names, and how many reloads follow its offload."""

    def __init__(self, site: int, scope: str, names: tuple[str, ...]):
        self.site, self.scope, self.names = site, scope, names
        self.reloads = 0  # traced so far; all are by the time that the program is lowered

    def attributes(self, layout: str) -> dict:
        return {"site": np.int64(self.site), "scope": self.scope, "names": "\n".join(self.names), "layout": layout}


# ------------------------------------------------------------------------------------------------- the raw calls --

offload_p = Primitive("ebb_offload")
reload_p = Primitive("ebb_reload")
reload_p.multiple_results = True


def _array(shape, dtype, *like):
    """An abstract value that varies over the manual mesh axes that `like` does."""
    varies = frozenset().union(*(getattr(aval, "vma", frozenset()) for aval in like))
    return jax.core.ShapedArray(shape, dtype, vma=varies) if varies else jax.core.ShapedArray(shape, dtype)


offload_p.def_abstract_eval(lambda *operands, call, layout: _array(*_HANDLE, *operands))
reload_p.def_abstract_eval(
    lambda *operands, call, layout, shapes: [_array(shape, dtype, *operands) for shape, dtype in shapes]
)


def _lower_offload(ctx, *operands, call, layout):
    lower = jax.ffi.ffi_lowering("ebb_offload", has_side_effect=True)
    return lower(ctx, *operands, reloads=np.int64(call.reloads), **call.attributes(layout))


def _lower_reload(ctx, *operands, call, layout, shapes):
    return jax.ffi.ffi_lowering("ebb_reload", has_side_effect=True)(ctx, *operands, **call.attributes(layout))


mlir.register_lowering(offload_p, _lower_offload)
mlir.register_lowering(reload_p, _lower_reload)


# ------------------------------------------------------------------------------------- marks around what is moved --

# An identity. It says that arrays of one number lie on the devices alike, and is where a second derivative is noticed.
mark_p = Primitive("ebb_mark")
mark_p.def_impl(lambda value, **_: value)
mark_p.def_abstract_eval(lambda aval, **_: aval)
batching.primitive_batchers[mark_p] = lambda values, dims, **params: (mark_p.bind(values[0], **params), dims[0])


def _refuse_derivative(primals, tangents, **params):
    raise NotImplementedError(SECOND_DERIVATIVE)


ad.primitive_jvps[mark_p] = _refuse_derivative
mlir.register_lowering(mark_p, lambda ctx, value, **_: [value])


# -------------------------------------------------------------------------------------------------- partitioning --

def _factors(avals, first: str) -> str:
    names = (f"{first}{i}" for i in itertools.count())
    return ", ".join(" ".join(next(names) for _ in aval.shape) for aval in avals)


def _layout(shardings) -> str:
    return "; ".join(str(getattr(sharding, "spec", sharding)) for sharding in shardings)


def _partitioned_offload(call: Call, operands):
    count = len(call.names)
    bind = custom_partitioning(functools.partial(offload_p.bind, call=call, layout=""))

    def partition(mesh, args, result):
        shardings = tuple(arg.sharding for arg in args)
        lower = functools.partial(offload_p.bind, call=call, layout=_layout(shardings[:count]))
        return mesh, lower, NamedSharding(mesh, PartitionSpec()), shardings

    bind.def_partition(
        partition=partition,
        sharding_rule=f"{_factors(operands, 'a')} -> h",
        need_replication_factors=("h",),
    )
    return bind(*operands)


def _partitioned_reload(call: Call, shapes, handle, order):
    bind = custom_partitioning(lambda *operands: tuple(reload_p.bind(*operands, call=call, layout="", shapes=shapes)))
    results = [jax.ShapeDtypeStruct(*shape) for shape in shapes]

    def partition(mesh, args, result):
        shardings = tuple(one.sharding for one in result)
        local = tuple(
            (sharding.shard_shape(shape), dtype) for sharding, (shape, dtype) in zip(shardings, shapes)
        )

        def lower(*operands):
            return tuple(reload_p.bind(*operands, call=call, layout=_layout(shardings), shapes=local))

        return mesh, lower, shardings, (NamedSharding(mesh, PartitionSpec()), *(arg.sharding for arg in args[1:]))

    bind.def_partition(
        partition=partition,
        sharding_rule=f"{_factors([handle], 'h')}, {_factors(order, 'a')} -> {_factors(results, 'r')}",
        need_replication_factors=tuple(f"h{i}" for i in range(handle.ndim)),
    )
    return bind(handle, *order)


# ------------------------------------------------------------------------------------------------------ batching --

def _is_eager(operands) -> bool:
    return not any(isinstance(operand, jax.core.Tracer) for operand in operands)


@functools.lru_cache(maxsize=256)
def _eager_offload(*of_call):
    return jax.jit(lambda *operands: _partitioned_offload(Call(*of_call), operands))


@functools.lru_cache(maxsize=256)
def _eager_reload(shapes, *of_call):
    return jax.jit(lambda handle, *order: _partitioned_reload(Call(*of_call), shapes, handle, order))


def _batched_offload(call: Call, operands):
    if _is_eager(operands):
        return _eager_offload(call.site, call.scope, call.names)(*operands)
    count = len(call.names)

    @jax.custom_batching.custom_vmap
    def one(*operands):
        return _partitioned_offload(call, operands)

    @one.def_vmap
    def whole_batch(size, batched, *operands):
        def with_batch(value, is_batched):
            return value if is_batched else jnp.broadcast_to(value, (size, *value.shape))

        moved = [with_batch(value, is_batched) for value, is_batched in zip(operands[:count], batched)]
        handle = _batched_offload(call, (*moved, *operands[count:]))
        return jnp.broadcast_to(handle, (size, *handle.shape)), True  # batched: so the reload knows that it is

    return one(*operands)


def _batched_reload(call: Call, shapes, handle, order):
    if _is_eager((handle, *order)):
        return _eager_reload(shapes, call.site, call.scope, call.names)(handle, *order)
    @jax.custom_batching.custom_vmap
    def one(handle, *order):
        return _partitioned_reload(call, shapes, handle, order)

    @one.def_vmap
    def whole_batch(size, batched, handle, *order):
        if not batched[0]:
            values = _batched_reload(call, shapes, handle, order)
            return values, tuple(False for _ in values)
        of_all = tuple(((size, *shape), dtype) for shape, dtype in shapes)
        values = _batched_reload(call, of_all, handle, order)
        return values, tuple(True for _ in values)

    return one(handle, *order)


# ----------------------------------------------------------------------------------------------------------- API --

def offload(call: Call, moved, order):
    """A handle for `moved`, which leave once `order` is there too."""
    marked = [mark_p.bind(value, call=call, index=i) for i, value in enumerate(moved)]
    return _batched_offload(call, (*marked, *order))


def reload(call: Call, handle, shapes, order):
    """The arrays that `handle` stands for, in memory from when `order` is there."""
    call.reloads += 1
    values = _batched_reload(call, tuple(shapes), handle, tuple(order))
    return [mark_p.bind(value, call=call, index=i) for i, value in enumerate(values)]
