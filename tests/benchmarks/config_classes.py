"""Trivial classes for the config benchmarks: decorated, plain, and for fiddle."""

from typing import Any

from fiddle.experimental import auto_config as auto

from tl_integrations import language as L


class PlainLeaf:
    def __init__(self, index: int, width: int = 1, rate: float = 0.0, name: str = "") -> None:
        self.index, self.width, self.rate, self.name = index, width, rate, name


class PlainBlock:
    def __init__(self, index: int, leaves: list[Any]) -> None:
        self.index, self.leaves = index, leaves


class PlainRoot:
    def __init__(self, blocks: list[Any]) -> None:
        self.blocks = blocks


@L.configurable
class Leaf(PlainLeaf):
    def __init__(self, index: int, width: int = 1, rate: float = 0.0, name: str = "") -> None:
        self.index, self.width, self.rate, self.name = index, width, rate, name


@L.configurable
class Block(PlainBlock):
    def __init__(self, index: int, leaves: list[Any]) -> None:
        self.index, self.leaves = index, leaves


@L.configurable
class Root(PlainRoot):
    def __init__(self, blocks: list[Any]) -> None:
        self.blocks = blocks


@L.configurable(record=False)
def unrecorded(width: int, rate: float) -> int:
    return width


def undecorated(width: int, rate: float) -> int:
    return width


@L.configurable
def recorded(width: int, rate: float) -> PlainRoot:
    return PlainRoot([])


def unbuilt(width: int, rate: float) -> PlainRoot:
    return PlainRoot([])


@auto.auto_config(experimental_allow_control_flow=True)  # type: ignore[untyped-decorator]
def fiddle_root(count: int = 50) -> Any:
    blocks = []
    for i in range(count):
        leaves = []
        for j in range(9):
            leaves.append(PlainLeaf(j, width=64, rate=0.1, name="relu"))
        blocks.append(PlainBlock(i, leaves))
    return PlainRoot(blocks)
