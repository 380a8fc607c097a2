"""One call of a function whose saved tensors may be computed again."""

import contextlib

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from ebb.torch import _buffers


class _Enough(Exception):
    """All tensors that were wanted have been saved again: what comes behind need not be computed."""


class Frame:
    """One call of a function: what it was called with, and which of its saved tensors are to be computed again."""

    def __init__(self, session, function, args, kwargs):
        self._session = session
        self._function = function
        leaves, self._tree = tree_flatten((args, kwargs))
        self._is_tensor = [isinstance(leaf, torch.Tensor) for leaf in leaves]
        self._takes_gradient = [is_tensor and leaf.requires_grad for leaf, is_tensor in zip(leaves, self._is_tensor)]
        self._random = _RandomState([leaf for leaf, is_tensor in zip(leaves, self._is_tensor) if is_tensor])
        # What it is called with is saved as any other tensor is.
        self._leaves = [session.hooks.pack(leaf) if is_tensor else leaf
                        for leaf, is_tensor in zip(leaves, self._is_tensor)]
        self._inputs = tuple(leaf for leaf, is_tensor in zip(self._leaves, self._is_tensor) if is_tensor)
        self._autocast = _autocast_now()
        self._buffers = _buffers.of(function)
        self._count = 0
        self._wanted: set[int] = set()
        self._wanted_bytes = 0
        self._values: dict[int, torch.Tensor] = {}

    def first_call(self):
        """Around the function's first call."""
        return self._buffers.noted()

    def pack(self, tensor):
        index, self._count = self._count, self._count + 1
        packed = self._session.hooks.pack_in_frame(self, index, tensor, self._inputs)
        if getattr(packed, "is_recomputed", False):
            self._wanted.add(index)
            self._wanted_bytes += packed.size_bytes
        return packed

    def tensor(self, index: int):
        """A saved tensor, computed again with all that are to be: each is handed out once."""
        if index not in self._values:
            with self._session.recomputing(self._wanted_bytes):
                self._values = self._compute()
        if index not in self._values:
            raise RuntimeError(
                f"ebb: {self._function} saved other tensors when it was computed again: what it computes must depend on "
                "its arguments alone"
            )
        return self._values.pop(index)

    def _compute(self):
        leaves = [leaf if not is_tensor else self._session.hooks.unpack(leaf).detach().requires_grad_(takes_gradient)
                  for leaf, is_tensor, takes_gradient in zip(self._leaves, self._is_tensor, self._takes_gradient)]
        args, kwargs = tree_unflatten(leaves, self._tree)
        values = {}
        number = 0

        def collect(tensor):
            nonlocal number
            if number in self._wanted:
                values[number] = tensor.detach()
                if len(values) == len(self._wanted):
                    raise _Enough
            number += 1

        with contextlib.ExitStack() as stack:
            stack.enter_context(self._random.restored())
            stack.enter_context(self._buffers.as_before())
            for autocast in self._autocast:
                stack.enter_context(autocast())
            stack.enter_context(torch.enable_grad())
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(collect, lambda nothing: nothing))
            stack.enter_context(contextlib.suppress(_Enough))
            self._function(*args, **kwargs)
        return values


class _RandomState:
    """Of the CPU, and of the devices that the arguments are on."""

    def __init__(self, tensors):
        self._cpu = torch.get_rng_state()
        self._devices = sorted({tensor.device.index for tensor in tensors if tensor.device.type == "cuda"})
        self._states = [torch.cuda.get_rng_state(device) for device in self._devices]

    @contextlib.contextmanager
    def restored(self):
        with torch.random.fork_rng(devices=self._devices):
            torch.set_rng_state(self._cpu)
            for device, state in zip(self._devices, self._states, strict=True):
                torch.cuda.set_rng_state(state, device)
            yield


def _autocast_now():
    """What makes today's autocast contexts again."""
    kinds = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
    settings = [(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind), torch.is_autocast_cache_enabled())
                for kind in kinds]
    return [lambda kind=kind, dtype=dtype, enabled=enabled, cache=cache:
            torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=cache)
            for kind, dtype, enabled, cache in settings]
