"""A training loop whose every number can be compared with another run's."""

import contextlib

import torch

FLOOR_BYTES = 4096  # so that tensors of small models move


class Settings:
    """How a run computes: the type of the parameters, or autocast over float32; and where."""

    def __init__(self, dtype=torch.float32, autocast=False, device="cpu"):
        self.dtype = dtype
        self.autocast = autocast
        self.device = device

    def cast(self, argument):
        return argument.to(self.device, self.dtype if argument.is_floating_point() else argument.dtype)


def train(model_of, batch_of, context=contextlib.nullcontext, settings=None, steps=4, forward_backward=None):
    """Losses and all gradients of some steps. `forward_backward(model, batch, context)` gives the loss."""
    settings = settings or Settings()
    forward_backward = forward_backward or plain
    torch.manual_seed(7)
    model = model_of().to(settings.device, settings.dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    seen = []
    for _ in range(steps):
        batch = [settings.cast(argument) for argument in batch_of()]
        autocast = torch.autocast(settings.device, torch.bfloat16) if settings.autocast else contextlib.nullcontext()
        with autocast:
            loss = forward_backward(model, batch, context)
        seen.append((loss, [None if p.grad is None else p.grad.clone() for p in model.parameters()]))
        optimizer.step()
        optimizer.zero_grad()
    return seen


def plain(model, batch, context):
    with context():
        loss = model(*batch).float().square().mean()
    loss.backward()
    return loss.detach()


def same(first, second):
    """Bit for bit."""
    assert len(first) == len(second)
    for (loss, gradients), (other_loss, other_gradients) in zip(first, second):
        assert loss.isfinite()
        assert torch.equal(loss, other_loss)
        for gradient, other in zip(gradients, other_gradients, strict=True):
            assert (gradient is None) == (other is None)
            assert gradient is None or (gradient.dtype == other.dtype and torch.equal(gradient, other))
    return True
