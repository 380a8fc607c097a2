"""The context managers that torchtune and TRL have for this, by name and call shape."""

import contextlib

from ebb.torch._offload import offload


class OffloadActivations(offload):
    """offload() in place of torchtune's and TRL's OffloadActivations.

    min_offload_size: tensors of fewer bytes stay where they are. The other three say what Ebb decides by itself: host memory
    is always pinned, copies always run beside compute, and how many tensors are under way follows from device memory.
    Further options are those of offload().
    """

    def __init__(self, use_pin_memory=True, use_streams=None, max_fwd_stash_size=5, min_offload_size=1024, **options):
        super().__init__(**({"floor": max(min_offload_size, 1)} | options))


def get_act_offloading_ctx_manager(model, enable_activation_offloading=True, warn_if_no_head=True, **options):
    """The context for a model's forward passes: OffloadActivations, or one that does nothing."""
    return OffloadActivations(**options) if enable_activation_offloading else contextlib.nullcontext()
