"""An app whose configs all come from code, driven from its command line in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

APP = Path(__file__).parent / "small_app" / "app.py"


def run_app(folder: Path, *arguments: str, code: int = 0, app: Path = APP, **environment: str) -> str:
    """Output of the app, standard error included; every run writes below `folder`."""
    done = subprocess.run(
        [sys.executable, str(app), *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def test_a_stored_config_is_built_by_plain_hydra(tmp_path: Path) -> None:
    assert run_app(tmp_path).splitlines()[-1] == (
        "Model(name='resnet', norm=Norm(kind='batch', eps=1e-05), depth=18, widths=(8, 16)) "
        "('adam', 0.001, (0.9, 0.999)) seed=0"
    )


def test_values_are_overridden_and_sub_builders_swapped_as_with_yaml(tmp_path: Path) -> None:
    said = run_app(tmp_path, "model=resnet", "model.depth=50", "model/norm=layer", "optimizer.lr=0.5")
    assert "norm=Norm(kind='layer', eps=1e-05), depth=50" in said
    assert "('adam', 0.5," in said


def test_a_swap_leaves_nothing_of_the_old_option_behind(tmp_path: Path) -> None:
    assert "norm=Affine(scale=2.0), depth=11" in run_app(tmp_path, "model=vgg")
    said = run_app(tmp_path, "model=vgg", "model/norm=layer", "--cfg", "job")
    assert "scale" not in said
    assert "kind: layer" in said


def test_a_sweep_runs_every_combination(tmp_path: Path) -> None:
    said = run_app(tmp_path, "-m", "model.depth=50", "model/norm=layer", "optimizer=adam,sgd", "seed=1,2")
    jobs = [line for line in said.splitlines() if line.startswith("Model(")]
    assert [("adam" in job, job[-1]) for job in jobs] == [
        (True, "1"),
        (True, "2"),
        (False, "1"),
        (False, "2"),
    ]
    assert all("kind='layer'" in job and "depth=50" in job for job in jobs)


def test_the_job_config_shows_every_knob_with_its_default(tmp_path: Path) -> None:
    said = run_app(tmp_path, "optimizer=sgd", "--cfg", "job")
    assert "_target_: builders.sgd\n  lr: 0.1\n  momentum: 0.0" in said
    assert "eps: 1.0e-05" in said or "eps: 1e-05" in said


def test_help_lists_the_groups_that_come_from_code(tmp_path: Path) -> None:
    said = run_app(tmp_path, "--help")
    assert "model: broken, resnet, vgg" in said
    assert "model/norm: affine, batch, layer" in said
    assert "optimizer: adam, sgd" in said


def test_a_wrong_option_is_answered_with_the_options_there_are(tmp_path: Path) -> None:
    said = run_app(tmp_path, "model=rsnet", code=1)
    assert "Could not find 'model/rsnet'" in said
    assert "Available options in 'model':\n\tbroken\n\tresnet\n\tvgg" in said
    assert "Traceback" not in said


def test_a_wrong_key_is_refused_because_the_knobs_are_known(tmp_path: Path) -> None:
    said = run_app(tmp_path, "model.dpeth=3", code=1)
    assert "Could not override 'model.dpeth'" in said
    assert "Key 'dpeth' is not in struct" in said


def test_a_failing_thunk_fails_only_when_chosen_and_says_where_it_was_stored(tmp_path: Path) -> None:
    line = 1 + next(
        number
        for number, text in enumerate((APP.parent / "builders.py").read_text().splitlines())
        if "L.store(broken" in text
    )
    said = run_app(tmp_path, "model=broken", code=1)
    assert "Config 'model/broken' was stored at" in said
    assert f"builders.py:{line}" in said
    assert "<lambda>" in said
    assert "Traceback" not in said


def test_the_search_path_names_what_we_add(tmp_path: Path) -> None:
    said = run_app(tmp_path, "--info", "searchpath")
    assert "pkg://tl_integrations.configs" in said
    assert "tl-store://" in said


FOREIGN = """
import sys
import hydra

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    frameworks = ("torch", "lightning", "tensorboard", "numpy")
    print(sorted(m for m in frameworks if m in sys.modules), dict(cfg.callbacks))

main()
"""


@pytest.fixture
def foreign_app(tmp_path: Path) -> Path:
    """An application that knows nothing of us, with a `callbacks` group of its own."""
    conf = tmp_path / "conf"
    (conf / "callbacks").mkdir(parents=True)
    (conf / "config.yaml").write_text("defaults:\n  - callbacks: own\n  - _self_\nx: 1\n")
    (conf / "callbacks" / "own.yaml").write_text("own: 1\n")
    (tmp_path / "app.py").write_text(FOREIGN)
    return tmp_path / "app.py"


def test_a_foreign_app_sees_one_more_option_and_loads_no_framework(foreign_app: Path) -> None:
    said = run_app(foreign_app.parent, app=foreign_app)
    assert said.splitlines()[-1] == "[] {'own': 1}"
    said = run_app(foreign_app.parent, "--help", app=foreign_app)
    groups = said.split("== Configuration groups ==")[1].split("== Config ==")[0]
    assert "callbacks: own, trace" in groups
    assert [line for line in groups.splitlines() if ":" in line and not line.startswith("tl/")] == [
        "callbacks: own, trace"
    ]


def test_a_foreign_apps_own_trace_option_wins_over_ours(foreign_app: Path) -> None:
    (foreign_app.parent / "conf" / "callbacks" / "trace.yaml").write_text("theirs: 2\n")
    said = run_app(foreign_app.parent, "callbacks=[own,trace]", app=foreign_app)
    assert said.splitlines()[-1] == "[] {'own': 1, 'theirs': 2}"


@pytest.fixture
def installed_package(tmp_path: Path) -> Path:
    """A package that offers configs through entry points: what pip would have put on the path."""
    site = tmp_path / "site"
    info = site / "zoo-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[tl_integrations.configs]\nmodel/lion = zoo:lion\nmodel/gone = zoo:gone\n"
    )
    (site / "zoo.py").write_text(
        "from tl_integrations import language as L\n"
        "print('zoo imported')\n"
        "@L.configurable\n"
        "def build(name: str, legs: int = 4) -> tuple:\n    return (name, legs)\n"
        "def lion():\n    return build('lion')\n"
    )
    return site


def test_an_entry_point_is_an_option_and_is_imported_only_when_chosen(
    tmp_path: Path, installed_package: Path
) -> None:
    path = str(installed_package)
    said = run_app(tmp_path, "--help", PYTHONPATH=path)
    assert "model: broken, gone, lion, resnet, vgg" in said
    assert "zoo imported" not in said
    said = run_app(tmp_path, "model=lion", "model.legs=3", PYTHONPATH=path)
    assert "zoo imported" in said
    assert "('lion', 3)" in said


def test_a_broken_entry_point_fails_only_when_chosen(tmp_path: Path, installed_package: Path) -> None:
    said = run_app(tmp_path, "model=gone", code=1, PYTHONPATH=str(installed_package))
    assert "'model/gone'" in said
    assert "zoo:gone" in said
    assert "Traceback" not in said


def test_an_argument_without_default_must_be_given_at_launch(tmp_path: Path) -> None:
    assert "classes: ???" in run_app(tmp_path, "+head=linear", "--cfg", "job")
    assert "classes: 7" in run_app(tmp_path, "+head=linear", "head.classes=7", "--cfg", "job")
