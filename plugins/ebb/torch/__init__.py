"""Activation offload for PyTorch.

    with ebb.torch.offload():
        loss = model(batch).loss
    loss.backward()
    print(ebb.torch.report())
"""

from ebb.torch._attach import attach, detach
from ebb.torch._checkpoint import checkpoint
from ebb.torch._drop_in import OffloadActivations, get_act_offloading_ctx_manager
from ebb.torch._offload import offload
from ebb.torch._optimizer import offload_optimizer
from ebb.torch._session import close, report, statistics, step

__all__ = [
    "OffloadActivations",
    "attach",
    "checkpoint",
    "close",
    "detach",
    "get_act_offloading_ctx_manager",
    "offload",
    "offload_optimizer",
    "report",
    "statistics",
    "step",
]
