"""RESULTS.md and its pictures from results.json and the readings: `python tests/benchmarks/rendering.py`."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import results
from comparing import comparisons
from results import Results, Row

HERE = Path(__file__).parent
WRITTEN = HERE / "RESULTS.md"
READINGS = HERE / "readings"
PLOTS = HERE / "plots"

SECTIONS = {
    "capture": "One forward with some of its tensors kept, in eval mode with gradients on.",
    "trace": "`tl.trace(model, x, save=func(...))`, in eval mode with gradients on.",
    "scaling": "A chain of tiny ops on 64 numbers; every second one is a module whose output is kept.",
    "training-loop": "CPU time of a step of a real Trainer with a TensorBoardLogger, from end to end.",
    "config": "A tree of 501 objects with about 2,000 leaves, made, built and written.",
    "storage": "Tensors on disk: ours with checksums and an index, the others as they are.",
    "reporting": "What it costs to look at a step: statistics, histograms, the heat map.",
}
"""What each section measures; its heading is its name, so links to `#name` hold."""


def text(found: Results) -> str:
    """The whole of RESULTS.md."""
    sections = [_section(name, found) for name in SECTIONS if found.of(name)]
    return "\n\n".join([_head(found), *sections]) + "\n"


def write(found: Results | None = None) -> None:
    """RESULTS.md and every picture anew."""
    found = found if found is not None else results.load()
    import plots  # Only here: a text needs no matplotlib.

    try:
        plots.draw(found, PLOTS)
    finally:
        WRITTEN.write_text(text(found), encoding="utf-8")


def heading(name: str) -> str:
    return name.replace("-", " ").capitalize()


def _head(found: Results) -> str:
    libraries = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    loads = [row.load for row in found.rows] or [0.0]
    reading = (READINGS / "how-to-read-this.md").read_text(encoding="utf-8").strip()
    return "\n\n".join(
        [
            "# Measured figures",
            "<!-- Written by `make bench` from results.json and readings/*.md: edit those. -->",
            f"`make bench`, {found.date}: {found.machine}; {libraries}.",
            "## How to read this",
            reading,
            f"Load average from {min(loads)} to {max(loads)} when the rows were written, of which the "
            "benchmark itself is 1.",
            _targets(found.rows),
        ]
    )


def _targets(rows: Sequence[Row]) -> str:
    judged = [row for row in rows if row.target]
    met = sum(row.verdict == "yes" for row in judged)
    near = sum(row.verdict == "within 10 %" for row in judged)
    missed = [
        f"{row.case}, {row.way} ([{row.section}](#{row.section}))" for row in judged if row.verdict == "no"
    ]
    text = (
        f"Of {len(judged)} rows with a target {met} meet it, {near} are within 10 % of it and "
        f"{len(missed)} miss it"
    )
    return text + (": " + "; ".join(missed) + "." if missed else ".")


def _section(name: str, found: Results) -> str:
    rows = found.of(name)
    measured = [row for row in rows if row.table]
    parts = [f"## {heading(name)}", SECTIONS[name], f"`{_command(rows)}` (part of `make bench`)"]
    for title in dict.fromkeys(row.table for row in measured):
        parts.append(_table(title, _by_case([row for row in measured if row.table == title]), found))
    if (PLOTS / f"{name}.png").exists():
        parts.append(f"![{heading(name)}](plots/{name}.png)")
    parts += [f"Did not pass: `{row.case}`: {row.failure}" for row in rows if not row.table]
    parts += comparisons(name, measured)
    if (reading := READINGS / f"{name}.md").exists():
        parts.append(reading.read_text(encoding="utf-8").strip())
    return "\n\n".join(parts)


def _by_case(rows: Sequence[Row]) -> list[Row]:
    """The ways of a case together, whichever tests measured them, those that fail last."""
    cases = list(dict.fromkeys(row.case for row in rows))
    return sorted(rows, key=lambda row: (cases.index(row.case), bool(row.failure)))


def _command(rows: Iterable[Row]) -> str:
    files = sorted({row.test.partition("::")[0] for row in rows})
    return f"pytest {' '.join(files)} --benchmark-enable -n 0 -s"


def _table(title: str, rows: Sequence[Row], found: Results) -> str:
    cells = {
        "case": [row.case for row in rows],
        "way": [row.way for row in rows],
        "median": [quantity(row.value, row.unit) for row in rows],
        "ratio": [f"fails: {row.failure}" if row.failure else times(row.ratio) for row in rows],
        "quartiles": [_quartiles(row) for row in rows],
        "target": [_target(row) for row in rows],
        "met": [_met(row) for row in rows],
    }
    kept = {name: column for name, column in cells.items() if any(column)}
    lines = [f"**{title}**", "", _line(kept), _line(["---"] * len(kept))]
    lines += [_line(line) for line in zip(*kept.values(), strict=True)]
    elsewhere = {(row.date, row.machine) for row in rows} - {(found.date, found.machine)}
    if elsewhere:
        lines += ["", "Of these rows " + "; ".join(_where(*place, rows) for place in sorted(elsewhere)) + "."]
    return "\n".join(lines)


def _where(date: str, machine: str, rows: Sequence[Row]) -> str:
    here = [row for row in rows if (row.date, row.machine) == (date, machine)]
    cases = ", ".join(dict.fromkeys(row.case for row in here))
    return f"those of {cases} were measured on {date}, {machine}"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _quartiles(row: Row) -> str:
    if row.low is None or row.high is None or row.low == row.high == 1.0:
        return ""
    return f"{times(row.low)[:-1]} to {times(row.high)}"


def _met(row: Row) -> str:
    return f"{row.verdict} (best of {row.tries})" if row.verdict and row.tries > 1 else row.verdict


def _target(row: Row) -> str:
    if row.target is None:
        return ""
    limit = times(row.target.limit) if row.target.of == "ratio" else quantity(row.target.limit, row.unit)
    return f"at least {limit}" if row.target.at_least else limit


def times(ratio: float | None) -> str:
    """A ratio such as `1.31x`, `0.018x`, `132x` or, far below one, `0.0009 %`."""
    if ratio is None:
        return ""
    if ratio < 0.005:
        return f"{ratio * 100:.2g} %"
    return f"{ratio:.2g}x" if ratio < 0.1 else f"{ratio:.3f}x" if ratio < 10 else f"{ratio:.1f}x"


def quantity(value: float | None, unit: str) -> str:
    """A time or a size in the unit that reads best, with three figures."""
    if value is None:
        return ""
    scales = [(1, "s"), (1e-3, "ms"), (1e-6, "us")] if unit == "s" else [(1e6, "MB"), (1e3, "kB")]
    scale, name = next(((scale, name) for scale, name in scales if abs(value) >= scale), scales[-1])
    scaled = value / scale
    return f"{scaled:.0f} {name}" if abs(scaled) >= 99.95 else f"{scaled:.3g} {name}"


if __name__ == "__main__":
    write()
