"""Small models of the usual kinds. Each is (make, batch): a module from a seed, and its arguments."""

import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    def __init__(self, width=128, layers=4):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = F.gelu(layer(x))
        return x


class Encoder(nn.Module):
    def __init__(self, width=64, layers=2):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, x):
        return self.encoder(x)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        heads = [t.unflatten(-1, (4, -1)).transpose(1, 2) for t in (q, k, v)]
        x = x + self.out(F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    """With the embedding tied to the head."""

    def __init__(self, words=97, width=64, layers=3):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.register_buffer("positions", torch.randn(64, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))

    def forward(self, tokens):
        x = self.embed(tokens) + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return x @ self.embed.weight.t()


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(2),
            nn.Flatten(), nn.Linear(128, 10),
        )

    def forward(self, x):
        return self.layers(x)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(32, 64, 2, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


class Experts(nn.Module):
    """Top-2 routing: how many tokens an expert gets changes from step to step."""

    def __init__(self, width=64, experts=4):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(Mlp(width, 2) for _ in range(experts))

    def forward(self, x):
        x = x.flatten(0, -2)
        weights, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, place = (chosen == number).nonzero(as_tuple=True)
            out = out.index_add(0, rows, weights[rows, place, None].to(x.dtype) * expert(x[rows]).to(x.dtype))
        return out


class Returns(torch.autograd.Function):
    """Its gradient is a tensor that it saved: three times its input."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x * 3)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return ctx.saved_tensors[0]


def tokens():
    return (torch.randint(0, 97, (8, 32)),)


MODELS = {
    "mlp": (Mlp, lambda: (torch.randn(64, 128),)),
    "encoder": (Encoder, lambda: (torch.randn(8, 32, 64),)),
    "decoder": (Decoder, tokens),
    "convolution": (Convolution, lambda: (torch.randn(8, 3, 16, 16),)),
    "lstm": (Lstm, lambda: (torch.randn(8, 24, 32),)),
    "experts": (Experts, lambda: (torch.randn(8, 32, 64),)),
}
