"""Ebb: activations leave GPU memory in the forward pass and are back before the backward pass needs them.

`ebb.torch` is for PyTorch, `ebb.jax` for JAX. `python -m ebb` says what this installation can do.
"""

from ebb._library import EbbError, build_info, version

__all__ = ["EbbError", "build_info", "version"]
__version__ = version()
