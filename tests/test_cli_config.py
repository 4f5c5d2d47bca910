"""`tl-integrations config`: YAML from code, and what became of it since, by exit code and by words."""

import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tl_integrations.cli import main
from tl_integrations.language import registry

README = Path(__file__).parents[1] / "README.md"
BUILDERS = """
from tl_integrations import language as L

class Made:
    def __init__(self, **parts):
        self.parts = parts

@L.configurable
def norm(kind: str, eps: float = 1e-05) -> Made:
    return Made(kind=kind, eps=eps)

@L.configurable
def net(depth: int = 2, norm: Made | None = None, betas: tuple = (0.9, 0.99)) -> Made:
    return Made(depth=depth, norm=norm, betas=betas)

def small():
    return net(norm=norm("batch"))

L.store(small, group="model", name="small")
L.store(net, group="model", name="plain")
L.store(small, group="swap", name="small", split={"norm": "batch"}, package="model")
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with one module that stores configs, as the working directory."""
    (tmp_path / "shop.py").write_text(BUILDERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    forget_modules(tmp_path)


def forget_modules(folder: Path) -> None:
    """What a new process would not have: the modules of `folder`, and what they stored."""
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").parent == folder:
            del sys.modules[name]
    for key, entry in list(registry._entries.items()):
        if Path(entry.file).parent == folder:
            del registry._entries[key]
    importlib.invalidate_caches()


def config(folder: Path, *arguments: str, code: int = 0) -> str:
    """Output of `tl-integrations config ...` as a new process would give it."""
    forget_modules(folder)
    result = CliRunner().invoke(main, ["config", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_exported_files_say_where_they_come_from_and_hold_no_path_of_this_machine(shop: Path) -> None:
    said = config(shop, "export", "shop", "--out", "conf")
    assert "4 configs, 4 written" in said
    lines = (shop / "conf" / "model" / "small.yaml").read_text().splitlines()
    assert lines[0] == "# Written by `tl-integrations config export` from shop:small"
    assert lines[2].startswith("# sha256: ")
    assert str(shop) not in "\n".join(lines)
    split = (shop / "conf" / "swap" / "small.yaml").read_text()
    assert split.startswith("# @package model\n"), "Hydra reads the package only from the first lines"
    assert (shop / "conf" / "swap" / "norm" / "batch.yaml").read_text().startswith("# @package model.norm\n")


def test_a_second_export_touches_nothing(shop: Path) -> None:
    config(shop, "export", "shop", "--out", "conf")
    before = {path: path.stat().st_mtime_ns for path in (shop / "conf").rglob("*.yaml")}
    assert "0 written: all current" in config(shop, "export", "shop", "--out", "conf")
    assert {path: path.stat().st_mtime_ns for path in (shop / "conf").rglob("*.yaml")} == before
    config(shop, "export", "shop", "--out", "conf", "--check")


def test_check_tells_stale_from_hand_edited_from_orphan_from_missing(shop: Path) -> None:
    config(shop, "export", "shop", "--out", "conf")
    edit(shop / "shop.py", "depth: int = 2", "depth: int = 3")
    edit(shop / "shop.py", 'L.store(small, group="model", name="small")', "")
    edit(shop / "conf" / "model" / "plain.yaml", "depth: 2", "depth: 9")
    (shop / "conf" / "swap" / "norm" / "batch.yaml").unlink()
    said = config(shop, "export", "shop", "--out", "conf", "--check", code=1)
    kinds = {path: kind for kind, path in re.findall(r"^([a-z-]+): (\S+\.yaml): ", said, re.MULTILINE)}
    assert kinds["model/plain.yaml"] == "hand-edited"
    assert kinds["swap/small.yaml"] == "stale"
    assert kinds["model/small.yaml"] == "orphan"
    assert kinds["swap/norm/batch.yaml"] == "missing"
    assert "-depth: 2\n+depth: 3" in said, "the unified difference of the stale file"
    assert "depth: 2 -> 3" in said, "its difference key by key"


def test_export_does_not_overwrite_what_somebody_wrote(shop: Path) -> None:
    config(shop, "export", "shop", "--out", "conf")
    edited = shop / "conf" / "model" / "plain.yaml"
    edit(edited, "depth: 2", "depth: 9")
    (shop / "conf" / "model" / "small.yaml").write_text("depth: 1\n")
    said = config(shop, "export", "shop", "--out", "conf", code=2)
    assert "hand-edited: model/plain.yaml" in said
    assert "foreign: model/small.yaml" in said
    assert "depth: 9" in edited.read_text()
    config(shop, "export", "shop", "--out", "conf", "--overwrite")
    config(shop, "export", "shop", "--out", "conf", "--check")


def test_only_narrows_the_export_and_the_check(shop: Path) -> None:
    config(shop, "export", "shop", "--out", "conf", "--only", "model/*")
    assert sorted(path.name for path in (shop / "conf").rglob("*.yaml")) == ["plain.yaml", "small.yaml"]
    config(shop, "export", "shop", "--out", "conf", "--only", "model/*", "--check")
    config(shop, "export", "shop", "--out", "conf", "--check", code=1)
    assert "matches none" in config(shop, "export", "shop", "--out", "conf", "--only", "nothing/*", code=2)


def test_a_config_that_differs_each_time_is_an_error(shop: Path) -> None:
    (shop / "shop.py").write_text(
        BUILDERS
        + "import itertools\ncount = itertools.count()\n"
        + "def impure():\n    return net(depth=next(count))\n"
        + "L.store(impure, group='model', name='impure')\n"
    )
    said = config(shop, "export", "shop", "--out", "conf", code=2)
    assert "'model/impure'" in said
    assert "different config each time" in said
    assert not (shop / "conf").exists(), "an error writes nothing"


def test_a_module_that_is_not_there_or_stores_nothing_is_an_error(shop: Path) -> None:
    assert "no module 'shp'" in config(shop, "export", "shp", "--out", "conf", code=2)
    (shop / "empty.py").write_text("import shop\n")
    said = config(shop, "export", "empty", "--out", "conf", code=2)
    assert "stores no configs" in said
    assert "'shop'" in said
    (shop / "bad.py").write_text("import does_not_exist_anywhere\n")
    config(shop, "export", "bad", "--out", "conf", code=1)


def test_exported_files_pass_the_linter_and_mistakes_do_not(shop: Path) -> None:
    config(shop, "export", "shop", "--out", "conf")
    assert config(shop, "lint", "conf") == "no problems\n"
    (shop / "conf" / "bad.yaml").write_text(
        "a: {_target_: shop.nett}\nb: {_target_: shop.net, dept: 3}\nc: {_target_: shop.norm}\n"
        "d: {_target_: os.system, command: ls}\ne: [{_target_: shop.norm, _partial_: true}]\n"
        "f: {_target_: shop.norm, _args_: [batch]}\n"
    )
    said = config(shop, "lint", "conf", code=1).splitlines()
    assert [line.split(": ")[1] for line in said] == ["a", "b", "c", "d"]
    assert "nett" in said[0]
    assert "no 'dept'. Closest: 'depth'" in said[1]
    assert "needs 'kind'" in said[2]
    assert "os.system" in said[3]


def test_the_linter_refuses_python_tags_and_missing_folders(shop: Path) -> None:
    (shop / "conf").mkdir()
    assert "no .yaml files" in config(shop, "lint", "conf", code=2)
    (shop / "conf" / "tag.yaml").write_text("a: 1\nb: !!python/object/apply:os.system [ls]\n")
    assert "tag.yaml: (top)" in config(shop, "lint", "conf", code=1)
    assert "not a folder" in config(shop, "lint", "nowhere", code=2)


def test_show_prints_a_stored_config_or_a_file(shop: Path) -> None:
    said = config(shop, "show", "shop:model/small")
    assert said.startswith("_target_: shop.net\ndepth: 2\n")
    config(shop, "export", "shop", "--out", "conf")
    assert config(shop, "show", "conf/model/small.yaml") == said
    assert "Closest: 'model/small'" in config(shop, "show", "shop:model/smal", code=2)
    assert "neither a YAML file" in config(shop, "show", "nowhere", code=2)


def test_diff_compares_key_by_key(shop: Path) -> None:
    config(shop, "export", "shop", "--out", "conf")
    assert "no difference" in config(shop, "diff", "shop:model/small", "conf/model/small.yaml")
    said = config(shop, "diff", "shop:model/plain", "shop:model/small", code=1)
    assert "norm" in said
    assert "batch" in said


def test_verify_builds_with_plain_hydra_and_compares_what_was_built(shop: Path) -> None:
    assert "model/plain: built, and its config is the one stored" in config(shop, "verify", "shop")
    edit(shop / "shop.py", "    return Made(kind", "    raise RuntimeError('no such norm')\n    Made(kind")
    said = config(shop, "verify", "shop", code=1)
    assert "model/small: cannot be built: " in said
    assert "no such norm" in said


def test_the_console_script_has_the_exit_codes_of_the_checks(shop: Path) -> None:
    run = "from tl_integrations.cli import main; main()"
    command = [sys.executable, "-c", run, "config", "export", "shop"]
    codes = [
        subprocess.run([*command, "--out", *end], cwd=shop, capture_output=True, timeout=60).returncode
        for end in (["conf", "--check"], ["conf"], ["conf", "--check"])
    ]
    assert codes == [1, 0, 0]


def test_the_hook_of_the_readme_passes_current_files_and_stops_an_edit(shop: Path) -> None:
    found = re.search(r"```yaml\n(- repo: local.*?)```", README.read_text(), re.S)
    assert found is not None
    ((hook,),) = [repository["hooks"] for repository in yaml.safe_load(found[1])]
    assert hook["language"] == "system" and hook["pass_filenames"] is False
    command, *arguments = shlex.split(hook["entry"].replace("my_app.configs", "shop"))
    config(shop, "export", "shop", "--out", "conf")
    script = Path(sys.executable).with_name(command)
    assert subprocess.run([script, *arguments], check=False).returncode == 0
    edit(shop / "conf" / "model" / "plain.yaml", "depth: 2", "depth: 3")
    assert subprocess.run([script, *arguments], check=False).returncode == 1


def test_a_test_suite_can_assert_that_files_are_current(shop: Path) -> None:
    config(shop, "export", "shop", "--out", "conf")
    check = "from tl_integrations.launch import assert_configs_current as check; check('shop', 'conf')"
    subprocess.run([sys.executable, "-c", check], cwd=shop, check=True, timeout=60)
    edit(shop / "conf" / "model" / "plain.yaml", "depth: 2", "depth: 9")
    done = subprocess.run([sys.executable, "-c", check], cwd=shop, capture_output=True, text=True, timeout=60)
    assert "AssertionError: hand-edited: model/plain.yaml" in done.stderr
    assert "tl-integrations config export shop --out conf" in done.stderr


def test_exported_yaml_is_built_where_our_package_cannot_be_imported(shop: Path) -> None:
    """The builders live in a module without us; another one registers them."""
    (shop / "undecorated_builders.py").write_text(
        "import collections\ndef net(depth=2, act=None):\n    return ('net', depth, act)\n"
    )
    (shop / "registered.py").write_text(
        "import collections\nimport undecorated_builders\nfrom tl_integrations import language as L\n"
        "L.store(lambda: L.call(undecorated_builders.net)(depth=3, act=collections.OrderedDict),"
        " group='model', name='net')\n"
    )
    config(shop, "export", "registered", "--out", "conf")
    script = (
        "import sys\n"
        "class Blocker:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'tl_integrations':\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Blocker())\n"
        "from hydra.utils import instantiate\nfrom omegaconf import OmegaConf\n"
        "import collections\n"
        "built = instantiate(OmegaConf.load('conf/model/net.yaml'))\n"
        "assert built == ('net', 3, collections.OrderedDict), built\n"
        "assert 'tl_integrations' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=shop, check=True, timeout=60)
