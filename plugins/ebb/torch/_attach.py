"""A model that offloads by itself, and under its own names."""

import copy
import fnmatch
import functools
import sys
import threading
import types

import torch
from torch.utils.checkpoint import checkpoint

from ebb.torch import _buffers, _settings
from ebb.torch._offload import offload


class _Pass(threading.local):
    """A thread's way through the model: how many calls of it are open, the first one's frame, and the context."""

    depth = 0
    frame = None
    context = None


class Attachment:
    """What attach() gave a model; detach() takes it back."""

    def __init__(self, model: torch.nn.Module, policy, options):
        policy = _settings.rules(policy)
        if policy == "remat":
            raise ValueError('ebb: policy is "remat": which modules? Give a dictionary, as {"layers.*": "remat"}')
        rules = [] if policy is None or isinstance(policy, str) else list(policy)
        moved = {pattern: value for pattern, value in rules if value != "remat"}
        self._options = {"policy": (moved or None) if rules else policy, **options}
        offload(model=model, **self._options)  # says what is wrong with them before anything is changed
        self._model = model
        self._pass = _Pass()
        self._wrapped: list[tuple] = []
        covered: set[int] = set()  # by a module above that is computed again as a whole
        for path, module in model.named_modules():
            if _value_of(path, rules) == "remat" and id(module) not in covered:
                self._wrapped.append((module, module.__dict__.get("forward")))  # somebody else may have put one there
                module.forward = _recomputed(module)
                covered.update(id(below) for below in module.modules())
        model.register_forward_pre_hook(self._enter, prepend=True)
        model.register_forward_hook(self._leave, always_call=True)

    def __deepcopy__(self, memo):
        """A copy of the model is attached like the model."""
        copied = memo[id(self)] = object.__new__(type(self))
        copied._options = dict(self._options)
        copied._model = copy.deepcopy(self._model, memo)
        copied._pass = _Pass()
        copied._wrapped = copy.deepcopy(self._wrapped, memo)
        return copied

    def __reduce__(self):
        """One that comes from a pickle is not."""
        return _Nothing, ()

    @torch.compiler.disable
    def _enter(self, module, args):
        now = self._pass
        if now.depth > 0 and not _is_running(now.frame):
            now.depth = 1  # what left it is told to no hook, such as a KeyboardInterrupt
            self._leave(module, args, None)
        now.depth += 1
        if now.depth > 1:
            return
        now.frame = _calling_frame()
        if torch._C._autograd._saved_tensors_hooks_is_enabled():  # not in torch.func transforms
            now.context = offload(model=self._model, **self._options)
            now.context.begin()

    @torch.compiler.disable
    def _leave(self, module, args, output):
        now = self._pass
        now.depth -= 1
        if now.depth == 0:
            context, now.context, now.frame = now.context, None, None
            if context is not None:
                context.__exit__()

    def detach(self) -> None:
        """Gives the model back as it was. What was saved before comes back all the same."""
        model = self._model
        for hooks in (model._forward_pre_hooks, model._forward_hooks, model._forward_hooks_always_called):
            for key in [key for key, hook in hooks.items() if getattr(hook, "__self__", None) is self]:
                del hooks[key]
        wrapped, self._wrapped = self._wrapped, []
        for module, before in wrapped:
            if before is None:
                module.__dict__.pop("forward", None)
            else:
                module.forward = before


class _Nothing:
    """In the place of an attachment."""

    def _enter(self, module, args):
        pass

    def _leave(self, module, args, output):
        pass


def _recomputed(module):
    inner = module.forward

    def forward(self, *args, **kwargs):
        # Of a copy of the module, the copy's: it has weights of its own.
        call = inner if self is module else types.MethodType(type(self).forward, self)
        if not torch.is_grad_enabled():
            return call(*args, **kwargs)
        if kwargs:  # bound: they may have names that checkpoint's own have
            call = functools.partial(call, **kwargs)
        if torch.compiler.is_compiling():  # there a checkpoint has no contexts
            return checkpoint(call, *args, use_reentrant=False)
        buffers = _buffers.of(self)
        return checkpoint(call, *args, use_reentrant=False, context_fn=lambda: (buffers.noted(), buffers.as_before()))

    return types.MethodType(forward, module)  # copied with its module; pickled by its name, which is that of the class's


def _calling_frame():
    """Of the innermost call of a module; None where there is none, as in compiled code."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not torch.nn.Module._call_impl.__code__:
        frame = frame.f_back
    return frame


def _is_running(wanted) -> bool:
    frame = sys._getframe(1)
    while frame is not None and frame is not wanted:
        frame = frame.f_back
    return frame is not None or wanted is None


def _check(model) -> None:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"ebb: model is of type {type(model).__name__}: it is a module")


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

    A deep copy of the model is attached, too; one that was pickled and loaded is not. Raises RuntimeError where the model is
    attached already. Attach before training starts: while other threads compute with the model it is not safe.
    """
    _check(model)
    if _find(model) is not None:
        raise RuntimeError("ebb: this model is attached already: call detach() first")
    return Attachment(model, policy, options)


def detach(model: torch.nn.Module) -> None:
    """Gives the model back as it was; nothing to do where it is not attached."""
    _check(model)
    attachment = _find(model)
    if attachment is not None:
        attachment.detach()
