"""The example trains in all its modes to the same loss."""

import json
import os
import subprocess
import sys

import pytest

EXAMPLE = os.path.join(os.path.dirname(__file__), "../../../examples/jax/train_decoder.py")
SMALL = "--layers 2 --width 32 --context 32 --batch 4 --steps 1 --floor 4096".split()


def run(*arguments, without=()):
    environment = {name: value for name, value in os.environ.items() if name not in without}
    return subprocess.run([sys.executable, EXAMPLE, *arguments], capture_output=True, text=True, timeout=240,
                          env=environment)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_all_modes(dtype, tmp_path):
    text = tmp_path / "text"
    text.write_text("ebb and flow, " * 100)  # a few steps learn something of it, whatever else is in the repository
    done = run(*SMALL, "--json", "--dtype", dtype, "--text", str(text))
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["losses_are_the_same"]
    rows = {row["mode"]: row for row in result["rows"]}
    assert len(rows) == 7
    losses = rows["keep"]["losses"]
    assert losses[-1] < losses[0] and len(set(losses)) == len(losses)
    for mode in ("ebb", "ebb-offload", "ebb-names"):
        assert rows[mode]["pinned_mib"] > 0
        assert rows[mode]["temp_mib"] < rows["keep"]["temp_mib"]
    assert rows["ebb-names"]["temp_mib"] < rows["save-names"]["temp_mib"]


def test_the_table_and_the_report():
    """As a user runs it: without the flags of the tests."""
    done = run(*SMALL, "--modes", "keep,ebb-names", "--report", without=("JAX_PLATFORMS", "XLA_FLAGS"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the losses are the same, bit for bit" in done.stdout
    for name in ("qkv", "mixed", "up"):
        assert f"run/{name} " in done.stdout
    table = done.stdout[done.stdout.index("mode  "):].splitlines()
    assert [line.split()[0] for line in table[1:3]] == ["keep", "ebb-names"]


def test_wrong_usage():
    for arguments, text in ((["--modes", "keep,nothing"], "no mode 'nothing'"), (["--text", os.devnull], "has 0 bytes"),
                            (["--machine", "h20"], "no machine 'h20'")):
        done = run(*arguments)
        assert done.returncode == 2
        assert text in done.stderr
