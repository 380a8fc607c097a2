"""Buffers of a module that is computed again: it finds them as they were, and they are changed once."""

import contextlib
import functools
import weakref

import torch

_SMALL_BYTES = 1 << 16

# Large buffers of a module that were seen to change in place: (number of the module in it that has it, name).
_changing: weakref.WeakKeyDictionary[torch.nn.Module, set] = weakref.WeakKeyDictionary()


class Buffers:
    """Those of a module around one call of it, as batch norm's running statistics.

    What may change in place takes a copy: small ones, and large ones that were seen to. The module's first call shows which,
    so during that one there is a copy of all.
    """

    def __init__(self, module: torch.nn.Module):
        self._module = module
        self._before: list[tuple[torch.nn.Module, dict[str, torch.Tensor | None]]] = []
        self._versions: dict[int, int] = {}  # by the tensor's identity
        self._copies: dict[int, torch.Tensor] = {}

    @contextlib.contextmanager
    def noted(self):
        """Around the call."""
        is_first = self._module not in _changing
        changing = _changing.setdefault(self._module, set())
        self._before = [(owner, dict(owner._buffers)) for owner in self._module.modules() if owner._buffers]
        there = [((at, name), buffer) for at, (_, buffers) in enumerate(self._before) for name, buffer in buffers.items()
                 if buffer is not None and not buffer.is_inference()]
        self._versions = {id(buffer): buffer._version for _, buffer in there}
        copies = {id(buffer): buffer.clone() for place, buffer in there
                  if is_first or place in changing or buffer.nbytes <= _SMALL_BYTES}
        try:
            yield
        finally:
            changing.update(place for place, buffer in there if self._is_changed(buffer))
            self._copies = {id(buffer): copies[id(buffer)] for place, buffer in there if id(buffer) in copies
                            and (place in changing or buffer.nbytes <= _SMALL_BYTES)}

    def as_before(self):
        """Around computing it again, which may be more than once."""
        return _AsBefore(self)

    def old(self) -> list:
        """As they were before the call, and others than those now: batch norm changes its own without a new version."""
        old = {id(buffer): self._old(at, name, buffer) for at, (_, buffers) in enumerate(self._before)
               for name, buffer in buffers.items()}
        return [(owner, {name: old[id(buffer)] for name, buffer in buffers.items()}) for owner, buffers in self._before]

    def _old(self, at, name, buffer):
        if id(buffer) in self._copies:
            return self._copies[id(buffer)].clone()
        if self._is_changed(buffer):
            _changing[self._module].add((at, name))
            raise RuntimeError(
                f"ebb: {type(self._module).__name__} is to be computed again, and its buffer {name!r} has been changed in place "
                "since, as never before: what it was is lost. From the next call on it is kept"
            )
        return buffer

    def _is_changed(self, buffer) -> bool:
        return id(buffer) in self._versions and buffer._version != self._versions[id(buffer)]


class _AsBefore:
    """Made before the call, entered after it."""

    def __init__(self, buffers: Buffers):
        self._buffers = buffers
        self._now = []

    def __enter__(self):
        old = self._buffers.old()
        self._now = [(owner, dict(owner._buffers)) for owner, _ in old]
        for owner, buffers in old:
            owner._buffers.update(buffers)

    def __exit__(self, *raised):
        for owner, buffers in self._now:
            owner._buffers.clear()
            owner._buffers.update(buffers)


class NoBuffers:
    """Of what has none."""

    noted = as_before = staticmethod(contextlib.nullcontext)


def of(function) -> Buffers | type[NoBuffers]:
    """Those that a call of the function meets, as far as it shows: of a module, a method of one, or a partial of those."""
    while isinstance(function, functools.partial):
        function = function.func
    module = getattr(function, "__self__", function)
    if isinstance(module, torch.nn.Module) and next(module.buffers(), None) is not None:
        return Buffers(module)
    return NoBuffers
