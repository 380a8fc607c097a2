"""A model that is attached computes what it did, under its own names, and is given back as it was."""

import copy
import pickle
import threading
import warnings

import pytest
import torch
from models import MODELS, Decoder
from training import FLOOR_BYTES, same, train

import ebb.torch


def attached(model_of, **options):
    def make():
        model = model_of()
        ebb.torch.attach(model, floor=FLOOR_BYTES, device_memory=1 << 16, **options)
        return model

    return make


@pytest.mark.parametrize("policy", ["offload", {"*.up": "offload", "blocks.*": "auto"}, {"blocks.1": "remat"},
                                    {"blocks.*.norm1": "remat", "*": "offload"}])
@pytest.mark.parametrize("model", ["decoder", "encoder", "experts"])
def test_same(model, policy):
    make, batch = MODELS[model]
    assert same(train(make, batch), train(attached(make, policy=policy), batch))


def test_names_are_the_models():
    train(attached(Decoder, policy="offload"), MODELS["decoder"][1])
    report = ebb.torch.report()
    assert "blocks.0.up" in report
    assert "Decoder" not in report


def test_what_is_computed_again_is_not_moved():
    train(attached(Decoder, policy={"blocks.*": "remat", "*": "offload"}), MODELS["decoder"][1])
    report = ebb.torch.report()
    assert "blocks.0.up" not in report


def test_dropout_is_the_same_again():
    def make():
        return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.5), torch.nn.Linear(64, 64))

    def batch():
        return (torch.randn(64, 64),)

    assert same(train(make, batch), train(attached(make, policy={"1": "remat"}), batch))


def test_what_is_wrong_is_said_at_once():
    model = Decoder()
    for policy, kind, text in (("remat", ValueError, "which modules"), (5, TypeError, "of type int"), ([("a", "remat")], TypeError, "of type list"),
                               ({0: "remat"}, TypeError, "both are strings"), ({"a,b": "remat"}, ValueError, "commas"),
                               ({"a": "keep\0"}, ValueError, "commas"), ("off\0load", ValueError, "no text")):
        with pytest.raises(kind, match=text):
            ebb.torch.attach(model, policy=policy)
    with pytest.raises(TypeError, match="verify is 'no'"):
        ebb.torch.attach(model, verify="no")
    for wrong in (3, None):
        with pytest.raises(TypeError, match="model is of type"):
            ebb.torch.detach(wrong)


def test_a_module_that_is_added_later_has_its_name():
    model = torch.nn.Sequential(torch.nn.Tanh())
    ebb.torch.attach(model, policy="offload", floor=FLOOR_BYTES)
    x = torch.randn(64, 64, requires_grad=True)
    model(x).sum().backward()
    model.add_module("later", torch.nn.Sequential(torch.nn.Tanh()))
    model(x).sum().backward()
    assert "later.0" in ebb.torch.report()


def test_arguments_may_have_the_names_of_checkpoints():
    class Named(torch.nn.Module):
        def forward(self, x, debug=False, early_stop=None, use_reentrant=1.0, function=0.0):
            return x * (2.0 if debug else 1.0) * early_stop * use_reentrant + function

    given = {"debug": True, "early_stop": torch.tensor(3.0), "use_reentrant": 5.0, "function": 7.0}

    class Top(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.named = Named()

        def forward(self, x):
            return self.named(x, **given)

    top = Top()
    ebb.torch.attach(top, policy={"named": "remat"}, floor=FLOOR_BYTES)
    x = torch.ones(64, requires_grad=True)
    y = top(x)
    y.sum().backward()
    assert torch.equal(y.detach(), torch.full((64,), 37.0)) and torch.equal(x.grad, torch.full((64,), 30.0))
    assert torch.equal(ebb.torch.checkpoint(Named(), x, **given).detach(), y.detach())


def test_detach_gives_it_back():
    model = Decoder()
    before = {name: dict(module.__dict__) for name, module in model.named_modules()}
    attachment = ebb.torch.attach(model, policy={"blocks.*": "remat", "*": "offload"}, floor=FLOOR_BYTES)
    with pytest.raises(RuntimeError, match="attached already"):
        ebb.torch.attach(model)
    attachment.detach()
    ebb.torch.detach(model)  # nothing to do
    after = {name: dict(module.__dict__) for name, module in model.named_modules()}
    for name, members in before.items():
        assert after[name].keys() == members.keys()
    assert not model._forward_pre_hooks
    assert not model._forward_hooks
    ebb.torch.attach(model).detach()


def test_a_forward_that_raises_leaves_the_context():
    class Fails(torch.nn.Module):
        def forward(self, x):
            raise ValueError("on purpose")

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), Fails())
    ebb.torch.attach(model, floor=FLOOR_BYTES, policy="offload")
    for _ in range(2):
        with pytest.raises(ValueError, match="on purpose"):
            model(torch.randn(64, 64))
        x = torch.randn(64, 64, requires_grad=True)
        moved = ebb.torch.statistics()["cpu"]["offload_calls"]
        x.exp().sum().backward()
        assert ebb.torch.statistics()["cpu"]["offload_calls"] == moved


def gradients(model, x):
    model.zero_grad()
    model(x).square().sum().backward()
    return [p.grad.clone() for p in model.parameters()]


def mlp():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64))


REMAT = {"0": "remat", "*": "offload"}


def test_a_deep_copy_has_weights_and_names_of_its_own():
    model, x = mlp(), torch.randn(64, 64)
    ebb.torch.attach(model, policy=REMAT, floor=FLOOR_BYTES)
    copied = copy.deepcopy(model)
    plain = mlp()
    with torch.no_grad():
        for p, q in zip(copied.parameters(), plain.parameters(), strict=True):
            p.mul_(2)
            q.mul_(2)
    for one, other in zip(gradients(copied, x), gradients(plain, x), strict=True):
        assert torch.equal(one, other)
    assert ebb.torch.statistics()["cpu"]["offload_calls"] > 0
    assert "Sequential" not in ebb.torch.report()
    ebb.torch.detach(copied)
    assert "forward" not in copied[0].__dict__ and not copied._forward_pre_hooks
    assert "forward" in model[0].__dict__ and model._forward_pre_hooks, "the model itself stays attached"


def test_a_pickled_one_is_not_attached():
    model, x = mlp(), torch.randn(64, 64)
    ebb.torch.attach(model, policy=REMAT, floor=FLOOR_BYTES)
    loaded = pickle.loads(pickle.dumps(model))
    for one, other in zip(gradients(loaded, x), gradients(mlp(), x), strict=True):
        assert torch.equal(one, other)
    assert ebb.torch.statistics() == {}
    ebb.torch.attach(loaded, policy="offload", floor=FLOOR_BYTES)
    gradients(loaded, x)
    assert ebb.torch.statistics()["cpu"]["offload_calls"] > 0


def test_an_interrupt_leaves_no_context_behind_for_good():
    class Interrupted(torch.nn.Module):
        on = True

        def forward(self, x):
            if self.on:
                raise KeyboardInterrupt
            return x.exp()

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), Interrupted())
    ebb.torch.attach(model, floor=FLOOR_BYTES, policy="offload")
    with pytest.raises(KeyboardInterrupt):
        model(torch.randn(64, 64))
    model[1].on = False
    model(torch.randn(64, 64)).sum().backward()
    moved = ebb.torch.statistics()["cpu"]["offload_calls"]
    torch.randn(64, 64, requires_grad=True).exp().sum().backward()
    assert ebb.torch.statistics()["cpu"]["offload_calls"] == moved


def test_a_model_that_calls_itself():
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up = torch.nn.Linear(64, 64)

        def forward(self, x, again=True):
            return self(self.up(x).tanh(), again=False) if again else self.up(x).exp()

    x = torch.randn(64, 64)
    torch.manual_seed(0)
    model = Twice()
    expected = gradients(model, x)
    ebb.torch.attach(model, floor=FLOOR_BYTES, policy="offload")
    for one, other in zip(expected, gradients(model, x), strict=True):
        assert torch.equal(one, other)
    moved = ebb.torch.statistics()["cpu"]["offload_calls"]
    torch.randn(64, 64, requires_grad=True).exp().sum().backward()
    assert ebb.torch.statistics()["cpu"]["offload_calls"] == moved


def test_threads_have_passes_of_their_own():
    model, x = mlp(), torch.randn(64, 64)
    expected = [p for p in torch.autograd.grad(model(x).square().sum(), list(model.parameters()))]
    ebb.torch.attach(model, floor=FLOOR_BYTES, policy="offload", device_memory=1 << 16)
    wrong = []

    def train():
        for _ in range(50):
            found = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
            if not all(torch.equal(one, other) for one, other in zip(expected, found, strict=True)):
                wrong.append("another gradient")

    threads = [threading.Thread(target=train) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("policy", ["offload", {"blocks.*": "remat", "*": "offload"}])
def test_compiled_after_it_was_attached(policy):
    def make():
        torch._dynamo.reset()
        return torch.compile(Decoder(), backend="aot_eager")

    def make_attached():
        torch._dynamo.reset()
        return torch.compile(attached(Decoder, policy=policy)(), backend="aot_eager")

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert same(train(make, MODELS["decoder"][1]), train(make_attached, MODELS["decoder"][1]))
    assert ebb.torch.statistics()["cpu"]["offloaded_count"] > 0


def test_what_is_no_module_and_what_is_no_option():
    with pytest.raises(TypeError, match="model is of type dict"):
        ebb.torch.attach({})
    model = mlp()
    with pytest.raises(ebb.EbbError, match="offlaod"):
        ebb.torch.attach(model, policy={"*": "offlaod"})
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        ebb.torch.attach(model, flor=1)
    assert not model._forward_pre_hooks


def test_in_transforms_of_torch_func_it_steps_aside():
    model, x = mlp(), torch.randn(64, 64)
    parameters = dict(model.named_parameters())

    def loss(parameters, x):
        return torch.func.functional_call(model, parameters, (x,)).square().sum()

    expected = torch.func.grad(loss)(parameters, x)
    of_each = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x[:, None])
    ebb.torch.attach(model, policy="offload", floor=FLOOR_BYTES)
    for name, gradient in torch.func.grad(loss)(parameters, x).items():
        assert torch.equal(gradient, expected[name])
    for name, gradient in torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x[:, None]).items():
        assert torch.equal(gradient, of_each[name])
    assert ebb.torch.statistics() == {}
    gradients(model, x)
    assert ebb.torch.statistics()["cpu"]["offload_calls"] > 0, "and is there again afterwards"


def test_forward_hooks_of_the_user():
    def hooked():
        model = mlp()
        model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        model[1].register_forward_hook(lambda module, args, output: output.sin())
        model.register_forward_hook(lambda module, args, output: output.exp())
        return model

    x = torch.randn(64, 64) / 8
    expected = gradients(hooked(), x)
    model = hooked()
    ebb.torch.attach(model, policy="offload", floor=FLOOR_BYTES, device_memory=1 << 16)
    for one, other in zip(expected, gradients(model, x), strict=True):
        assert torch.equal(one, other)
    assert ebb.torch.statistics()["cpu"]["offloaded_count"] > 0
