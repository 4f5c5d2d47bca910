"""The models that costs are measured on, each with an input; built anew from a fixed seed."""

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Mlp(nn.Module):
    """Twenty layers of one width, one activation for all of them."""

    def __init__(self, width: int = 256, depth: int = 20) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.act(layer(x))
        return x


class Residual(nn.Module):
    """Two convolutions, batch norms and in-place activations around a skip."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        same = stride == 1 and width == out
        self.down = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out: Tensor = self.relu(y + self.down(x))
        return out


class ResNet(nn.Module):
    """Six residual blocks, widths 32 to 128."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        shapes = [(1, 1, 1), (1, 1, 1), (1, 2, 2), (2, 2, 1), (2, 4, 2), (4, 4, 1)]
        self.layers = nn.Sequential(*(Residual(width * a, width * b, s) for a, b, s in shapes))
        self.fc = nn.Linear(4 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(self.relu(self.bn(self.stem(x))))
        out: Tensor = self.fc(x.mean((2, 3)))
        return out


class LstmNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(64, 128)
        self.lstm = nn.LSTM(128, 128, 2, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.lstm(F.relu(self.embed(x)))
        out: Tensor = self.head(F.relu(y[:, -1]))
        return out


class Chain(nn.Module):
    """Nothing but tiny ops: what an op itself costs to watch."""

    def __init__(self, ops: int) -> None:
        super().__init__()
        self.ops = ops

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.ops // 2):
            x = F.relu(x + 1.0)
        return x


class ModuleChain(nn.Module):
    """The same ops with a module for each activation, so that hooks have something to hold on to."""

    def __init__(self, ops: int) -> None:
        super().__init__()
        self.acts = nn.ModuleList(nn.ReLU() for _ in range(ops // 2))

    def forward(self, x: Tensor) -> Tensor:
        for act in self.acts:
            x = act(x + 1.0)
        return x


class Wide(nn.Module):
    """Few ops on tensors of 64 MB each."""

    def __init__(self, depth: int = 6) -> None:
        super().__init__()
        self.depth = depth

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.depth):
            x = F.relu(x + 0.1)
        return x


def conv8() -> nn.Module:
    layers: list[nn.Module] = []
    width = 3
    for _ in range(8):
        layers += [nn.Conv2d(width, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
        width = 32
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def gpt2_4l() -> nn.Module:
    from transformers import GPT2Config, GPT2Model

    sizes = {"n_layer": 4, "n_embd": 256, "n_head": 4, "vocab_size": 1000, "use_cache": False}
    model: nn.Module = GPT2Model(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    return model


Builder = Callable[[], nn.Module]

MODELS: Mapping[str, tuple[Builder, Callable[[], Any]]] = {
    "mlp20": (Mlp, lambda: torch.randn(64, 256)),
    "resnet": (ResNet, lambda: torch.randn(8, 3, 32, 32)),
    "conv8": (conv8, lambda: torch.randn(8, 3, 64, 64)),
    "gpt2-4l": (gpt2_4l, lambda: torch.randint(0, 1000, (2, 64))),
    "lstm": (LstmNet, lambda: torch.randn(16, 50, 64)),
    "chain10k": (lambda: Chain(10_000), lambda: torch.randn(64)),
    "wide": (Wide, lambda: torch.randn(16, 1 << 20)),
}


SAVED: Mapping[str, str] = {
    "mlp20": "relu",
    "resnet": "batch_norm",
    "gpt2-4l": "addmm",
    "conv8": "relu",
    "lstm": "relu",
    "wide": "relu",
}
"""The function whose results are kept of each."""

NAMED: Mapping[str, str] = {
    "mlp20": "layers.*",
    "resnet": "**.bn?",
    "gpt2-4l": "h.*.attn.*",
    "conv8": "?",
    "lstm": "*",
}
"""The modules whose outputs are kept of each."""

PLAIN_OP = 1.7e-6
"""Seconds of one tiny op of `Chain` where the targets in microseconds were set."""


def slowness() -> float:
    """How many times longer a tiny op takes here than where the targets in microseconds were set."""
    model, x = Chain(1_000), torch.randn(64)
    model(x)
    times = []
    for _ in range(21):
        began = time.perf_counter()
        model(x)
        times.append(time.perf_counter() - began)
    return median(times) / 1_000 / PLAIN_OP


def made(name: str) -> tuple[nn.Module, Any]:
    """A model in eval mode and its input, the same every time."""
    build, inputs = MODELS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build().eval(), inputs()
