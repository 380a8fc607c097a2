import gc
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

# What is set outside must not decide whether tests pass.
for variable in [name for name in os.environ if name.startswith("EBB_")]:
    del os.environ[variable]

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # of a GPU: or products differ from run to run

import torch  # noqa: E402

import ebb.torch  # noqa: E402

torch.set_num_threads(1)

_not_run = []


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: takes a GPU; where there is none it is left out, and a line says so")


def pytest_collection_modifyitems(config, items):
    """Asked for by name, with -m gpu, they run, and fail where there is no GPU."""
    if torch.cuda.is_available() or "gpu" in config.option.markexpr:
        return
    _not_run.extend(item for item in items if item.get_closest_marker("gpu"))
    if _not_run:
        items[:] = [item for item in items if item not in _not_run]
        config.hook.pytest_deselected(items=_not_run)


def pytest_terminal_summary(terminalreporter):
    if _not_run:
        terminalreporter.write_line(f"gpu: not run: no GPU; {len(_not_run)} tests need one")


@pytest.fixture
def gpu():
    if not torch.cuda.is_available():
        pytest.fail("this test needs a GPU, and PyTorch sees none")
    return torch.device("cuda", 0)


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
