"""Small models of the kinds people trace, each with an input; weights from a fixed seed, in eval mode."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PlainNet(nn.Module):
    """Convolutions, a sequential encoder, arithmetic and an in-place op between modules."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, padding=1)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)
        self.encoder = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(self.conv2(x), 2).flatten(1)
        h = self.encoder(x) + 1
        h = (h * h).add_(2)
        out: Tensor = self.head(h)
        return out


class Recurrent(nn.Module):
    """One layer applied three times, with a residual, and a layer after the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 16)
        self.attn = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.tanh(F.relu(self.fc(x)) + x)
        out: Tensor = self.attn(x)
        return out


class CellNet(nn.Module):
    """An LSTM cell over time steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(8, 16)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[0], 16)
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
            h = F.relu(h)
        return h


class LstmNet(nn.Module):
    """Embedding, a two-layer LSTM, and a head on its last step."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.lstm = nn.LSTM(16, 16, 2, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.lstm(F.relu(self.embed(x)))
        out: Tensor = self.head(F.relu(y[:, -1]))
        return out


class Block(nn.Module):
    """A residual block with in-place activations."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.down = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out: Tensor = self.relu(y + self.down(x))
        return out


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.layers = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2), Block(16, 16, 1))
        self.fc = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(self.relu(self.bn(self.stem(x))))
        out: Tensor = self.fc(x.mean((2, 3)))
        return out


class UNet(nn.Module):
    """Down, up by a transposed convolution and by interpolation, skips by concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.down1 = self.double(3, 8)
        self.down2 = self.double(8, 16)
        self.middle = self.double(16, 16)
        self.up2 = nn.ConvTranspose2d(16, 16, 2, stride=2)
        self.right2 = self.double(32, 8)
        self.right1 = self.double(16, 8)
        self.last = nn.Conv2d(8, 2, 1)

    @staticmethod
    def double(width: int, out: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(width, out, 3, padding=1),
            nn.GroupNorm(2, out),
            nn.SiLU(),
            nn.Conv2d(out, out, 3, padding=1),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(F.avg_pool2d(a, (2, 2)))
        c = self.middle(F.avg_pool2d(b, (2, 2)))
        d = self.right2(torch.cat([self.up2(c), b], 1))
        e = self.right1(torch.cat([F.interpolate(d, scale_factor=2.0, mode="nearest"), a], 1))
        out: Tensor = self.last(e)
        return out


class Attention(nn.Module):
    """A transformer block written out, with fused attention and split projections."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.proj = nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (z.unflatten(-1, (4, 4)).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).flatten(-2))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.position = nn.Parameter(torch.randn(12, 16))
        self.blocks = nn.ModuleList(Attention() for _ in range(2))
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x) + self.position
        for block in self.blocks:
            h = block(h)
        out: Tensor = self.head(h)
        return out


class Mobile(nn.Module):
    """Depthwise convolutions and gated activations."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Conv2d(3, 12, 1)
        self.depth = nn.Conv2d(12, 12, 3, padding=1, groups=12)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(12, 12, 1), nn.Hardsigmoid())
        self.project = nn.Conv2d(12, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.depth(self.expand(x)))
        out: Tensor = self.project(x * self.gate(x))
        return out


class Dense(nn.Module):
    """Every layer reads all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8 * (i + 1), 8) for i in range(4))

    def forward(self, x: Tensor) -> Tensor:
        held = [x]
        for layer in self.layers:
            held.append(torch.sigmoid(layer(torch.cat(held, -1))))
        return torch.stack(held).sum(0)


class Branches(nn.Module):
    """Several results of one call, a dict out, constants and buffers in."""

    weights: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weights", torch.ones(8))
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Tensor, bias: Tensor) -> dict[str, Any]:
        a, b = (self.fc(x) * self.weights).chunk(2, -1)
        values, indices = (a - b + bias).max(-1)
        mask = values > 0
        return {
            "values": values.masked_fill(mask, 0.0),
            "rest": [indices, torch.where(mask, values, -values)],
        }


class AutoEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 8), nn.ELU(), nn.Dropout(0.1), nn.Linear(8, 2))
        self.decoder = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(), nn.Linear(8, 16), nn.Softplus())

    def forward(self, x: Tensor) -> Tensor:
        z = self.encoder(x)
        out: Tensor = self.decoder(z) - x.exp().log1p().sqrt() / 2
        return out


class Written(nn.Module):
    """Views, slices written in place, an op from a factory."""

    def forward(self, x: Tensor) -> Tensor:
        y = x.clone()
        y[:, 0] = 1.0
        y.view(-1).mul_(2)
        y = y + torch.arange(4, dtype=torch.float32)
        y += 1
        return torch.einsum("ij,kj->ik", y, 1 - x)


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2Model

    sizes = {"n_layer": 2, "n_embd": 16, "n_head": 2, "vocab_size": 40, "n_positions": 16}
    model: nn.Module = GPT2Model(GPT2Config(**sizes, use_cache=False, bos_token_id=0, eos_token_id=0))
    return model


def bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    sizes = BertConfig(
        num_hidden_layers=2,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=40,
        max_position_embeddings=16,
    )
    model: nn.Module = BertModel(sizes)
    return model


MODELS: Mapping[str, tuple[Callable[[], nn.Module], Callable[[], list[Tensor]]]] = {
    "plain": (PlainNet, lambda: [torch.randn(2, 3, 8, 8)]),
    "recurrent": (Recurrent, lambda: [torch.randn(2, 16)]),
    "cell": (CellNet, lambda: [torch.randn(2, 3, 8)]),
    "lstm": (LstmNet, lambda: [torch.randn(2, 5, 8)]),
    "resnet": (ResNet, lambda: [torch.randn(2, 3, 8, 8)]),
    "unet": (UNet, lambda: [torch.randn(2, 3, 8, 8)]),
    "transformer": (Transformer, lambda: [torch.randint(0, 50, (2, 12))]),
    "mobile": (Mobile, lambda: [torch.randn(2, 3, 8, 8)]),
    "dense": (Dense, lambda: [torch.randn(2, 8)]),
    "branches": (Branches, lambda: [torch.randn(2, 8), torch.randn(2, 4)]),
    "autoencoder": (AutoEncoder, lambda: [torch.randn(2, 16)]),
    "written": (Written, lambda: [torch.randn(3, 4)]),
    "gpt2": (gpt2, lambda: [torch.randint(0, 40, (2, 12))]),
    "bert": (bert, lambda: [torch.randint(0, 40, (2, 12))]),
}


def made(name: str) -> tuple[nn.Module, list[Tensor]]:
    """A model in eval mode with its arguments, the same every time."""
    build, inputs = MODELS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build().eval(), inputs()
