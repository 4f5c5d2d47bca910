"""Rows are kept per test, RESULTS.md is what they render to, and sentences say who is faster."""

import re
from pathlib import Path

import comparing
import pytest
import rendering
import results
from interleaving import Timing
from results import Report, Row, Target

HERE = Path(__file__).parent


def timed(ratio: float) -> Timing:
    return Timing(seconds=ratio * 1e-3, ratio=ratio, low=ratio, high=ratio)


def row(case: str, way: str, ratio: float, **fields: object) -> Row:
    return Row(section="capture", table="Other", case=case, way=way, ratio=ratio, **fields)  # type: ignore[arg-type]


def test_a_partial_run_replaces_only_the_rows_of_its_own_tests(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    for test, ratio in (("a", 1.0), ("b", 2.0), ("c", 3.0), ("b", 2.5)):
        report = Report("capture", test)
        report.figure("Other", f"case of {test}", "ours", ratio=ratio)
        results.store(report.rows, test, path)
    found = results.load(path)
    assert [(row.test, row.ratio) for row in found.rows] == [("a", 1.0), ("b", 2.5), ("c", 3.0)]


def test_rows_are_read_back_as_they_were(tmp_path: Path) -> None:
    report = Report("capture", "a")
    report.timings("Other", "mlp", {"plain": timed(1.0), "ours": timed(1.2)}, {"ours": Target(limit=1.3)})
    report.failed("Other", "mlp", "captum", TypeError("no"))
    stored = results.store(report.rows, "a", tmp_path / "results.json")
    assert results.load(tmp_path / "results.json") == stored


def test_of_two_tries_the_one_nearest_its_target_stands_with_all_its_rows() -> None:
    report = Report("capture", "a")
    for plain, ours in ((1.0, 1.5), (2.0, 1.2), (3.0, 1.4)):
        timings = {"plain": timed(plain), "ours": timed(ours)}
        report.timings("Other", "mlp", timings, {"ours": Target(limit=1.3)})
    assert [(row.ratio, row.tries) for row in report.rows] == [(2.0, 3), (1.2, 3)]


@pytest.mark.parametrize(
    ("ratio", "target", "verdict"),
    [
        (1.2, Target(limit=1.2), "yes"),
        (1.3, Target(limit=1.2), "within 10 %"),
        (1.4, Target(limit=1.2), "no"),
        (12.0, Target(limit=10, at_least=True), "yes"),
        (9.5, Target(limit=10, at_least=True), "within 10 %"),
        (7.0, Target(limit=10, at_least=True), "no"),
    ],
)
def test_a_row_says_whether_it_meets_its_target(ratio: float, target: Target, verdict: str) -> None:
    assert row("mlp", "ours", ratio, target=target).verdict == verdict


def test_an_error_is_told_without_paths() -> None:
    told = results.one_line(OSError("no such file: /home/someone/x.py was\nsecond line"))
    assert told == "OSError: no such file: ... was"


def test_a_table_shows_a_miss_and_a_way_that_fails(tmp_path: Path) -> None:
    report = Report("capture", "tests/benchmarks/test_capture_peers.py::a")
    report.timings("Other", "mlp", {"plain": timed(1.0), "ours": timed(1.5)}, {"ours": Target(limit=1.3)})
    report.failed("Other", "mlp", "captum", TypeError("no"))
    report.ended("test_it[mlp]", AssertionError("measured 1.500x, target 1.3x"))
    text = rendering.text(results.store(report.rows, report.test, tmp_path / "results.json"))
    assert "| mlp | ours | 1.5 ms | 1.500x | 1.500 to 1.500x | 1.300x | no |" in text
    assert "| mlp | captum |  | fails: TypeError: no |  |  |  |" in text
    assert "Of 1 rows with a target 0 meet it, 0 are within 10 % of it and 1 miss it: mlp, ours" in text
    assert "Did not pass: `test_it[mlp]`: measured 1.500x, target 1.3x" in text


def test_rows_of_another_day_are_told_apart(tmp_path: Path) -> None:
    report = Report("capture", "tests/benchmarks/test_capture_peers.py::a")
    report.figure("Other", "mlp", "ours", 0.001)
    stored = results.store(report.rows, report.test, tmp_path / "results.json")
    old = [row("lstm", "ours", 1.1, date="2020-01-02", machine="Z80", test=report.test)]
    mixed = results.Results(
        date=stored.date, machine=stored.machine, versions=stored.versions, rows=[*stored.rows, *old]
    )
    assert "those of lstm were measured on 2020-01-02, Z80." in rendering.text(mixed)


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.8e-7, "0.28 us"), (4.12e-5, "41.2 us"), (0.124, "124 ms"), (1.158, "1.16 s"), (0.00999, "9.99 ms")],
)
def test_times_are_told_in_the_unit_that_reads_best(value: float, text: str) -> None:
    assert rendering.quantity(value, "s") == text


def test_sentences_say_where_a_peer_is_faster_level_slower_or_fails() -> None:
    pairs = {
        "mlp": (row("mlp", "ours", 1.3), row("mlp", "captum", 1.0)),
        "gpt": (row("gpt", "ours", 1.1), row("gpt", "captum", 1.12)),
        "conv": (row("conv", "ours", 1.1), row("conv", "captum", 2.2)),
        "lstm": (row("lstm", "ours", 1.1), Row(section="", table="", case="", way="", failure="no")),
    }
    told = comparing.sentence(pairs)
    assert told == "1.30 times faster on mlp; level on gpt; 2.0 times slower on conv; fails on lstm"


def test_results_md_is_what_the_rows_and_readings_render_to(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("benchmark_enable"):
        pytest.skip("rows are being measured, and the page is written when all are")
    assert rendering.WRITTEN.read_text(encoding="utf-8") == rendering.text(results.load())


def test_every_row_belongs_to_a_test_that_exists() -> None:
    sources = {path.name: path.read_text(encoding="utf-8") for path in HERE.glob("test_*.py")}
    for stored in results.load().rows:
        path, _, name = stored.test.partition("::")
        assert f"def {name.partition('[')[0]}(" in sources[Path(path).name], stored.test


def test_every_comparison_names_tables_and_ways_that_a_benchmark_reports() -> None:
    paths = [path for path in HERE.glob("*.py") if path.name not in ("comparing.py", "plots.py")]
    sources = "".join(path.read_text(encoding="utf-8") for path in paths)
    for besides in comparing.BESIDE.values():
        for beside in besides:
            assert f'"{beside.table}' in sources, beside
            assert all(f'"{way}"' in sources for way in (beside.ours, *beside.others)), beside


def test_nothing_names_the_machine_it_was_measured_on() -> None:
    for path in (results.STORED, rendering.WRITTEN):
        assert not re.search(r"(?<![\w.])/(home|root|tmp|work|Users)/", path.read_text(encoding="utf-8"))
