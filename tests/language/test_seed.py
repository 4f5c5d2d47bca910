"""The lines of the tracing seed, as they stand there."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from configurables import build, variadic
from omegaconf import DictConfig
from torch import nn

from tl_integrations import language as L


def test_outside_a_trace_a_configurable_builds() -> None:
    assert isinstance(build(784, 10), nn.Linear)


def test_inside_a_trace_it_is_recorded_and_not_run() -> None:
    cfg = L.trace(lambda: build(in_features=784, out_features=10))
    assert isinstance(cfg, DictConfig)
    assert cfg == {"_target_": "configurables.build", "in_features": 784, "out_features": 10}


@pytest.mark.parametrize(
    "thunk",
    [
        lambda: build(784, 10),
        lambda: build(784, out_features=10),
        lambda: build(out_features=10, in_features=784),
        lambda: build(*(784, 10)),
        lambda: build(**{"in_features": 784, "out_features": 10}),
        lambda: L.call(build)(784, 10),
    ],
)
def test_positional_arguments_become_named_like_those_of_call(thunk: object) -> None:
    assert L.trace(thunk) == L.call(build)(in_features=784, out_features=10)
    assert list(L.trace(thunk)) == ["_target_", "in_features", "out_features"]


def test_variadic_positionals_raise_inside_a_trace() -> None:
    with pytest.raises(TypeError, match=r"variadic\(\*layers\) cannot be traced.*list parameter"):
        L.trace(lambda: variadic(1, 2))
    assert variadic(1, 2) == (1, 2)


def test_a_failing_thunk_does_not_leave_tracing_on() -> None:
    with pytest.raises(ZeroDivisionError):
        L.trace(lambda: 1 / 0)
    assert not L.is_tracing()
    assert isinstance(build(1, 1), nn.Linear)


def test_strict_wants_a_config_and_loose_gives_the_executed_value() -> None:
    def undecorated() -> int:
        return 5

    with pytest.raises(TypeError, match="strict=False"):
        L.trace(lambda: undecorated(), strict=True)
    assert L.trace(lambda: undecorated(), strict=False) == 5


def test_plain_hydra_builds_it_in_a_process_that_cannot_import_us(tmp_path: Path) -> None:
    """YAML of undecorated targets, and of builders that another module registers."""
    from plain_builders import Block, Net, make_linear

    registered = L.wrap(make_linear)
    cfg = L.trace(
        lambda: L.call(Net)(blocks=[L.call(Block)(width=3), L.call(Block)()], head=registered(3, 5))
    )
    L.save_config(cfg, tmp_path / "net.yaml")
    code = """
        import importlib.abc, sys
        class Refuse(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "tl_integrations":
                    raise ImportError("not here")
        sys.meta_path.insert(0, Refuse())
        from hydra.utils import instantiate
        from omegaconf import OmegaConf
        net = instantiate(OmegaConf.load("net.yaml"))
        assert "tl_integrations" not in sys.modules
        print(type(net).__name__, len(net.blocks), net.head.out_features, net.blocks[0].layer.in_features)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parent), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["Net", "2", "5", "3"], done.stderr
