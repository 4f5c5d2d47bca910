"""Builders of the size and shape that projects have."""

import itertools
from typing import Any

import lightning
import torch
import transformers
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tl_integrations import language as L

BertConfig = L.wrap(transformers.BertConfig)
BertModel = L.wrap(transformers.BertModel)
GPT2Config = L.wrap(transformers.GPT2Config)
GPT2LMHeadModel = L.wrap(transformers.GPT2LMHeadModel)
SMALL_BERT: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 30,
    "id2label": {0: "a", 1: "b"},
}


@L.configurable
def small_bert(hidden: int, layers: int) -> nn.Module:
    config = transformers.BertConfig(**{**SMALL_BERT, "hidden_size": hidden, "num_hidden_layers": layers})
    return transformers.BertModel(config)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, planes_in: int, planes: int, stride: int, norm: Any) -> None:
        super().__init__()
        out = planes * self.expansion
        self.conv1 = nn.Conv2d(planes_in, planes, 3, stride, 1, bias=False)
        self.bn1 = norm(planes)
        self.conv2 = nn.Conv2d(planes, out, 3, 1, 1, bias=False)
        self.bn2 = norm(out)
        self.shortcut = nn.Sequential(nn.Conv2d(planes_in, out, 1, stride, bias=False), norm(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(inner + self.shortcut(x))


class Bottleneck(BasicBlock):
    expansion = 2


@L.configurable
class ResNet(nn.Module):
    """In the manner of torchvision: block class, layer counts, a norm layer as a factory."""

    def __init__(
        self,
        block: type[BasicBlock],
        layers: list[int],
        width: int = 64,
        classes: int = 10,
        norm: Any = nn.BatchNorm2d,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), norm(width), nn.ReLU())
        stages, planes_in = [], width
        for index, count in enumerate(layers):
            for position in range(count):
                stride = 2 if position == 0 and index else 1
                stages.append(block(planes_in, width * 2**index, stride, norm))
                planes_in = width * 2**index * block.expansion
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(planes_in, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.stages(self.stem(x)).mean((2, 3)))
        return out


@L.configurable
class Recipe:
    def __init__(self, optimizer: Any, scheduler: Any = None) -> None:
        self.optimizer = optimizer
        self.scheduler = scheduler


@L.configurable
class Backbone(nn.Module):
    def __init__(self, inputs: int, sizes: list[int]) -> None:
        super().__init__()
        widths = [inputs, *sizes]
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in itertools.pairwise(widths)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


class Base(lightning.LightningModule):
    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x = batch[0] if isinstance(batch, list | tuple) else batch
        return self(x.float().flatten(1)).sum()  # type: ignore[no-any-return]

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


@L.configurable
class Lit(Base):
    def __init__(self, backbone: nn.Module, lr: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["backbone"])
        self.backbone = backbone

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.backbone(x)
        return out


@L.configurable
class Wide(Base):
    def __init__(self, width: int, lr: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = nn.Linear(8, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x)
        return out


@L.configurable
class Keeps(Base):
    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x)
        return out


@L.configurable
class Data(lightning.LightningDataModule):
    def __init__(self, batch: int, transforms: Any = ()) -> None:
        super().__init__()
        self.batch = batch
        self.transforms = transforms

    def train_dataloader(self) -> Any:
        return DataLoader(TensorDataset(torch.ones(12, 8)), batch_size=self.batch)
