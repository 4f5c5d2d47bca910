"""The configs that the package adds to every Hydra application."""

import dataclasses
import inspect
from pathlib import Path

import hydra
import pytest
import yaml
from hydra import compose, initialize
from omegaconf import OmegaConf

from tl_integrations import language as L
from tl_integrations import schedule
from tl_integrations.options import ReportOptions

CONFIGS = Path(__file__).parents[2] / "configs"


def test_the_trace_callback_is_an_option_of_any_application() -> None:
    with initialize(version_base=None):
        cfg = compose(overrides=["+callbacks=trace", "callbacks.trace.schedule=20"])
    assert cfg.callbacks.trace._target_ == "tl_integrations.callbacks.TraceCallback"
    assert cfg.callbacks.trace.schedule == 20


def test_a_foreign_application_sees_one_bare_group_and_two_of_ours() -> None:
    """`callbacks/trace` is the only name we put where an application's own names live."""
    found = {path.relative_to(CONFIGS).as_posix() for path in CONFIGS.rglob("*.yaml")}
    bare = {name for name in found if not name.startswith(("tl/", "hydra/callbacks/tl_"))}
    assert bare == {"callbacks/trace.yaml"}


def test_every_config_of_the_package_is_plain_yaml_with_a_target() -> None:
    for path in CONFIGS.rglob("*.yaml"):
        tree = yaml.safe_load(path.read_text())
        nodes = [tree] if "_target_" in tree else list(tree.values())
        assert all("_target_" in node for node in nodes), path


@pytest.mark.parametrize("name", ["every", "log_spaced", "windows"])
def test_a_schedule_is_chosen_by_group_and_builds_what_its_name_says(name: str) -> None:
    with initialize(version_base=None):
        cfg = compose(overrides=["+callbacks=trace", f"+tl/schedule@callbacks.trace.schedule={name}"])
    built = L.instantiate(cfg.callbacks.trace.schedule, allow="tl_integrations.schedule.*")
    assert isinstance(built, schedule.Schedule)
    assert repr(built).startswith(f"{name}(")


def test_a_logger_is_chosen_by_group_and_writes_below_the_run_folder() -> None:
    with initialize(version_base=None):
        cfg = compose(overrides=["+tl/logger@logger.tensorboard=tensorboard"])
    tree = OmegaConf.to_container(cfg.logger.tensorboard, resolve=False)
    assert tree["save_dir"] == "${hydra:runtime.output_dir}"


def test_the_trace_option_offers_every_parameter_of_the_callback_at_its_default() -> None:
    """A knob that is not in the file could only be overridden with a `+`."""
    from tl_integrations.callbacks import TraceCallback

    written = yaml.safe_load((CONFIGS / "callbacks" / "trace.yaml").read_text())["trace"]
    report = written.pop("report")
    assert report.pop("_target_") == "tl_integrations.options.ReportOptions"
    assert report | {"images": ()} == dataclasses.asdict(ReportOptions())
    defaults = {name: each.default for name, each in inspect.signature(TraceCallback).parameters.items()}
    assert defaults.pop("report") is None
    assert written == {"_target_": "tl_integrations.callbacks.TraceCallback", **defaults}


def test_what_loggers_show_is_an_ordinary_override_too() -> None:
    with initialize(version_base=None):
        cfg = compose(overrides=["+callbacks=trace", "callbacks.trace.report.images=['conv*']"])
    report = hydra.utils.instantiate(cfg.callbacks.trace.report)
    assert isinstance(report, ReportOptions) and list(report.images) == ["conv*"]
