"""What a page leaves in the process goes with it."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra

from tl_integrations.language import encoding, registry
from tl_integrations.language.targets import trusted
from tl_integrations.launch import groups


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory, from which modules can be imported."""
    tables = (registry._entries, encoding._custom, encoding._found, sys.modules)
    before = [dict(table) for table in tables]
    vouched, repo = set(trusted), ConfigStore.instance().repo
    ConfigStore.instance().repo = dict(repo)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    trust = import_module("tl_integrations.language.trust")
    monkeypatch.setattr(trust, "_patterns", list(trust._patterns))
    yield tmp_path
    GlobalHydra.instance().clear()
    for name in sys.modules.keys() - before[-1].keys():
        if any(
            place.is_relative_to(tmp_path) or place.suffix == ".md" for place in places(sys.modules[name])
        ):
            del sys.modules[name]
    for table, old in zip(tables[:-1], before):
        table.clear()
        table.update(old)  # type: ignore[call-overload]
    trusted.clear()
    trusted.update(vouched)
    ConfigStore.instance().repo = repo
    groups.STORED.register()


def places(module: ModuleType) -> list[Path]:
    """The file of a module, and the folders of a package, which need not have a file."""
    # Some modules answer to any name, so only what a module itself holds counts.
    found = [vars(module).get("__file__"), *(vars(module).get("__path__") or ())]
    return [Path(place) for place in found if isinstance(place, str)]
