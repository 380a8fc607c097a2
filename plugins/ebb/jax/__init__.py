"""Activation offload for JAX, inside jit.

    layer = ebb.jax.offload(layer, names=["query_proj", "mlpwi_0"])
    grads = jax.jit(jax.grad(loss))(params, batch)
    jax.block_until_ready(grads)  # JAX returns early; the report is of what has run
    print(ebb.jax.report())
"""

import jax

from ebb import _versions

_version = _versions.first_two(jax.__version__)
if _version is not None and _version < (0, 8):
    raise ImportError(f"ebb.jax needs JAX 0.8 or newer, and this is {jax.__version__}")

from ebb.jax._library import configure  # noqa: E402
from ebb.jax._offload import offload  # noqa: E402
from ebb.jax._session import close, release, replan, report, statistics, step  # noqa: E402
from ebb.jax._state import offload_state, onload_state  # noqa: E402

__all__ = ["close", "configure", "offload", "offload_state", "onload_state",
           "release", "replan", "report", "statistics", "step"]
