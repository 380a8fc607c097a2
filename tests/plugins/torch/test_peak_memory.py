"""Peak memory falls by what the report claims: on the CPU what it claims, on a GPU beside what PyTorch counted."""

import contextlib
import functools

import pytest
import torch

import ebb.torch

OPERATIONS = 64
STEPS = 6


class Chain(torch.nn.Module):
    """Saves two tensors of its input's size in each of its parts; what computing takes beside them is two more."""

    def __init__(self):
        super().__init__()
        self.scales = torch.nn.Parameter(torch.linspace(0.5, 1.5, OPERATIONS))

    def forward(self, x):
        for scale in self.scales.unbind():
            x = torch.sin(x) * scale
        return x.sum()


def train(context, device, elements) -> list[float]:
    torch.manual_seed(3)
    model = Chain().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    x = torch.randn(elements, device=device)
    losses = []
    for step in range(STEPS):
        if device.type == "cuda" and step == STEPS - 2:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()  # what the first steps are short of, the last ones have
        with context():
            loss = model(x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def claimed_peak(context, device, elements) -> tuple[int, list[float]]:
    """Of all that Ebb held on the device."""
    losses = train(context, device, elements)
    (numbers,) = ebb.torch.statistics().values()
    assert f"{numbers['device_peak_bytes'] / 2**20:.1f} of" in ebb.torch.report()
    ebb.torch.close()
    return numbers["device_peak_bytes"], losses


def contexts(budget_bytes):
    keep = functools.partial(ebb.torch.offload, policy="keep", floor=4096)
    offload = functools.partial(ebb.torch.offload, policy="offload", floor=4096, device_memory=budget_bytes)
    return keep, offload


def test_what_is_claimed():
    """Kept: every tensor that was saved. Offloaded: no more than the budget."""
    tensor_bytes = 1 << 20
    budget_bytes = 8 * tensor_bytes
    keep, offload = contexts(budget_bytes)
    kept, losses = claimed_peak(keep, torch.device("cpu"), tensor_bytes // 4)
    moved, same_losses = claimed_peak(offload, torch.device("cpu"), tensor_bytes // 4)
    assert kept == (2 * OPERATIONS - 1) * tensor_bytes  # no gradient goes through the first sine
    assert moved <= budget_bytes
    assert losses == same_losses


@pytest.mark.gpu
def test_what_is_claimed_is_what_falls(gpu):
    tensor_bytes = 32 << 20
    keep, offload = contexts(16 * tensor_bytes)

    def allocated(context):
        torch.cuda.empty_cache()
        losses = train(context, gpu, tensor_bytes // 4)
        return torch.cuda.max_memory_allocated(gpu), losses

    plain_bytes, plain_losses = allocated(contextlib.nullcontext)
    kept, _ = claimed_peak(keep, gpu, tensor_bytes // 4)
    torch.cuda.empty_cache()
    moved, moved_losses = claimed_peak(offload, gpu, tensor_bytes // 4)
    moved_bytes = torch.cuda.max_memory_allocated(gpu)
    assert moved_losses == plain_losses
    claimed = kept - moved
    assert claimed > 100 * tensor_bytes
    assert plain_bytes - moved_bytes == pytest.approx(claimed, rel=0.05)
