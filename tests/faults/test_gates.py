"""The gates of this folder at small size; `make faults` runs them in full."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from faults import (
    bad_paths,
    dtype_grid,
    failing_calls,
    kill_points,
    long_run,
    power_cuts,
    pressure,
    several_processes,
)
from faults.oracle import small_pieces


def test_random_kills_lose_nothing_committed(tmp_path: Path) -> None:
    with small_pieces():
        print(kill_points.random_kills(tmp_path, 15))


def test_a_kill_at_any_system_call_loses_nothing_committed(tmp_path: Path) -> None:
    with small_pieces():
        print(kill_points.every_call(tmp_path, every=20))


def test_killed_runs_resume_without_gaps_or_duplicates(tmp_path: Path) -> None:
    with small_pieces():
        print(kill_points.resumed(tmp_path, 4))


def test_power_cuts_lose_nothing_committed(tmp_path: Path) -> None:
    with small_pieces():
        print(power_cuts.power_cuts(tmp_path, 40))


def test_failing_calls_give_typed_errors_and_lose_nothing(tmp_path: Path) -> None:
    with small_pieces():
        print(failing_calls.failing_calls(tmp_path, every=45))


def test_mutated_bundles_load_right_or_are_refused() -> None:
    command = [sys.executable, "-m", "faults.mutations", "60"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stdout)


def test_names_and_links_that_lead_out_are_refused(tmp_path: Path) -> None:
    print(bad_paths.bad_paths(tmp_path))


def test_nothing_is_written_through_links(tmp_path: Path) -> None:
    print(bad_paths.writing_is_refused(tmp_path))


@pytest.mark.filterwarnings(
    "ignore:(ComplexHalf|Sparse CSR tensor support|torch.quantize_per_tensor|.*quantiz):UserWarning"
)
def test_every_dtype_and_layout_is_exact_or_refused(tmp_path: Path) -> None:
    print(dtype_grid.dtype_grid(tmp_path))


def test_of_two_writers_one_wins(tmp_path: Path) -> None:
    print(several_processes.two_writers(tmp_path, 4))


def test_a_stale_lock_is_broken(tmp_path: Path) -> None:
    print(several_processes.stale_locks(tmp_path, 2))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_workers_leave_the_bundle_alone(tmp_path: Path) -> None:
    print(several_processes.forks(tmp_path, 2, workers=2))


def test_a_dead_rank_costs_only_its_own_records(tmp_path: Path) -> None:
    print(several_processes.dying_ranks(tmp_path, 1))


def test_memory_stays_within_the_queue_on_a_slow_disk(tmp_path: Path) -> None:
    print(pressure.back_pressure(tmp_path, megabytes=24, rate=30.0, queue=4))


def test_a_long_run_stays_flat(tmp_path: Path) -> None:
    print(long_run.long_run(tmp_path, 5_000))
