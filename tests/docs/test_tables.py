"""Every line of the tables for those who come from another tool."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT
from tests.docs.tables import check


@pytest.mark.parametrize("name", ["hydra-zen", "hooks", "bolts"])
def test_what_you_now_write_gives_what_you_wrote_gave(name: str, desk: Path) -> None:
    assert check(DOCS / "migrate" / f"{name}.md", desk) >= 6


def test_the_same_beside_torchlens_which_patches_torch(tmp_path: Path) -> None:
    page = DOCS / "migrate" / "torchlens.md"
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    run = subprocess.run(
        [sys.executable, "-m", "tests.docs.tables", str(page)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout.split()[-1]) >= 15
