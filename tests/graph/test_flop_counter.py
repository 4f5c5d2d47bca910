"""MACs agree with torch's own counter, which sees the operators that run below ours."""

import pytest
import torch
from graph_models import MODELS, made
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import tl_integrations as tl

WITHOUT_FORMULA = {"lstm", "cell"}


@pytest.mark.parametrize("name", [name for name in MODELS if name not in WITHOUT_FORMULA])
def test_twice_the_macs_is_what_the_flop_counter_counts(name: str) -> None:
    model, inputs = made(name)
    trace = tl.trace(model, inputs)
    # The fused kernel on CPU has no formula there; the written-out one is counted.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(*inputs)
    assert 2 * trace.total_macs_forward == counter.get_total_flops() > 0


@pytest.mark.parametrize("name", sorted(WITHOUT_FORMULA))
def test_cells_have_no_formula_and_say_so(name: str) -> None:
    model, inputs = made(name)
    assert tl.trace(model, inputs).unknown_flops == ["lstm" if name == "lstm" else "lstm_cell"]


@pytest.mark.parametrize("shape", [(5, 2, 8), (5, 8)])
def test_multi_head_attention_has_macs_and_no_flops(shape: tuple[int, ...]) -> None:
    attention = torch.nn.MultiheadAttention(8, 2)
    x = torch.randn(shape)
    trace = tl.trace(attention, [x, x, x])
    with FlopCounterMode(display=False) as counter:
        attention(x, x, x)
    assert 2 * trace.total_macs_forward == counter.get_total_flops() > 0
    assert trace.unknown_flops == ["multi_head_attention_forward"]
