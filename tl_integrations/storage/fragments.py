"""Texts of lines that repeat from step to step, made once and looked up afterwards."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor

from tl_integrations.capture.events import Moment, Record
from tl_integrations.storage.record_lines import (
    moment_fragment,
    site_fragment,
    site_key,
    step_number,
    tensor_fragment,
)
from tl_integrations.storage.shards import entry_kind
from tl_integrations.storage.strict_json import dump, number_text, quoted
from tl_integrations.storage.tensors import CARRIERS, Elements, bytes_of, carrier_shape, elements_kind

_NO_ELEMENTS = elements_kind(0)
_MOST_KEPT = 1 << 15
"""Shapes that never repeat must not fill the memory: beyond this, what is known is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """What the lines of a moment's records say of it."""

    step: int
    """As a column holds it."""
    moment: str
    """The inside of a JSON object, without the step."""
    line: str
    """Likewise, with the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What is the same for a tensor on every step."""

    line: str
    """The inside of a JSON object."""
    entry: str = ""
    """What `entry_kind` says; empty without a tensor."""
    nbytes: int = -1
    """Of the stored tensor; -1 without one."""
    elements: type[Elements] = _NO_ELEMENTS
    """An array of so many bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names of statistics."""

    table: str
    """A JSON list."""
    keys: tuple[str, ...]
    """Each name with its colon, as a JSON object holds it."""
    pattern: str
    """The inside of a JSON object, to be filled with finite numbers by `%`."""

    def fragment(self, values: tuple[float, ...]) -> str:
        """The inside of a JSON object that gives the names these values."""
        if isfinite(sum(values)):
            return self.pattern % values
        return ",".join([key + dump(number_text(value)) for key, value in zip(self.keys, values)])


class Fragments:
    """The texts of one bundle."""

    def __init__(self) -> None:
        self._sites: dict[object, Site] = {}
        self._names: dict[tuple[str, ...], Names] = {}
        self._moment, self._generation = Moment(), -1
        self._when = When(step=0, moment="", line="")

    def when(self, moment: Moment, generation: int) -> When:
        """The records of a step share one."""
        if moment is not self._moment or generation != self._generation:
            step, text = step_number(moment.step), moment_fragment(moment, generation)
            shown = "null" if moment.step is None else step
            self._when = When(step=step, moment=text, line=f'"step":{shown},{text}')
            self._moment, self._generation = moment, generation
        return self._when

    def site(self, record: Record, kept: Tensor | None) -> Site:
        """Of a record whose stored tensor is `kept`."""
        key = (site_key(record), None) if kept is None else (site_key(record), kept.dtype, kept.shape)
        found = self._sites.get(key)
        if found is None:
            found = self._remember(key, _site(record, kept))
        return found

    def gradient(self, kept: Tensor) -> Site:
        key = (kept.dtype, tuple(kept.shape))
        found = self._sites.get(key)
        if found is None:
            found = self._remember(key, _stored(tensor_fragment(*key), *key))
        return found

    def names(self, statistics: Mapping[str, float]) -> Names:
        key = tuple(statistics)
        found = self._names.get(key)
        if found is None:
            keys = tuple(f"{quoted(name)}:" for name in key)
            pattern = ",".join(f"{key.replace('%', '%%')}%r" for key in keys)
            found = Names(table=dump(list(key)), keys=keys, pattern=pattern)
            self._names[key] = found
        return found

    def _remember(self, key: object, site: Site) -> Site:
        if len(self._sites) >= _MOST_KEPT:
            self._sites.clear()
        self._sites[key] = site
        return site


def _site(record: Record, kept: Tensor | None) -> Site:
    if kept is None:
        return Site(line=site_fragment(record, None))
    stored = (kept.dtype, tuple(kept.shape))
    same = stored == (record.dtype, tuple(record.shape))
    return _stored(site_fragment(record, None if same else stored), *stored)


def _stored(line: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Site:
    entry = entry_kind(CARRIERS[dtype].code, carrier_shape(dtype, shape))
    nbytes = bytes_of(dtype, shape)
    return Site(line=line, entry=entry, nbytes=nbytes, elements=elements_kind(nbytes))
