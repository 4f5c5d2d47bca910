"""Decorated builders for the tests; in a module of their own, since the script that runs cannot be
imported."""

import abc
import dataclasses
from typing import Any, Generic, NamedTuple, TypeVar

import pydantic
import torch
from omegaconf import DictConfig
from torch import nn

from tl_integrations import language as L

T = TypeVar("T")


@L.configurable
def build(in_features: int, out_features: int) -> nn.Module:
    return nn.Linear(in_features, out_features)


@L.configurable
def same(value: Any = None) -> Any:
    return value


@L.configurable
def pair(left: Any, right: Any = None) -> Any:
    return left, right


@L.configurable
def variadic(*layers: Any) -> Any:
    return layers


@L.configurable
def loose(first: Any, **rest: Any) -> Any:
    return first, rest


@L.configurable
def positional_only(a: Any, b: Any = 2, /, c: Any = 3, *, d: Any = 4) -> Any:
    return a, b, c, d


@L.configurable
def awkward_names(target: Any, args: Any, strict: Any, thunk: Any, config: Any) -> Any:
    return target, args, strict, thunk, config


@L.configurable
def reserved_name(_args_: Any = 1) -> Any:
    return _args_


@L.configurable
def recursive(depth: int) -> list[Any]:
    return [recursive(depth - 1)] if depth else []


@L.configurable
def takes_config(cfg: DictConfig, sizes: Any = None) -> Any:
    return cfg, sizes


@L.configurable
def with_defaults(a: int, b: tuple[float, float] = (0.9, 0.99), *, c: Any = object(), d: str = "${x}") -> Any:  # noqa: B008
    return a, b, c, d


@L.configurable(record=False)
def unrecorded(value: Any) -> Any:
    return [value]


@L.configurable
def fails(value: Any) -> Any:
    raise KeyError(value)


@L.configurable
class Encoder(nn.Module):
    DEFAULTS = ("depth", 2)

    def __init__(self, width: int, depth: int = 2, act: Any = nn.ReLU) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.act = act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@L.configurable
class Model(nn.Module):
    def __init__(self, encoder: nn.Module, head: Any = None, blocks: Any = ()) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.encoder(x)
        return out


class PlainChild(Encoder):
    """A subclass that is not decorated."""


@L.configurable
class Child(Encoder):
    def __init__(self, width: int, extra: int = 1) -> None:
        super().__init__(width, depth=extra)
        self.extra = extra


class GrandChild(Child):
    pass


@L.configurable
class NoInit:
    pass


@L.configurable
@dataclasses.dataclass(slots=True)
class Slotted:
    x: int
    y: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
@L.configurable
class SlottedAbove:
    x: int = 1


@L.configurable
class Point(NamedTuple):
    x: int
    y: int = 2


@L.configurable
class Box(Generic[T]):
    def __init__(self, item: T) -> None:
        self.item = item


@L.configurable
class Left:
    def __init__(self, left: int = 1, **rest: Any) -> None:
        super().__init__(**rest)
        self.left = left


@L.configurable
class Right:
    def __init__(self, right: int = 2) -> None:
        self.right = right


@L.configurable
class Diamond(Left, Right):
    pass


@L.configurable
class Text(str):
    def __new__(cls, value: str = "") -> "Text":
        return super().__new__(cls, value.upper())


@L.configurable
class Triple(tuple[int, ...]):
    def __new__(cls, a: int, b: int, c: int) -> "Triple":
        return super().__new__(cls, (a, b, c))


class Family:
    @L.configurable
    class Inner:
        def __init__(self, depth: int) -> None:
            self.depth = depth

    @classmethod
    @L.configurable
    def made(cls, size: int) -> tuple[str, int]:
        return cls.__name__, size

    @L.configurable
    @classmethod
    def made_too(cls, size: int) -> tuple[str, int]:
        return cls.__name__, size

    @staticmethod
    @L.configurable
    def free(size: int) -> int:
        return size

    @L.configurable
    @staticmethod
    def free_too(size: int) -> int:
        return size

    @L.configurable
    def method(self, size: int) -> int:
        return size


class SubFamily(Family):
    pass


@L.configurable
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


SURPRISE: list[int] = []


@L.configurable
def surprising(width: int) -> nn.Module:
    """Builds something else every time."""
    SURPRISE.append(width)
    return nn.Linear(len(SURPRISE), width)


@L.configurable
def popping(sizes: list[int]) -> Box[int]:
    return Box(sizes.pop())


@L.configurable
def outer_builder(width: int) -> nn.Module:
    return Encoder(width)


@L.configurable
def make_schedule(steps: int) -> Any:
    def schedule(step: int) -> float:
        return step / steps

    return schedule


@L.configurable
class Validated(pydantic.BaseModel):
    size: int
    names: list[str] = []


class Registering(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)


@L.configurable
class Registered(metaclass=Registering):
    def __init__(self, size: int) -> None:
        self.size = size


@L.configurable
class Abstract(abc.ABC):
    def __init__(self, size: int) -> None:
        self.size = size

    @abc.abstractmethod
    def method(self) -> None: ...


@L.configurable
@dataclasses.dataclass
class Mutable:
    width: int


@L.configurable(record=False)
class Silent:
    def __init__(self, size: int) -> None:
        self.size = size
