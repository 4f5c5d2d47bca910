"""Models of the kinds that people have, small, each with its arguments; built anew from a fixed seed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from reference_models import LstmNet, ResNet, conv8
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from toy_models import Mlp, NoisyNet


class Shared(nn.Module):
    """One module under two names, called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = self.first
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.second(self.act(self.first(x))))


class Tied(nn.Module):
    """Embedding and head share their weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.embed(x)))


class Recurrent(nn.Module):
    """A cell in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 6)
        self.out = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[0], 6)
        for step in range(x.shape[1]):
            h, c = self.cell(x[:, step], (h, c))
            h = F.relu(h)
        return self.out(h)


class Branching(nn.Module):
    """What runs depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.left(x)) if x.sum() > 0 else torch.tanh(self.right(x)).relu()


class Nested(nn.Module):
    """Containers in and out."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, batch: dict[str, Any], *, scale: float = 1.0) -> dict[str, Any]:
        x, (y, none) = batch["x"], batch["pair"]
        assert none is None
        h = self.inner(x).relu() * scale
        return {"h": [h, h + y], "n": 3}


@dataclass
class Outputs:
    """A dataclass as a model returns it."""

    logits: Tensor
    hidden: tuple[Tensor, ...] = ()


class ReturnsDataclass(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = Inner(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Outputs:
        found = self.body(x)
        return Outputs(logits=self.head(found.logits), hidden=found.hidden)


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Outputs:
        h = self.layer(x)
        return Outputs(logits=h.relu(), hidden=(h, h * 2))


class InPlace(nn.Module):
    """In-place ops, views, writes into views, item assignment."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        h = self.act(self.layer(x))
        y = self.layer(h)
        y[0] = 0
        half = y[:, :3]
        half.mul_(2)
        y += 1
        z = torch.relu(y.view(-1)).clone()
        return z.view_as(y) * 2


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.attn(x, x, x, need_weights=False)
        return self.norm(x + F.relu(y))


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.rfft(self.layer(x).relu()).abs()


class Checkpointed(nn.Module):
    """Activations that are computed again in the backward."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.block = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 6))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(checkpoint(self.block, x * 1.0, use_reentrant=self.reentrant))


class Autocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = Mlp(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.net(x).float()


class CallsForward(nn.Module):
    """Calls a part's `forward` directly."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.part.forward(x).relu()


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2Model

    sizes = {"n_layer": 2, "n_embd": 16, "n_head": 2, "vocab_size": 50, "n_positions": 16}
    model: nn.Module = GPT2Model(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    return model


def bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    sizes = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 50}
    model: nn.Module = BertModel(BertConfig(**sizes, intermediate_size=32, max_position_embeddings=16))
    return model


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


@dataclass(frozen=True)
class Case:
    """A model with what it is called with."""

    build: Callable[[], nn.Module]
    args: Callable[[], tuple[Any, ...]]
    kwargs: Callable[[], dict[str, Any]] = dict


def rows(*shape: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(*shape),)


def tokens(batch: int, length: int, vocabulary: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randint(0, vocabulary, (batch, length)),)


CASES: dict[str, Case] = {
    "mlp": Case(lambda: Mlp(8, 3), rows(4, 8)),
    "noisy": Case(NoisyNet, rows(4, 8)),
    "shared": Case(Shared, rows(3, 6)),
    "tied": Case(Tied, tokens(2, 5, 11)),
    "recurrent": Case(Recurrent, rows(2, 5, 4)),
    "branching": Case(Branching, rows(3, 4)),
    "nested": Case(
        Nested,
        lambda: ({"x": torch.randn(2, 4), "pair": (torch.ones(2, 4), None)},),
        lambda: {"scale": 2.0},
    ),
    "dataclass": Case(ReturnsDataclass, rows(2, 4)),
    "in_place": Case(InPlace, rows(3, 6)),
    "attention": Case(Attention, rows(2, 5, 8)),
    "encoder": Case(encoder, rows(2, 5, 8)),
    "lstm": Case(LstmNet, rows(2, 5, 64)),
    "complex": Case(Complex, rows(2, 8)),
    "checkpointed": Case(lambda: Checkpointed(False), rows(2, 6)),
    "checkpointed_reentrant": Case(
        lambda: Checkpointed(True), lambda: (torch.randn(2, 6, requires_grad=True),)
    ),
    "autocast": Case(Autocast, rows(2, 8)),
    "direct_forward": Case(CallsForward, rows(2, 4)),
    "resnet": Case(lambda: ResNet(8), rows(2, 3, 8, 8)),
    "conv8": Case(conv8, rows(1, 3, 8, 8)),
    "gpt2": Case(gpt2, tokens(2, 7, 50)),
    "bert": Case(bert, tokens(2, 7, 50)),
}


def made(name: str) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The model in training mode, and its arguments; the same each time."""
    torch.manual_seed(0)
    case = CASES[name]
    model = case.build()
    return model, case.args(), case.kwargs()
