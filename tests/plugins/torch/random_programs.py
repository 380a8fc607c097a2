"""Training programs made of operations at random, run with Ebb and without: whatever they compute must be the same, bit for
bit. For more of them than the test runs: python tests/plugins/torch/random_programs.py FIRST_SEED END_SEED"""

import contextlib
import functools
import random
import sys
import threading

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import ebb.torch

ROWS, WIDTH = 8, 16


class Saves(torch.autograd.Function):
    """Two results; what is saved is asked for twice."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, x.exp())
        return x * x, x + 1

    @staticmethod
    def backward(ctx, first, second):
        x, _ = ctx.saved_tensors
        return 2 * x * first + second + 0 * ctx.saved_tensors[1]


class Gives(torch.autograd.Function):
    """Its gradient is its input, which others save as well."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.saved_tensors[0]


class Overwrites(torch.autograd.Function):
    """Its backward writes into a copy that it saved, and gives that away."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.clone())
        return x * x / 2

    @staticmethod
    def backward(ctx, gradient):
        return ctx.saved_tensors[0].mul_(gradient)


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.linear(self.linear(x).tanh())


class Cast(Shared):
    def forward(self, x):
        return F.gelu(F.linear(x.bfloat16(), self.linear.weight.bfloat16())).to(x.dtype)


class Autocast(Shared):
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return self.linear(F.gelu(self.linear(x))).to(x.dtype)


class Remembers(nn.Module):
    """Changes one buffer in place and puts another in the place of one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("last", torch.zeros(ROWS, WIDTH))

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            self.last = x + 0
        return (x + self.mean).sin() * self.last.t().t()


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cells = kind(WIDTH // 2, WIDTH // 2, 2, batch_first=True)

    def forward(self, x):
        return self.cells(x.reshape(4, 4, WIDTH // 2))[0].reshape(ROWS, WIDTH)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.MultiheadAttention(WIDTH, 2, dropout=0.1, batch_first=True)

    def forward(self, x):
        x = x.reshape(2, 4, WIDTH)
        return self.heads(x, x, x)[0].reshape(ROWS, WIDTH)


class Inside(nn.Module):
    """Operations inside something, such as a checkpoint: `around(module, x)`."""

    def __init__(self, around, inner):
        super().__init__()
        self.around = around
        self.inner = inner

    def forward(self, x):
        return self.around(self.inner, x)


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def in_place(x):
    x = x * 2
    x.add_(1)
    x[2:4].mul_(0.5)
    x = (x * 1).sigmoid_() * 1
    x[:, 3:9].mul_(2)
    return x.sin()


def halves(x):
    one, other = x.split([5, WIDTH - 5], 1)
    return torch.cat([other * other.sin(), one.exp().clamp(max=3)], 1)


def overlapping(x):
    x = x * 1
    return torch.cat([x.as_strided((7, WIDTH), (WIDTH, 1), 3).square(), x[:1]]) * x


def imaginary(x):
    z = torch.complex(x.float(), x.float().sin())
    z = z * z.conj() * (z.mT.mT + 1)
    return (z.real.tanh() + z.conj().imag.tanh()).to(x.dtype)


def hooked(x):
    x = x * x
    if x.requires_grad:
        x.register_hook(lambda gradient: gradient * 1.5)
    return x


def gives(x):
    x = x.tanh()
    return x.sin() + Gives.apply(x)


def pasted(x):
    y = torch.empty_like(x).copy_(x)
    y[0], y[:, 2:4] = x[1], x[:, 5:7] * 2
    return y * y


def experts(x):
    chosen = (x.detach().sum(1) > 0).nonzero()[:, 0]
    return x.index_add(0, chosen, x[chosen].sin())


SIMPLE = {
    "linear": Shared, "norm": functools.partial(nn.LayerNorm, WIDTH), "batch norm": functools.partial(nn.BatchNorm1d, WIDTH),
    "dropout": functools.partial(nn.Dropout, 0.3), "attention": Attention, "lstm": functools.partial(Recurrent, nn.LSTM),
    "gru": functools.partial(Recurrent, nn.GRU), "cast": Cast, "autocast": Autocast, "remembers": Remembers,
    **{name: functools.partial(Function, function) for name, function in {
        "gelu": F.gelu, "relu": lambda x: F.relu(x * 1.5, inplace=True), "in place": in_place, "halves": halves,
        "overlapping": overlapping, "imaginary": imaginary, "hooked": hooked, "pasted": pasted, "experts": experts,
        "saves": lambda x: sum(Saves.apply(x)), "gives": gives, "overwrites": Overwrites.apply,
        "softmax": lambda x: x.softmax(1) * x.log_softmax(0), "expanded": lambda x: x.mean(0, keepdim=True).expand_as(x) * x,
        "strided": lambda x: (x[:, ::2] * x[:, 1::2]).repeat(1, 2), "transposed": lambda x: x.t().contiguous().cos().t() * x,
        "sorted": lambda x: x.sort(1)[0] * x, "where": lambda x: torch.where(x > 0, x * x, x.sin()),
        "unbound": lambda x: torch.stack([a * b for a, b in zip(x, x.flip(0))]),
        "mask": lambda x: x.masked_fill(x > 1, 0.5).exp(),
        "solved": lambda x: torch.linalg.solve((x @ x.t()).float() + 9 * torch.eye(ROWS), x.float()).to(x.dtype),
        "detached": lambda x: x.tanh() * x.tanh().data * 2,
    }.items()},
}


class Model(nn.Module):
    def __init__(self, rng, recompute):
        super().__init__()
        around = {
            "checkpoint": lambda f, x: checkpoint(f, x, use_reentrant=False),
            "reentrant": lambda f, x: checkpoint(f, x, use_reentrant=True),
            "ebb": recompute,
        }
        self.parts = nn.ModuleList()
        self.kinds = []
        for _ in range(rng.randint(2, 8)):
            kind = rng.choice(list(around if rng.random() < 0.3 else SIMPLE))
            # PyTorch's own checkpoint computes with buffers of after the first time, and gives what was saved once.
            within = [name for name in SIMPLE if kind == "ebb" or name not in ("remembers", "batch norm", "saves")]
            inner = rng.choices(within, k=rng.randint(1, 4))
            self.parts.append(SIMPLE[kind]() if kind in SIMPLE else
                              Inside(around[kind], nn.Sequential(*(SIMPLE[name]() for name in inner))))
            self.kinds.append(kind if kind in SIMPLE else f"{kind}({', '.join(inner)})")

    def forward(self, x):
        for part in self.parts:
            x = part(x).clamp(-4, 4)
        return x


def plain(model, x, context, rng):
    with context():
        loss = model(x).square().mean()
    loss.backward()


def inside(model, x, context, rng):
    with context():
        plain(model, x, contextlib.nullcontext, rng)


def micro_batches(model, x, context, rng):
    for _ in range(3):
        plain(model, x * 1.1, context, rng)


def several_forwards(model, x, context, rng):
    losses = []
    for factor in (1, 2, 3):
        with context():
            losses.append(model(x * factor).square().mean())
    for number in rng.sample(range(3), 3):
        losses[number].backward()


def nested(model, x, context, rng):
    with context():
        one = model(x)
        with context():
            other = model(x * 0.5)
        loss = (one * other).square().mean()
    loss.backward()


def again(model, x, context, rng):
    with context():
        loss = model(x).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()


def one_unused(model, x, context, rng):
    with context():
        loss, unused = model(x).square().mean(), model(x * 2)
    loss.backward()
    del unused


def on_a_thread(model, x, context, rng):
    with context():
        loss = model(x).square().mean()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()


def by_autograd_grad(model, x, context, rng):
    with context():
        loss = model(x).square().mean()
    leaves = [x, *(p for p in model.parameters() if p.requires_grad)]
    for leaf, gradient in zip(leaves, torch.autograd.grad(loss, leaves, allow_unused=True, retain_graph=True), strict=True):
        leaf.grad = gradient
    loss.backward()


def some_frozen(model, x, context, rng):
    for p in model.parameters():
        p.requires_grad_(rng.random() < 0.6)
    plain(model, x, context, rng)


WAYS = [plain, inside, micro_batches, several_forwards, nested, again, one_unused, on_a_thread, by_autograd_grad, some_frozen]
POLICIES = ["offload", "offload", "auto", "keep", "*=remat", "*=remat", "*=remat", {"*.parts.1*": "keep", "*": "offload"},
            {"*.parts.0*": "remat", "*": "offload"}, {"*Mul*": "offload", "*": "auto"}]


def run(seed: int, with_ebb: bool):
    """What the program of that seed computes, and what it is, in words."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    model = Model(rng, ebb.torch.checkpoint if with_ebb else lambda f, x: f(x))
    model.to(rng.choice([torch.float32, torch.float32, torch.float64, torch.bfloat16]))
    way, is_attached, policy = rng.choice(WAYS), rng.random() < 0.3, rng.choice(POLICIES)
    options = {"floor": rng.choice([1, 64, 300]), "verify": rng.random() < 0.3,
               "device_memory": rng.choice([None, 1 << 13, 1 << 16, 1 << 24])}
    if is_attached:
        again = [number for number, kind in enumerate(model.kinds) if "saves" not in kind and "reentrant" not in kind]
        policy = {f"parts.{rng.choice(again)}": "remat", "*": "offload"} if again and rng.random() < 0.5 else "offload"
    steps = rng.choice([1, 2, 3, 7])
    context = contextlib.nullcontext
    if with_ebb and is_attached:
        ebb.torch.attach(model, policy=policy, **options)
    elif with_ebb:
        context = functools.partial(ebb.torch.offload, policy=policy, **options)
    optimizer = torch.optim.SGD([*model.parameters(), nn.Parameter(torch.zeros(1))], lr=1e-3, momentum=0.9)
    seen = []
    for _ in range(steps):
        x = torch.randn(ROWS, WIDTH, dtype=next(model.parameters(), torch.zeros(1)).dtype, requires_grad=True)
        way(model, x, context, rng)
        seen += [None if leaf.grad is None else leaf.grad.clone() for leaf in (x, *model.parameters())]
        optimizer.step()
        optimizer.zero_grad()
    seen += [buffer.clone() for buffer in model.buffers()]
    return seen, f"{model.kinds}, {way.__name__}, {'attached, ' * is_attached}{policy}, {options}, {steps} steps"


def bits(tensor):
    return tensor.reshape(-1).contiguous().view(torch.uint8)


def alike(one, other) -> bool:
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and torch.equal(bits(one), bits(other))


def check(seed: int) -> bool:
    """False where it is nothing that PyTorch computes: then it is refused in the same words."""
    try:
        without, program = run(seed, False)
    except RuntimeError as refusal:
        try:
            run(seed, True)
        except RuntimeError as error:
            assert str(error)[:60] == str(refusal)[:60], f"program {seed}"
        else:  # writing to a copy of its own is no harm
            assert "modified by an inplace operation" in str(refusal), f"program {seed} is computed, but: {refusal}"
        return False
    with_ebb, _ = run(seed, True)
    wrong = [number for number, (one, other) in enumerate(zip(without, with_ebb, strict=True)) if not alike(one, other)]
    assert not wrong, f"program {seed}: {program}: of {len(without)} results these differ: {wrong}"
    return True


if __name__ == "__main__":
    torch.set_num_threads(1)
    seeds = range(int(sys.argv[1]), int(sys.argv[2]))
    wrong = computed = 0
    for seed in seeds:
        try:
            computed += check(seed)
        except Exception as error:
            wrong += 1
            print(f"{seed}: {type(error).__name__}: {error}", flush=True)
        ebb.torch.close()
    print(f"of {len(seeds)} programs {computed} were computed alike, {wrong} were wrong; PyTorch refuses the rest")
    sys.exit(wrong != 0)
