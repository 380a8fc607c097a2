"""A model that is attached computes what it did, under its own names, and is given back as it was."""

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
