"""A real TensorBoard in a real browser shows what was captured."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reporting.browser import CHROMIUM, DRIVER, Browser, chromium, listening
from tests.reporting.captures import board as read_board

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM or not DRIVER, reason="no chromium and chromedriver on PATH"),
]
DEMO = Path(__file__).parents[2] / "examples" / "train_digits.py"
HEAT_MAP = "{_target_: tl_integrations.options.ReportOptions, heat_map: true, images: [net.*]}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's run, shorter."""
    folder = tmp_path_factory.mktemp("run")
    options = ["model=conv", "epochs=1", "callbacks.trace.schedule=8", f"callbacks.trace.report={HEAT_MAP}"]
    command = [sys.executable, str(DEMO), *options, f"hydra.run.dir={folder}"]
    subprocess.run(command, check=True, capture_output=True, timeout=200)
    return folder / "tensorboard"


@pytest.fixture(scope="module")
def board(run: Path) -> Iterator[str]:
    """The address of a TensorBoard that serves the run on loopback."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(run), "--load_fast=false"]
    with listening([*command, "--host", "127.0.0.1", "--port", "0"], "http://") as line:
        yield line[line.index("http://") :].split()[0]


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def tags(run: Path, kind: str, start: str) -> list[str]:
    return [tag for tag in sorted(read_board(run).Tags()[kind]) if tag.startswith(start)]


@pytest.mark.parametrize("page", ["scalars", "histograms", "images", "text", "custom_scalars"])
def test_a_page_of_tensorboard_shows_our_cards(
    page: str, run: Path, board: str, window: Browser, tmp_path: Path
) -> None:
    shown = {
        "scalars": ["act_std", "act_nonfinite_fraction", "capture", *tags(run, "scalars", "act_absmax/")[:2]],
        "histograms": tags(run, "histograms", "act_hist/")[:6],
        "images": [*tags(run, "images", "act_image/")[:2], "heat_map/act_std"],
        "text": ["config/text_summary", "digits_models.conv", "capture/plan", "every(8)", "0, 8, 16"],
        "custom_scalars": ["activations", "std", "Matches ("],
    }[page]
    window.open("about:blank")
    window.open(f"{board}#{page}")
    text = window.wait(lambda text: all(each in text for each in shown))
    pictures = window.images(3) if page == "images" else []
    picture = tmp_path / f"{page}.png"
    window.screenshot(picture)
    if folder := os.environ.get("TL_SCREENSHOTS"):
        shutil.copy(picture, folder)
    assert len(shown) >= 3 and [each for each in shown if each not in text] == [], f"see {picture}"
    assert picture.stat().st_size > 10_000
    assert page != "images" or len(pictures) >= 3
