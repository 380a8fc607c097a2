"""Run by torchrun, in two processes: a decoder in DDP, FSDP2 or tensor-parallel, with and without Ebb. Exit status 0: all
alike."""

import contextlib
import functools
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))

import torch
import torch.distributed as dist
from models import Decoder
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from training import FLOOR_BYTES, same

import ebb.torch
from ebb.torch import _process
from ebb.torch._settings import Settings


def wrapped(kind):
    model = Decoder()
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    if kind == "tensor_parallel":
        plan = {"up": ColwiseParallel(use_local_output=False), "down": RowwiseParallel()}
        for block in model.blocks:
            parallelize_module(block, mesh, plan)
        return model
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def train(kind, context, state=lambda optimizer: None):
    torch.manual_seed(5)
    model = wrapped(kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    handle = state(optimizer)
    torch.manual_seed(10 + dist.get_rank())
    seen = []
    for _ in range(4):
        with context():
            loss = model(torch.randint(0, 97, (8, 32))).square().mean()
        loss.backward()
        gradients = [p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad.clone()
                     for p in model.parameters()]
        seen.append((loss.detach(), gradients))
        optimizer.step()
        optimizer.zero_grad()
    if handle is not None:
        assert handle.statistics()["cpu"]["h2d_bytes"] > 0
        handle.detach()
    return seen


def agree_on_a_plan():
    """Budgets that differ: all follow the plan of the smallest one."""
    told = Settings.options
    budget_bytes = 1 << 28 if dist.get_rank() == 0 else 3 << 19  # as if each had found its own
    Settings.options = lambda self: {**told(self), "device_budget_bytes": budget_bytes}
    torch.manual_seed(5)
    model = wrapped("ddp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for _ in range(60):  # of all processes alike: gradients are summed up
        with ebb.torch.offload(floor=FLOOR_BYTES):
            loss = model(torch.randint(0, 97, (8, 32))).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert "all processes follow the plan of process 1" in ebb.torch.report(), ebb.torch.report()
    (session,) = _process._sessions.values()
    (runtime,) = session._runtimes.values()
    plans = [None] * dist.get_world_size()
    dist.all_gather_object(plans, runtime.plan())
    assert plans[0] == plans[1]
    assert "offload" in plans[0], "it is not that of a budget in which all fits"


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    kind = sys.argv[1]
    if kind == "plan":
        agree_on_a_plan()
        dist.destroy_process_group()
        return
    context = functools.partial(ebb.torch.offload, policy="offload", floor=FLOOR_BYTES, device_memory=1 << 18)
    state = functools.partial(ebb.torch.offload_optimizer, floor=FLOOR_BYTES)
    assert same(train(kind, contextlib.nullcontext), train(kind, context, state))
    numbers = ebb.torch.statistics()["cpu"]
    assert numbers["offloaded_count"] > 0
    assert numbers["reloads_prefetched"] > 0
    assert numbers["live_activations"] == 0
    dist.destroy_process_group()


main()
