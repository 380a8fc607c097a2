"""The context around a forward pass."""

import functools
import sys
import warnings

import torch

from ebb.torch import _process, _settings

_COMPILED = ("ebb.torch.offload() inside of compiled code breaks the graph, and what lies in it is not compiled: put it around "
             "the compiled function, or attach() the model")
# Traced code would call none of the hooks: the context is entered by the interpreter.
_not_traced = torch.compiler.disable(reason=_COMPILED)


@functools.cache
def _warn_once(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=5)


def _warn_inside_compiled_code() -> None:
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "compile_wrapper" and "_dynamo" in frame.f_code.co_filename:
            _warn_once(f"ebb: {_COMPILED}")
        frame = frame.f_back


class offload:
    """Saved tensors of the forward passes inside are moved to host memory and back as Ebb decides.

    policy: "auto" (default), "offload", "keep", or {pattern: value}, as {"*.mlp.up": "offload", "*": "auto"}; patterns
        match names such as "GPT.layers.3.mlp.up": the class of the outermost module, the path of the module whose
        forward returned the tensor, or the path of the one it was made in and the operation.
    device_memory: bytes of device memory that kept and reloaded tensors may take; learned by default.
    host_memory: cap of pinned host memory, in bytes; by default what the system's limits leave.
    verify: compare checksums at each stage of a tensor's way.
    floor: tensors of fewer bytes stay where they are; 1 MiB by default.
    model: whose names are used; by default the outermost module's, below the name of its class.

    Gradients are those without it, bit for bit. The backward pass may run inside or outside. Contexts with the same
    settings share one runtime per device. One object may be entered again, but not twice at once. Thread-safety: a
    context acts on the thread that entered it, as PyTorch's saved-tensor hooks do.
    """

    @_not_traced
    def __init__(self, *, policy=None, device_memory=None, host_memory=None, verify=False, floor=None, model=None):
        self._settings = _settings.checked(policy=policy, device_memory=device_memory, host_memory=host_memory,
                                           verify=verify, floor=floor)
        if model is not None and not isinstance(model, torch.nn.Module):
            raise TypeError(f"ebb: model is of type {type(model).__name__}: it is a module")
        self._model = model
        self._is_entered = False

    @_not_traced
    def __enter__(self):
        if self._is_entered:
            raise RuntimeError("ebb: this offload() is entered already: make another one")
        _warn_inside_compiled_code()
        return self.begin()

    def begin(self):
        """Enters it, also where a module's hook does so in code that is compiled behind it."""
        session = _process.of(self._settings)
        # First what PyTorch may refuse: inside torch.func transforms, say.
        torch._C._autograd._push_saved_tensors_default_hooks(session.hooks.pack, session.hooks.unpack)
        try:
            _process.enter(session, self._model)
        except BaseException:
            torch._C._autograd._pop_saved_tensors_default_hooks()
            raise
        self._is_entered = True
        return self

    @_not_traced
    def __exit__(self, *raised):
        if not self._is_entered:
            raise RuntimeError("ebb: this offload() is not entered: there is nothing to leave")
        self._is_entered = False
        torch._C._autograd._pop_saved_tensors_default_hooks()
        _process.leave()
        return False
