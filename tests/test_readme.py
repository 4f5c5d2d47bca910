"""Every Python block of the README runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"^## ([^\n]+)$(?:(?!^## ).)*?^```python\n(.*?)^```", README.read_text(), re.M | re.S)


@pytest.mark.parametrize(("title", "code"), BLOCKS, ids=[title for title, _ in BLOCKS])
def test_a_readme_example_runs(title: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(code)
    run = subprocess.run(
        [sys.executable, "-c", "import example"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
