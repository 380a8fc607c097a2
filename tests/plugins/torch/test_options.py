"""Options are checked where they are given."""

import pytest
import torch

import ebb.torch


@pytest.mark.parametrize(("options", "kind", "says"), [
    ({"floor": -1}, ValueError, "floor is -1: it is a number of bytes, 1 or more"),
    ({"floor": 0}, ValueError, "floor is 0"),
    ({"device_memory": "4GiB"}, TypeError, "device_memory is '4GiB': it is a number of bytes, an int"),
    ({"device_memory": 1.5e9}, TypeError, "device_memory is 1500000000.0"),
    ({"host_memory": True}, TypeError, "host_memory is True"),
    ({"host_memory": 1 << 70}, ValueError, "host_memory is 1180591620717411303424"),
    ({"host_memory": 100}, ebb.EbbError, 'host_bytes is "100"'),
    ({"policy": 3}, TypeError, "policy is of type int: it is a word or a dictionary of patterns"),
    ({"policy": {"*": 1}}, TypeError, r"policy has '\*': 1: both are strings"),
    ({"policy": {"a,b": "keep"}}, ValueError, "policy has the pattern 'a,b'"),
    ({"policy": "offlaod"}, ebb.EbbError, "policy"),
    ({"policy": {"*.up": "offlaod"}}, ebb.EbbError, "offlaod"),
    ({"model": "GPT"}, TypeError, "model is of type str: it is a module"),
])
def test_what_cannot_be_is_named(options, kind, says):
    with pytest.raises(kind, match=says):
        ebb.torch.offload(**options)


def test_a_word_that_is_no_option():
    with pytest.raises(TypeError, match="unexpected keyword argument 'polcy'"):
        ebb.torch.offload(polcy="keep")


@pytest.mark.parametrize(("floor", "moves"), [({"floor": 4096}, True), ({"floor": 4097}, False), ({}, False)])
def test_below_the_floor_nothing_moves(floor, moves):
    x = torch.randn(1024, requires_grad=True)
    with ebb.torch.offload(policy="offload", **floor):
        y = (x * 2).exp()
    assert ebb.torch.statistics().get("cpu", {}).get("live_activations", 0) == moves
    y.sum().backward()


@pytest.mark.parametrize("more", [0, -4])
def test_the_floor_is_a_mib_by_default(more):
    x = torch.randn((1 << 18) + more // 4, requires_grad=True)
    with ebb.torch.offload(policy="offload"):
        y = (x * 2).exp()
    assert ebb.torch.statistics().get("cpu", {}).get("live_activations", 0) == (more == 0)
    y.sum().backward()
