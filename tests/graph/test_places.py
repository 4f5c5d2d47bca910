"""An op's place is the nearest line of the user's code, whichever of torch's frames lie between."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tl_integrations as tl
from tl_integrations.options import CaptureOptions


def users_activation(x: Tensor) -> Tensor:
    return x.tanh()  # in the user's function, called by torch's module


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.stack = nn.Sequential(nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)), nn.ReLU())
        self.inner = nn.TransformerDecoderLayer(4, 2, 8, activation=users_activation, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)  # one module
        x = self.stack(x)  # modules in modules
        x = torch.einsum("bchw->bhc", x)  # a function in Python
        return self.inner(x, x)  # a module that calls back


@pytest.fixture(scope="module")
def sources() -> dict[str, set[str]]:
    """The text behind `# ` of each line that an op of that type came from."""
    trace = tl.trace(Net().eval(), torch.randn(1, 2, 3, 3), capture=CaptureOptions(save_source_context=True))
    found: dict[str, set[str]] = {}
    for op in trace.ops:
        if op.kind == "op":
            assert Path(op.file) == Path(__file__)
            found.setdefault(op.type, set()).add(op.source.partition("# ")[2])
    return found


@pytest.mark.parametrize(
    ("function", "lines"),
    [
        ("conv2d", {"one module", "modules in modules"}),
        ("batchnorm", {"modules in modules"}),
        ("relu", {"modules in modules"}),
        ("einsum", {"a function in Python"}),
        ("tanh", {"in the user's function, called by torch's module"}),
        ("layernorm", {"a module that calls back"}),
    ],
)
def test_the_place_is_the_users_line(sources: dict[str, set[str]], function: str, lines: set[str]) -> None:
    assert sources[function] == lines, sorted(sources)
