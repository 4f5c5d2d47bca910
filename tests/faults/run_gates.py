"""Run every gate in full and print what each found and how long it took: `make faults`.

python -m faults.run_gates [NAME ...]
"""

import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
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

Gate = Callable[[Path], str]


def _in_small_pieces(gate: Gate) -> Gate:
    def run(folder: Path) -> str:
        with small_pieces():
            return gate(folder)

    return run


def _mutations(folder: Path) -> str:
    command = [sys.executable, "-m", "faults.mutations", "10000"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


GATES: dict[str, Gate] = {
    "dtype grid": dtype_grid.dtype_grid,
    "names and links": bad_paths.bad_paths,
    "writing through links": bad_paths.writing_is_refused,
    "two writers": lambda folder: several_processes.two_writers(folder, 100),
    "stale locks": lambda folder: several_processes.stale_locks(folder, 50),
    "forked workers": lambda folder: several_processes.forks(folder, 20),
    "dying ranks": lambda folder: several_processes.dying_ranks(folder, 20),
    "back-pressure": lambda folder: pressure.back_pressure(folder, megabytes=200, rate=5.0, queue=16),
    "power cuts": _in_small_pieces(lambda folder: power_cuts.power_cuts(folder, 500)),
    "kill at every call": _in_small_pieces(kill_points.every_call),
    "resuming": _in_small_pieces(lambda folder: kill_points.resumed(folder, 100)),
    "random kills": _in_small_pieces(lambda folder: kill_points.random_kills(folder, 1000)),
    "failing calls": _in_small_pieces(failing_calls.failing_calls),
    "mutated bundles": _mutations,
    "long run": lambda folder: long_run.long_run(folder, 1_000_000),
}


def main(names: list[str]) -> int:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    failed = 0
    for name in names or GATES:
        folder = Path(tempfile.mkdtemp(prefix="faults-"))
        began = time.monotonic()
        try:
            told = GATES[name](folder)
        except subprocess.CalledProcessError as error:
            failed, told = failed + 1, f"FAILED: {error.stderr[-1000:]}"
        except Exception as error:
            failed, told = failed + 1, f"FAILED: {type(error).__name__}: {error}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(f"| {name} | {told} | {time.monotonic() - began:.0f} s |", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
