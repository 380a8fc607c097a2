"""What automatic mode decides, once it has measured."""

import json
import os
import subprocess
import sys

import pytest
from models import MODELS
from training import FLOOR_BYTES, same, train

import ebb.torch

PROGRAM = os.path.join(os.path.dirname(__file__), "automatic_run.py")


def run(case, link_bytes_per_second, device_memory):
    """In a process of its own: the link's rate is an option from outside."""
    rate = {f"EBB_HOST_{way}_BYTES_PER_SECOND": str(link_bytes_per_second) for way in ("D2H", "H2D")}
    done = subprocess.run([sys.executable, PROGRAM, case, str(device_memory)], env={**os.environ, **rate},
                          capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_where_all_fits_and_the_link_is_slow_nothing_is_moved():
    assert run("plain", 20 << 20, 1 << 28) == {"planned": True, "offloaded": 0, "recomputed": 0, "moved_bytes": 0}


def test_what_does_not_fit_and_cannot_be_moved_in_time_is_computed_again():
    last = run("checkpointed", 20 << 20, 6 << 20)
    assert last["planned"]
    assert last["recomputed"] > 0
    # What a step moves would take the link longer than all of the step's work.
    assert last["moved_bytes"] < 24 << 20


@pytest.mark.parametrize("case", ["evaluated", "other_sizes"])
def test_the_plan_survives(case):
    assert run(case, 20 << 20, 1 << 28) == {"planned": True, "offloaded": 0, "recomputed": 0, "moved_bytes": 0}


@pytest.mark.parametrize("device_memory", [1 << 17, 1 << 19, 1 << 21])
@pytest.mark.parametrize("model", MODELS)
def test_gradients_under_a_plan(model, device_memory):
    def context():
        return ebb.torch.offload(floor=FLOOR_BYTES, device_memory=device_memory)

    assert same(train(*MODELS[model], steps=12), train(*MODELS[model], context, steps=12))
