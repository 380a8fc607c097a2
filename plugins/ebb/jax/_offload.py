"""offload(): a function whose saved values leave the device between its forward and its backward."""

import collections.abc
import dataclasses
import fnmatch
import functools
import os
import warnings

import jax
from jax import dtypes
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.tree_util import tree_flatten, tree_unflatten

from ebb.jax import _plan, _primitives, _residuals

_DEFAULT_FLOOR_BYTES = 1 << 20
_VALUES = ("offload", "device", "remat")


@dataclasses.dataclass(frozen=True)
class Policy:
    """By name: where what is saved goes. `rest` is for what has no name, or one that no pattern matches."""

    by_name: tuple[tuple[str, str], ...]
    rest: str
    floor: int

    def of(self, name: str) -> str | None:
        """None where no pattern matches."""
        return next((value for pattern, value in self.by_name if _matches(name, pattern)), None)

    def moves(self, residual) -> bool:
        """What is to be computed again and is saved all the same is what the rest is computed from."""
        asked = self.of(residual.name) if residual.is_named else None
        if asked is None:
            return self.rest in ("offload", "auto") and residual.size_bytes >= self.floor
        return asked == "offload" and residual.size_bytes > 0


def _matches(name: str, pattern: str) -> bool:
    """A name with brackets is itself, too."""
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def make_policy(names, policy, floor: int | None) -> Policy:
    if names is not None and policy is not None:
        raise ValueError("ebb.jax.offload: names and policy are two ways to say the same: give one of them")
    if floor is not None and not isinstance(floor, int):
        raise TypeError(f"ebb.jax.offload: floor is a number of bytes, not {floor!r}")
    floor = _DEFAULT_FLOOR_BYTES if floor is None else max(floor, 1)
    if names is not None:
        given = None if isinstance(names, str) or not isinstance(names, collections.abc.Iterable) else tuple(names)
        if given is None or not all(isinstance(name, str) for name in given):
            raise TypeError(f"ebb.jax.offload: names is a list of names given by checkpoint_name, not {names!r}")
        return Policy(tuple((name, "offload") for name in given), "remat", floor)
    if policy is None:
        return Policy((), "auto", floor)
    if isinstance(policy, str):
        policy = {"*": policy}
    if not isinstance(policy, collections.abc.Mapping):
        raise TypeError(f"ebb.jax.offload: policy is one of {_VALUES} or a dictionary of them by names, "
                        f"not {policy!r}; policies of jax.checkpoint are for jax.checkpoint")
    for pattern, value in policy.items():
        if not isinstance(pattern, str):
            raise TypeError(f"ebb.jax.offload: policy has {pattern!r} for a name, which is no text")
        if value not in _VALUES:
            raise ValueError(f"ebb.jax.offload: policy has {pattern!r}: {value!r}, and a value is one of {_VALUES}")
    rest = policy.get("*", "remat")
    if rest != "remat" and "remat" in policy.values():
        raise ValueError(f"ebb.jax.offload: policy has 'remat' for a name, and '*': {rest!r}, which saves "
                         "what that is made from: "
                         "leave '*' out, and name what is to be saved")
    return Policy(tuple((p, v) for p, v in policy.items() if p != "*"), rest, floor)


class _Static:
    """A value in the structure of residuals that is no array."""

    def __init__(self, value):
        self.value = value


jax.tree_util.register_pytree_node(_Static, lambda one: ((), one), lambda one, _: one)


# ---------------------------------------------------------------------------------------------------- forward --

def _saved(flat, leaves):
    """The results of `flat`, what it saves, a function of cotangents' kind made of that, and the trace of all that."""
    structure = []

    def forward(*leaves):
        out, backward = jax.vjp(lambda *leaves: flat(*leaves), *leaves)
        saved, tree = tree_flatten(backward)
        structure.append((len(out), tree))
        return (*out, *saved)

    closed = jax.make_jaxpr(forward)(*leaves)
    (count, tree), = structure
    return closed, count, tree


def _choose(residuals, policy: Policy, jaxpr) -> list[int]:
    """Which of them move; each value once."""
    chosen, seen = [], set()
    for i, (one, var) in enumerate(zip(residuals, jaxpr.outvars[len(jaxpr.outvars) - len(residuals):])):
        if one.is_argument_or_output or not one.is_movable or not one.is_of_activation or var in seen:
            continue
        if policy.moves(one):
            seen.add(var)
            chosen.append(i)
    return chosen


_warned: set[tuple[str, str, str]] = set()  # function, where it is, and pattern


def _warn_of_idle(policy: Policy, given: set[str], residuals, scope: str, where: str) -> None:
    """A pattern that moves or keeps nothing is most often a mistake, and told once: a function is traced many times.

    Where it says to compute again what is not there, nothing is other than was meant: the names of a whole
    configuration can be given.
    """
    saved = {one.name for one in residuals if one.is_named}
    left = set(given)
    for pattern, value in policy.by_name:
        has_name = any(_matches(name, pattern) for name in given)
        matched = {name for name in left if _matches(name, pattern)}
        left -= matched
        if value == "remat" or (has_name and not matched):  # patterns before it have taken all
            continue
        if not has_name:
            why = f"no value of {scope} has such a name; it has {', '.join(sorted(given)) or 'none'}"
        elif value == "offload" and not saved & matched:
            why = f"the backward of {scope} does not need what is named so, or it is an argument or a result"
        else:
            continue
        if (scope, where, pattern) not in _warned:
            _warned.add((scope, where, pattern))
            does = "moved" if value == "offload" else "kept on the device"
            warnings.warn(f"ebb.jax.offload: nothing is {does} for {pattern!r}: {why}", stacklevel=2)


def forget_warnings() -> None:
    _warned.clear()


def _site(scope: str, names, avals, where: str) -> int:
    text = "|".join((scope, where, *names, *(f"{one.shape} {one.dtype}" for one in avals)))
    return _primitives.number_of(text)


@dataclasses.dataclass
class _Wrapped:
    """One call of a wrapped function as it is traced: flat arguments, flat results."""

    flat: object
    plan: Policy
    of_activation: list[bool]
    scope: str
    where: str
    given: set[str]  # names in the function

    def trace(self, flat, leaves):
        closed, count, tree = _saved(flat, leaves)
        computed, residuals = _residuals.describe(closed, count, self.of_activation)
        return closed, count, tree, computed, residuals, _choose(residuals, self.plan, closed.jaxpr)

    def plan_automatically(self, leaves):
        """Of two ways to save, the one that saves less; of that, what moves while the function computes."""
        traced = self.trace(self.flat, leaves)
        on = _plan.machine()
        if on is None:
            return traced
        light = self.trace(jax.checkpoint(self.flat, policy=_save_all_but_light), leaves)
        total = lambda traced: sum(traced[4][i].size_bytes for i in traced[5])
        if total(light) < total(traced):
            traced = light
        *rest, residuals, chosen = traced
        compute_s = _plan.seconds(rest[0].jaxpr, on)
        moves = _plan.choose(self.scope, [residuals[i].size_bytes for i in chosen], compute_s, on)
        return *rest, residuals, [i for i, does in zip(chosen, moves) if does]

    def forward(self, *leaves):
        automatic = self.plan.rest == "auto"
        closed, count, tree, computed, residuals, chosen = (
            self.plan_automatically(leaves) if automatic else self.trace(self.flat, leaves))
        values = jaxpr_as_fun(closed)(*leaves)
        out, saved = values[:count], values[count:]
        _warn_of_idle(self.plan, self.given, residuals, self.scope, self.where)
        if not chosen:
            return tuple(out), (_Static((tree, None, {}, (), ())), (), tuple(saved))
        outvars = closed.jaxpr.outvars[count:]
        names = _primitives.unique_names([residuals[i].name for i in chosen])
        shapes = tuple(_primitives.Shape.of(saved[i]) for i in chosen)
        call = _primitives.Call(_site(self.scope, names, shapes, self.where), self.scope, names)
        # What is handed through or computed from parameters alone is there from the start, and its cotangent often
        # constant.
        arrays = [i for i, value in enumerate(out) if _is_array(value)]
        ends = [i for i in arrays if i in computed] or arrays
        handle = _primitives.offload(call, [saved[i] for i in chosen], [out[i] for i in ends])
        moved = {outvars[i]: n for n, i in enumerate(chosen)}
        places = {i: moved[var] for i, var in enumerate(outvars) if not _is_literal(var) and var in moved}
        kept = tuple(value for i, value in enumerate(saved) if i not in places)
        return tuple(out), (_Static((tree, call, places, shapes, ends)), (handle,), kept)

    def backward(self, residuals, cotangents):
        static, handles, kept = residuals
        tree, call, places, shapes, ends = static.value
        moved = []
        if call is not None:
            order = [cotangents[i] for i in ends if _is_array(cotangents[i])]
            moved = _primitives.reload(call, handles[0], shapes, order)
        rest = iter(kept)
        saved = [moved[places[i]] if i in places else next(rest) for i in range(len(kept) + len(places))]
        return tree_unflatten(tree, saved)(tuple(cotangents))


def _is_array(value) -> bool:
    return value.dtype != dtypes.float0 and not dtypes.issubdtype(value.dtype, dtypes.extended) and value.size > 0


def _is_literal(var) -> bool:
    return not hasattr(var, "count") and hasattr(var, "val")


# -------------------------------------------------------------------------------------------------------- calls --

def _closed_over(fun, leaves):
    """`fun` of flat arguments as a trace, and what it closes over that is traced outside."""
    closed = jax.make_jaxpr(fun)(*leaves)
    outside = [i for i, value in enumerate(closed.consts) if isinstance(value, jax.core.Tracer)]
    return closed, outside


def _with_consts(closed: ClosedJaxpr, outside: list[int]):
    def flat(*arguments):
        consts = list(closed.consts)
        for i, value in zip(outside, arguments):
            consts[i] = value
        return tuple(jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, consts))(*arguments[len(outside):]))

    return flat


def _checkpoint_policy(policy: Policy):
    def saveable(primitive, *_, **params) -> bool:
        return primitive.name == "name" and (policy.of(params["name"]) or policy.rest) != "remat"

    return saveable


def _numbers(name: str, given) -> tuple[int, ...]:
    """Of arguments."""
    numbers = () if given is None else (given,) if isinstance(given, int) else given
    if isinstance(numbers, str) or not isinstance(numbers, collections.abc.Iterable):
        raise TypeError(f"ebb.jax.offload: {name} is the number of an argument or several, not {given!r}")
    numbers = tuple(numbers)
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in numbers):
        raise TypeError(f"ebb.jax.offload: {name} is the number of an argument or several, not {given!r}")
    return numbers


def _counted(name: str, numbers: tuple[int, ...], count: int, scope: str) -> set[int]:
    """From the first one, where they may be counted from the last one."""
    for one in numbers:
        if not -count <= one < count:
            raise ValueError(f"ebb.jax.offload: {name} has {one}, and {scope} was called with {count} positional "
                             f"argument{'s' * (count != 1)}: pass what is static by its position")
    return {one % count for one in numbers}


def _save_all_but_light(primitive, *_, **params) -> bool:
    return primitive.name not in _plan.LIGHT


def offload(fun, *, names=None, policy=None, params=0, static_argnums=(), floor: int | None = None):
    """`fun`, with what it saves for its backward in pinned host memory meanwhile.

    names: of values named by jax.ad_checkpoint.checkpoint_name, which move; all else is computed again in the backward.
    policy: {pattern of a name: "offload" | "device" | "remat"}, "*" for all else ("remat" without it); one value
    alone is for all.
    Without both: automatic, by what hides behind the function's compute. Values below `floor` bytes do not move,
    unless by name. params: numbers of the arguments that are no activations: what depends on them alone does not move.
    """
    chosen = make_policy(names, policy, floor)
    static, params = _numbers("static_argnums", static_argnums), _numbers("params", params)
    if not callable(fun):
        raise TypeError(f"ebb.jax.offload: the first argument is the function, not {fun!r}")
    named = fun
    while isinstance(named, functools.partial):
        named = named.func
    scope = str(getattr(named, "__name__", type(named).__name__))
    code = getattr(named, "__code__", None)
    where = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}" if code is not None else scope

    @functools.wraps(fun)
    def wrapped(*args, **kwargs):
        at = _counted("static_argnums", static, len(args), scope)
        of_params = {n % len(args) for n in params if -len(args) <= n < len(args)}
        dynamic = [arg for n, arg in enumerate(args) if n not in at]
        leaves, tree = tree_flatten((dynamic, kwargs))
        sizes = [len(tree_flatten(arg)[0]) for n, arg in enumerate(args) if n not in at]
        numbers = [n for n in range(len(args)) if n not in at]
        of_activation = [n not in of_params for n, size in zip(numbers, sizes) for _ in range(size)]
        of_activation += [True] * (len(leaves) - len(of_activation))
        structure = []

        def of_leaves(*leaves):
            values, named = tree_unflatten(tree, leaves)
            values = iter(values)
            out = fun(*(arg if n in at else next(values) for n, arg in enumerate(args)), **named)
            flat, out_tree = tree_flatten(out)
            structure.append(out_tree)
            return flat

        closed, outside = _closed_over(of_leaves, leaves)
        flat = _with_consts(closed, outside)
        saving = flat
        if chosen.rest == "remat":
            saving = jax.checkpoint(flat, policy=_checkpoint_policy(chosen))
        given = _residuals.given_names(closed.jaxpr)
        one = _Wrapped(saving, chosen, [False] * len(outside) + of_activation, scope, where, given)
        call = jax.custom_vjp(flat)
        call.defvjp(one.forward, one.backward)
        out = call(*(closed.consts[i] for i in outside), *leaves)
        return tree_unflatten(structure[0], out)

    return wrapped
