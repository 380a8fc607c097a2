"""What has gone wrong in systems that do this job, one test for each kind that a plugin can have. Those not here: W13 (compiled
code) is in test_situations.py, W14 (computing again) in test_checkpoint.py and test_attach.py, S7 in test_automatic.py."""

import contextlib
import functools
import re
import sys
import threading

import pytest
import torch
from models import MODELS
from torch import nn
from training import FLOOR_BYTES, same, train

import ebb.torch

offload = functools.partial(ebb.torch.offload, policy="offload", floor=FLOOR_BYTES, device_memory=1 << 17)


def numbers():
    return ebb.torch.statistics()["cpu"]


@pytest.fixture
def slow_link(monkeypatch):
    """65 ms for a MiB, either way."""
    for way in ("D2H", "H2D"):
        monkeypatch.setenv(f"EBB_HOST_{way}_BYTES_PER_SECOND", str(16 << 20))


def chain(count=8):
    torch.manual_seed(0)
    return nn.Sequential(*(module for _ in range(count) for module in (nn.Linear(64, 64), nn.Tanh())))


def gradients(model, x, context=contextlib.nullcontext):
    model.zero_grad()
    with context():
        y = model(x).square().sum()
    y.backward()
    return [p.grad.clone() for p in model.parameters()]


def alike(first, second):
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_w1_a_reload_waits_for_its_own_offload(slow_link):
    x = torch.randn(64, 64)
    assert alike(gradients(chain(), x), gradients(chain(), x, offload))
    assert numbers()["offloaded_count"] > 0


@pytest.mark.parametrize(("prefetch", "lanes", "chunk", "staging"),
                         [("none", 1, "4KiB", "64KiB"), ("layer", 2, "1MiB", "96KiB"), ("1B", 8, "64KiB", "20KiB"),
                          ("1GiB", 3, "4KiB", "17KiB")])
def test_w2_no_schedule_changes_a_byte(monkeypatch, prefetch, lanes, chunk, staging):
    for name, value in (("PREFETCH_BYTES", prefetch), ("LANES", lanes), ("CHUNK_BYTES", chunk), ("STAGING_BYTES", staging)):
        monkeypatch.setenv(f"EBB_{name}", str(value))
    assert same(train(*MODELS["decoder"]), train(*MODELS["decoder"], offload))
    assert numbers()["reloads_prefetched"] + numbers()["reloads_on_demand"] > 0


def test_w3_one_slot_for_two_patterns(monkeypatch):
    monkeypatch.setenv("EBB_STAGING_BYTES", "17KiB")
    x = torch.ones(64, 64, requires_grad=True)
    for round_ in range(300):
        with offload():
            one = (x * (1 + round_)).square()
            other = (x * -(2 + round_)).square()
        other.sum().backward()
        one.sum().backward()
        wanted = 2 * (1 + round_) ** 2 + 2 * (2 + round_) ** 2
        assert torch.equal(x.grad, torch.full((64, 64), float(wanted)))
        x.grad = None


def test_w4_no_thread_is_remembered(slow_link):
    model, x = chain(), torch.randn(64, 64)
    expected = gradients(model, x)
    model.zero_grad()
    with offload():
        y = model(x).square().sum()
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join()
    assert alike(expected, [p.grad for p in model.parameters()])


def test_w5_what_several_threads_made(slow_link):
    x = torch.randn(64, 64, requires_grad=True)
    with offload():
        h = x * 2
        thread = threading.Thread(target=lambda: h.mul_(3))
        thread.start()
        thread.join()
        y = h.square().sum()
    y.backward()
    assert torch.equal(x.grad, 6 * 2 * (x.detach() * 2 * 3))


def test_w6_a_square_tensor_and_its_transpose():
    torch.manual_seed(0)
    x = torch.randn(64, 64, requires_grad=True)
    with offload():
        a = x * 1
        y = (a @ a.t()).sum() + (a.t() * a).sum()
    y.backward()
    assert numbers()["offload_calls"] > 0
    plain = x.detach().clone().requires_grad_()
    a = plain * 1
    ((a @ a.t()).sum() + (a.t() * a).sum()).backward()
    assert torch.equal(x.grad, plain.grad)


def test_w7_an_address_that_is_used_again_is_another_tensor():
    x = torch.ones(64, 64, requires_grad=True)
    addresses = []
    with offload(device_memory=1 << 16):
        losses = []
        for number in range(1000):
            h = x * number
            addresses.append(h.data_ptr())
            losses.append(h.square().sum())
            del h
    assert len(set(addresses)) < len(addresses), "or this shows nothing"
    for number, loss in enumerate(losses):
        (gradient,) = torch.autograd.grad(loss, x)
        assert torch.equal(gradient, torch.full((64, 64), 2.0 * number * number))


def test_w8_bytes_that_change_while_they_are_copied(slow_link):
    x = torch.randn(256, 256, requires_grad=True)
    with offload(verify=True, device_memory=1 << 20):
        h = x * 2
        y = h.square().sum()
    h.detach().numpy()[:] += 1  # past PyTorch, which counts versions
    with pytest.raises(RuntimeError, match="EBB_DATA_MISMATCH"):
        y.backward()


@pytest.mark.parametrize("view", [
    lambda h: h.permute(1, 0), lambda h: h[:1].expand(64, 64), lambda h: h[3:40, 5:], lambda h: h[:0],
    lambda h: h[:, ::2], lambda h: h.unsqueeze(1).transpose(0, 2), lambda h: h.reshape(-1)[7],
], ids=["permuted", "expanded", "sliced", "empty", "strided", "turned", "scalar"])
def test_w9_views(view):
    seen = []

    class Saves(torch.autograd.Function):
        @staticmethod
        def forward(ctx, h):
            ctx.save_for_backward(h)
            return h.sum()

        @staticmethod
        def backward(ctx, gradient):
            (h,) = ctx.saved_tensors
            seen.append(h.clone(memory_format=torch.preserve_format))
            assert (h.shape, h.stride(), h.dtype) == (wanted.shape, wanted.stride(), wanted.dtype)
            return gradient * h

    torch.manual_seed(0)
    x = torch.randn(64, 64, requires_grad=True)
    with offload(floor=1):
        h = view(x * 2)
        wanted = h.detach()
        y = Saves.apply(h)
    y.backward()
    assert torch.equal(seen[0], wanted)


def test_w12_two_micro_batches_of_which_one_saves_nothing():
    model, x = chain(), torch.randn(64, 64)
    expected = gradients(model, x)
    for _ in range(4):
        model.zero_grad()
        with offload():
            first = model(x).square().sum()
        with offload():
            second = model(x[:0]).square().sum()
        second.backward()
        first.backward()
        assert alike(expected, [p.grad for p in model.parameters()])
        ebb.torch.step()


def test_m1_dropped_graphs_give_everything_back():
    x = torch.randn(64, 64, requires_grad=True)
    with offload():
        losses = [(x * number).square().sum() for number in range(100)]
    assert numbers()["live_activations"] == 100
    del losses[::2]
    assert numbers()["live_activations"] == 50
    losses[0].backward()
    losses.clear()
    assert numbers()["live_activations"] == 0
    assert numbers()["pinned_used_bytes"] == 0


def test_m2_a_step_has_any_number_of_passes():
    model, x = chain(), torch.randn(64, 64)
    expected = gradients(model, x)
    for _ in range(3):
        model.zero_grad()
        with offload():
            losses = [model(x).square().sum() for _ in range(3)]
            model(x)
        for loss in losses:
            model.zero_grad()
            loss.backward()
            assert alike(expected, [p.grad for p in model.parameters()])
        ebb.torch.step()
    del losses, loss
    assert numbers()["live_activations"] == 0


def test_m9_a_host_cap_is_told_with_what_it_takes(capfd):
    model, x = chain(), torch.randn(64, 64)
    assert alike(gradients(model, x), gradients(model, x, lambda: offload(host_memory=32 << 10)))
    said = capfd.readouterr().err
    assert re.search(r"pinned host memory is at its cap \(16384 bytes wanted, \d+ held, cap 32768\); raise host_bytes", said)
    assert numbers()["pinned_peak_bytes"] <= 32 << 10


def test_m11_bytes_copied_and_bytes_freed():
    x = torch.randn(64, 64, requires_grad=True)
    with offload():
        held = x.exp()
        y = held.sum() + sum((x * number).square().sum() for number in range(8))
    y.backward()
    report = ebb.torch.report()
    copied, freed = (float(number) for number in re.search(
        r"copied to the host: ([\d.]+) MiB, of that really freed: ([\d.]+) MiB", report).groups())
    assert "copied, not freed" in report
    assert freed < copied


def test_g1_evaluation_leaves_the_record_alone():
    def run(evaluate):
        model = chain()
        optimizer = torch.optim.SGD(model.parameters(), lr=0)
        for _ in range(6):
            gradients(model, torch.ones(64, 64), offload)
            if evaluate:
                with torch.no_grad(), offload():
                    model(torch.ones(32, 64))
            optimizer.step()
        counts = {name: numbers()[name] for name in ("order_mismatches", "reloads_prefetched", "offloaded_count")}
        ebb.torch.close()
        return counts

    with_it = run(True)
    assert with_it == run(False)
    assert with_it["order_mismatches"] == 0


def test_g2_one_activation_is_reloaded_twice():
    x = torch.randn(64, 64, requires_grad=True)
    with offload():
        y = x.exp().square().sum()
    first, = torch.autograd.grad(y, x, retain_graph=True)
    second, = torch.autograd.grad(y, x)
    assert torch.equal(first, second)


def test_g3_of_a_linear_layer_only_the_input_moves():
    linear = nn.Linear(64, 64)
    norm = nn.BatchNorm1d(64)
    with offload():
        y = linear(torch.randn(64, 64))
    assert numbers()["offload_calls"] == 1
    y.sum().backward()
    with offload(floor=64):
        y = norm.eval()(torch.randn(64, 64)).sum()
    assert numbers()["offload_calls"] == 1, "buffers of the batch norm stay, other settings have other numbers"
    y.backward()


def test_g4_layers_of_all_sizes():
    torch.manual_seed(0)
    widths = (64, 448, 128, 576, 64)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(one, other), nn.GELU()) for one, other in zip(widths, widths[1:])))
    x = torch.randn(64, 64)
    for _ in range(4):
        assert alike(gradients(model, x), gradients(model, x, lambda: offload(device_memory=1 << 19)))
        ebb.torch.step()
    assert numbers()["reloads_prefetched"] > 0


def test_g5_sizes_that_change_every_step():
    model = chain()
    optimizer = torch.optim.SGD(model.parameters(), lr=0)
    generator = torch.Generator().manual_seed(0)
    for _ in range(12):
        rows = int(torch.randint(32, 64, (1,), generator=generator))
        x = torch.randn(rows, 64)
        assert alike(gradients(model, x), gradients(model, x, offload))
        optimizer.step()
    assert numbers()["order_mismatches"] == 0
    assert numbers()["reloads_prefetched"] > 0


def test_g6_a_pattern_that_nothing_matched_is_named(capfd):
    model = chain()
    optimizer = torch.optim.SGD(model.parameters(), lr=0)
    for _ in range(2):
        gradients(model, torch.ones(64, 64), lambda: offload(policy={"*.mpl.up": "offload", "*.Tanh": "offload"}))
        optimizer.step()
    report = ebb.torch.report()
    assert "no activation of the first step matched '*.mpl.up'" in capfd.readouterr().err
    assert "policy pattern '*.mpl.up' matched no activation" in report
    assert re.search(r"^Sequential\.3\.Tanh\s+2\s+0\s+2 ", report, re.MULTILINE), report


def test_g7_a_byte_that_flips_in_host_memory_is_caught_and_named():
    model = nn.Sequential(nn.Linear(64, 64), nn.Sigmoid())
    with offload(verify=True, device_memory=1 << 16):
        h = torch.rand(64, 64)
        mark = bytes(h.numpy().tobytes()[:256])
        y = model[0](h).sum()
        more = [torch.randn(64, 64, requires_grad=True).exp() for _ in range(4)]  # so that its source is given up
    del h
    flip_everywhere(mark)
    with pytest.raises(RuntimeError, match=r"EBB_DATA_MISMATCH.*'Linear"):
        y.backward()
    del more


def flip_everywhere(mark):
    """The last byte of each place in this process's memory that holds `mark`: of Ebb's copy, and of what is garbage by now."""
    with open("/proc/self/maps") as maps:
        parts = [[int(end, 16) for end in line.split()[0].split("-")] for line in maps if " rw" in line]
    ours = range(id(mark), id(mark) + sys.getsizeof(mark))
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        for first, last in parts:
            if last - first > 256 << 20:
                continue
            memory.seek(first)
            held = memory.read(last - first)
            at = held.find(mark)
            while at >= 0:
                if first + at not in ours:
                    memory.seek(first + at + len(mark) - 1)
                    memory.write(bytes([mark[-1] ^ 1]))
                at = held.find(mark, at + 1)
