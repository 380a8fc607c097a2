"""The example trains in all its modes to the same loss."""

import json
import os
import subprocess
import sys

EXAMPLE = os.path.join(os.path.dirname(__file__), "../../../examples/jax/train_decoder.py")
SMALL = "--layers 3 --width 64 --context 64 --batch 4 --steps 1 --floor 4096".split()


def run(*arguments):
    return subprocess.run([sys.executable, EXAMPLE, *arguments], capture_output=True, text=True, timeout=240)


def test_all_modes():
    done = run(*SMALL, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    rows = {row["mode"]: row for row in result["rows"]}
    assert result["losses_are_alike"] and len(rows) == 6
    assert rows["ebb-names"]["loss"] == rows["save-names"]["loss"]
    assert rows["ebb-names"]["pinned_mib"] > 0
    assert rows["ebb-names"]["temp_mib"] < rows["save-names"]["temp_mib"]


def test_wrong_usage():
    for arguments, text in ((["--modes", "keep,nothing"], "no mode 'nothing'"),
                            (["--text", os.devnull], "has 0 bytes")):
        done = run(*arguments)
        assert done.returncode == 2
        assert text in done.stderr
