"""What a traced function saves for its backward: where each value comes from, its name, and whether it may move."""

import dataclasses
import os

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

# Operations that hand a value on: what they give is called as what they were given.
_HANDS_ON = {"name", "reduce_precision", "reshape", "squeeze", "transpose", "convert_element_type", "broadcast_in_dim",
             "optimization_barrier", "copy", "copy_p", "sharding_constraint", "reshard", "pvary"}
_SAME_BYTES = {"name", "optimization_barrier", "sharding_constraint"}


@dataclasses.dataclass(frozen=True)
class Residual:
    name: str
    is_named: bool  # by checkpoint_name
    is_of_activation: bool
    is_argument_or_output: bool
    size_bytes: int
    is_movable: bool  # its elements are whole bytes of a type that devices know


def describe(closed: ClosedJaxpr, out_count: int, of_activation: list[bool]) -> tuple[list[int], list[Residual]]:
    """The numbers of the results that are computed from activations, and the values saved, which come after the first
    `out_count` results. `of_activation` is about the arguments."""
    jaxpr = closed.jaxpr
    makers = _makers(jaxpr)
    depends = _depends(jaxpr, of_activation)
    ends = {_same_bytes(var, makers) for var in (*jaxpr.invars, *jaxpr.constvars, *jaxpr.outvars[:out_count])
            if isinstance(var, Var)}
    found = []
    for var, is_of_activation in zip(jaxpr.outvars[out_count:], depends[out_count:]):
        is_end = isinstance(var, Literal) or _same_bytes(var, makers) in ends
        name, is_named = ("", False) if is_end else _name(var, jaxpr, makers)
        found.append(Residual(name, is_named, is_of_activation, is_end, _size_bytes(var.aval), is_movable(var.aval)))
    computed = [i for i, var in enumerate(jaxpr.outvars[:out_count]) if depends[i] and var not in set(jaxpr.invars)]
    return computed, found


def given_names(jaxpr: Jaxpr) -> set[str]:
    """All that checkpoint_name gave in a function, inner ones included."""
    found = set()
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "name":
            found.add(eqn.params["name"])
        found.update(*map(given_names, bodies(eqn)))
    return found


def bodies(eqn) -> list[Jaxpr]:
    """The traces that an operation runs: of a loop, of branches, of an inner function."""
    values = (one for value in eqn.params.values() for one in (value if isinstance(value, (tuple, list)) else (value,)))
    return [one.jaxpr if isinstance(one, ClosedJaxpr) else one for one in values if isinstance(one, (ClosedJaxpr, Jaxpr))]


def _makers(jaxpr: Jaxpr) -> dict:
    return {var: (eqn, i) for eqn in jaxpr.eqns for i, var in enumerate(eqn.outvars)}


def _same_bytes(var, makers):
    while var in makers:
        eqn, i = makers[var]
        if eqn.primitive.name not in _SAME_BYTES or not isinstance(eqn.invars[i], Var):
            break
        var = eqn.invars[i]
    return var


def _inner(eqn) -> Jaxpr | None:
    """The body that has the operation's results, one for one."""
    return next((body for body in bodies(eqn) if len(body.outvars) == len(eqn.outvars)), None)


def _name(var, jaxpr: Jaxpr, makers: dict) -> tuple[str, bool]:
    """By checkpoint_name, else the operation and its line."""
    first = None
    while var in makers:
        eqn, i = makers[var]
        kind = eqn.primitive.name
        if kind == "name":
            return eqn.params["name"], True
        first = first or eqn
        body = _inner(eqn)
        if body is not None and isinstance(body.outvars[i], Var):
            name, is_named = _name(body.outvars[i], body, _makers(body))
            if is_named:
                return name, True
            if name and eqn is first:
                return name, False
        if kind not in _HANDS_ON:
            break
        var = eqn.invars[0]
        if not isinstance(var, Var):
            break
    return (f"{first.primitive.name} {_line(first)}".strip(), False) if first is not None else ("", False)


def _line(eqn) -> str:
    try:  # not in JAX's public interface: without it names are shorter
        from jax._src import source_info_util
        frame = source_info_util.user_frame(eqn.source_info.traceback)
        return f"{os.path.basename(frame.file_name)}:{frame.start_line}"
    except (ImportError, AttributeError, TypeError):
        return ""


def _size_bytes(aval) -> int:
    dtype = np.dtype(aval.dtype) if is_movable(aval) else None
    return int(np.prod(aval.shape, dtype=np.int64)) * dtype.itemsize if dtype is not None else 0


_MOVABLE = {"bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16",
            "float32", "float64", "complex64", "complex128", "float8_e5m2", "float8_e3m4", "float8_e4m3",
            "float8_e4m3fn", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu"}


def is_movable(aval) -> bool:
    return getattr(getattr(aval, "dtype", None), "name", None) in _MOVABLE and has_known_shape(aval)


def has_known_shape(aval) -> bool:
    """Programs may be exported for sizes that are told later."""
    return all(isinstance(size, int) for size in getattr(aval, "shape", ()))


# -------------------------------------------------------------------------------------------------- dependence --

def _depends(jaxpr: Jaxpr, of_activation: list[bool]) -> list[bool]:
    """Of each result, whether it depends on an argument that does."""
    known = dict(zip(jaxpr.invars, of_activation))
    for eqn in jaxpr.eqns:
        inputs = [not isinstance(var, Literal) and known.get(var, False) for var in eqn.invars]
        for var, value in zip(eqn.outvars, _depends_eqn(eqn, inputs)):
            known[var] = value
    return [not isinstance(var, Literal) and known.get(var, False) for var in jaxpr.outvars]


def _depends_eqn(eqn, inputs: list[bool]) -> list[bool]:
    body = _inner(eqn)
    if not any(inputs) or body is None or len(body.invars) != len(inputs):
        return [any(inputs)] * len(eqn.outvars)
    if eqn.primitive.name == "scan":
        return _depends_scan(eqn, body, inputs)
    if eqn.primitive.name in ("while", "cond"):
        return [True] * len(eqn.outvars)
    return _depends(body, inputs)


def _depends_scan(eqn, body: Jaxpr, inputs: list[bool]) -> list[bool]:
    first, count = eqn.params["num_consts"], eqn.params["num_carry"]
    inputs = list(inputs)
    while True:
        outputs = _depends(body, inputs)
        carry = [a or b for a, b in zip(inputs[first:first + count], outputs[:count])]
        if carry == inputs[first:first + count]:
            return outputs
        inputs[first:first + count] = carry
