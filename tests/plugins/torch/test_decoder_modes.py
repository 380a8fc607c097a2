"""The comparison of ways to train a decoder (benchmarks/torch/decoder_modes.py): a row for each, whatever happens."""

import json
import os
import subprocess
import sys

import pytest

FOLDER = os.path.join(os.path.dirname(__file__), "../../../benchmarks/torch")
SCRIPT = os.path.join(FOLDER, "decoder_modes.py")
SMALL = "--layers 2 --width 64 --context 64 --batch 4 --warm-up 2 --steps 2 --floor 4096".split()

sys.path.insert(0, FOLDER)
import decoder_modes  # noqa: E402


def run(*arguments):
    command = [sys.executable, SCRIPT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def test_all_modes_come_to_the_same_losses():
    done = run(*SMALL, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["losses_are_the_same"]
    rows = {row["mode"]: row for row in result["rows"]}
    assert tuple(rows) == decoder_modes.MODES
    assert all(row["status"] == "ok" and row["step_ms"] > 0 and len(row["losses"]) == 4 for row in rows.values())
    assert all("device_peak_mib" not in row for row in rows.values())
    assert rows["ebb-offload"]["offloaded_count"] > 0
    assert "copied to host" in rows["ebb"]["report"]
    assert result["torch"] and result["built"].startswith("ebb ")
    assert result["sizes"]["warm_up"] == 2
    assert "about" not in rows["keep"] and "about" not in rows["ebb"]


def test_what_is_not_known_is_a_dash(monkeypatch, capsys):
    """As memory on the CPU, and the step's ratio where keeping takes too much memory."""
    rows = {
        "keep": {"mode": "keep", "status": "out of memory", "why": "CUDA out of memory. Tried to allocate 2.00 GiB."},
        "checkpoint": {"mode": "checkpoint", "status": "failed", "why": "it broke"},
        "ebb": {"mode": "ebb", "status": "ok", "step_ms": 2.04, "tokens_per_s": 1000.0, "losses": [2.0, 1.5],
                "pinned_mib": 3.0},
    }
    monkeypatch.setattr(decoder_modes, "run_mode", lambda mode, options: dict(rows[mode]))
    assert decoder_modes.main(["--modes", ",".join(rows)]) == 1
    head, keep, checkpoint, ebb, verdict = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["mode", "step,", "ms"]
    assert keep.split(maxsplit=1) == ["keep", "out of memory"]
    assert checkpoint.split(maxsplit=1) == ["checkpoint", "failed: it broke"]
    assert ebb.split() == ["ebb", "2.0", "-", "1000", "-", "3.0", "-", "-", "1.500000"]
    assert verdict == "the losses are the same, bit for bit"


def test_a_mode_without_enough_memory_is_a_row():
    done = run("--context", "1000000000000", "--modes", "keep")  # more than there are addresses
    assert done.returncode == 0, done.stderr
    _, row, verdict = done.stdout.splitlines()
    assert row.split(maxsplit=1) == ["keep", "out of memory"]
    assert verdict == "no mode came to an end"


def test_a_mode_that_fails_is_a_row():
    done = run(*SMALL, "--heads", "3", "--modes", "ebb", "--json")  # which do not divide the width
    assert done.returncode == 1
    (row,) = json.loads(done.stdout)["rows"]
    assert row["status"] == "failed"
    assert "unflatten" in row["why"]


def test_a_mode_that_takes_too_long_or_does_not_start_is_a_row():
    options = decoder_modes.arguments_of([*SMALL, "--limit-s", "0.01"])
    assert decoder_modes.run_mode("keep", options) == decoder_modes.failed("keep", "took longer than 0.01 s")
    options.limit_s = 60
    options.given = [*SMALL, "--seed", "not a number"]
    assert decoder_modes.run_mode("keep", options)["why"].endswith("invalid int value: 'not a number'")


def test_losses_that_differ_are_told(monkeypatch, capsys):
    losses = {"keep": [2.0, 1.0], "ebb": [2.0, 1.5]}
    monkeypatch.setattr(decoder_modes, "run_mode", lambda mode, options: {
        "mode": mode, "status": "ok", "step_ms": 2.0, "tokens_per_s": 1.0, "losses": losses[mode],
        "about": {"torch": "2"}})
    assert decoder_modes.main(["--modes", "keep,ebb"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "THE LOSSES DIFFER"


@pytest.mark.parametrize(("arguments", "text"), [
    (["--modes", "keep,nothing"], "no mode 'nothing'"),
    (["--memory-gib", "4"], "--memory-gib is for a GPU"),
    (["--layers", "0"], "--layers is 0; it takes at least 1"),
])
def test_wrong_usage(arguments, text):
    done = run(*arguments)
    assert done.returncode == 2
    assert text in done.stderr
