"""Texts of lines that repeat from step to step, made once and looked up afterwards."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tl_integrations.capture.events import Moment, Record
from tl_integrations.storage.record_lines import (
    moment_fragment,
    site_fragment,
    site_key,
    tensor_fragment,
)
from tl_integrations.storage.shards import entry_kind
from tl_integrations.storage.strict_json import dump, quoted
from tl_integrations.storage.tensors import CARRIERS, carrier_shape

_MOST_KEPT = 1 << 15
"""Shapes that never repeat must not fill the memory: beyond this, what is known is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a line and a shard's header say of a tensor on every step."""

    line: str
    """The inside of a JSON object."""
    entry: str
    """What `entry_kind` says; empty without a tensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names of statistics."""

    table: str
    """A JSON list."""
    keys: tuple[str, ...]
    """Each name with its colon, as a JSON object holds it."""


class Fragments:
    """The texts of one bundle."""

    def __init__(self) -> None:
        self._sites: dict[object, Site] = {}
        self._names: dict[tuple[str, ...], Names] = {}
        self._moment, self._generation, self._moment_text = Moment(), -1, ""

    def moment(self, moment: Moment, generation: int) -> str:
        """As `moment_fragment`; the records of a step share one."""
        if moment is not self._moment or generation != self._generation:
            self._moment_text = moment_fragment(moment, generation)
            self._moment, self._generation = moment, generation
        return self._moment_text

    def site(self, record: Record, kept: Tensor | None) -> Site:
        """Of a record whose stored tensor is `kept`."""
        key = (site_key(record), None) if kept is None else (site_key(record), kept.dtype, kept.shape)
        found = self._sites.get(key)
        if found is None:
            found = self._remember(key, _site(record, kept))
        return found

    def gradient(self, kept: Tensor) -> Site:
        key = (kept.dtype, kept.shape)
        found = self._sites.get(key)
        if found is None:
            shape = tuple(kept.shape)
            site = Site(line=tensor_fragment(kept.dtype, shape), entry=_entry(kept.dtype, shape))
            found = self._remember(key, site)
        return found

    def names(self, statistics: Mapping[str, float]) -> Names:
        key = tuple(statistics)
        found = self._names.get(key)
        if found is None:
            found = Names(table=dump(list(key)), keys=tuple(f"{quoted(name)}:" for name in key))
            self._names[key] = found
        return found

    def _remember(self, key: object, site: Site) -> Site:
        if len(self._sites) >= _MOST_KEPT:
            self._sites.clear()
        self._sites[key] = site
        return site


def _site(record: Record, kept: Tensor | None) -> Site:
    if kept is None:
        return Site(line=site_fragment(record, None), entry="")
    stored = (kept.dtype, tuple(kept.shape))
    same = stored == (record.dtype, tuple(record.shape))
    return Site(line=site_fragment(record, None if same else stored), entry=_entry(*stored))


def _entry(dtype: torch.dtype, shape: tuple[int, ...]) -> str:
    return entry_kind(CARRIERS[dtype].code, carrier_shape(dtype, shape))
