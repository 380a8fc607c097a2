"""Without the table that PyTorch publishes since 2.10: all goes through DLPack's capsules, and comes to the same."""

import functools
import gc
import warnings

import pytest
import torch
from models import MODELS
from test_situations import compiled_and_not, with_context_inside
from training import FLOOR_BYTES, Settings, same, train

import ebb.torch
from ebb.torch import _exchange


@pytest.fixture(autouse=True)
def no_published_table(monkeypatch):
    monkeypatch.setattr(_exchange, "table", _exchange.plain_table)


@pytest.mark.parametrize("options", [{}, {"device_memory": 1 << 16, "verify": True}])
@pytest.mark.parametrize("settings", [Settings(), Settings(torch.bfloat16), Settings(autocast=True)])
@pytest.mark.parametrize("model", MODELS)
def test_same(model, settings, options):
    context = functools.partial(ebb.torch.offload, policy="offload", floor=FLOOR_BYTES, **options)
    assert same(train(*MODELS[model], settings=settings), train(*MODELS[model], context, settings))
    assert ebb.torch.statistics()["cpu"]["d2h_bytes"] > 0


TENSORS = {
    "transposed": lambda: torch.randn(48, 64).t(),
    "expanded": lambda: torch.randn(64, 1).expand(64, 48),
    "with a gap": lambda: torch.randn(128, 64)[::2, 1:],
    "one row, odd stride": lambda: torch.randn(4096).as_strided((1, 4096), (7, 1)),
    "sixteen dimensions": lambda: torch.randn(*[2] * 13, 1, 1, 1),
    "seventeen dimensions": lambda: torch.randn(*[2] * 12, 1, 1, 1, 1, 1),
    "complex": lambda: torch.randn(64, 64, dtype=torch.complex64),
    "conjugate": lambda: torch.randn(64, 64, dtype=torch.complex64).conj(),
    "negative": lambda: torch.randn(64, 64, dtype=torch.complex64).conj().imag,
    "half": lambda: torch.randn(64, 64).half(),
    "bool": lambda: torch.randn(128, 128) > 0,
    "int64": lambda: torch.arange(4096).view(64, 64),
    "uint8": lambda: torch.arange(128 * 128).view(128, 128).to(torch.uint8),
    "eight bits": lambda: torch.randn(128, 128).to(torch.float8_e4m3fn),
    "sparse": lambda: torch.randn(64, 64).relu().to_sparse(),
    "quantised": lambda: torch.quantize_per_tensor(torch.randn(64, 64), 0.1, 0, torch.qint8),
    "empty": lambda: torch.empty(0, 64),
    "scalar": lambda: torch.tensor(3.0),
    "no memory": lambda: torch.empty(64, 64, device="meta"),
}


def comparable(tensor):
    if tensor.is_sparse:
        return tensor.to_dense()
    if tensor.is_quantized:
        return tensor.int_repr()
    return tensor.view(torch.uint8) if tensor.dtype is torch.float8_e4m3fn else tensor


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation:UserWarning")
@pytest.mark.parametrize("kind", TENSORS)
def test_what_comes_back_is_what_went(kind):
    tensor = TENSORS[kind]()
    before = None if tensor.is_meta else tensor.clone()
    with ebb.torch.offload(policy="offload", floor=4096, device_memory=1 << 14) as context:
        hooks = ebb.torch._process.of(context._settings).hooks
        packed = hooks.pack(tensor)
        back = hooks.unpack(packed)
    assert back.dtype == tensor.dtype
    assert back.shape == tensor.shape
    if tensor.layout is torch.strided:
        assert back.stride() == tensor.stride()
        assert back.is_conj() == tensor.is_conj()
        assert back.is_neg() == tensor.is_neg()
    if before is not None:
        assert torch.equal(comparable(back), comparable(before))
    del packed, back


def test_second_derivatives_and_memory_that_is_held():
    """Reloads go to PyTorch's own memory, and slots come back when it frees what it was given."""
    x = torch.randn(64, 64, requires_grad=True)

    def penalty(context):
        with context():
            y = (x.sin() * x.exp()).tanh()
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), x)[0]

    offload = functools.partial(ebb.torch.offload, policy="offload", floor=4096, device_memory=1 << 14)
    assert torch.equal(penalty(torch.autograd.graph.save_on_cpu), penalty(offload))
    gc.collect()
    assert ebb.torch.statistics()["cpu"]["live_activations"] == 0


def test_a_change_in_place_is_found():
    x = torch.randn(64, 64, requires_grad=True)
    with ebb.torch.offload(policy="offload", floor=4096):
        y = x.exp()
        z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_compiled_code_does_not_look_into_it():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert compiled_and_not(torch.compile(with_context_inside, backend="aot_eager"))
    assert not [one for one in said if "Dynamo does not know how to trace" in str(one.message)]


def test_a_tensor_that_pytorch_refuses_to_make_is_told(monkeypatch):
    def refuses(capsule):
        raise ValueError("on purpose")

    x = torch.randn(64, 64, requires_grad=True)
    with ebb.torch.offload(policy="offload", floor=4096, device_memory=1 << 16):
        y = x
        for _ in range(10):
            y = y.exp().sin()
    monkeypatch.setattr(_exchange, "from_dlpack", refuses)
    with pytest.raises(RuntimeError, match="PyTorch makes no tensor of what came back of '"):
        y.sum().backward()
    del y
    gc.collect()
    assert ebb.torch.statistics()["cpu"]["staging_used_bytes"] == 0
