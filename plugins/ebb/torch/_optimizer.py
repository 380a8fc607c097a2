"""Optimizer state in host memory between steps."""

import collections
import dataclasses
import weakref

import torch

from ebb import _library
from ebb.torch import _process, _settings
from ebb.torch._session import DEFAULT_FLOOR_BYTES, Session


class OptimizerOffload:
    """What offload_optimizer() gave an optimizer; detach() takes it back."""

    def __init__(self, optimizer: torch.optim.Optimizer, settings: _settings.Settings):
        # A runtime of its own: what is moved here has no order that a training step would be learned by. Compute goes on
        # behind the copies, so that the memory is free for the next forward pass.
        self.session = Session(dataclasses.replace(settings, more=(("source_bytes", _library.SOURCES_NONE),)))
        self.optimizer = optimizer
        self._floor = DEFAULT_FLOOR_BYTES if settings.floor is None else settings.floor
        self._away: dict[int, tuple[torch.Tensor, object]] = {}  # by the tensor's identity
        self._handles = [
            optimizer.register_step_pre_hook(lambda *_: self.bring_back()),
            optimizer.register_step_post_hook(lambda *_: self.move_away()),
            optimizer.register_state_dict_pre_hook(lambda *_: self.bring_back()),
            optimizer.register_state_dict_post_hook(self._own),
            optimizer.register_load_state_dict_pre_hook(lambda *_: self.bring_back()),
        ]
        weakref.finalize(self, self.session.close)  # where nobody detached it
        _process.close_with_the_rest(self)

    def bring_back(self) -> None:
        """All state is in its tensors again: for reading or changing it between steps."""
        with torch.enable_grad():  # in memory of its own: it will be held
            while self._away:  # one by one: what an exception leaves away comes back the next time
                key, (tensor, packed) = next(iter(self._away.items()))
                tensor.data = self.session.hooks.unpack(packed)
                del self._away[key]

    def _own(self, optimizer, state_dict):
        """What was handed out is the caller's, all of one step: the next one empties the large tensors of the optimizer."""
        def own(value):
            return value.clone() if isinstance(value, torch.Tensor) else value

        state = {key: {name: own(value) for name, value in values.items()} if isinstance(values, dict) else own(values)
                 for key, values in state_dict["state"].items()}
        return {**state_dict, "state": state}

    def move_away(self) -> None:
        """Its tensors are empty until bring_back(), which a step, state_dict() and load_state_dict() call."""
        there = [tensor for state in self.optimizer.state.values() if isinstance(state, dict) for tensor in state.values()
                 if self._is_large(tensor) and id(tensor) not in self._away]
        users = collections.Counter(_storage(tensor) for tensor in there)
        for tensor in there:
            # Of a storage that others live in nothing would be freed, and they would part from each other.
            if users[_storage(tensor)] == 1:
                packed = self.session.hooks.pack(tensor.detach())
                self._away[id(tensor)] = (tensor, packed)
                tensor.data = tensor.new_empty(0)
        self.session.begin_step()  # or its runtime would remember all of them as of one

    def _is_large(self, value) -> bool:
        return isinstance(value, torch.Tensor) and value.layout == torch.strided and value.nbytes >= self._floor

    def statistics(self) -> dict:
        """Counters by device, as of ebb.torch.statistics()."""
        return self.session.statistics()

    def detach(self) -> None:
        """State stays on the device from now on."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        self.bring_back()
        _process.is_detached(self)
        self.session.close()


def _storage(tensor) -> int:
    """What it shares with others that live in the same memory; tensors of parts are taken for such as share nothing."""
    return tensor.untyped_storage()._cdata if type(tensor) is torch.Tensor else -id(tensor)


def offload_optimizer(optimizer: torch.optim.Optimizer, *, host_memory: int | None = None,
                      floor: int | None = None) -> OptimizerOffload:
    """State tensors of at least `floor` bytes (1 MiB by default) live in pinned host memory between steps, and are back
    during step().

    Bit-identical. state_dict() and load_state_dict() see all of it, and what state_dict() gives is a copy; a step that a
    gradient scaler skips moves nothing; state that is made at the first step is moved from then on. What reads
    optimizer.state itself between steps finds empty tensors: bring_back() first. host_memory caps the pinned memory, in
    bytes. Not thread-safe, as optimizers are not.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"ebb: optimizer is of type {type(optimizer).__name__}: it is one of torch.optim.Optimizer")
    if _process.is_offloaded(optimizer):
        raise RuntimeError("ebb: the state of this optimizer is offloaded already: call detach() first")
    settings = _settings.checked(policy="offload", device_memory=None, host_memory=host_memory, verify=False, floor=floor)
    return OptimizerOffload(optimizer, settings)
