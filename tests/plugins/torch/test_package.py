"""What the package says of itself."""

import subprocess
import sys

import torch

import ebb


def test_main_says_what_there_is():
    done = subprocess.run([sys.executable, "-m", "ebb"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert lines["version"] == ebb.version() == ebb.__version__
    assert lines["library"].endswith("libebb.so")
    assert lines["host"] == "works"
    assert "cuda" in lines
    assert lines["torch"].startswith(torch.__version__.split("+")[0])


def test_a_pytorch_without_the_table_is_told():
    program = "import torch; del torch.Tensor.__dlpack_c_exchange_api__; import ebb.torch"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "needs PyTorch 2.10 or newer, and this is 2." in done.stderr
