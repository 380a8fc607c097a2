"""Activation offload for PyTorch.

    with ebb.torch.offload():
        loss = model(batch).loss
    loss.backward()
    print(ebb.torch.report())
"""

import warnings as _warnings

import torch

from ebb import _versions

_version = _versions.first_two(str(torch.__version__))
if _version is not None and _version < (2, 9):
    raise ImportError(f"ebb.torch needs PyTorch 2.9 or newer, and this is {torch.__version__}")
if _version is None or _version > (2, 15):
    _warnings.warn(f"ebb.torch was tested with PyTorch 2.9 to 2.15, and this is {torch.__version__}", stacklevel=2)

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
