"""The example trains in all its modes to the same loss."""

import json
import os
import subprocess
import sys

EXAMPLE = os.path.join(os.path.dirname(__file__), "../../../examples/pytorch/train_gpt.py")
SMALL = "--layers 2 --width 64 --context 64 --batch 4 --steps 1 --floor 4096".split()


def run(*arguments):
    return subprocess.run([sys.executable, EXAMPLE, *arguments], capture_output=True, text=True, timeout=240)


def test_all_modes():
    done = run(*SMALL, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["losses_are_the_same"]
    rows = {row["mode"]: row for row in result["rows"]}
    assert len(rows) == 6
    assert rows["ebb-offload"]["pinned_mib"] > 0


def test_wrong_usage():
    for arguments, text in ((["--modes", "keep,nothing"], "no mode 'nothing'"), (["--text", os.devnull], "has 0 bytes")):
        done = run(*arguments)
        assert done.returncode == 2
        assert text in done.stderr
