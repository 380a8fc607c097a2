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


def train(kind, context):
    torch.manual_seed(5)
    model = wrapped(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
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
    return seen


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    kind = sys.argv[1]
    context = functools.partial(ebb.torch.offload, policy="offload", floor=FLOOR_BYTES, device_memory=1 << 18)
    assert same(train(kind, contextlib.nullcontext), train(kind, context))
    numbers = ebb.torch.statistics()["cpu"]
    assert numbers["offloaded_count"] > 0
    assert numbers["reloads_prefetched"] > 0
    assert numbers["live_activations"] == 0
    dist.destroy_process_group()


main()
