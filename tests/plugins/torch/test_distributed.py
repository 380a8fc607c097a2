"""DDP, FSDP2 and tensor parallelism, on two processes of gloo."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("kind", ["ddp", "fsdp2", "tensor_parallel"])
def test_two_processes(kind):
    program = os.path.join(os.path.dirname(__file__), "two_processes.py")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", program, kind],
        capture_output=True, text=True, timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
