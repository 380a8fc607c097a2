"""Functions whose saved tensors may be computed again."""

import torch

from ebb.torch import _process
from ebb.torch._frame import Frame
from ebb.torch._settings import Settings


def checkpoint(function, /, *args, **kwargs):
    """function(*args, **kwargs), of whose saved tensors each is kept, offloaded or computed again, as Ebb plans.

    Inside an offload() context it is that one's plan and policy, by whose values "remat" tensors are computed again; outside,
    that of default settings. Computing again calls the function with the same arguments, random numbers and autocast
    settings, once for all tensors that it is wanted for; what it computes must depend on these alone, and on buffers of the
    module that the function is, or is a method or a partial of: those are as they were, and are not changed a second time.
    Gradients are those of a plain call, bit for bit.
    """
    if not torch.is_grad_enabled():
        return function(*args, **kwargs)
    inside = _process.stack()
    session = inside[-1] if inside else _process.of(Settings())
    frame = Frame(session, function, args, kwargs)
    with frame.first_call(), torch.autograd.graph.saved_tensors_hooks(frame.pack, session.hooks.unpack):
        return function(*args, **kwargs)
