import faulthandler
import gc
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

# What is set outside must not decide whether tests pass.
for variable in [name for name in os.environ if name.startswith(("EBB_", "JAX_", "XLA_"))]:
    del os.environ[variable]
# Without fused multiply-adds: XLA on the CPU makes one of a product and a sum wherever they come to lie in one loop,
# so that
# the last bit would depend on where a value is stored, with Ebb, with jax.checkpoint and with neither. And without
# optimising machine code, which takes half of the tests' time.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_cpu_max_isa=AVX " \
    "--xla_backend_optimization_level=0"
os.environ["JAX_PLATFORMS"] = "cpu"

import ebb.jax  # noqa: E402

TIMEOUT_S = 300


@pytest.fixture(autouse=True)
def in_time():
    """A test that hangs ends the run, with the stacks of all threads."""
    faulthandler.dump_traceback_later(TIMEOUT_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def nothing_left():
    """Each test ends with all that it moved given back, and leaves no option to the next one."""
    yield
    gc.collect()
    ebb.jax.release()
    left = {device: numbers for device, numbers in ebb.jax.statistics().items()
            if numbers["live_activations"] or numbers["pinned_used_bytes"]}
    ebb.jax.close()
    ebb.jax.configure()
    assert not left, f"activations or memory that nobody released: {left}"
