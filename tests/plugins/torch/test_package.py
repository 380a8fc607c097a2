"""What the package says of itself."""

import subprocess
import sys

import pytest
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


def importing(version):
    program = f"import torch; torch.__version__ = {version!r}; import ebb.torch; print('imported')"
    return subprocess.run([sys.executable, "-W", "always", "-c", program], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("version", ["2.8.0", "1.13.1+cu117"])
def test_a_pytorch_that_is_too_old_is_told(version):
    done = importing(version)
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1] == f"ImportError: ebb.torch needs PyTorch 2.9 or newer, and this is {version}"


@pytest.mark.parametrize("version", ["2.16.0", "3.0.0.dev20270101", "git-1234"])
def test_a_pytorch_that_was_not_tried_is_told_in_one_line(version):
    done = importing(version)
    assert done.stdout == "imported\n", done.stderr
    said = [line for line in done.stderr.splitlines() if "Warning" in line and "ebb" in line]
    assert len(said) == 1
    assert said[0].endswith(f"ebb.torch was tested with PyTorch 2.9 to 2.15, and this is {version}")


def test_one_that_was_tried_says_nothing():
    for version in ("2.9.1", "2.11.0+cu130", "2.15.0"):
        done = importing(version)
        assert done.stdout == "imported\n", done.stderr
        assert "ebb.torch was" not in done.stderr
