"""The wheel holds what a user needs, nothing else; `make test-wheel` also installs it and trains with it."""

import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

SOURCE = Path(__file__).parents[1]
PARTS = ("tl_integrations", "callbacks", "configs", "pyproject.toml", "README.md", "LICENSE")
PLACES = {"callbacks": "tl_integrations/callbacks", "configs": "tl_integrations/configs"}
PLUGIN = "tl_integrations/launch/hydra_plugins"

USE = """
import sys
import tl_integrations as tl
assert not {"torch", "lightning", "hydra", "tensorboard"} & set(sys.modules), "the root is not light"
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if sys.argv[1] == "lightning":
    import lightning.pytorch as pl
else:
    import pytorch_lightning as pl

class Small(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def training_step(self, batch, batch_idx):
        return self.net(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

callback = tl.TraceCallback(schedule=2, save="net.*", storage=sys.argv[2])
pl.Trainer(
    max_steps=4, callbacks=[callback], accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
).fit(Small(), DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8))
recording = tl.load(sys.argv[2])
assert recording.steps == [0, 2], recording.steps
assert recording.at(2)["net.1"].out.shape == (8, 8)
"""


def run(*command: object, **options: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of a copy of the tree: a build leaves its folders in the tree it is given."""
    folder = tmp_path_factory.mktemp("wheel")
    for part in PARTS:
        found = SOURCE / part
        if found.is_dir():
            shutil.copytree(found, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(found, folder)
    command = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir")
    run(sys.executable, *command, folder / "dist", folder)
    (built,) = (folder / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def read(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (found,) = (each for each in archive.namelist() if each.endswith(f".dist-info/{name}"))
        return archive.read(found).decode()


def test_every_source_file_is_in_the_wheel(names: set[str]) -> None:
    for top in ("tl_integrations", "callbacks", "configs"):
        for path in (SOURCE / top).rglob("*"):
            if path.suffix not in (".py", ".pyi", ".yaml", ".json", ".typed") or "__pycache__" in path.parts:
                continue
            inside = path.relative_to(SOURCE).as_posix()
            if inside.startswith(PLUGIN):
                inside = inside.removeprefix("tl_integrations/launch/")
            inside = inside.replace(top, PLACES.get(top, top), 1)
            assert inside in names, f"{path} is not in the wheel"


def test_types_and_the_format_schema_are_in_the_wheel(names: set[str]) -> None:
    assert {"tl_integrations/py.typed", "tl_integrations/__init__.pyi"} <= names
    assert any(name.startswith("tl_integrations/storage/") and name.endswith(".json") for name in names)


def test_nothing_but_the_package_and_its_hydra_plugin_is_in_the_wheel(names: set[str]) -> None:
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"tl_integrations", "hydra_plugins"}
    # A namespace that other plugins share.
    assert "hydra_plugins/__init__.py" not in names
    assert not [name for name in names if "test" in name.lower() or "example" in name]


def test_the_command_and_the_hydra_plugins_are_entry_points(wheel: Path) -> None:
    text = read(wheel, "entry_points.txt")
    assert "tl-integrations = tl_integrations.cli:main" in text
    assert "hydra_plugins.tl_integrations.plugin:TLIntegrationsSearchPath" in text


def test_the_wheel_says_its_python_and_its_licence(wheel: Path) -> None:
    metadata = Parser().parsestr(read(wheel, "METADATA"))
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "Apache License" in read(wheel, "licenses/LICENSE")


def test_make_test_oldest_installs_exactly_the_lower_bounds() -> None:
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    lines = (SOURCE / "tests/constraints/oldest.txt").read_text().splitlines()
    pinned = {
        name.lower().replace("_", "-"): Version(version)
        for name, _, version in (line.partition("==") for line in lines if "==" in line)
    }
    for requirement in map(Requirement, project["dependencies"]):
        (least,) = (each.version for each in requirement.specifier if each.operator == ">=")
        assert pinned[requirement.name.lower().replace("_", "-")] == Version(least), requirement


@pytest.mark.timeout(1800)
@pytest.mark.skipif(not os.environ.get("TL_WHEEL"), reason="installs everything anew: make test-wheel")
def test_a_user_installs_the_wheel_and_trains_with_either_lightning(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    binaries = tmp_path / "env/bin"
    python = binaries / "python"
    run(python, "-m", "pip", "install", "--quiet", "--upgrade", "pip")
    run(python, "-m", "pip", "install", "--quiet", "-c", SOURCE / "constraints.txt", wheel)
    run(python, "-m", "pip", "check")
    for name in ("lightning", "pytorch_lightning"):
        path = tmp_path / f"{name}.tlspec"
        run(python, "-c", USE, name, path, cwd=tmp_path)
        assert "net.1" in run(binaries / "tl-integrations", "show", path, cwd=tmp_path)
    assert "compare" in run(binaries / "tl-integrations", "--help", cwd=tmp_path)
