"""Activation offload for PyTorch.

    with ebb.torch.offload():
        loss = model(batch).loss
    loss.backward()
    print(ebb.torch.report())
"""

import torch

if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    raise ImportError(f"ebb.torch needs PyTorch 2.10 or newer, and this is {torch.__version__}")

from ebb.torch._attach import attach, detach  # noqa: E402
from ebb.torch._checkpoint import checkpoint  # noqa: E402
from ebb.torch._drop_in import OffloadActivations, get_act_offloading_ctx_manager  # noqa: E402
from ebb.torch._offload import offload  # noqa: E402
from ebb.torch._optimizer import offload_optimizer  # noqa: E402
from ebb.torch._process import close, report, statistics, step  # noqa: E402

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
