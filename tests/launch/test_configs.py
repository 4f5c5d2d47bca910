"""The configs that the package adds to every Hydra application."""

from pathlib import Path

import yaml
from hydra import compose, initialize

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
