"""The two calls that a traced program makes: offload() gives a handle for arrays, reload() gives the arrays for it.

They are custom calls inside custom_partitioning inside custom_vmap, in this order. As far as JAX knows they have no
effect: so
they go through jax.checkpoint, and an offload whose handle nobody uses is dropped. XLA is told that they have one: so
it neither
merges nor moves them. What keeps them in order is data: a reload has the handle as an operand, and both have what
they come behind.
"""

import collections
import functools
import hashlib
import itertools
import math
import typing

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxlib.mlir.dialects import sdy

_HANDLE = ((2,), np.dtype(np.uint32))
SECOND_DERIVATIVE = (
    "ebb.jax: what a wrapped function saved is differentiated again. Second derivatives do not work through "
    "ebb.jax.offload: use jax.checkpoint around the function, or the function itself, where they are needed"
)


_calls_of_site: collections.Counter = collections.Counter()


def _part(text: str, most_bytes: int) -> str:
    """Of a name of Ebb's: a path of at most 255 bytes, its parts apart by slashes."""
    return text.replace("/", ".").replace("\n", " ").encode()[:most_bytes].decode(errors="ignore")


def unique_names(texts) -> tuple[str, ...]:
    seen = collections.Counter()
    given = []
    for text in texts:
        name = _part(text, 160) or "value"
        seen[name] += 1
        given.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return tuple(given)


def number_of(text: str) -> int:
    """The same in each process and each run: for the compilation cache. Fits an int64."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")


class Shape(typing.NamedTuple):
    """Of an array that comes back."""

    shape: tuple[int, ...]
    dtype: np.dtype
    spec: PartitionSpec | None  # where types say how arrays are sharded
    weak_type: bool = False
    sharding: jax.sharding.Sharding | None = None  # of one outside of programs

    @classmethod
    def of(cls, value) -> "Shape":
        aval = jax.typeof(value)
        sharding = None if isinstance(value, jax.core.Tracer) else value.sharding
        return cls(value.shape, np.dtype(value.dtype), aval.sharding.spec, aval.weak_type, sharding)

    def batched(self, size: int) -> "Shape":
        spec = None if self.spec is None else PartitionSpec(None, *self.spec)
        return Shape((size, *self.shape), self.dtype, spec, self.weak_type)


class Call:
    """What a traced program has of one wrapped call: names, and how many reloads follow its offload."""

    def __init__(self, site: int, scope: str, names: tuple[str, ...], stays: bool = False):
        self.site, self.scope, self.names = site, _part(scope, 80) or "function", names
        self.stays = stays  # until it is reloaded, which is once
        self.reloads = 0  # traced so far; all are by the time that the program is lowered
        # Apart from other calls at the site, and the same when the same program is run again: for the compilation
        # cache.
        self.serial = _calls_of_site[site]
        _calls_of_site[site] += 1

    @property
    def key(self) -> tuple:
        """What one like it is made of."""
        return self.site, self.scope, self.names, self.stays

    def attributes(self, layout: str) -> dict:
        """What the handlers read: lines of a key and a value. The serial number is in it so that one call in the
        program's text is not another."""
        lines = {"site": self.site, "serial": self.serial, "reloads": self.reloads, "stays": int(self.stays),
                 "layout": layout, "scope": self.scope}
        return {"call": "\n".join([*(f"{key} {value}" for key, value in lines.items()),
                                   *(f"name {name}" for name in self.names)])}


# ------------------------------------------------------------------------------------------------- the raw calls --

offload_p = Primitive("ebb_offload")
reload_p = Primitive("ebb_reload")
reload_p.multiple_results = True


def _array(shape, dtype, *like, weak_type=False):
    """An abstract value that varies over the manual mesh axes that one of `like` does."""
    varies = frozenset().union(*(_varying(aval) for aval in like))
    if not varies:
        return jax.core.ShapedArray(shape, dtype, weak_type=weak_type)
    mesh = next(aval.sharding.mesh for aval in like if _varying(aval))
    kind = {"vma": varies}
    if hasattr(jax.sharding, "ManualAxisType"):  # from JAX 0.11 on
        kind = {"manual_axis_type": jax.sharding.ManualAxisType(varying=varies)}
    sharding = NamedSharding(mesh, PartitionSpec(*(None for _ in shape)))
    return jax.core.ShapedArray(shape, dtype, weak_type, sharding=sharding, **kind)


def _varying(aval) -> frozenset:
    kind = getattr(aval, "manual_axis_type", None)
    return getattr(aval, "vma", frozenset()) if kind is None else kind.varying


offload_p.def_abstract_eval(lambda *operands, call, layout: _array(*_HANDLE, *operands))
reload_p.def_abstract_eval(
    lambda *operands, call, layout, shapes: [_array(one.shape, one.dtype, *operands, weak_type=one.weak_type)
                                             for one in shapes]
)
# Where a trace is evaluated outside of any program.
offload_p.def_impl(lambda *operands, call, layout: _eager_offload(*call.key)(*operands))
reload_p.def_impl(lambda *operands, call, layout, shapes: list(_eager_reload(shapes, *call.key)(*operands)))


def _lower_offload(ctx, *operands, call, layout):
    return jax.ffi.ffi_lowering("ebb_offload", has_side_effect=True)(ctx, *operands, **call.attributes(layout))


def _lower_reload(ctx, *operands, call, layout, shapes):
    return jax.ffi.ffi_lowering("ebb_reload", has_side_effect=True)(ctx, *operands, **call.attributes(layout))


mlir.register_lowering(offload_p, _lower_offload)
mlir.register_lowering(reload_p, _lower_reload)


# ------------------------------------------------------------------------------------- marks around what is moved --

# An identity of all arrays of a call: one operation, since JAX drops one whose results nobody reads, and a reload
# whose arrays are read in part is still to agree with its offload on all of them. It says that arrays of one number lie
# on the devices alike, and is where a second derivative is noticed.
mark_p = Primitive("ebb_mark")
mark_p.multiple_results = True
mark_p.def_impl(lambda *values, **_: list(values))
mark_p.def_abstract_eval(lambda *avals, **_: avals)
batching.primitive_batchers[mark_p] = lambda values, dims, **params: (mark_p.bind(*values, **params), dims)


def _refuse_derivative(primals, tangents, **params):
    raise NotImplementedError(SECOND_DERIVATIVE)


ad.primitive_jvps[mark_p] = _refuse_derivative


def _lower_mark(ctx, *values, call, of_program):
    """The partitioner gives all values of a group one sharding; a group is a value that leaves and comes back."""
    if not jax.config.jax_use_shardy_partitioner:
        if getattr(ctx.module_context.axis_context, "num_devices", 1) not in (1, None):  # XLA would end the process
            raise NotImplementedError("ebb.jax: a program for several devices needs JAX's default partitioner, Shardy: "
                                      "set jax_use_shardy_partitioner to True")
    elif of_program:
        for index, value in enumerate(values):
            sdy.sharding_group(value, number_of(f"ebb {call.site} {call.serial} {index}"))
    return values


mlir.register_lowering(mark_p, _lower_mark)


# -------------------------------------------------------------------------------------------------- partitioning --

def _factors(avals, first: str) -> str:
    names = (f"{first}{i}" for i in itertools.count())
    return ", ".join(" ".join(next(names) for _ in aval.shape) for aval in avals)


def _even(sharding, shape) -> tuple[int, ...]:
    """A shape that it divides without a remainder: XLA pads what it does not."""
    return (len(sharding.device_set),) * len(shape)


def _own_shape(sharding, shape) -> tuple[int, ...]:
    """Of a device's part, padding included."""
    even = _even(sharding, shape)
    return tuple(-(-size * part // whole) for size, whole, part in zip(shape, even, sharding.shard_shape(even)))


def _parts(sharding, shape) -> str:
    """Which part each device has: the same however the sharding is written."""
    if not isinstance(sharding, NamedSharding):  # of the devices that a manual region leaves to the compiler
        return repr(sharding)
    parts = sharding.devices_indices_map(_even(sharding, shape))
    return repr(sorted((device.id, str(index)) for device, index in parts.items()))


def _layout(shardings, shapes) -> str:
    parts = [(shape, _parts(sharding, shape)) for sharding, shape in zip(shardings, shapes)]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:15]


def _raw_offload(call: Call, operands, layout=""):
    return offload_p.bind(*operands, call=call, layout=layout)


def _raw_reload(call: Call, shapes, operands, layout=""):
    return tuple(reload_p.bind(*operands, call=call, layout=layout, shapes=tuple(shapes)))


def _offload_in_shards(call: Call, operands):
    """Where the compiler partitions the program: each device moves its own shard, and has a handle of its own."""
    count = len(call.names)

    def partition(mesh, args, result):
        shardings = tuple(arg.sharding for arg in args)
        layout = _layout(shardings[:count], [arg.shape for arg in args[:count]])
        return mesh, lambda *own: _raw_offload(call, own, layout), NamedSharding(mesh, PartitionSpec()), shardings

    bind = custom_partitioning(lambda *operands: _raw_offload(call, operands))
    rule = f"{_factors(operands, 'a')} -> h"
    bind.def_partition(partition=partition, sharding_rule=rule, need_replication_factors=("h",))
    return bind(*operands)


def _reload_in_shards(call: Call, shapes, handle, order):
    def partition(mesh, args, results):
        shardings = tuple(one.sharding for one in results)
        layout = _layout(shardings, [one.shape for one in shapes])
        own_shapes = [Shape(_own_shape(there, one.shape), one.dtype, None) for there, one in zip(shardings, shapes)]
        of_args = (NamedSharding(mesh, PartitionSpec()), *(arg.sharding for arg in args[1:]))
        return mesh, lambda *own: _raw_reload(call, own_shapes, own, layout), shardings, of_args

    bind = custom_partitioning(lambda *operands: _raw_reload(call, shapes, operands))
    results = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in shapes]
    rule = f"{_factors((handle, *order), 'a')} -> {_factors(results, 'r')}"
    replicated = tuple(f"a{i}" for i in range(handle.ndim))
    bind.def_partition(partition=partition, sharding_rule=rule, need_replication_factors=replicated)
    return bind(handle, *order)


def _mesh(operands):
    """That the operands are typed with; the one around where they are not."""
    of_types = (getattr(getattr(jax.typeof(operand), "sharding", None), "mesh", None) for operand in operands)
    return next((mesh for mesh in of_types if mesh is not None and not mesh.empty), jax.sharding.get_abstract_mesh())


def _axes(mesh, kind: AxisType) -> tuple[str, ...]:
    return tuple(name for name, one in zip(mesh.axis_names, mesh.axis_types) if one == kind)


def _specs(operands) -> tuple:
    return tuple(jax.typeof(operand).sharding.spec for operand in operands)


def _explicit_shape(mesh, one: Shape) -> tuple[int, ...]:
    """Of a device's part, by the type; which says nothing of axes that are manual or the compiler's."""
    axes = (() if names is None else names if isinstance(names, tuple) else (names,) for names in one.spec)
    return tuple(size // math.prod(mesh.shape[name] for name in names) for size, names in zip(one.shape, axes))


def _by_hand(mesh, function, operands, out_specs):
    """Where types say how arrays are sharded, so that a device's part of the program can be written as such."""
    return jax.shard_map(function, mesh=mesh, in_specs=_specs(operands), out_specs=out_specs,
                         axis_names=set(_axes(mesh, AxisType.Explicit)), check_vma=False)(*operands)


def _partitioned_offload(call: Call, operands):
    mesh = _mesh(operands)
    if explicit := _axes(mesh, AxisType.Explicit):
        own = lambda *operands: _partitioned_offload(call, operands)[None]
        return _by_hand(mesh, own, operands, PartitionSpec(explicit))
    if _axes(mesh, AxisType.Manual) and not _axes(mesh, AxisType.Auto):
        return _raw_offload(call, operands)
    return _offload_in_shards(call, operands)


def _partitioned_reload(call: Call, shapes, handle, order):
    mesh = _mesh((handle, *order))
    if _axes(mesh, AxisType.Explicit):
        local = tuple(Shape(_explicit_shape(mesh, one), one.dtype, None) for one in shapes)
        own = lambda handle, *order: _partitioned_reload(call, local, handle, order)
        return _by_hand(mesh, own, (handle, *order), tuple(one.spec for one in shapes))
    if _axes(mesh, AxisType.Manual) and not _axes(mesh, AxisType.Auto):
        return _raw_reload(call, shapes, (handle, *order))
    return _reload_in_shards(call, shapes, handle, order)


# ------------------------------------------------------------------------------------------------------ batching --

def _is_eager(operands) -> bool:
    return not any(isinstance(operand, jax.core.Tracer) for operand in operands)


def _program(function, **options):
    """Also under jax.disable_jit()."""
    jitted = jax.jit(function, **options)

    def run(*operands):
        with jax.disable_jit(False):
            return jitted(*operands)

    return run


@functools.lru_cache(maxsize=256)
def _eager_offload(*of_call):
    return _program(lambda *operands: _partitioned_offload(Call(*of_call), operands))


@functools.lru_cache(maxsize=256)
def _eager_reload(shapes, *of_call):
    return _program(lambda handle, *order: _partitioned_reload(Call(*of_call), shapes, handle, order),
                    out_shardings=tuple(one.sharding for one in shapes))


def _batched_offload(call: Call, operands):
    if _is_eager(operands):
        return _eager_offload(*call.key)(*operands)
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
        return _eager_reload(shapes, *call.key)(handle, *order)

    @jax.custom_batching.custom_vmap
    def one(handle, *order):
        return _partitioned_reload(call, shapes, handle, order)

    @one.def_vmap
    def whole_batch(size, batched, handle, *order):
        if not batched[0]:
            values = _batched_reload(call, shapes, handle, order)
            return values, tuple(False for _ in values)
        of_all = tuple(one.batched(size) for one in shapes)
        values = _batched_reload(call, of_all, handle, order)
        return values, tuple(True for _ in values)

    return one(handle, *order)


# ----------------------------------------------------------------------------------------------------------- API --

def _mark(call: Call, values) -> list:
    of_program = not _axes(_mesh(values), AxisType.Manual)  # groups do not go through shard_map
    return mark_p.bind(*values, call=call, of_program=of_program)


def _only_there(order) -> tuple:
    """What is waited for and not read: derivatives by it are none of ours."""
    return tuple(jax.lax.stop_gradient(value) for value in order)


def offload(call: Call, moved, order):
    """A handle for `moved`, which leave once `order` is there too."""
    return _batched_offload(call, (*_mark(call, moved), *_only_there(order)))


def reload(call: Call, handle, shapes, order):
    """The arrays that `handle` stands for, in memory from when `order` is there."""
    call.reloads += 1
    return _mark(call, _batched_reload(call, tuple(shapes), handle, _only_there(order)))
