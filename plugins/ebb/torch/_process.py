"""What all contexts of a process share: its sessions, the hooks on modules and optimizers, steps and reports."""

import atexit
import contextlib
import os
import threading
import weakref

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from ebb import _torch_hooks
from ebb.torch._frame import Frame
from ebb.torch._session import Session
from ebb.torch._settings import Settings
from ebb.torch._unseen import Unseen

_OURS = (_torch_hooks.Hooks, Frame)

_lock = threading.Lock()
_sessions: dict[Settings, Session] = {}
_of_optimizers: weakref.WeakSet = weakref.WeakSet()
_module_hooks: list = []
_active = threading.local()
_unseen = Unseen()


def stack() -> list[Session]:
    """Of the contexts that the calling thread is in."""
    if not hasattr(_active, "stack"):
        _active.stack = []
    return _active.stack


def enter(session: Session, model) -> None:
    inside = stack()
    if session not in inside:  # or it goes on with the pass that it is in
        session.begin_forward(model)
    inside.append(session)
    _unseen.opened()
    _watch_modules()


def leave() -> None:
    session = stack().pop()
    _unseen.ended()
    if session not in stack():
        session.hooks.reset()


# Compiled code has no modules: what is compiled here is nothing, and breaks no graph.
def _enter_module(module, args):
    if torch.compiler.is_compiling():
        return
    inside = stack()
    if inside:
        inside[-1].hooks.enter(module, args)
        _unseen.look(_OURS)
    else:
        _unseen.in_another_thread()


def _leave_module(module, args, output):
    if not torch.compiler.is_compiling() and (inside := stack()):
        inside[-1].hooks.leave(module, args, output)


def _watch_modules() -> None:
    """Until close(): code that was compiled with the hooks of one context would be compiled again for those of the next."""
    if not _module_hooks:
        with _lock:
            if not _module_hooks:
                _module_hooks.extend((
                    torch.nn.modules.module.register_module_forward_pre_hook(_enter_module),
                    torch.nn.modules.module.register_module_forward_hook(_leave_module, always_call=True)))


def of(settings: Settings) -> Session:
    with _lock:
        if settings not in _sessions:
            _sessions[settings] = Session(settings)
        return _sessions[settings]


def close_with_the_rest(state_offload) -> None:
    """close() detaches it, too."""
    _of_optimizers.add(state_offload)


def is_detached(state_offload) -> None:
    _of_optimizers.discard(state_offload)


def is_offloaded(optimizer) -> bool:
    return any(state_offload.optimizer is optimizer for state_offload in _of_optimizers)


def step() -> None:
    """Ends a step where no optimizer of PyTorch does: a training step is one update of the parameters."""
    for session in list(_sessions.values()):
        session.end_step()


def statistics() -> dict:
    """Counters by device, of the first settings used: names and units as in ebb_statistics (ebb/ebb.h)."""
    for session in list(_sessions.values()):
        return session.statistics()
    return {}


def report() -> str:
    """What was moved, by name, and how much of it was hidden; and what was not seen."""
    return "\n".join(session.report() for session in list(_sessions.values())) + _unseen.report()


def close() -> None:
    """Ends all runtimes, also those of optimizer state, which stays on its device from then on. Tensors that were saved and
    not taken back are lost. Contexts may be entered afterwards; forward passes under way save their tensors without Ebb."""
    for state_offload in list(_of_optimizers):
        state_offload.detach()
    with _lock:
        while _module_hooks:
            _module_hooks.pop().remove()
        for session in _sessions.values():
            session.close()
        _sessions.clear()
        _unseen.forget()


def _lose_all() -> None:
    for session in [*_sessions.values(), *(state_offload.session for state_offload in _of_optimizers)]:
        session.lose()


def _at_exit() -> None:
    # What a backward pass that raised left undone lies in PyTorch's queue, and this takes it out. PyTorch would free it
    # when Python is gone already, which ends the process with a segmentation fault; so it is with save_on_cpu() of its own.
    if _sessions:
        with contextlib.suppress(RuntimeError), torch.enable_grad():
            torch.zeros(1, device="cpu", requires_grad=True).sum().backward()
    close()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_lose_all)
register_optimizer_step_post_hook(lambda optimizer, args, kwargs: step())
