"""Builders that know nothing of us: what YAML must be able to name for plain Hydra."""

import dataclasses
import enum
from typing import Any, NamedTuple

import attrs
from torch import nn


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Bits(enum.IntFlag):
    A = 1
    B = 2


class Pair(NamedTuple):
    left: Any
    right: Any = 2


@dataclasses.dataclass
class Settings:
    width: int
    names: list[str] = dataclasses.field(default_factory=lambda: ["a"])


def make_linear(in_features: int, out_features: int) -> nn.Module:
    return nn.Linear(in_features, out_features)


def same(value: Any) -> Any:
    """Gives back what it was given, as the target of round trips."""
    return value


def typed(rate: float, color: Color) -> Any:
    """Declares types that it does not check."""
    return rate, color


def gather(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def positional_only(a: Any, b: Any = 2, /, c: Any = 3, *, d: Any = 4) -> Any:
    return a, b, c, d


class Outer:
    class Inner:
        def __init__(self, size: int) -> None:
            self.size = size

        def __eq__(self, other: object) -> bool:
            return type(other) is type(self) and vars(other) == vars(self)

    @classmethod
    def make(cls, size: int) -> tuple[str, int]:
        return cls.__name__, size

    @staticmethod
    def double(size: int) -> int:
        return 2 * size


class Block(nn.Module):
    def __init__(self, width: int = 4, act: Any = nn.ReLU) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.act = act() if isinstance(act, type) else act


class Net(nn.Module):
    def __init__(self, blocks: list[nn.Module], head: nn.Module | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.head = head


@attrs.define
class Fields:
    _a: int
    b: list[int] = attrs.Factory(list)


@dataclasses.dataclass
class Derived:
    width: int
    double: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.double = 2 * self.width


@dataclasses.dataclass
class Kept:
    width: int
    scale: dataclasses.InitVar[int]

    def __post_init__(self, scale: int) -> None:
        self.width *= scale


class Word(str):
    """A string of one's own."""


class Gathered:
    """Keeps what it was given."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs
