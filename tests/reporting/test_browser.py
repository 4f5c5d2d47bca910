"""A real TensorBoard in a real browser shows what was captured."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from tests.reporting.browser import ALL_IMAGES, CHROMIUM, DRIVER, Browser, chromium, listening
from tests.reporting.captures import Kept, captured, record
from tl_integrations.options import ReportOptions
from tl_integrations.reporting import TensorBoardSink
from tl_integrations.reporting.tensorboard import write_text
from tl_integrations.reporting.texts import config_text

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM or not DRIVER, reason="no chromium and chromedriver on PATH"),
]
LAYERS = ("conv1", "conv2", "fc.0", "fc.1")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The events of a run."""
    folder = tmp_path_factory.mktemp("run")
    torch.manual_seed(0)
    with SummaryWriter(folder) as writer:
        write_text(writer, "config", config_text({"_target_": "my_app.build", "width": 64}))
        report = ReportOptions(heat_map=True, images=("conv*",))
        sink = TensorBoardSink(writer, report=report)
        for step in range(0, 400, 20):
            value = torch.randn(2, 5, 8, 8) * (1 + step / 100)
            records = [record(name, value * (k + 1), payload=Kept(value)) for k, name in enumerate(LAYERS)]
            sink.write(captured(step, records))
        sink.close()
    return folder


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


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("scalars", ["act_std", "act_nonfinite_fraction", "capture"]),
        ("histograms", [f"act_hist/{layer}" for layer in LAYERS]),
        ("images", ["heat_map/act_std", "act_image/conv1", "act_image/conv2"]),
        ("text", ["config/text_summary", "my_app.build", "capture/steps", "0, 20, 40"]),
        ("custom_scalars", ["activations", "std", "Matches (4)"]),
    ],
)
def test_a_page_of_tensorboard_shows_our_cards(
    page: str, shown: list[str], board: str, window: Browser, tmp_path: Path
) -> None:
    window.open("about:blank")
    window.open(f"{board}#{page}")
    text = window.wait(lambda text: all(each in text for each in shown))
    picture = tmp_path / f"{page}.png"
    window.screenshot(picture)
    if folder := os.environ.get("TL_SCREENSHOTS"):
        shutil.copy(picture, folder)
    assert [each for each in shown if each not in text] == [], f"see {picture}"
    assert picture.stat().st_size > 10_000
    if page == "images":
        assert len(window.run(ALL_IMAGES)) >= 3
