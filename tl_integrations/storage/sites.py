"""What is the same for a tensor on every step, as texts: made once and looked up afterwards."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from tl_integrations.capture.events import Record
from tl_integrations.storage.record_lines import site_fragment, site_key, tensor_fragment
from tl_integrations.storage.shards import entry_kind
from tl_integrations.storage.tensors import CARRIERS, Elements, bytes_of, carrier_shape, elements_kind

_NO_ELEMENTS = elements_kind(0)
_MOST_KEPT = 1 << 15
"""Shapes that never repeat must not fill the memory: beyond this, what is known is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Of one tensor."""

    line: str
    """The inside of a JSON object."""
    kind: str = ""
    """What `entry_kind` says; empty without a tensor."""
    nbytes: int = -1
    """Of the stored tensor; -1 without one."""
    sized: str = ""
    """What a line says between the tensor's place and its checksum."""
    elements: type[Elements] = _NO_ELEMENTS
    """An array of so many bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sites:
    """The same of several tensors, column by column."""

    each: Sequence[Site]
    lines: Sequence[str]
    kinds: Sequence[str]
    nbytes: Sequence[int]
    sized: Sequence[str]
    elements: Sequence[type[Elements]]

    @classmethod
    def of(cls, sites: Iterable[Site]) -> "Sites":
        sites = list(sites)
        return cls(
            each=sites,
            lines=[site.line for site in sites],
            kinds=[site.kind for site in sites],
            nbytes=[site.nbytes for site in sites],
            sized=[site.sized for site in sites],
            elements=[site.elements for site in sites],
        )


class KnownSites:
    """The sites of one bundle."""

    def __init__(self) -> None:
        self._sites: dict[object, Site] = {}
        self._steps: dict[object, tuple[object, Sites]] = {}
        self._in_steps = 0

    def of(self, records: Sequence[Record], stored: Sequence[Tensor | None]) -> Sites:
        """Of records, one at least, of each of which so much is stored."""
        # Steps repeat: comparing one with the last of its kind takes a third of looking every record up.
        keys = list(map(site_key, records))
        dtypes = [None if tensor is None else tensor.dtype for tensor in stored]
        shapes = [None if tensor is None else tensor.shape for tensor in stored]
        step, kind = (keys, dtypes, shapes), (len(keys), keys[0])
        known = self._steps.get(kind)
        if known is not None and known[0] == step:
            return known[1]
        sites = Sites.of(map(self._site, zip(keys, dtypes, shapes), records))
        if kind not in self._steps:
            self._in_steps += len(keys)
        if self._in_steps > _MOST_KEPT:
            self._steps.clear()
            self._in_steps = len(keys)
        self._steps[kind] = step, sites
        return sites

    def gradient(self, stored: Tensor) -> Site:
        """Of the gradient of which this is stored."""
        key = (stored.dtype, tuple(stored.shape))
        found = self._sites.get(key)
        if found is None:
            found = self._remember(key, _stored(tensor_fragment(*key), *key))
        return found

    def _site(self, key: tuple[object, torch.dtype | None, torch.Size | None], record: Record) -> Site:
        found = self._sites.get(key)
        if found is None:
            _, dtype, shape = key
            found = self._remember(key, _made(record, dtype, shape))
        return found

    def _remember(self, key: object, site: Site) -> Site:
        if len(self._sites) >= _MOST_KEPT:
            self._sites.clear()
        self._sites[key] = site
        return site


def _made(record: Record, dtype: torch.dtype | None, shape: torch.Size | None) -> Site:
    if dtype is None or shape is None:
        return Site(line=site_fragment(record, None))
    stored = (dtype, tuple(shape))
    same = stored == (record.dtype, tuple(record.shape))
    return _stored(site_fragment(record, None if same else stored), *stored)


def _stored(line: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Site:
    kind, nbytes, sized, elements = _of_tensor(dtype, shape)
    return Site(line=line, kind=kind, nbytes=nbytes, sized=sized, elements=elements)


@lru_cache(1 << 10)
def _of_tensor(dtype: torch.dtype, shape: tuple[int, ...]) -> tuple[str, int, str, type[Elements]]:
    """What many tensors of a model share."""
    nbytes = bytes_of(dtype, shape)
    kind = entry_kind(CARRIERS[dtype].code, carrier_shape(dtype, shape))
    return kind, nbytes, f',"nbytes":{nbytes},"sum":"xxh3-128:', elements_kind(nbytes)
