"""Staging that an allocator of PyTorch's lends: on the CPU, one that gives tensors' memory."""


import pytest
import torch
from models import MODELS
from training import FLOOR_BYTES, same, train

import ebb.torch
from ebb import _torch_hooks
from ebb.torch import _process, _staging
from ebb.torch._settings import Settings


class TensorMemory:
    def __init__(self, most_bytes=1 << 40):
        self.out = {}
        self.calls = 0
        self.most_bytes = most_bytes

    def alloc(self, size_bytes, home):
        self.calls += 1
        if sum(tensor.numel() for tensor in self.out.values()) + size_bytes > self.most_bytes:
            return 0
        tensor = torch.empty(size_bytes + 512, dtype=torch.uint8)
        address = tensor.data_ptr() + -tensor.data_ptr() % 512
        self.out[address] = tensor
        return address

    def free(self, address, home):
        del self.out[address]

    def available(self):
        return 1 << 20


def train_with(memory, model="decoder", steps=6):
    allocator = _torch_hooks.Allocator(memory)
    more = (("allocator", allocator.address),)
    settings = Settings(policy="offload", device_memory=1 << 18, floor=FLOOR_BYTES, more=more)

    class Context(ebb.torch.offload):
        def __init__(self):
            super().__init__()
            self._settings = settings

    seen = train(*MODELS[model], Context, steps=steps)
    numbers = _process.of(settings).statistics()["cpu"]
    ebb.torch.close()
    return seen, numbers


def test_same():
    memory = TensorMemory()
    seen, numbers = train_with(memory)
    assert same(train(*MODELS["decoder"], steps=6), seen)
    assert memory.calls > 0
    assert numbers["h2d_bytes"] > 0
    assert not memory.out


def test_one_that_refuses():
    memory = TensorMemory(100_000)
    seen, numbers = train_with(memory)
    assert same(train(*MODELS["decoder"], steps=6), seen)
    assert numbers["no_slot_count"] > 0
    assert not memory.out


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_fails_is_gone_on_without():
    class Fails(TensorMemory):
        def alloc(self, size_bytes, home):
            raise ValueError("on purpose")

    memory = Fails()
    seen, numbers = train_with(memory)
    assert same(train(*MODELS["decoder"], steps=6), seen)
    assert numbers["no_slot_count"] > 0


@pytest.mark.parametrize(("fraction", "available"), [(1.0, 50 + 10), (0.5, 50 - 30), (0.1, 0)])
def test_what_is_available_is_what_the_allocator_may_take(monkeypatch, fraction, available):
    """Of 100 bytes 30 are allocated, 10 cached, 10 somebody else's."""
    for name, value in {"mem_get_info": (50, 100), "memory_allocated": 30, "memory_reserved": 40,
                        "get_per_process_memory_fraction": fraction}.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert _staging.CudaMemory(0).available() == available
