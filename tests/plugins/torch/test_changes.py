"""What is changed in place between forward and backward is found, as PyTorch finds it without hooks."""

import pytest
import torch

import ebb.torch

MODIFIED = "modified by an inplace operation"


def offload():
    return ebb.torch.offload(policy="offload", floor=1, device_memory=1 << 16)


def test_an_activation():
    x = torch.randn(64, 64, requires_grad=True)
    with offload():
        h = x * 2
        y = (h * h).sum()
    h.add_(1)
    with pytest.raises(RuntimeError, match=MODIFIED):
        y.backward()


def test_a_weight():
    linear = torch.nn.Linear(64, 64)
    x = torch.randn(8, 64, requires_grad=True)
    with offload():
        y = linear(x).sum()
    with torch.no_grad():
        linear.weight.add_(1)
    with pytest.raises(RuntimeError, match=MODIFIED):
        y.backward()


def test_an_output_that_was_saved():
    x = torch.randn(64, 64, requires_grad=True)
    with offload():
        y = x.exp()
    total = y.sum()
    with torch.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match=MODIFIED):
        total.backward()


def test_a_change_before_the_save_is_none():
    x = torch.randn(64, 64, requires_grad=True)
    with offload():
        h = x * 2
        h.add_(1)
        y = (h * h).sum()
    y.backward()
    assert torch.equal(x.grad, 2 * (2 * x.detach() + 1) * 2)
