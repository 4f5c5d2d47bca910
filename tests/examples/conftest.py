"""Examples as a user runs them, but small and in this process, which they leave as it was."""

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tl_integrations.language import registry

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], ModuleType]]:
    """Imports an example by its name, anew, in a working directory of its own."""
    lightning = logging.getLogger("lightning.pytorch")
    level, known = lightning.level, set(sys.modules)
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_entries", {})
    yield importlib.import_module
    lightning.setLevel(level)
    for name in set(sys.modules) - known:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).parent == EXAMPLES:
            del sys.modules[name]
