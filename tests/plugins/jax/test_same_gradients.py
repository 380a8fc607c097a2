"""Gradients are those of the same function without Ebb, bit for bit."""

import pytest
from models import MODELS, STACKS, assert_same, checkpointed, gradients

import ebb.jax

CASES = [(name, stack) for name in MODELS for stack in STACKS if "bf16" not in name or stack in ("scan", "unrolled")]
EXACT = {"compiler_options": {"xla_allow_excess_precision": False}}


@pytest.mark.parametrize("name, stack", CASES)
def test_with_names(name, stack):
    model = MODELS[name]()
    want = gradients(STACKS[stack](model, checkpointed(model.layer, model.names)), model)
    moved = STACKS[stack](model, ebb.jax.offload(model.layer, names=model.names))
    assert_same(gradients(moved, model, runs=3), want)
    for one in model.names:
        assert f"/{one} " in ebb.jax.report()


@pytest.mark.parametrize("name, stack", CASES)
def test_all_above_the_floor(name, stack):
    model = MODELS[name]()
    want = gradients(STACKS[stack](model, model.layer), model, **EXACT)
    moved = STACKS[stack](model, ebb.jax.offload(model.layer, policy="offload", floor=1024))
    assert_same(gradients(moved, model, runs=3, **EXACT), want)
    assert ebb.jax.statistics()["cpu"]["d2h_bytes"] > 0


@pytest.mark.parametrize("stack", STACKS)
def test_bf16_with_names_against_the_unwrapped(stack):
    model = MODELS["mlp_bf16"]()
    want = gradients(STACKS[stack](model, model.layer), model, **EXACT)
    assert_same(gradients(STACKS[stack](model, ebb.jax.offload(model.layer, names=model.names)), model, **EXACT), want)
