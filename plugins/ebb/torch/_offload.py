"""The context around a forward pass."""

import torch

from ebb.torch import _session


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

    def __init__(self, *, policy=None, device_memory=None, host_memory=None, verify=False, floor=None, model=None):
        self._settings = _session.Settings(
            policy=policy if policy is None or isinstance(policy, str) else tuple(policy.items()),
            device_memory=device_memory,
            host_memory=host_memory,
            verify=bool(verify),
            floor=floor,
        )
        self._model = model
        self._is_entered = False

    def __enter__(self):
        if self._is_entered:
            raise RuntimeError("ebb: this offload() is entered already: make another one")
        session = _session.of(self._settings)
        # First what PyTorch may refuse: inside torch.func transforms, say.
        torch._C._autograd._push_saved_tensors_default_hooks(session.hooks.pack, session.hooks.unpack)
        try:
            if session not in _session.stack():  # or it goes on with the pass that it is in
                session.begin_forward(self._model)
            _session.watch_modules()
        except BaseException:
            torch._C._autograd._pop_saved_tensors_default_hooks()
            raise
        _session.stack().append(session)
        self._is_entered = True
        return self

    def __exit__(self, *raised):
        self._is_entered = False
        session = _session.stack().pop()
        torch._C._autograd._pop_saved_tensors_default_hooks()
        if session not in _session.stack():
            session.hooks.reset()
        return False
