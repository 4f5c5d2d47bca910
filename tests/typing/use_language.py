"""Read by type checkers only: what a user's editor knows of the config language."""

from dataclasses import dataclass
from typing import Any, assert_type

from omegaconf import DictConfig

from tl_integrations import language as L


@L.configurable
def build(width: int, *, depth: int = 2) -> list[int]:
    return [width] * depth


@L.configurable
class Encoder:
    def __init__(self, width: int) -> None:
        self.width = width

    @L.configurable
    @classmethod
    def small(cls) -> "Encoder":
        return cls(8)


@L.configurable(name="app.Point")
@dataclass
class Point:
    x: int
    y: int = 0


assert_type(build(3), list[int])
assert_type(build(3, depth=4), list[int])
build("wide")  # type: ignore[arg-type]
build()  # type: ignore[call-arg]

assert_type(Encoder(3), Encoder)
assert_type(Encoder(3).width, int)
Encoder(width="wide")  # type: ignore[arg-type]
assert_type(Point(1), Point)
Point(1, 2, 3)  # type: ignore[call-arg]

assert_type(L.trace(lambda: build(3)), DictConfig)
assert_type(L.trace(lambda: build(3), as_dict=True), dict[str, Any])
L.trace(lambda: build(3), sharing="sometimes")  # type: ignore[call-overload]
L.trace(lambda x: x)  # type: ignore[arg-type, misc]

assert_type(L.to_yaml({"a": 1}), str)
assert_type(L.is_tracing(), bool)
