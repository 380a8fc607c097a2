"""Functions whose saved tensors are kept, offloaded or computed again."""

import functools

import pytest
import torch
from models import MODELS, Decoder, Experts
from training import FLOOR_BYTES, Settings, same, train

import ebb.torch

POLICIES = {
    "remat": "*=remat",
    "mixed": {"*.up": "remat", "*Gelu": "remat", "*": "offload"},
    "offload": "offload",
    "automatic": None,
}


class WithDropout(Decoder):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.3)


class Checkpointed(torch.nn.Module):
    """Blocks, with dropout between, of which each is a checkpointed function or not."""

    def __init__(self, call):
        super().__init__()
        self.decoder = WithDropout()
        self.call = call

    def forward(self, tokens):
        x = self.decoder.embed(tokens) + self.decoder.positions[: tokens.shape[1]]
        for block in self.decoder.blocks:
            x = self.call(lambda x, block=block: self.decoder.drop(block(x)), x)
        return x @ self.decoder.embed.weight.t()


def plainly(function, *args):
    return function(*args)


def offload(policy, device_memory=1 << 18):
    return functools.partial(ebb.torch.offload, floor=FLOOR_BYTES, device_memory=device_memory, policy=policy)


@pytest.mark.parametrize("settings", [Settings(), Settings(torch.bfloat16), Settings(autocast=True)],
                         ids=["float32", "bfloat16", "autocast"])
@pytest.mark.parametrize("policy", POLICIES)
def test_same(policy, settings):
    batch = MODELS["decoder"][1]
    without = train(functools.partial(Checkpointed, plainly), batch, settings=settings)
    make = functools.partial(Checkpointed, ebb.torch.checkpoint)
    assert same(without, train(make, batch, offload(POLICIES[policy]), settings))
    numbers = ebb.torch.statistics()["cpu"]
    if policy in ("remat", "mixed"):
        assert numbers["recompute_count"] > 0
    if policy in ("mixed", "offload"):
        assert numbers["d2h_bytes"] > 0


def test_computing_again_is_counted_once_a_call():
    calls = []

    def function(x):
        calls.append(x)
        return x.exp().tanh().sin()

    x = torch.randn(64, 64, requires_grad=True)
    with offload("*=remat")():
        y = ebb.torch.checkpoint(function, x)
    assert len(calls) == 1
    y.sum().backward()
    assert len(calls) == 2
    expected, = torch.autograd.grad(function(x).sum(), x)
    assert torch.equal(x.grad, expected)


def test_twice_backward():
    x = torch.randn(64, 64, requires_grad=True)
    with offload("*=remat")():
        y = ebb.torch.checkpoint(lambda x: x.exp().tanh(), x).sum()
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    assert torch.equal(x.grad, 2 * first)


def test_routing_is_the_same_again():
    class Routed(torch.nn.Module):
        def __init__(self, call):
            super().__init__()
            self.experts = Experts()
            self.call = call

        def forward(self, x):
            return self.call(self.experts, x)

    batch = MODELS["experts"][1]
    without = train(functools.partial(Routed, plainly), batch)
    assert same(without, train(functools.partial(Routed, ebb.torch.checkpoint), batch, offload("*=remat")))


def test_a_function_that_changes_its_mind_is_told():
    turn = []

    def function(x):
        turn.append(x)
        return x.exp() if len(turn) == 1 else x * 2

    x = torch.randn(64, 64, requires_grad=True)
    with offload("*=remat")():
        y = ebb.torch.checkpoint(function, x).sum()
    with pytest.raises(RuntimeError, match="must depend on"):
        y.backward()


def test_without_a_context_and_without_gradients():
    x = torch.randn(64, 64, requires_grad=True)
    y = ebb.torch.checkpoint(lambda x, *, times: (x * times).exp(), x, times=2).sum()
    y.backward()
    with torch.no_grad():
        assert not ebb.torch.checkpoint(torch.exp, x).requires_grad


class Counted(torch.nn.Module):
    """Its result depends on buffers, of which it changes one in place and puts another in the place of one."""

    def __init__(self, elements=64):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 64))
        self.norm = torch.nn.BatchNorm1d(64)
        self.register_buffer("mean", torch.zeros(elements))
        self.register_buffer("calls", torch.ones(()))
        self.register_buffer("same_mean", self.mean, persistent=False)
        self.adds = 0.1

    def forward(self, x):
        with torch.no_grad():
            self.calls = self.calls + 1
            if self.adds:
                self.mean[:64] += self.adds * x.mean(0)
        return (self.norm(x) * self.weight * self.calls + self.same_mean[:64]).sin().exp()


def counted(call, elements=64):
    torch.manual_seed(0)
    return Counted(elements), torch.randn(3, 128, 64), call


def stepped(module, batches, call, passes=1):
    results = []
    for x in batches:
        x = x.clone().requires_grad_()
        loss = call(module, call(module, x)).sum()
        for last in range(passes - 1, -1, -1):
            loss.backward(retain_graph=last > 0)
        results += [x.grad, *(p.grad.clone() for p in module.parameters()), *(b.clone() for b in module.buffers())]
        module.zero_grad()
        ebb.torch.step()
    return results


def remat(module, x):
    with offload("*=remat")():
        return ebb.torch.checkpoint(module, x)


def remat_of_a_partial(module, x):
    with offload("*=remat")():
        return ebb.torch.checkpoint(functools.partial(module.forward, x=x))


def attached(module, x):
    ebb.torch.attach(module, policy={"*": "remat"}, floor=FLOOR_BYTES)
    try:
        return module(x)
    finally:
        ebb.torch.detach(module)


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("call", [remat, remat_of_a_partial, attached])
@pytest.mark.parametrize("elements", [64, 1 << 19])
def test_buffers_are_as_they_were_and_change_once(call, passes, elements):
    """PyTorch's checkpoint changes running statistics twice, and computes again with those of after the first time."""
    plain, again = (stepped(*counted(how, elements), passes) for how in (plainly_called, call))
    for one, other in zip(plain, again, strict=True):
        assert torch.equal(one, other)


def plainly_called(module, x):
    return module(x)


def test_a_large_buffer_that_changes_late_is_told():
    module, batches, call = counted(remat, 1 << 19)
    module.adds = 0
    stepped(module, batches, call)
    module.adds = 0.1
    with pytest.raises(RuntimeError, match="Counted is to be .* buffer 'mean' has been changed in place"):
        stepped(module, batches, call)
    module.zero_grad()
    stepped(module, batches, call)


def changed_meanwhile(call, elements):
    module, (x, *_), call = counted(call, elements)
    module.adds = 0
    loss = call(module, x).sum()
    module.mean += 1
    loss.backward()
    return module.weight.grad


def test_a_buffer_that_somebody_changes_meanwhile():
    assert torch.equal(changed_meanwhile(plainly_called, 64), changed_meanwhile(remat, 64))
    with pytest.raises(RuntimeError, match="Counted is to be .* buffer 'mean' has been changed in place"):
        changed_meanwhile(remat, 1 << 19)
