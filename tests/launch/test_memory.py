"""Objects remember how they were built, whoever builds them: user code, Hydra or `L.instantiate`."""

from collections.abc import Callable
from typing import Any

import hydra
import pytest
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from torch import nn

from tl_integrations import language as L
from tl_integrations.errors import NoConfigError


@L.configurable
def block(width: int, bias: bool = True) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width, bias=bias), nn.ReLU())


@L.configurable
class Net(nn.Module):
    def __init__(self, inner: nn.Module, scale: float = 2.0) -> None:
        super().__init__()
        self.inner = inner
        self.scale = scale


class Plain(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)


def by_hydra(config: Any) -> Any:
    return hydra.utils.instantiate(OmegaConf.create(config))


def by_us(config: Any) -> Any:
    return L.instantiate(config)


@pytest.mark.parametrize("build", [by_hydra, by_us])
def test_a_decorated_target_remembers_its_config(build: Callable[[Any], Any]) -> None:
    config = L.trace(lambda: Net(block(3, bias=False)), as_dict=True)
    built = build(config)
    assert isinstance(built, Net)
    assert L.config_of(built, as_dict=True) == config
    assert L.config_of(built.inner, as_dict=True) == config["inner"]


def test_our_own_builder_also_remembers_for_targets_that_are_not_decorated() -> None:
    config = {"_target_": "torch.nn.modules.linear.Linear", "in_features": 2, "out_features": 3}
    assert L.config_of(L.instantiate(config), as_dict=True) == config
    with pytest.raises(NoConfigError):
        L.config_of(by_hydra(config))


def test_the_remembered_config_builds_the_same_again() -> None:
    torch.manual_seed(0)
    first = by_hydra(L.trace(lambda: Net(block(3)), as_dict=True))
    second = by_us(L.config_of(first, defaults="pin"))
    assert [tuple(p.shape) for p in first.parameters()] == [tuple(p.shape) for p in second.parameters()]
    assert second.scale == 2.0


def test_a_live_object_goes_into_the_build_untouched() -> None:
    inner = Plain(2)
    built = L.instantiate({"_target_": f"{__name__}.Net", "scale": 1.0}, inner=inner)
    assert built.inner is inner
    with pytest.raises(NoConfigError, match="inner"):
        L.config_of(built)


def test_nothing_is_left_of_hydra_after_the_tests() -> None:
    assert not HydraConfig.initialized()
