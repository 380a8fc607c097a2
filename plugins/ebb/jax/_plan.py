"""Automatic mode: what moves is decided when a function is traced, by shapes, estimated cost and the machine's rates."""

import dataclasses
import functools
import json
import math
import pathlib

import jax
import numpy as np
from jax.extend.core import Jaxpr

from ebb.jax import _residuals

# Part of what jit looks its programs up by: a new plan is taken by tracing once more, and going back to an old one by
# none.
_version = jax.make_user_context(0)
_scales: dict[str, float] = {}  # by function: of what hides behind its compute, by measurement
_past: dict[tuple, int] = {(): 0}  # version by scales
_seen: dict[str, "Outcome"] = {}
_machine: str | None = None

_MOST_SCALE, _LATE, _EARLY = 4.0, 0.05, 0.01

# Computed again within the operation that reads it, for less than reading it would take.
LIGHT = frozenset(
    "abs add and broadcast_in_dim ceil clamp convert_element_type copy cos div eq erf exp exp2 expand_dims floor ge gt "
    "imag integer_pow iota is_finite le log log1p logistic lt max min mul ne neg not or pad pow real rem reshape "
    "rev round rsqrt select_n sign sin slice sqrt square squeeze sub tan tanh transpose xor".split()
)


@dataclasses.dataclass(frozen=True)
class Machine:
    flops_per_second: float
    memory_bytes_per_second: float
    link_bytes_per_second: float  # of the slower direction, while both are busy


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What was decided for a function."""

    moved_bytes: int
    kept_bytes: int  # that would not have hidden behind its compute
    compute_s: float


# ------------------------------------------------------------------------------------------------------ machines --

def set_machine(name: str | None) -> None:
    """A file of profiles/machines, by name or path; None: by the first device's kind."""
    global _machine
    if name is not None:
        if not isinstance(name, str):
            raise TypeError(f"ebb.jax.configure: machine is {name!r}: it is the name of a profile, or the path of one")
        _read(name)
    _machine = name


def machine() -> Machine | None:
    """None where there is no profile: nothing is known then."""
    if _machine is not None:
        return _read(_machine)
    kind = jax.devices()[0].device_kind
    words = kind.replace("NVIDIA", "").split()
    for file in sorted(_FOLDER.glob("*.json")):
        title = json.loads(file.read_text())["title"].replace(",", " ").split()
        if words and words[0] in title:
            return _read(file.stem)
    return None


_FOLDER = pathlib.Path(__file__).parents[1] / "machines"


@functools.cache
def _read(name: str) -> Machine:
    file = pathlib.Path(name) if name.endswith(".json") else _FOLDER / f"{name}.json"
    if not file.exists():
        known = ", ".join(sorted(one.stem for one in _FOLDER.glob("*.json")))
        raise ValueError(f"ebb.jax.configure: no machine {name!r}; there are {known}, or give the path of a profile")
    text = json.loads(file.read_text())
    device, links = text["device"], text["links"]
    return Machine(
        device["peak_flops"]["bf16"]["value"] * device["flops_reached"]["value"],
        device["hbm_bytes_per_second"]["value"] * device["hbm_reached"]["value"],
        min(links[way]["both_bytes_per_second"]["value"] for way in ("d2h", "h2d")),
    )


# ---------------------------------------------------------------------------------------------------------- cost --

def seconds(jaxpr: Jaxpr, on: Machine) -> float:
    """Of computing it, from shapes: products by their operations, all else by the bytes of its results."""
    return sum(_seconds_of(eqn, on) for eqn in jaxpr.eqns)


def _seconds_of(eqn, on: Machine) -> float:
    times = [seconds(body, on) for body in _residuals.bodies(eqn)]
    if times:
        return eqn.params.get("length", 1) * (max(times) if eqn.primitive.name == "cond" else sum(times))
    if not all(_residuals.has_known_shape(var.aval) for var in (*eqn.invars, *eqn.outvars)):
        return 0.0
    moved = sum(_bytes(var.aval) for var in eqn.outvars) / on.memory_bytes_per_second
    if eqn.primitive.name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        depth = math.prod(eqn.invars[0].aval.shape[i] for i in contracted)
        return max(moved, 2 * depth * eqn.outvars[0].aval.size / on.flops_per_second)
    if eqn.primitive.name == "conv_general_dilated":
        kernel, numbers = eqn.invars[1].aval, eqn.params["dimension_numbers"]
        depth = kernel.size / kernel.shape[numbers.rhs_spec[0]]
        return max(moved, 2 * depth * eqn.outvars[0].aval.size / on.flops_per_second)
    return moved


def _bytes(aval) -> int:
    dtype = getattr(aval, "dtype", None)
    return aval.size * dtype.itemsize if isinstance(dtype, np.dtype) else 0


# ---------------------------------------------------------------------------------------------------------- plan --

def choose(scope: str, sizes: list[int], compute_s: float, on: Machine) -> list[bool]:
    """Which of values of these bytes move: as many bytes as the link carries while the function computes once.

    The forward pass is the shorter one; so what hides there hides in the backward, too.
    """
    room = compute_s * on.link_bytes_per_second * _scales.get(scope, 1.0)
    chosen = [False] * len(sizes)
    moved = 0
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        if moved + sizes[i] <= room:
            chosen[i] = True
            moved += sizes[i]
    _seen[scope] = Outcome(moved, sum(sizes) - moved, compute_s)
    return chosen


def replan(measured: dict[str, tuple[int, int]]) -> str:
    """From hidden and exposed nanoseconds by function. What changed, in words; empty: nothing."""
    scales, lines = dict(_scales), []
    for scope, (hidden_ns, exposed_ns) in sorted(measured.items()):
        outcome = _seen.get(scope)
        total = hidden_ns + exposed_ns
        if outcome is None or total == 0:
            continue
        late, old = exposed_ns / total, scales.get(scope, 1.0)
        if late > _LATE:
            scales[scope] = old * (1 - late)
        elif late < _EARLY and outcome.kept_bytes > 0 and old < _MOST_SCALE:
            scales[scope] = min(old * 1.25, _MOST_SCALE)
        else:
            continue
        lines.append(f"{scope}: {late:.0%} of its transfers were waited for: "
                     f"{'fewer' if late > _LATE else 'more'} bytes move "
                     f"({scales[scope] / old:.0%} of before)")
    if lines:
        _scales.update(scales)
        version = _past.setdefault(tuple(sorted(scales.items())), len(_past))
        _set_version(version)
    return "\n".join(lines)


def _set_version(version: int) -> None:
    """For all threads; JAX 0.8 has a public way for the calling one only."""
    (_version if hasattr(_version, "set_global") else _version._obj).set_global(version)


def reset() -> None:
    _scales.clear()
    _seen.clear()
    _set_version(0)


def report() -> str:
    """What automatic mode decided, by function."""
    return "".join(
        f"{scope}: automatic: {one.moved_bytes / 2**20:.1f} MiB move behind "
        f"{one.compute_s * 1e3:.2f} ms of compute (estimated), "
        f"{one.kept_bytes / 2**20:.1f} MiB stay, which would not hide there\n" for scope, one in sorted(_seen.items()))
