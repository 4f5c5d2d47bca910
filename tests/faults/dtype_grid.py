"""Every dtype in every layout: bit-exact after a round trip, or refused by name."""

from collections.abc import Callable
from pathlib import Path

import torch
from bundles import record, step
from faults.oracle import same
from torch import Tensor

from tl_integrations.errors import UnsupportedTensorError
from tl_integrations.storage import TlspecSink, load
from tl_integrations.storage.tensors import CARRIERS

Layout = Callable[[Tensor], Tensor]
LAYOUTS: dict[str, Layout] = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(0, 1),
    "expanded": lambda t: t[:1].expand(5, *t.shape[1:]),
    "channels_last": lambda t: t.reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
    "0-dim": lambda t: t[0, 0, 0],
    "empty": lambda t: t[:0],
    "view": lambda t: t[1:, ::2, 1:3],
    "strided backwards": lambda t: t.as_strided((2, 2, 2), (1, 12, 3), 1),
    "of one element": lambda t: t[:1, :1, :1],
    "of many dimensions": lambda t: t.reshape(*([1] * 60), 2, 3, 4),
    "conj": lambda t: t.conj(),
    "neg": lambda t: torch._neg_view(t),
    "requires_grad": lambda t: t.requires_grad_(),
    "parameter": lambda t: torch.nn.Parameter(t, requires_grad=t.is_floating_point() or t.is_complex()),
    "inference": lambda t: _inference(t),
}
REFUSED: dict[str, Callable[[], Tensor]] = {
    "sparse_coo": lambda: torch.eye(3).to_sparse(),
    "sparse_csr": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": lambda: _quantized(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "meta": lambda: torch.ones(3, device="meta"),
    "bits8": lambda: torch.ones(3, dtype=torch.uint8).view(torch.bits8),
    "subclass": lambda: torch.ones(3).as_subclass(_Named),
}
NUMBERS = (float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1.0, -2.0, 1e-40)


class _Named(Tensor):
    pass


def dtype_grid(folder: Path) -> str:
    """Write one step of all cells, one by one refused where they must be, and compare the bits."""
    kept: dict[str, Tensor] = {}
    refused = 0
    with TlspecSink(folder / "grid.tlspec") as sink:
        for dtype in CARRIERS:
            for name, layout in LAYOUTS.items():
                tensor = _cell(dtype, layout)
                if tensor is not None:
                    key = f"{dtype} {name}"
                    kept[key] = tensor
                    sink.write(step(len(kept), [record(tensor, key)]))
        for name, make in REFUSED.items():
            try:
                sink.write(step(0, [record(make(), name)]))
            except UnsupportedTensorError as error:
                assert name in str(error)
                refused += 1
    recording = load(folder / "grid.tlspec")
    assert len(recording) == len(kept)
    for found, (key, tensor) in zip(recording, kept.items()):
        assert found.label == key
        assert same(found.out, tensor.detach().resolve_conj().resolve_neg()), key
        assert not found.out.requires_grad
    assert refused == len(REFUSED)
    return f"{len(kept)} cells bit-exact, {refused} refused by name, 0 silent differences"


def _cell(dtype: torch.dtype, layout: Layout) -> Tensor | None:
    """A tensor of 2 x 3 x 4 elements in that layout; None where torch itself has no such thing."""
    itemsize = CARRIERS[dtype].itemsize
    chance = torch.Generator().manual_seed(itemsize)
    if dtype is torch.bool:
        tensor = torch.randint(0, 2, (2, 3, 4), generator=chance).bool()
    elif dtype.is_floating_point and itemsize >= 2:
        tensor = torch.tensor(NUMBERS * 3, dtype=torch.float64).to(dtype).reshape(2, 3, 4)
    else:
        bits = torch.randint(0, 256, (2, 3, 4 * itemsize), dtype=torch.uint8, generator=chance)
        tensor = bits.view(dtype)
    try:
        shaped = layout(tensor)
        shaped.detach().resolve_conj().resolve_neg()
        return shaped
    except (RuntimeError, NotImplementedError, TypeError):
        return None


def _inference(tensor: Tensor) -> Tensor:
    with torch.inference_mode():
        return tensor.clone()


def _quantized() -> Tensor:
    return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
