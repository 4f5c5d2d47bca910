"""Imports go one way, frameworks stay in their room, and the root is light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1]
ROOMS = ("errors", "options", "language", "capture", "schedule", "storage", "reporting", "monitor", "launch")
MAY_IMPORT = {
    "errors": set(),
    "options": {"errors"},
    "language": {"errors"},
    "capture": {"errors", "options"},
    "schedule": {"errors"},
    "storage": {"errors", "options", "capture"},
    "reporting": {"errors", "options", "capture"},
    "monitor": {"errors", "options", "capture", "schedule", "storage", "reporting"},
    "launch": {"errors", "language", "storage"},
    "hydra_plugins": {"launch", "language"},
    "callbacks": {*ROOMS},
    "configs": set(),
    "cli": {*ROOMS},
}
FRAMEWORKS = {"lightning", "pytorch_lightning", "hydra", "tensorboard", "transformers", "accelerate"}
ADAPTERS = {"lightning": {"callbacks"}, "hydra": {"launch", "hydra_plugins"}, "tensorboard": {"reporting"}}
ROOT_FORBIDDEN = ("torch", "lightning", "hydra", "tensorboard", "omegaconf")


def modules() -> list[tuple[str, Path]]:
    found = []
    for top in ("tl_integrations", "callbacks", "configs"):
        for path in sorted((SOURCE / top).rglob("*.py")):
            parts = path.relative_to(SOURCE).with_suffix("").parts
            room = top if top != "tl_integrations" else parts[1]
            found.append(("hydra_plugins" if "hydra_plugins" in parts else room, path))
    return [(room, path) for room, path in found if room != "__init__"]


def imported_names(path: Path) -> list[tuple[str, bool]]:
    """Every imported module of a file, and whether the import stands at its top level."""
    tree = ast.parse(path.read_text())
    top = {id(node) for node in tree.body}
    names: list[tuple[str, bool]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [(alias.name, id(node) in top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the room they come from"
            base = node.module or ""
            wide = base == "tl_integrations"
            names += [(f"{base}.{a.name}" if wide else base, id(node) in top) for a in node.names]
    return names


@pytest.mark.parametrize(("room", "path"), modules(), ids=lambda value: getattr(value, "stem", value))
def test_a_room_imports_only_rooms_above_it(room: str, path: Path) -> None:
    for name, at_top in imported_names(path):
        if not name.startswith("tl_integrations."):
            continue
        target = name.split(".")[1]
        assert target == room or target in MAY_IMPORT[room], f"{path} imports {name}"
        assert at_top, f"{path} imports {name} inside a function"


@pytest.mark.parametrize(("room", "path"), modules(), ids=lambda value: getattr(value, "stem", value))
def test_a_framework_is_imported_only_in_the_folder_that_adapts_it(room: str, path: Path) -> None:
    for name, _ in imported_names(path):
        framework = name.split(".")[0]
        if framework in FRAMEWORKS:
            assert room in ADAPTERS.get(framework, {"callbacks"}), f"{path} imports {name}"


@pytest.mark.parametrize(
    "module", ["tl_integrations", "tl_integrations.language", "hydra_plugins.tl_integrations"]
)
def test_importing_the_root_loads_no_framework(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {ROOT_FORBIDDEN!r} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
