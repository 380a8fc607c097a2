"""A model that offloads by itself, and under its own names."""

import fnmatch

import torch
from torch.utils.checkpoint import checkpoint

from ebb.torch._offload import offload

class Attachment:
    """What attach() gave a model; detach() takes it back."""

    def __init__(self, model: torch.nn.Module, policy, options):
        rules = [] if policy is None or isinstance(policy, str) else list(policy.items())
        moved = {pattern: value for pattern, value in rules if value != "remat"}
        self._context = offload(policy=(moved or None) if rules else policy, model=model, **options)
        self._wrapped: list[tuple] = []
        covered: set[int] = set()  # by a module above that is computed again as a whole
        for path, module in model.named_modules():
            if _value_of(path, rules) == "remat" and id(module) not in covered:
                self._wrap(module)
                covered.update(id(below) for below in module.modules())
        self._depth = 0
        self._handles = (
            model.register_forward_pre_hook(self._enter, prepend=True),
            model.register_forward_hook(self._leave, always_call=True),
        )

    def _wrap(self, module) -> None:
        before = module.__dict__.get("forward")  # somebody else may have put one there
        forward = module.forward

        def recomputed(*args, **kwargs):
            if not torch.is_grad_enabled():
                return forward(*args, **kwargs)
            return checkpoint(forward, *args, use_reentrant=False, **kwargs)

        module.forward = recomputed  # of this object alone; its class keeps its own
        self._wrapped.append((module, before))

    def _enter(self, module, args):
        self._depth += 1
        if self._depth == 1:
            self._context.__enter__()

    def _leave(self, module, args, output):
        self._depth -= 1
        if self._depth == 0:
            self._context.__exit__()

    def detach(self) -> None:
        """Gives the model back as it was. What was saved before comes back all the same."""
        handles, self._handles = self._handles, ()
        for handle in handles:
            handle.remove()
        wrapped, self._wrapped = self._wrapped, []
        for module, before in wrapped:
            if before is None:
                module.__dict__.pop("forward", None)
            else:
                module.forward = before


def _find(model: torch.nn.Module) -> Attachment | None:
    owners = (getattr(hook, "__self__", None) for hook in model._forward_pre_hooks.values())
    return next((owner for owner in owners if isinstance(owner, Attachment)), None)


def _value_of(path: str, rules) -> str | None:
    return next((value for pattern, value in rules if fnmatch.fnmatchcase(path, pattern)), None)


def attach(model: torch.nn.Module, *, policy=None, **options) -> Attachment:
    """Every forward pass of the model is one inside offload(), with the same options.

    Names and patterns are the model's: "layers.3.mlp.up", as named_modules() has them, with the operation behind it where
    no module returned the tensor. Of the patterns of `policy` the first that matches counts; besides "offload", "keep" and
    "auto" there is "remat": those modules compute their forward again in backward (PyTorch's non-reentrant checkpoint), and
    only their input is saved.

    Raises RuntimeError where the model is attached already. Not thread-safe: attach before training starts.
    """
    if _find(model) is not None:
        raise RuntimeError("ebb: this model is attached already: call detach() first")
    return Attachment(model, policy, options)


def detach(model: torch.nn.Module) -> None:
    """Gives the model back as it was; nothing to do where it is not attached."""
    attachment = _find(model)
    if attachment is not None:
        attachment.detach()
