"""What was measured: rows in results.json, each kept until the test that wrote it runs again."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from interleaving import Timing
from machine import machine, versions

STORED = Path(__file__).with_name("results.json")
SLACK = 1.1
"""What a measured figure may be of its target and still pass, as `assert_ratio` has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a row should reach."""

    limit: float
    of: str = "ratio"
    """`ratio` or `value`: what of the row is limited."""
    at_least: bool = False
    """Whether more is better."""

    def excess(self, row: "Row") -> float:
        """How far a row is from it, as a factor: up to 1 meets it, up to `SLACK` is within 10 %."""
        found = row.ratio if self.of == "ratio" else row.value
        assert found is not None, f"{row.case}, {row.way} has no {self.of}"
        return self.limit / max(found, 1e-12) if self.at_least else found / self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One way of doing one thing, as measured."""

    section: str
    table: str
    case: str
    way: str
    value: float | None = None
    """Median of one call in seconds, or whatever `unit` says."""
    unit: str = "s"
    """`s` or `B`."""
    ratio: float | None = None
    """Median of the ratios to the table's base, round by round."""
    low: float | None = None
    """First quartile of those ratios."""
    high: float | None = None
    """Third quartile."""
    target: Target | None = None
    tries: int = 1
    """How often it was measured; the best try stands."""
    failure: str = ""
    """Why there is no figure, in one line."""
    test: str = ""
    date: str = ""
    machine: str = ""
    load: float = 0.0
    """The system's load average when it was written; the benchmark itself makes 1 of it."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.section, self.table, self.case, self.way

    @property
    def verdict(self) -> str:
        """`yes`, `within 10 %`, `no`, or nothing without a target."""
        if self.target is None:
            return ""
        if self.failure:
            return "no"
        excess = self.target.excess(self)
        return "yes" if excess <= 1 else "within 10 %" if excess <= SLACK else "no"


class Report:
    """Takes the rows of one test."""

    def __init__(self, section: str, test: str) -> None:
        self.section, self.test = section, test
        self._rows: dict[tuple[str, str, str, str], Row] = {}

    @property
    def rows(self) -> list[Row]:
        return list(self._rows.values())

    def timings(
        self,
        table: str,
        case: str,
        timings: Mapping[str, Timing],
        targets: Mapping[str, Target] | None = None,
    ) -> None:
        """Rows of an interleaved run; of several runs of the same, the one nearest its targets stands."""
        targets = targets or {}
        self._take(
            [
                self._row(
                    table,
                    case,
                    way,
                    value=t.seconds,
                    ratio=t.ratio,
                    low=t.low,
                    high=t.high,
                    target=targets.get(way),
                )
                for way, t in timings.items()
            ]
        )

    def figure(
        self,
        table: str,
        case: str,
        way: str,
        value: float | None = None,
        *,
        unit: str = "s",
        ratio: float | None = None,
        target: Target | None = None,
    ) -> None:
        """One row that is not of an interleaved run."""
        self._take([self._row(table, case, way, value=value, unit=unit, ratio=ratio, target=target)])

    def failed(self, table: str, case: str, way: str, error: BaseException) -> None:
        """A way that cannot do it."""
        self._take([self._row(table, case, way, failure=one_line(error))])

    def ended(self, name: str, error: BaseException) -> None:
        """The whole test failed; what it had measured stands beside this."""
        row = self._row("", name, "", failure=one_line(error))
        self._rows[row.key] = row

    def _row(self, table: str, case: str, way: str, **rest: Any) -> Row:
        return Row(section=self.section, table=table, case=case, way=way, test=self.test, **rest)

    def _take(self, rows: Sequence[Row]) -> None:
        before = [self._rows[row.key] for row in rows if row.key in self._rows]
        tries = 1 + max((row.tries for row in before), default=0)
        best = before if before and _excess(before) <= _excess(rows) else rows
        for row in (*rows, *best):
            self._rows[row.key] = replace(row, tries=tries)
        for row in rows:
            print("\n" + described(row), end="")


def _excess(rows: Sequence[Row]) -> float:
    return max((row.target.excess(row) for row in rows if row.target and not row.failure), default=0.0)


def one_line(error: BaseException) -> str:
    """An error's first line without paths, which are of one machine only."""
    first = next(iter(str(error).splitlines()), "")
    found = re.sub(r"\S*/\S+/\S*", "...", first)[:120]
    return found if isinstance(error, AssertionError) else f"{type(error).__name__}: {found}"


def described(row: Row) -> str:
    """A row for the console."""
    found = f"{row.value:.6g} {row.unit}" if row.value is not None else ""
    ratio = f"{row.ratio:.4g}x" if row.ratio is not None else ""
    return " | ".join(part for part in (row.case, row.way, found, ratio, row.failure) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All rows there are, and where the last of them were measured."""

    date: str = ""
    machine: str = ""
    versions: Mapping[str, str]
    rows: Sequence[Row]

    def of(self, section: str) -> list[Row]:
        return [row for row in self.rows if row.section == section]


def load(path: Path = STORED) -> Results:
    if not path.exists():
        return Results(versions={}, rows=[])
    stored = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        Row(**{**row, "target": Target(**row["target"]) if row.get("target") else None})
        for row in stored.pop("rows")
    ]
    return Results(rows=rows, **stored)


def store(rows: Sequence[Row], test: str, path: Path = STORED) -> Results:
    """Put a test's rows in the place of those that it wrote before."""
    old, here, today = load(path), machine(), datetime.now(UTC).date().isoformat()
    load_now = round(os.getloadavg()[0], 1)
    new = [replace(row, date=today, machine=here, load=load_now) for row in rows]
    kept = [row for row in old.rows if row.test != test]
    place = next((k for k, row in enumerate(old.rows) if row.test == test), len(kept))
    results = Results(
        date=today, machine=here, versions=versions(), rows=[*kept[:place], *new, *kept[place:]]
    )
    _write(results, path)
    return results


def _write(results: Results, path: Path) -> None:
    defaults = {field.name: field.default for field in fields(Row)}
    lines = [
        json.dumps({name: value for name, value in asdict(row).items() if value != defaults[name]})
        for row in results.rows
    ]
    head = {"date": results.date, "machine": results.machine, "versions": dict(results.versions)}
    text = json.dumps(head)[:-1] + ', "rows": [\n' + ",\n".join(lines) + "\n]}\n"
    beside = path.with_name(path.name + ".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
