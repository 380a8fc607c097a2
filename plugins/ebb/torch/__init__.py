"""Activation offload for PyTorch.

    with ebb.torch.offload():
        loss = model(batch).loss
    loss.backward()
    print(ebb.torch.report())
"""

from ebb.torch._attach import attach, detach
from ebb.torch._offload import offload
from ebb.torch._session import close, report, statistics, step

__all__ = ["attach", "close", "detach", "offload", "report", "statistics", "step"]
