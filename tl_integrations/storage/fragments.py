"""Texts of lines that repeat from step to step, made once and looked up afterwards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from operator import attrgetter
from typing import Any

from tl_integrations.capture.events import Moment, Record
from tl_integrations.storage.record_lines import MOMENT, moment_fragment, step_number
from tl_integrations.storage.sites import KnownSites
from tl_integrations.storage.strict_json import dump, number_text, quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class Whens:
    """What lines say of records' moments, column by column."""

    steps: Sequence[int]
    """As a column holds them."""
    moments: Sequence[str]
    """The inside of a JSON object, without the step."""
    lines: Sequence[str]
    """Likewise, with the step."""


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


_all_but_step: Any = attrgetter(*MOMENT)
_MOST_KEPT = 1 << 10


class Fragments:
    """The texts of one bundle."""

    def __init__(self) -> None:
        self.sites: KnownSites = KnownSites()
        self._names: dict[tuple[str, ...], Names] = {}
        self._moments: dict[object, str] = {}
        self._moment, self._generation = Moment(), -1
        self._when = (0, "", "")

    def whens(self, records: Sequence[Record], generation: int) -> Whens:
        """Of each record; those of a step share one moment."""
        moments, size = [record.moment for record in records], len(records)
        if len(set(map(id, moments))) == 1:
            step, moment, line = self._of(moments[0], generation)
            return Whens(steps=[step] * size, moments=[moment] * size, lines=[line] * size)
        rows = [self._of(moment, generation) for moment in moments]
        return Whens(
            steps=[step for step, _, _ in rows],
            moments=[moment for _, moment, _ in rows],
            lines=[line for _, _, line in rows],
        )

    def names(self, statistics: Mapping[str, float]) -> Names:
        key = tuple(statistics)
        found = self._names.get(key)
        if found is None:
            keys = tuple(f"{quoted(name)}:" for name in key)
            pattern = ",".join(f"{key.replace('%', '%%')}%r" for key in keys)
            found = Names(table=dump(list(key)), keys=keys, pattern=pattern)
            self._names[key] = found
        return found

    def _of(self, moment: Moment, generation: int) -> tuple[int, str, str]:
        known = generation == self._generation and (moment is self._moment or moment == self._moment)
        if not known:
            step, text = step_number(moment.step), self._text(moment, generation)
            shown = "null" if moment.step is None else step
            self._when = (step, text, f'"step":{shown},{text}')
            self._moment, self._generation = moment, generation
        return self._when

    def _text(self, moment: Moment, generation: int) -> str:
        """All but the step, which is the same from step to step."""
        key = (*_all_but_step(moment), generation)
        found = self._moments.get(key)
        if found is None:
            if len(self._moments) >= _MOST_KEPT:
                self._moments.clear()
            found = self._moments[key] = moment_fragment(moment, generation)
        return found
