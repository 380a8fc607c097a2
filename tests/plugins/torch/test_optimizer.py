"""Optimizer state that is away between steps changes nothing."""

import copy
import gc

import pytest
import torch

import ebb.torch

OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2),
    "adam_one_by_one": lambda p: torch.optim.Adam(p, lr=1e-2, foreach=False, amsgrad=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
    "momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-2, momentum=0.5),
}


def make(optimizer="adam"):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 16))
    return model, OPTIMIZERS[optimizer](model.parameters())


def step(model, optimizer, seed, scaler=None, scale=1.0):
    torch.manual_seed(seed)
    loss = model(torch.randn(8, 64)).square().mean() * scale
    optimizer.zero_grad()
    if scaler is None:
        loss.backward()
        optimizer.step()
    else:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def same_parameters(model, other):
    return all(torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters(), strict=True))


def same_state(optimizer, other):
    state, other_state = optimizer.state_dict()["state"], other.state_dict()["state"]
    return state.keys() == other_state.keys() and all(
        torch.equal(torch.as_tensor(state[p][k]), torch.as_tensor(other_state[p][k])) for p in state for k in state[p])


def away(optimizer):
    return [t for state in optimizer.state.values() for t in state.values()
            if isinstance(t, torch.Tensor) and t.numel() == 0]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_same(kind):
    plain, plain_optimizer = make(kind)
    model, optimizer = make(kind)
    offload = ebb.torch.offload_optimizer(optimizer, floor=1024)
    for seed in range(6):
        step(plain, plain_optimizer, seed)
        step(model, optimizer, seed)
        assert len(away(optimizer)) >= 2
        assert same_parameters(model, plain)
    assert offload.statistics()["cpu"]["d2h_bytes"] > 0
    assert offload.statistics()["cpu"]["h2d_bytes"] > 0
    assert same_state(optimizer, plain_optimizer)
    step(plain, plain_optimizer, 9)
    step(model, optimizer, 9)
    assert len(away(optimizer)) >= 2, "and away again after state_dict()"
    offload.detach()
    assert not away(optimizer)
    step(plain, plain_optimizer, 10)
    step(model, optimizer, 10)
    assert not away(optimizer)
    assert same_parameters(model, plain)


def test_state_that_is_loaded():
    plain, plain_optimizer = make()
    for seed in range(3):
        step(plain, plain_optimizer, seed)
    model, optimizer = make()
    offload = ebb.torch.offload_optimizer(optimizer, floor=1024)
    step(model, optimizer, 50)
    model.load_state_dict(plain.state_dict())
    optimizer.load_state_dict(copy.deepcopy(plain_optimizer.state_dict()))
    assert same_state(optimizer, plain_optimizer)
    for seed in range(3):
        step(plain, plain_optimizer, seed)
        step(model, optimizer, seed)
    assert same_parameters(model, plain)
    offload.detach()


def test_a_step_that_is_skipped():
    plain, plain_optimizer = make()
    model, optimizer = make()
    offload = ebb.torch.offload_optimizer(optimizer, floor=1024)
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0) for _ in range(2)]
    for seed, scale in enumerate((1.0, 1.0, float("inf"), 1.0, float("nan"), 1.0)):
        step(plain, plain_optimizer, seed, scalers[0], scale)
        step(model, optimizer, seed, scalers[1], scale)
        assert len(away(optimizer)) >= 2
    assert same_parameters(model, plain)
    assert same_state(optimizer, plain_optimizer)
    offload.detach()


def test_a_step_that_raises():
    model, optimizer = make()
    offload = ebb.torch.offload_optimizer(optimizer, floor=1024)
    step(model, optimizer, 0)

    def fails():
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        optimizer.step(fails)
    assert not away(optimizer)
    step(model, optimizer, 1)
    assert away(optimizer)
    offload.detach()


def test_an_interrupt_loses_nothing(monkeypatch):
    """While state comes back: what came stays, the rest comes back the next time."""
    plain, plain_optimizer = make()
    model, optimizer = make()
    offload = ebb.torch.offload_optimizer(optimizer, floor=1024)
    for m, o in ((plain, plain_optimizer), (model, optimizer)):
        step(m, o, 1)
    count = len(away(optimizer))
    assert count > 2

    class Interrupted:
        """The hooks, until the second tensor is asked for."""

        def __init__(self, hooks):
            self.hooks, self.left = hooks, 1

        def unpack(self, packed):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            return self.hooks.unpack(packed)

    with monkeypatch.context() as patch:
        patch.setattr(offload.session, "hooks", Interrupted(offload.session.hooks))
        with pytest.raises(KeyboardInterrupt):
            step(model, optimizer, 2)
    assert len(away(optimizer)) == count - 1
    assert same_state(optimizer, plain_optimizer)
    for m, o in ((plain, plain_optimizer), (model, optimizer)):
        step(m, o, 2)
    assert same_parameters(model, plain) and same_state(optimizer, plain_optimizer)


def test_a_state_dict_is_of_one_step():
    model, optimizer = make()
    ebb.torch.offload_optimizer(optimizer, floor=1024)
    step(model, optimizer, 1)
    state = optimizer.state_dict()["state"]
    before = copy.deepcopy(state)
    step(model, optimizer, 2)
    assert all(torch.equal(state[p][k], before[p][k]) for p in state for k in state[p])


def test_what_is_wrong_is_said_at_once():
    _, optimizer = make()
    for wrong, kind in (({"host_memory": -1}, ValueError), ({"host_memory": "x"}, TypeError), ({"host_memory": 1.5}, TypeError),
                        ({"floor": 0}, ValueError), ({"floor": "1"}, TypeError), ({"floor": True}, TypeError)):
        with pytest.raises(kind, match=f"ebb: {next(iter(wrong))} is"):
            ebb.torch.offload_optimizer(optimizer, **wrong)
    with pytest.raises(TypeError, match="ebb: optimizer is of type int"):
        ebb.torch.offload_optimizer(3)
    offload = ebb.torch.offload_optimizer(optimizer)
    with pytest.raises(RuntimeError, match="offloaded already"):
        ebb.torch.offload_optimizer(optimizer)
    offload.detach()
    ebb.torch.offload_optimizer(optimizer).detach()


def test_state_that_is_no_dense_tensor():
    def run(with_ebb):
        torch.manual_seed(0)
        table = torch.nn.Embedding(64, 64, sparse=True)
        optimizer = torch.optim.SGD(table.parameters(), lr=0.1, momentum=0.9)
        optimizer.state["of the user"] = 3
        if with_ebb:
            ebb.torch.offload_optimizer(optimizer, floor=1)
        for seed in range(3):
            torch.manual_seed(seed)
            optimizer.zero_grad()
            table(torch.randint(64, (8,))).square().sum().backward()
            optimizer.step()
        assert optimizer.state_dict()["state"]["of the user"] == 3
        return table.weight.detach()

    assert torch.equal(run(False), run(True))


def test_steps_are_counted_and_forgotten():
    model, optimizer = make()
    offload = ebb.torch.offload_optimizer(optimizer, floor=1024)
    for seed in range(5):
        step(model, optimizer, seed)
    assert offload.statistics()["cpu"]["steps"] == 5


def test_with_activations():
    def run(context, offloads):
        model, optimizer = make()
        offload = ebb.torch.offload_optimizer(optimizer, floor=1024) if offloads else None
        for seed in range(5):
            torch.manual_seed(seed)
            with context:
                loss = model(torch.randn(64, 64)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if offload is not None:
            offload.detach()
        return model

    import contextlib

    activations = ebb.torch.offload(policy="offload", floor=1024, device_memory=1 << 16)
    assert same_parameters(run(contextlib.nullcontext(), False), run(activations, True))
    assert ebb.torch.statistics()["cpu"]["steps"] == 5


def test_one_that_nobody_detached_goes_with_its_optimizer():
    model, optimizer = make()
    handle = ebb.torch.offload_optimizer(optimizer, floor=1024)
    step(model, optimizer, 0)
    (runtime,) = handle.session._runtimes.values()
    del optimizer, handle
    gc.collect()
    assert runtime.address is None, "closed"


def test_close_brings_state_back():
    plain, plain_optimizer = make()
    model, optimizer = make()
    ebb.torch.offload_optimizer(optimizer, floor=1024)
    for seed in range(2):
        step(plain, plain_optimizer, seed)
        step(model, optimizer, seed)
    assert away(optimizer)
    ebb.torch.close()
    assert not away(optimizer)
    step(plain, plain_optimizer, 2)
    step(model, optimizer, 2)
    assert not away(optimizer), "it stays on the device from then on"
    assert same_state(optimizer, plain_optimizer)


def test_states_that_share_memory_stay_together():
    parameter = torch.nn.Parameter(torch.ones(64, 64))
    optimizer = torch.optim.Adam([parameter])
    both = torch.zeros(2, 64, 64)
    state = {"step": torch.tensor(1.0), "exp_avg": both[0], "exp_avg_sq": both[1], "lone": torch.ones(64, 64)}
    optimizer.state[parameter] = state
    handle = ebb.torch.offload_optimizer(optimizer, floor=1024)
    parameter.grad = torch.ones(64, 64)
    optimizer.step()
    assert state["exp_avg"].numel() and state["exp_avg_sq"].numel() and not state["lone"].numel()
    assert torch.equal(both[0], state["exp_avg"]), "still a part of it"
    handle.detach()
    assert torch.equal(state["lone"], torch.ones(64, 64))
