"""What a record says apart from its tensor, to JSON fragments and back. Pure.

A record's line is put together from a fragment for its moment and one for its *site* (name, module, shape,
dtype, ...). Both repeat from step to step, so they are encoded once and kept by the caller.
"""

import math
from collections.abc import Callable, Mapping, Set
from dataclasses import fields
from operator import attrgetter
from typing import Any

import torch

from tl_integrations.capture.events import Histogram, Moment, Record
from tl_integrations.errors import BundleCorruptError
from tl_integrations.storage.strict_json import dump, number_text, quoted, read_number
from tl_integrations.storage.tensors import DTYPE_NAMES, bytes_of, dtype_named
from tl_integrations.storage.tlspec import NO_STEP, Plain

Check = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_count_or_none(value: Any) -> bool:
    return value is None or _is_count(value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


_MOMENT: dict[str, tuple[Check, bool]] = {
    "stage": (_is_text, True),
    "microbatch": (_is_count, True),
    "rank": (_is_count, True),
    "call": (_is_count, True),
    "dataloader_idx": (_is_count, False),
    "batch": (_is_count_or_none, False),
    "generation": (_is_count, False),
}
"""A moment's fields besides `step`: what fits, and whether it is written at its default too."""

_KEYS = {"kind": "kind_of", "func_name": "func", "pass_index": "pass"}
_CHECKS: dict[str, Check] = {
    "kind": _is_text,
    "label": _is_text_or_none,
    "raw_label": _is_text_or_none,
    "short_label": _is_text_or_none,
    "func_name": _is_text,
    "layer": _is_text,
    "address": _is_text,
    "modules": _is_texts,
    "pass_index": _is_count,
    "path": _is_text,
    "io": _is_text,
    "line": _is_count_or_none,
    "device": _is_text,
    "requires_grad": _is_flag,
    "forced_eager": _is_flag,
    "placement": _is_text,
}
_ALWAYS = {"label", "func_name", "address", "pass_index"}
_DEFAULTS = {f.name: f.default for f in fields(Record)}
_MOMENT_DEFAULTS = {f.name: f.default for f in fields(Moment)}
_NO_DEFAULT = object()
_SITE_KEYS = [
    (f'"{_KEYS.get(name, name)}":', _NO_DEFAULT if name in _ALWAYS else _DEFAULTS[name]) for name in _CHECKS
]
SITE = tuple(_CHECKS)
"""Record fields that a site holds, besides shape and dtype."""
MOMENT = tuple(_MOMENT)


def moment_fragment(moment: Moment, generation: int) -> str:
    """The inside of a JSON object; the step is not in it."""
    found = {
        name: generation if name == "generation" else getattr(moment, name)
        for name, (_, always) in _MOMENT.items()
        if always or name == "generation" or getattr(moment, name) != _MOMENT_DEFAULTS[name]
    }
    if generation == 0:
        del found["generation"]
    return dump(found)[1:-1]


_site_values: Callable[[Any], Any] = attrgetter(*SITE)
site_key: Callable[[Any], Any] = attrgetter(*SITE, "shape", "dtype")
"""Equal for records with the same site."""


def site_fragment(record: Record, stored: tuple[torch.dtype, tuple[int, ...]] | None) -> str:
    """The inside of a JSON object.

    Args:
        stored: Dtype and shape of the stored tensor where they are not the record's own.
    """
    # Put together by hand: an encoder for each would take most of the time of a record that is met first.
    values = zip(_SITE_KEYS, _site_values(record))
    parts = [key + _text(value) for (key, default), value in values if value != default]
    parts.append(tensor_fragment(record.dtype, record.shape))
    if stored is not None:
        parts.append(f'"stored":{{{tensor_fragment(*stored)}}}')
    return ",".join(parts)


def _text(value: object) -> str:
    if type(value) is str:
        return quoted(value)
    if type(value) is tuple:
        return f"[{','.join(map(quoted, value))}]"
    return str(value) if type(value) is int else dump(value)


def tensor_fragment(dtype: torch.dtype, shape: tuple[int, ...]) -> str:
    """The inside of a JSON object."""
    name = DTYPE_NAMES.get(dtype) or str(dtype).removeprefix("torch.")
    return f'"shape":[{",".join([str(int(size)) for size in shape])}],"dtype":{quoted(name)}'


def histogram_fragment(histogram: Histogram) -> str:
    numbers = {n: number_text(getattr(histogram, n)) for n in ("minimum", "maximum", "total", "squares")}
    edges = [number_text(edge) for edge in histogram.edges]
    return dump({"edges": edges, "counts": list(histogram.counts), **numbers})


def step_number(step: int | None) -> int:
    """A step as a column holds it.

    Raises:
        ValueError: beyond 64 bits.
    """
    if step is None:
        return NO_STEP
    if not 0 <= step < 1 << 63:
        raise ValueError(f"Step {step} does not fit a bundle: steps are 0 to 2**63 - 1.")
    return int(step)


def read_moment(plain: Any, where: str) -> Plain:
    """Arguments of `Moment` besides `step`."""
    checks = {name: check for name, (check, _) in _MOMENT.items()}
    return _read(plain, checks, {}, {name for name, (_, always) in _MOMENT.items() if always}, where)


def split_line(content: Plain) -> tuple[str, str]:
    """A record line's fragments of moment and site, in the writer's own order of keys."""
    keys = ([*_MOMENT], [*(_KEYS.get(name, name) for name in SITE), "shape", "dtype", "stored"])
    moment, site = ({key: content[key] for key in part if key in content} for part in keys)
    return dump(moment)[1:-1], dump(site)[1:-1]


def read_site(plain: Any, where: str, *, bare: bool = False) -> Plain:
    """Arguments of `Record` that a site holds, and `stored_dtype`, `stored_shape`, `stored_nbytes` beside.

    Args:
        bare: It is a gradient's: shape and dtype alone.

    Raises:
        BundleCorruptError: for a field of a wrong type, an unknown dtype or an impossible shape.
    """
    found = _read(plain, _CHECKS, _KEYS, set() if bare else _ALWAYS, where)
    if "modules" in found:
        found["modules"] = tuple(found["modules"])
    found["shape"], found["dtype"] = read_tensor_fields(plain, where)
    stored = plain.get("stored", plain)
    shape, dtype = read_tensor_fields(stored, where)
    return found | {"stored_shape": shape, "stored_dtype": dtype, "stored_nbytes": bytes_of(dtype, shape)}


def read_tensor_fields(plain: Any, where: str) -> tuple[tuple[int, ...], torch.dtype]:
    if not isinstance(plain, dict):
        raise BundleCorruptError(f"{where}: a tensor is described by {str(plain)[:80]}.")
    dtype = dtype_named(plain.get("dtype"))
    bytes_of(dtype, plain.get("shape"))
    return tuple(plain["shape"]), dtype


def read_histogram(plain: Any, where: str) -> Histogram:
    if not isinstance(plain, dict) or not isinstance(plain.get("edges"), list):
        raise BundleCorruptError(f"{where}: not a histogram.")
    edges = [read_number(edge) for edge in plain["edges"]]
    names = ("minimum", "maximum", "total", "squares")
    numbers = {name: read_number(plain.get(name)) for name in names}
    counts = plain.get("counts")
    if (
        not isinstance(counts, list)
        or not all(map(_is_count, counts))
        or len(counts) != max(len(edges) - 1, 0)
    ):
        raise BundleCorruptError(f"{where}: a histogram's counts do not fit its edges.")
    if None in edges or None in numbers.values():
        raise BundleCorruptError(f"{where}: a histogram holds something that is no number.")
    kept = {name: math.nan if value is None else value for name, value in numbers.items()}
    return Histogram(edges=tuple(e for e in edges if e is not None), counts=tuple(counts), **kept)


def _read(
    plain: Any, checks: Mapping[str, Check], keys: Mapping[str, str], needed: Set[str], where: str
) -> Plain:
    if not isinstance(plain, dict):
        raise BundleCorruptError(f"{where}: a table row is {str(plain)[:80]}.")
    found = {}
    for name, fits in checks.items():
        key = keys.get(name, name)
        if key in plain:
            if not fits(plain[key]):
                raise BundleCorruptError(f"{where}: {key} is {str(plain[key])[:80]!r}.")
            found[name] = plain[key]
    if not found.keys() >= needed:
        raise BundleCorruptError(f"{where} lacks {', '.join(sorted(needed - found.keys()))}.")
    return found
