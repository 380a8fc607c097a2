"""A small GPT over bytes, trained in several ways: what each costs in time and memory, and that the losses are the same.

    python examples/pytorch/train_gpt.py                       # this project's documentation, on the CPU
    python examples/pytorch/train_gpt.py --device cuda --text FILE --layers 24 --width 1024 --modes keep,checkpoint,ebb

Modes: keep (PyTorch alone), checkpoint (each block computed again), save-on-cpu (PyTorch's context manager),
ebb (ebb.torch.offload, automatic), ebb-offload (everything above the floor), ebb-remat (ebb.torch.checkpoint around each
block, by the plan). On the CPU there is nothing to gain by moving: it shows what moves and that nothing changes.
"""

import argparse
import contextlib
import functools
import json
import pathlib
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import ebb.torch

WARM_UP_STEPS = 4  # Ebb records the first step and measures the next three


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        parts = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """`call(block, x)` runs a block: plainly, or so that it can be computed again."""

    def __init__(self, layers, width, heads, context, call):
        super().__init__()
        self.call = call
        self.embed, self.position = nn.Embedding(256, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.embed(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = self.call(block, x)
        logits = self.norm(x) @ self.embed.weight.t()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def plainly(block, x):
    return block(x)


MODES = {
    "keep": (plainly, contextlib.nullcontext),
    "checkpoint": (lambda block, x: checkpoint(block, x, use_reentrant=False), contextlib.nullcontext),
    "save-on-cpu": (plainly, lambda: torch.autograd.graph.save_on_cpu(pin_memory=torch.cuda.is_available())),
    "ebb": (plainly, ebb.torch.offload),
    "ebb-offload": (plainly, functools.partial(ebb.torch.offload, policy="offload")),
    "ebb-remat": (ebb.torch.checkpoint, functools.partial(ebb.torch.offload, policy="*=remat")),
}


def read_text(path) -> torch.Tensor:
    if path is None:
        root = pathlib.Path(__file__).resolve().parents[2]
        data = b"".join(page.read_bytes() for page in sorted(root.glob("docs/*.md")))
    else:
        data = pathlib.Path(path).read_bytes()
    return torch.tensor(list(data), dtype=torch.long)


def train(mode, options, text) -> dict:
    torch.manual_seed(options.seed)
    call, context = MODES[mode]
    if mode.startswith("ebb"):
        context = functools.partial(context, floor=options.floor)
    device = torch.device(options.device)
    model = Gpt(options.layers, options.width, options.heads, options.context, call).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    times, loss = [], None
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for step in range(WARM_UP_STEPS + options.steps):
        starts = torch.randint(0, len(text) - options.context - 1, (options.batch,))
        rows = torch.stack([text[at : at + options.context + 1] for at in starts]).to(device)
        begin = time.perf_counter()
        with context():
            loss = model(rows[:, :-1], rows[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if step >= WARM_UP_STEPS:
            times.append(time.perf_counter() - begin)
    seconds = statistics.median(times)
    row = {"mode": mode, "step_ms": seconds * 1e3, "tokens_per_s": options.batch * options.context / seconds,
           "loss": loss.item()}
    if device.type == "cuda":
        row["device_peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
    if mode.startswith("ebb"):
        for numbers in ebb.torch.statistics().values():  # of one device, or of none where all was below the floor
            sampled = max(numbers["sampled_steps"], 1)
            row |= {"pinned_mib": numbers["pinned_peak_bytes"] / 2**20, "hidden_ms": numbers["hidden_ns"] / sampled / 1e6,
                    "exposed_ms": numbers["exposed_ns"] / sampled / 1e6}
        if options.report:
            print(ebb.torch.report())
        ebb.torch.close()
    return row


def print_table(rows) -> None:
    columns = [("step_ms", "step, ms", ".1f"), ("tokens_per_s", "tokens/s", ".0f"),
               ("device_peak_mib", "device peak, MiB", ".1f"), ("pinned_mib", "pinned host, MiB", ".1f"),
               ("hidden_ms", "hidden, ms", ".1f"), ("exposed_ms", "exposed, ms", ".1f"), ("loss", "loss", ".6f")]
    print(f"{'mode':<12}" + "".join(f"  {title:>{max(len(title), 9)}}" for _, title, _ in columns))
    for row in rows:
        cells = (format(row[key], form) if key in row else "-" for key, _, form in columns)
        print(f"{row['mode']:<12}" + "".join(f"  {cell:>{max(len(title), 9)}}"
                                             for cell, (_, title, _) in zip(cells, columns, strict=True)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", default=",".join(MODES), help="some of them, in order")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--text", help="file to train on")
    for name, default in {"layers": 4, "width": 256, "heads": 4, "context": 256, "batch": 8, "steps": 4, "seed": 1,
                          "floor": 1 << 20}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--report", action="store_true", help="also print Ebb's report by name")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    options = parser.parse_args()
    modes = options.modes.split(",")
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown:
        parser.error(f"no mode {unknown[0]!r}; there are: {', '.join(MODES)}")
    text = read_text(options.text)
    if len(text) <= options.context + 1:
        parser.error(f"the text has {len(text)} bytes, and one sequence takes {options.context + 1}")
    rows = [train(mode, options, text) for mode in modes]
    same = len({row["loss"] for row in rows}) == 1
    if options.json:
        print(json.dumps({"torch": torch.__version__, "device": options.device, "rows": rows, "losses_are_the_same": same}))
    else:
        print_table(rows)
        print("the losses are the same, bit for bit" if same else "THE LOSSES DIFFER")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
