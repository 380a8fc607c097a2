"""Tensor subclasses that are made of tensors: taken apart when they are saved, and put together again."""

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


class Parts:
    """What stands for a saved tensor of a subclass: stand-ins of its parts, and what puts them together."""

    __slots__ = ("context", "kind", "names", "parts", "size", "stride")

    def __init__(self, tensor, pack):
        self.names, self.context = tensor.__tensor_flatten__()
        self.kind = type(tensor)
        self.size = tensor.size()
        self.stride = tensor.stride()
        parts = [getattr(tensor, name) for name in self.names]
        # A part may be no tensor: a device mesh, say.
        self.parts = [(True, pack(part)) if isinstance(part, torch.Tensor) else (False, part) for part in parts]

    def put_together(self, unpack):
        parts = {name: unpack(part) if is_tensor else part
                 for name, (is_tensor, part) in zip(self.names, self.parts, strict=True)}
        return self.kind.__tensor_unflatten__(parts, self.context, self.size, self.stride)


def can_be_taken_apart(tensor) -> bool:
    return not isinstance(tensor, torch._subclasses.FakeTensor) and is_traceable_wrapper_subclass(tensor)


def arrived(tensor):
    """The tensor that a collective under way will fill has to be waited for before anything reads it."""
    wait = getattr(tensor, "trigger_wait", None)
    return tensor if wait is None else wait()
