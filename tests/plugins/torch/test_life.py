"""What was moved lives as long as PyTorch wants it, and not longer."""

import contextlib
import gc
import subprocess
import sys

import pytest
import torch
from models import MODELS, Returns
from training import FLOOR_BYTES

import ebb.torch


def offload(device_memory=1 << 16):
    return ebb.torch.offload(policy="offload", floor=FLOOR_BYTES, device_memory=device_memory)


def live():
    return ebb.torch.statistics()["cpu"]["live_activations"]


def test_outputs_do_not_hold_themselves():
    x = torch.randn(64, 64, requires_grad=True)
    with offload():
        y = x.exp().tanh()
    assert live() == 2
    del y
    assert live() == 0


def test_a_dropped_graph_gives_everything_back():
    model, batch = MODELS["decoder"][0](), MODELS["decoder"][1]()
    for _ in range(3):
        with offload():
            loss = model(*batch).square().mean()
        assert live() > 0
        del loss
        gc.collect()
        assert live() == 0


def test_a_process_whose_backward_raised_ends_as_it_should():
    """PyTorch ends it with a segmentation fault, in which what it has left is freed when Python is gone."""
    program = """
import torch, ebb.torch
w = torch.full((1,), 2.0, requires_grad=True)
kept = []
for _ in range(4):
    x = torch.ones(880 << 10)
    with ebb.torch.offload(policy="keep"):
        kept.append(x * w)
    x.data = torch.empty(0)
sum(y.sum() for y in kept).backward()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "must match the size" in done.stderr, done.stderr


def test_an_exception_in_forward():
    class Fails(torch.nn.Module):
        def forward(self, x):
            raise ValueError("on purpose")

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), Fails())
    for _ in range(3):
        with pytest.raises(ValueError, match="on purpose"):
            with offload():
                model(torch.randn(64, 64))
    gc.collect()
    assert live() == 0
    x = torch.randn(64, 64, requires_grad=True)
    with offload():
        y = model[:2](x).sum()
    y.backward()


def test_retain_graph_and_twice():
    x = torch.randn(64, 64, requires_grad=True)
    with offload():
        y = (x.exp() * x.sin()).sum()
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    assert torch.equal(x.grad, 2 * first)


def test_second_derivatives():
    def penalty(context):
        torch.manual_seed(3)
        x = torch.randn(64, 64, requires_grad=True)
        with context():
            y = x.exp().tanh().sum()
            (slope,) = torch.autograd.grad(y, x, create_graph=True)
            z = (slope * slope).sum()
        z.backward()
        return x.grad

    assert torch.equal(penalty(contextlib.nullcontext), penalty(offload))


def test_a_gradient_that_is_a_saved_tensor():
    x = torch.randn(64, 64, requires_grad=True)
    held = []
    for _ in range(20):
        with offload():
            y = Returns.apply(x).sum()
        y.backward()
        held.append(x.grad)
        x.grad = None
        ebb.torch.step()
    for gradient in held:
        assert torch.equal(gradient, x.detach() * 3)
    del held, gradient, y


def test_views_and_strides():
    x = torch.randn(64, 96, requires_grad=True)

    def run(context):
        with context():
            h = x * 1
            parts = (h.t(), h[:, ::2], h.expand(2, 64, 96), h[3:60, 5:90], h.flatten(), h.unflatten(0, (8, 8)))
            y = sum((part * part).sum() for part in parts)
        (grad,) = torch.autograd.grad(y, x)
        return grad

    assert torch.equal(run(contextlib.nullcontext), run(offload))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.complex128])
def test_types(dtype):
    x = torch.randn(64, 64).to(dtype).requires_grad_()

    def run(context):
        with context():
            y = (x * x).exp().sum()
        (grad,) = torch.autograd.grad(y.abs(), x)
        return grad

    assert torch.equal(run(contextlib.nullcontext), run(offload))


def test_a_thousand_steps_end_where_they_began():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    pinned = []
    for number in range(1000):
        with offload():
            loss = model(torch.randn(64, 64)).square().mean()
        loss.backward()
        optimizer.step()
        if number in (50, 999):
            numbers = ebb.torch.statistics()["cpu"]
            assert numbers["live_activations"] == 0
            pinned.append((numbers["pinned_bytes"], numbers["pinned_used_bytes"], numbers["staging_used_bytes"]))
    assert pinned[0] == pinned[1]
    assert ebb.torch.statistics()["cpu"]["steps"] >= 999


def test_what_somebody_else_holds_is_reported_and_then_kept():
    class Keeper(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(64, 64)
            self.second = torch.nn.Linear(64, 64)
            self.third = torch.nn.Linear(64, 64)

        def forward(self, x):
            self.seen = self.first(x)
            return self.third(self.second(self.seen).tanh()).tanh()

    model = Keeper()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    kept = []
    for _ in range(4):
        with offload(1 << 19):
            loss = model(torch.randn(512, 64)).square().mean()
        loss.backward()
        optimizer.step()
        kept.append(ebb.torch.statistics()["cpu"]["kept_count"])
    report = ebb.torch.report()
    assert "copied, not freed" in report
    assert "Keeper.first: 1 times, 0.1 MiB" in report
    assert kept[0] == 0
    assert kept[-1] > 0
