"""Builders of a small app: every config of it comes from here, and nothing needs torch."""

from dataclasses import dataclass

from tl_integrations import language as L


@L.configurable
@dataclass
class Norm:
    kind: str
    eps: float = 1e-5


@L.configurable
@dataclass
class Affine:
    scale: float = 1.0


@L.configurable
@dataclass
class Model:
    name: str
    norm: object
    depth: int = 18
    widths: tuple[int, ...] = (8, 16)


@L.configurable
def adam(
    lr: float = 0.001, betas: tuple[float, float] = (0.9, 0.999)
) -> tuple[str, float, tuple[float, float]]:
    return ("adam", lr, tuple(betas))


@L.configurable
def sgd(lr: float = 0.1, momentum: float = 0.0) -> tuple[str, float, float]:
    return ("sgd", lr, momentum)


@L.configurable
def needs_classes(classes: int, hidden: int = 4) -> tuple[int, int]:
    return (classes, hidden)


def resnet() -> Model:
    return Model("resnet", norm=Norm("batch"), depth=18)


def broken() -> Model:
    return Model("broken", norm=lambda x: x)


L.store(resnet, group="model", name="resnet", split={"norm": "batch"})
L.store(lambda: Model("vgg", norm=Affine(2.0), depth=11), group="model", name="vgg", split={"norm": "affine"})
L.store(broken, group="model", name="broken")
L.store(Norm, group="model/norm", name="layer", kwargs={"kind": "layer"})
L.store(adam, group="optimizer", name="adam")
L.store(sgd, group="optimizer", name="sgd")
L.store(needs_classes, group="head", name="linear")
