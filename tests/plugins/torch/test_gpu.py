"""On a GPU: losses and every gradient are those without Ebb, bit for bit, and what was moved went through CUDA."""

import functools

import pytest
import torch
from models import MODELS
from training import FLOOR_BYTES, Settings, same, train

import ebb.torch

pytestmark = pytest.mark.gpu

OPTIONS = {
    "automatic": {},
    "offload": {"policy": "offload"},
    "tight": {"policy": "offload", "device_memory": 1 << 17},
    "verified": {"policy": "offload", "verify": True},
}


@pytest.fixture(autouse=True)
def deterministic(gpu):
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@functools.cache
def without(model, autocast):
    return train(*MODELS[model], settings=Settings(autocast=autocast, device="cuda"))


@pytest.mark.filterwarnings("ignore:.*deterministic:UserWarning")
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("model", ["mlp", "encoder", "decoder", "experts"])
def test_same(model, autocast, options):
    settings = Settings(autocast=autocast, device="cuda")
    again = train(*MODELS[model], settings=settings)
    assert same(without(model, autocast), again), "PyTorch itself is not deterministic here"
    context = functools.partial(ebb.torch.offload, floor=FLOOR_BYTES, **OPTIONS[options])
    assert same(without(model, autocast), train(*MODELS[model], context, settings))
    numbers = ebb.torch.statistics()["cuda:0"]
    assert numbers["offload_calls"] > 0
    if options != "automatic":
        assert numbers["d2h_bytes"] > 0
    if options == "tight":
        assert numbers["h2d_bytes"] > 0


def test_staging_is_counted_by_pytorchs_allocator():
    """What Ebb holds beside PyTorch's tensors is in memory_allocated(), and all of it is given back at the end."""
    before = torch.cuda.memory_allocated()
    x = torch.randn(1 << 20, device="cuda", requires_grad=True)
    with ebb.torch.offload(policy="offload", floor=FLOOR_BYTES, device_memory=16 << 20):
        y = x
        for _ in range(12):
            y = y.exp().sin()
    y.sum().backward()
    numbers = ebb.torch.statistics()["cuda:0"]
    assert numbers["h2d_bytes"] > 0
    assert torch.cuda.memory_allocated() - before >= numbers["staging_bytes"]
    del x, y
    ebb.torch.close()
    assert torch.cuda.memory_allocated() == before
