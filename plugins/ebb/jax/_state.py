"""Parameters and optimizer state in pinned host memory between uses."""

import functools
import weakref

import jax
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path, tree_unflatten

from ebb.jax import _library, _primitives, _residuals

_DEFAULT_FLOOR_BYTES = 1 << 20


class OffloadedState:
    """What offload_state() gave; onload_state() gives the tree for it, once.

    Without that, its memory is freed with it.
    """

    def __init__(self, tree, leaves, groups):
        self._tree, self._leaves, self._groups = tree, leaves, groups
        self._free = weakref.finalize(self, _free, [group.handle for group in groups])
        self._free.atexit = False

    def __repr__(self):
        moved = sum(one.dtype.itemsize * int(np.prod(one.shape)) for group in self._groups for one in group.shapes)
        return f"OffloadedState({moved / 2**20:.1f} MiB in host memory)"


class _Group:
    """Leaves on one set of devices: one transfer."""

    def __init__(self, numbers, names, values):
        self.numbers = numbers
        self.shapes = tuple(_primitives.Shape.of(value) for value in values)
        self.shardings = tuple(value.sharding for value in values)
        text = "|".join((*names, *(f"{one.shape} {one.dtype}" for one in self.shapes)))
        self.of_call = _primitives.number_of(text), "state", tuple(names)
        self.handle = _offload(self.of_call)(*values)

    def bring_back(self):
        return _reload(self.of_call, self.shapes, self.shardings)(self.handle)


@functools.lru_cache(maxsize=64)
def _offload(of_call):
    return jax.jit(lambda *values: _primitives.offload(_primitives.Call(*of_call, stays=True), values, []))


@functools.lru_cache(maxsize=64)
def _reload(of_call, shapes, shardings):
    def reload(handle):
        return tuple(_primitives.reload(_primitives.Call(*of_call, stays=True), handle, shapes, []))

    return jax.jit(reload, out_shardings=shardings)


def _free(handles) -> None:
    for handle in handles:
        for shard in handle.addressable_shards:
            _library.end(int(np.asarray(shard.data).reshape(-1)[:2].view(np.uint64)[0]))


def offload_state(tree, *, floor: int = _DEFAULT_FLOOR_BYTES) -> OffloadedState:
    """Moves the arrays of `tree` that have at least `floor` bytes to pinned host memory and deletes them here.

    Outside of jit. They come back by onload_state(), bit for bit and in the shardings that they had.
    """
    if not isinstance(floor, int):
        raise TypeError(f"ebb.jax.offload_state: floor is a number of bytes, not {floor!r}")
    paths, structure = tree_flatten_with_path(tree)
    leaves = [leaf for _, leaf in paths]
    by_devices: dict[frozenset, list[int]] = {}
    for i, (path, leaf) in enumerate(paths):
        if isinstance(leaf, jax.core.Tracer):
            raise TypeError("ebb.jax.offload_state is for arrays between programs: call it outside of jit")
        if isinstance(leaf, OffloadedState):
            raise TypeError(f"ebb.jax.offload_state: {keystr(path) or 'this'} was moved already: ebb.jax.onload_state "
                            "brings it back")
        if isinstance(leaf, jax.Array) and leaf.is_deleted():
            raise ValueError(f"ebb.jax.offload_state: {keystr(path) or 'the array'} was deleted (donated to a program, "
                             "or moved before): nothing has been moved")
        if isinstance(leaf, jax.Array) and _residuals.is_movable(leaf) and leaf.nbytes >= max(floor, 1):
            by_devices.setdefault(frozenset(leaf.sharding.device_set), []).append(i)
    names = _primitives.unique_names(keystr(path) for path, _ in paths)
    groups = []
    try:
        for numbers in by_devices.values():
            groups.append(_Group(numbers, [names[i] for i in numbers], [leaves[i] for i in numbers]))
    except BaseException:  # an interrupt, say: all of it is where it was
        _free([group.handle for group in groups])
        raise
    for group in groups:
        for i in group.numbers:
            leaves[i].delete()
            leaves[i] = None
    return OffloadedState(structure, leaves, groups)


def onload_state(state: OffloadedState):
    """The tree that offload_state() moved; once."""
    if not isinstance(state, OffloadedState):
        raise TypeError("ebb.jax.onload_state takes what ebb.jax.offload_state gave, and this is of type "
                        f"{type(state).__name__}")
    if not state._free.detach():
        raise RuntimeError("ebb.jax.onload_state: this state was brought back already")
    leaves = list(state._leaves)
    for group in state._groups:
        for i, value in zip(group.numbers, group.bring_back(), strict=True):
            leaves[i] = value
    return tree_unflatten(state._tree, leaves)
