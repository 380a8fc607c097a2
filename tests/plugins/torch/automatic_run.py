"""Run by test_automatic.py: trains until there is a plan, and then prints what one more step does."""

import json
import sys

import torch

import ebb.torch
from ebb.torch import _process

K_MOST_STEPS = 60


class Blocks(torch.nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)) for _ in range(6))

    def forward(self, x):
        for block in self.blocks:
            x = x + self.call(block, x)
        return x


def plainly(function, x):
    return function(x)


def main():
    case, device_memory = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Blocks(ebb.torch.checkpoint if case == "checkpointed" else plainly)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(number):
        rows = 512 if case != "other_sizes" else 512 - 16 * (number % 3)
        if case == "evaluated":
            with torch.no_grad(), ebb.torch.offload(device_memory=device_memory):
                model(torch.randn(512, 256))
        with ebb.torch.offload(device_memory=device_memory):
            loss = model(torch.randn(rows, 256)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step(0)
    (session,) = _process._sessions.values()
    (runtime,) = session._runtimes.values()
    number = 1
    while runtime.plan() is None and number < K_MOST_STEPS:
        step(number)
        number += 1
    before = runtime.statistics()
    step(number)
    after = runtime.statistics()
    print(json.dumps({
        "planned": runtime.plan() is not None,
        "offloaded": after["offloaded_count"] - before["offloaded_count"],
        "recomputed": after["recompute_count"] - before["recompute_count"],
        "moved_bytes": after["d2h_bytes"] - before["d2h_bytes"],
    }))


main()
