import gc
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

# What is set outside must not decide whether tests pass.
for variable in [name for name in os.environ if name.startswith("EBB_")]:
    del os.environ[variable]

import torch  # noqa: E402

import ebb.torch  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def nothing_left():
    """Each test ends with all that it moved given back."""
    yield
    gc.collect()
    left = {device: numbers["live_activations"] for session in ebb.torch._process._sessions.values()
            for device, numbers in session.statistics().items() if numbers["live_activations"]}
    used = [numbers["pinned_used_bytes"] for session in ebb.torch._process._sessions.values()
            for numbers in session.statistics().values()]
    ebb.torch.close()
    assert not left, f"activations that nobody released: {left}"
    assert not any(used), f"pinned memory still in use: {used}"
