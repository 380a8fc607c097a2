"""What else programs do around and inside a forward pass."""

import functools
import threading
import warnings

import pytest
import torch
import torch._dynamo.testing
from models import MODELS, Decoder
from torch.utils.checkpoint import checkpoint
from training import FLOOR_BYTES, plain, same, train

import ebb.torch
from ebb.torch import _offload

offload = functools.partial(ebb.torch.offload, policy="offload", floor=FLOOR_BYTES, device_memory=1 << 18)


class Checkpointed(torch.nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.decoder = Decoder()
        self.reentrant = reentrant

    def forward(self, tokens):
        x = self.decoder.embed(tokens)
        for block in self.decoder.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


def whole_model_checkpointed(reentrant, model, batch, context):
    def run(zero, *batch):
        with context():
            return model(*batch) + zero

    zero = next(model.parameters()).sum() * 0  # or a reentrant checkpoint has no input that takes a gradient
    loss = checkpoint(run, zero, *batch, use_reentrant=reentrant).square().mean()
    loss.backward()
    return loss.detach()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_inside(reentrant):
    make = functools.partial(Checkpointed, reentrant)
    assert same(train(make, MODELS["decoder"][1]), train(make, MODELS["decoder"][1], offload))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_outside(reentrant):
    run = functools.partial(whole_model_checkpointed, reentrant)
    assert same(train(*MODELS["decoder"], forward_backward=run), train(*MODELS["decoder"], offload, forward_backward=run))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_around_compiled_code(backend):
    def make():
        torch._dynamo.reset()
        return torch.compile(Decoder(), backend=backend)

    assert same(train(make, MODELS["decoder"][1]), train(make, MODELS["decoder"][1], offload))
    assert ebb.torch.statistics()["cpu"]["offloaded_count"] > 0


def test_compiled_code_stays_whole_and_is_compiled_once():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    counter = torch._dynamo.testing.CompileCounter()
    model = torch.compile(Decoder(), backend=counter)
    for _ in range(3):
        with offload():
            loss = model(*MODELS["decoder"][1]()).square().mean()
        loss.backward()
    assert counter.frame_count == 1
    assert not torch._dynamo.utils.counters["graph_break"]


def test_contexts_in_each_other():
    def nested(model, batch, context):
        with context(), context(), ebb.torch.offload(policy="offload", floor=FLOOR_BYTES):
            loss = model(*batch).square().mean()
        loss.backward()
        return loss.detach()

    assert same(train(*MODELS["decoder"], forward_backward=nested),
                train(*MODELS["decoder"], offload, forward_backward=nested))
    one = offload()
    with one, pytest.raises(RuntimeError, match="entered already"):
        one.__enter__()


def test_inside_torch_func_pytorch_says_no():
    def run(x):
        with offload():
            return x.sum()

    with pytest.raises(RuntimeError, match="don't yet support saved tensor hooks"):
        torch.func.grad(run)(torch.randn(3))
    with offload():
        x = torch.randn(64, 64, requires_grad=True)
        y = x.exp().sum()
    y.backward()


def accumulated(model, batch, context):
    total = 0
    for _ in range(3):
        total = total + plain(model, batch, context)
    return total


def several_forwards_first(model, batch, context):
    losses = []
    for _ in range(3):
        with context():
            losses.append(model(*batch).square().mean())
    for loss in reversed(losses):
        loss.backward()
    return losses[0].detach()


def evaluation_between(model, batch, context):
    loss = plain(model, batch, context)
    model.eval()
    with torch.no_grad(), context():
        model(*batch)
    with torch.inference_mode(), context():
        model(*batch)
    with context():
        model(*batch)  # a forward whose backward never comes
    model.train()
    return loss


# Before the first optimizer.step() a step begins at each forward pass with nothing saved.
@pytest.mark.parametrize(("run", "in_the_first"), [(accumulated, 3), (several_forwards_first, 1), (evaluation_between, 2)])
@pytest.mark.parametrize("model", ["decoder", "encoder"])
def test_steps_of_other_shapes(model, run, in_the_first):
    assert same(train(*MODELS[model], forward_backward=run), train(*MODELS[model], offload, forward_backward=run))
    assert ebb.torch.statistics()["cpu"]["steps"] == 3 + in_the_first


def test_the_order_of_a_step_is_learned():
    train(*MODELS["decoder"], offload, steps=8)
    numbers = ebb.torch.statistics()["cpu"]
    assert numbers["order_mismatches"] == 0
    assert numbers["reloads_prefetched"] > numbers["reloads_on_demand"]


def test_the_call_shape_of_torchtune_and_trl():
    plain_run = train(*MODELS["decoder"])
    manager = ebb.torch.OffloadActivations(use_pin_memory=True, use_streams=True, max_fwd_stash_size=5,
                                           min_offload_size=4096, policy="offload")
    assert same(plain_run, train(*MODELS["decoder"], lambda: manager))
    assert ebb.torch.statistics()["cpu"]["offloaded_count"] > 0
    off = ebb.torch.get_act_offloading_ctx_manager(None, enable_activation_offloading=False)
    assert same(plain_run, train(*MODELS["decoder"], lambda: off))
    on = ebb.torch.get_act_offloading_ctx_manager(None, use_pin_memory=False, min_offload_size=4096)
    assert same(plain_run, train(*MODELS["decoder"], lambda: on))


class Pair(torch.Tensor):
    """Of two parts, as quantised tensors are: high + low."""

    @staticmethod
    def __new__(cls, high, low):
        return torch.Tensor._make_wrapper_subclass(cls, high.shape, dtype=high.dtype)

    def __init__(self, high, low):
        self.high, self.low = high, low

    def __tensor_flatten__(self):
        return ["high", "low"], None

    @staticmethod
    def __tensor_unflatten__(parts, context, size, stride):
        return Pair(parts["high"], parts["low"])

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.detach.default:
            return Pair(args[0].high.detach(), args[0].low.detach())
        raise NotImplementedError(function)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, pair):
        ctx.save_for_backward(pair)
        return x * (pair.high + pair.low)

    @staticmethod
    def backward(ctx, grad):
        (pair,) = ctx.saved_tensors
        assert type(pair) is Pair
        return grad * (pair.high + pair.low), None


def test_a_tensor_of_parts():
    x = torch.randn(64, 64, requires_grad=True)
    high, low = torch.randn(64, 64), torch.randn(64, 64)
    with offload():
        y = Product.apply(x, Pair(high, low)).sum()
    assert ebb.torch.statistics()["cpu"]["offload_calls"] == 2
    y.backward()
    assert torch.equal(x.grad, high + low)


class Opaque(torch.Tensor):
    """Of no parts that anybody could ask for."""


def test_a_subclass_that_cannot_be_taken_apart_passes_through():
    x = torch.randn(64, 64, requires_grad=True)
    with offload():
        h = (x * 1).as_subclass(Opaque)
        y = (h * h).sum()
    y.backward()
    assert torch.equal(x.grad, 2 * x.detach())
    assert "Opaque: 2 passed through" in ebb.torch.report()


def with_context_inside(x, model):
    with offload():
        return model(x).square().mean()


def compiled_and_not(run):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 64))
    x = torch.randn(64, 64)
    gradients = []
    for step in (with_context_inside, run):
        model.zero_grad()
        for _ in range(3):
            step(x, model).backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    return all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


def test_inside_compiled_code_it_is_right_and_said_once():
    _offload._warn_once.cache_clear()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert compiled_and_not(torch.compile(with_context_inside, backend="aot_eager"))
    ours = [str(one.message) for one in said if "ebb" in str(one.message)]
    assert len(ours) == 1 and "inside of compiled code breaks the graph" in ours[0]
    assert not [one for one in said if "Dynamo does not know how to trace" in str(one.message)]


def test_fullgraph_is_refused_with_a_line_of_ours():
    with pytest.raises(torch._dynamo.exc.Unsupported, match="put it around the compiled function"):
        compiled_and_not(torch.compile(with_context_inside, backend="aot_eager", fullgraph=True))


def test_compiled_autograd():
    def run(x, model):
        class Loss:
            def backward(self):
                loss = with_context_inside(x, model)
                with torch._dynamo.config.patch(compiled_autograd=True):
                    torch.compile(lambda: loss.backward(), backend="eager")()

        return Loss()

    assert compiled_and_not(run)


def test_what_other_hooks_take_is_counted():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh())
    x = torch.randn(64, 64, requires_grad=True)
    with offload():
        with torch.autograd.graph.save_on_cpu():
            y = model(x)
        z = checkpoint(model, y, use_reentrant=False).sum()
    z.backward()
    report = ebb.torch.report()
    assert "passed through: 3 forward passes of modules inside other saved-tensor hooks (save_on_cpu" in report
    assert "passed through: 3 forward passes of modules inside other saved-tensor hooks (_checkpoint_hook" in report


def test_other_threads_are_counted():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh())

    def replica():
        model(torch.randn(64, 64)).sum().backward()

    replica()
    assert "in no context" not in ebb.torch.report()
    with offload():
        thread = threading.Thread(target=replica)
        thread.start()
        thread.join()
    assert "passed through: 3 forward passes of modules in threads that are in no context" in ebb.torch.report()


def test_fake_tensors_are_never_moved():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        model = torch.nn.Linear(64, 64)
        with offload():
            y = model(torch.randn(64, 64)).exp().sum()
        y.backward()
        assert model.weight.grad.shape == (64, 64)
    assert ebb.torch.statistics() == {}
    assert "FakeTensor" in ebb.torch.report()


def test_functional_tensors_are_never_moved():
    x = torch.randn(64, 64, requires_grad=True)
    wrapped = torch._to_functional_tensor(x.detach()).requires_grad_()
    with offload():
        y = wrapped.exp().sum()
    y.backward()
    assert torch.equal(torch._from_functional_tensor(wrapped.grad), x.detach().exp())
    assert ebb.torch.statistics() == {}
