"""Faults that were found by trying to break it."""

import contextlib
import os
import sys
import threading
import time

import pytest
import torch
from models import Returns
from torch import nn

import ebb.torch

FLOOR_BYTES = 1024


def offload(policy="offload", device_memory=1 << 16):
    return ebb.torch.offload(policy=policy, floor=FLOOR_BYTES, device_memory=device_memory)


CONTEXTS = [offload, lambda: offload("keep"), lambda: offload(device_memory=1 << 24)]


@pytest.fixture(params=CONTEXTS, ids=["tight", "keep", "roomy"])
def context(request):
    return request.param


def alike(run, context):
    first, second = run(contextlib.nullcontext), run(context)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def test_conjugate_and_negative_bits(context):
    def run(context):
        torch.manual_seed(0)
        x = torch.randn(64, 8, dtype=torch.complex64, requires_grad=True)
        with context():
            y = ((x * 2).conj() * (x * 3).sin()).abs().sum() + (x.conj().imag * x.real).sum() + ((x * 2).mH @ x).abs().sum()
        y.backward()
        return [x.grad]

    alike(run, context)


class Holds(torch.autograd.Function):
    """Its gradient is a tensor that it saved, and that somebody else has."""

    @staticmethod
    def forward(ctx, x, h):
        ctx.save_for_backward(h)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return ctx.saved_tensors[0], None


def test_gradients_that_are_saved_tensors_are_added_up(context):
    def run(context):
        x = torch.ones(64, 64, requires_grad=True)
        h = torch.full((64, 64), 3.0)
        for _ in range(3):
            with context():
                y = Holds.apply(x, h).sum()
            y.backward()
        return [x.grad, h]

    alike(run, context)


def test_backward_that_writes_into_what_it_saved():
    class Writes(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, h):
            ctx.save_for_backward(h)
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            (saved,) = ctx.saved_tensors
            saved *= 2
            return saved.clone(), None

    x = torch.ones(64, 64, requires_grad=True)
    h = torch.full((64, 64), 3.0)
    with offload("keep"):
        y = Writes.apply(x, h).sum()
    y.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_storage_that_is_emptied_and_filled_again_of_a_kept_tensor():
    def run(context):
        torch.manual_seed(0)
        x = torch.randn(256, 256, requires_grad=True)
        with context():
            h = x.sin()
            y = h * 1
            z = (y * y).sum()
        size_bytes = y.untyped_storage().nbytes()
        y.untyped_storage().resize_(0)
        junk = torch.full((256, 256), 7.0)
        y.untyped_storage().resize_(size_bytes)
        with torch.no_grad():
            y.data.copy_(h)
        z.backward()
        return [x.grad, junk]

    alike(run, lambda: offload("keep"))


def test_memory_that_is_still_used_outlives_close():
    for context in CONTEXTS:
        p = nn.Parameter(torch.ones(512, 512))
        with context():
            y = Returns.apply(p).sum()
            more = [torch.randn(64, 64, requires_grad=True).exp() for _ in range(8)]
        y.backward()
        ebb.torch.close()
        junk = [torch.full((512, 512), 7.0) for _ in range(4)]
        assert torch.equal(p.grad, torch.full((512, 512), 3.0))
        p.grad.add_(1)
        del more, junk


@pytest.mark.parametrize("name", ["BackwardHookFunction", "é" * 150, "a/b", "Backward"])
def test_names_of_functions(name):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clone()

    function = type(name, (torch.autograd.Function,), {
        "forward": staticmethod(forward), "backward": staticmethod(lambda ctx, grad: grad * ctx.saved_tensors[0])})
    x = torch.randn(64, 64, requires_grad=True)
    with offload():
        y = function.apply(x * 1)
        z = (y * y).sum()
    z.backward()


def test_a_backward_hook_on_the_model():
    model = nn.Sequential(nn.Linear(64, 64))
    model.register_full_backward_hook(lambda *_: None)
    with offload():
        y = model(torch.randn(64, 64, requires_grad=True)).square().sum()
    y.backward()


def test_buffers_without_memory():
    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", torch.eye(8).to_sparse())

        def forward(self, x):
            return x.exp()

    for model in (Sparse(), nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d())):
        with offload():
            model(torch.randn(64, 64, requires_grad=True)).sum().backward()


def test_a_tensor_of_zeros_without_memory():
    x = torch.randn(1000, requires_grad=True)
    with offload():
        y = (x * torch._efficientzerotensor(1000)).sum()
    y.backward()


def test_a_child_process_ends_and_may_train():
    def train():
        x = torch.randn(64, 64, requires_grad=True)
        with offload():
            y = x.exp().tanh().sum()
        y.backward()

    train()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            train()
            ebb.torch.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    train()


def test_many_threads_at_first_make_one_runtime():
    for _ in range(3):
        gate = threading.Barrier(4)
        calls = []

        def train():
            x = torch.randn(64, 64, requires_grad=True)
            gate.wait()
            with offload():
                y = x.exp().sum()
            y.backward()
            calls.append(1)

        threads = [threading.Thread(target=train) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(calls) == 4
        assert ebb.torch.statistics()["cpu"]["offload_calls"] == 4
        ebb.torch.close()


def test_outputs_that_hold_themselves():
    class Deep(nn.Module):
        def forward(self, x):
            out = [x.exp()]
            out.append(out)
            return out

    with offload():
        y = Deep()(torch.randn(64, 64, requires_grad=True))[0].sum()
    y.backward()


def test_a_context_is_good_after_close():
    context = offload()
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    for _ in range(2):
        with context:
            y = torch.randn(64, 64, requires_grad=True).exp().sum()
        y.backward()
        optimizer.step()
        assert ebb.torch.statistics()["cpu"]["offload_calls"] == 1
        assert ebb.torch.statistics()["cpu"]["steps"] == 1
        ebb.torch.close()


def test_detach_leaves_a_forward_that_was_there():
    model = nn.Sequential(nn.Linear(8, 8))
    original = model[0].forward
    model[0].forward = lambda x: original(x) * 2
    x = torch.randn(4, 8)
    before = model(x)
    ebb.torch.attach(model, policy={"0": "remat"})
    assert torch.equal(model(x), before)
    ebb.torch.detach(model)
    assert torch.equal(model(x), before)


def test_a_state_dict_stays_whole():
    model = nn.Linear(64, 64)
    optimizer = torch.optim.Adam(model.parameters())
    handle = ebb.torch.offload_optimizer(optimizer, floor=1024)
    model(torch.randn(4, 64)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()["state"]
    optimizer.step()
    assert state[0]["exp_avg"].shape == (64, 64)
    handle.detach()


class GivesWhatItSaved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.exp())
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return ctx.saved_tensors[0]


def test_a_gradient_that_is_a_slot_does_not_change_what_comes_after():
    """With retain_graph the slot is asked for again, while the gradient in it was added to."""
    x = torch.randn(64, 64, requires_grad=True)
    expected = x.detach().exp()
    with offload(device_memory=1 << 17):
        y = GivesWhatItSaved.apply(x).sum()
        more = [torch.randn(64, 64, requires_grad=True).exp() for _ in range(8)]
    for times in (1, 2, 3):
        y.backward(retain_graph=True)
        assert torch.equal(x.grad, expected if times == 1 else sum([expected] * times))
    del more


def test_a_backward_that_gives_away_what_others_saved_too(context):
    """exp() saves its result, which the function behind it saves once more and gives as its gradient, to which that of the
    product is added."""
    class Gives(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return ctx.saved_tensors[0]

    def run(context):
        torch.manual_seed(0)
        x = torch.randn(64, 64, requires_grad=True)
        with context():
            h = x.exp()
            product = h * 2
            loss = Gives.apply(h).sum() + product.sum()
            del h, product
            more = [torch.randn(64, 64, requires_grad=True).exp() for _ in range(8)]
        loss.backward()
        del more
        return [x.grad]

    alike(run, context)


@pytest.mark.parametrize("fill", [lambda x: x.numpy().fill(5), lambda x: x.data.fill_(5)], ids=["numpy", "data"])
def test_an_input_that_is_filled_anew_while_an_older_graph_is_alive(context, fill):
    """Nothing tells PyTorch, whose gradient is that of what is there."""
    def run(context):
        torch.manual_seed(0)
        x = torch.ones(64, 64)
        w = torch.randn(64, 64, requires_grad=True)
        with context():
            first = (x * w).sum()
            more = [torch.randn(64, 64, requires_grad=True).exp() for _ in range(8)]
        fill(x)
        with context():
            second = (x * w).sum()
            more += [torch.randn(64, 64, requires_grad=True).exp() for _ in range(8)]
        second.backward()
        del first, more
        return [w.grad]

    alike(run, context)


@pytest.mark.parametrize("replace", ["data", "set_"])
def test_an_input_that_loses_its_memory_while_it_is_copied(replace):
    """The copy reads on from what is not the tensor's any more; this ended the process."""
    w = torch.full((1,), 2.0, requires_grad=True)
    graphs = []
    for _ in range(60):
        x = torch.ones(880 << 10)
        with offload(device_memory=64 << 20):
            y = x * w
        if replace == "data":
            x.data = torch.empty(0)
        else:
            x.set_(torch.empty(0))
        graphs = graphs[-6:] + [y]
        del x, y
    del graphs


def test_an_exception_that_takes_a_graph_with_it(context):
    """What is computed already goes while the exception is on its way, after its sources were given up."""
    def fails():
        time.sleep(0.02)
        ebb.torch.statistics()
        raise ValueError("on purpose")

    for _ in range(20):
        x = torch.randn(64, 64, requires_grad=True)
        with pytest.raises(ValueError, match="on purpose"), context():
            more = [torch.randn(64, 64, requires_grad=True).exp().sum() for _ in range(20)]
            del more
            (x.exp().tanh().sin().exp().tanh().sin() * torch.randn(64, 64, requires_grad=True).exp()) + fails()


def test_a_context_that_was_not_entered_is_not_left(context):
    never = context()
    with context():
        with pytest.raises(RuntimeError, match="not entered"):
            never.__exit__(None, None, None)
        y = torch.randn(64, 64, requires_grad=True).exp()
    y.sum().backward()


def test_a_tensor_of_inference_mode_is_an_argument_as_any():
    with torch.inference_mode():
        scale = torch.full((64, 64), 2.0)
    x = torch.randn(64, 64, requires_grad=True)
    with offload():
        y = ebb.torch.checkpoint(lambda x, scale: x.exp() + scale.sum().item(), x, scale)
    y.sum().backward()
    assert torch.equal(x.grad, x.detach().exp())


def test_close_while_others_train():
    """Their passes go on, with Ebb or without."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        train_beside_close()
    finally:
        sys.setswitchinterval(before)


def train_beside_close():
    over = threading.Event()
    wrong = []

    def train():
        model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
        x = torch.randn(64, 64)
        model(x).square().sum().backward()
        expected = model[0].weight.grad.clone()
        try:
            while not over.is_set():
                model.zero_grad()
                with offload():
                    loss = model(x).square().sum()
                try:
                    loss.backward()
                except RuntimeError as why:
                    if "its runtime was closed" not in str(why):
                        raise
                    continue
                if not torch.equal(model[0].weight.grad, expected):
                    wrong.append("another gradient")
        except BaseException as why:
            wrong.append(repr(why))

    threads = [threading.Thread(target=train) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        time.sleep(0.002)
        ebb.torch.close()
    over.set()
    for thread in threads:
        thread.join()
    assert not wrong
