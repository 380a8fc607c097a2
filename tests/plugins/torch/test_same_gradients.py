"""Losses and every gradient are those without Ebb, bit for bit."""

import functools

import pytest
import torch
from models import MODELS
from training import FLOOR_BYTES, Settings, same, train

import ebb.torch

SETTINGS = {
    "float32": Settings(),
    "bfloat16": Settings(torch.bfloat16),
    "autocast": Settings(autocast=True),
}
OPTIONS = {
    "automatic": {},
    "offload": {"policy": "offload"},
    "tight": {"policy": "offload", "device_memory": 1 << 16},
    "verified": {"policy": "offload", "verify": True},
    "by_name": {"policy": {"*.up": "offload", "*": "keep"}},
}


@functools.cache
def without(model, settings):
    return train(*MODELS[model], settings=SETTINGS[settings])


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("model", MODELS)
def test_same(model, settings, options):
    context = functools.partial(ebb.torch.offload, floor=FLOOR_BYTES, **OPTIONS[options])
    assert same(without(model, settings), train(*MODELS[model], context, SETTINGS[settings]))
    numbers = ebb.torch.statistics()["cpu"]
    if options in ("offload", "tight", "verified"):
        assert numbers["d2h_bytes"] > 0
        assert numbers["offloaded_count"] > 0
    if options == "tight":
        assert numbers["h2d_bytes"] > 0


def test_backward_inside_the_context():
    def inside(model, batch, context):
        with context():
            loss = model(*batch).square().mean()
            loss.backward()
        return loss.detach()

    context = functools.partial(ebb.torch.offload, floor=FLOOR_BYTES, policy="offload")
    assert same(without("decoder", "float32"), train(*MODELS["decoder"], context, forward_backward=inside))
