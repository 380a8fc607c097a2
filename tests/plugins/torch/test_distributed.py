"""DDP, FSDP2 and tensor parallelism, on two processes of gloo."""

import os
import subprocess
import sys

import pytest
import torch

import ebb.torch
from ebb import _library


@pytest.mark.parametrize("kind", ["ddp", "fsdp2", "tensor_parallel", "plan"])
def test_two_processes(kind):
    program = os.path.join(os.path.dirname(__file__), "two_processes.py")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", program, kind],
        capture_output=True, text=True, timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("said", "count"), [("4", 4), ("1", 1), (None, 1), ("", 1), ("0", 1), ("-2", 1), ("x", 1)])
def test_processes_of_a_host_share_its_memory(monkeypatch, said, count):
    if said is None:
        monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    else:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", said)
    given = {}
    runtime = _library.Runtime

    def noted(**options):
        given.update(options)
        return runtime(**options)

    monkeypatch.setattr(_library, "Runtime", noted)
    with ebb.torch.offload(floor=1):
        y = torch.randn(8, requires_grad=True).exp().sum()
    y.backward()
    assert given["host_processes"] == count
