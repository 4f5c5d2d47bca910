"""Several processes around one bundle: two writers, forks, DataLoader workers, ranks that die."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import torch
from faults.oracle import captured, check, seeded
from faults.processes import child
from torch.utils.data import DataLoader, TensorDataset

from tl_integrations.capture.protocols import SinkContext
from tl_integrations.errors import BundleBusyError, BundleError, BundleExistsError
from tl_integrations.storage import TlspecSink, load, recover
from tl_integrations.storage.options import WriteOptions


def two_writers(folder: Path, races: int) -> str:
    """Two processes open one path at the same moment: exactly one wins, the other is told why."""
    for number in range(races):
        path = folder / f"{number}.tlspec"
        # Both spin until the same moment.
        start = time.monotonic() + 0.02
        outcomes = _race([_racer(path, start), _racer(path, start)])
        assert sorted(outcomes) == ["refused", "won"], outcomes
        assert check(load(path), [0]) == 2
        assert sorted(_race([_racer(path, 0.0)])) == ["refused"]
        shutil.rmtree(path)
    return f"{races} races: exactly one writer each time, every bundle whole"


def _racer(path: Path, start: float) -> Callable[[Callable[[str], None]], None]:
    def work(say: Callable[[str], None]) -> None:
        while time.monotonic() < start:
            pass
        try:
            with TlspecSink(path) as sink:
                sink.write(captured(0))
                time.sleep(0.01)
        except (BundleBusyError, BundleExistsError):
            say("refused")
        else:
            say("won")

    return work


def _race(works: list[Callable[[Callable[[str], None]], None]]) -> list[str]:
    """Run children at the same time; one line from each."""
    reading, writing = os.pipe()
    pids = []
    for work in works:
        pid = os.fork()
        if pid == 0:
            try:
                work(lambda text: os.write(writing, f"{text}\n".encode()))  # type: ignore[arg-type, return-value]
            finally:
                os._exit(0)
        pids.append(pid)
    os.close(writing)
    for pid in pids:
        os.waitpid(pid, 0)
    with os.fdopen(reading) as lines:
        return lines.read().split()


def stale_locks(folder: Path, rounds: int) -> str:
    """A writer that was killed leaves its lock; the next one resumes at once."""
    for number in range(rounds):
        path = folder / f"{number}.tlspec"

        def die(say: Callable[[str], None], p: Path = path) -> None:
            sink = TlspecSink(p)
            sink.write(captured(0))
            sink.flush()
            say("0")
            os._exit(9)

        assert child(die).lines == ["0"] and (path / "lock").exists()
        with TlspecSink(path, options=WriteOptions(resume=True)) as sink:
            sink.write(captured(1))
        assert check(load(path), [0, 1]) == 4
    return f"{rounds} stale locks broken"


def forks(folder: Path, epochs: int, workers: int = 4) -> str:
    """DataLoader workers fork while a bundle is open and being written: they change nothing."""
    path, number = folder / "forked.tlspec", 0
    loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=1, num_workers=workers)
    with TlspecSink(path, options=WriteOptions(shard_bytes=4000)) as sink:
        for _ in range(epochs):
            for _ in loader:
                sink.write(captured(number))
                number += 1
        ended = child(lambda say: _misuse(sink, say))
        assert ended.lines == ["BundleError"] and ended.status == 0
        sink.write(captured(number))
    assert check(load(path), range(number + 1)) == 2 * (number + 1)
    return f"{epochs} epochs of {workers} forked workers while writing {number} steps: bundle whole"


def _misuse(sink: TlspecSink, say: Callable[[str], None]) -> None:
    """A child tries to use its parent's sink."""
    try:
        sink.write(captured(99))
    except BundleError as error:
        say(type(error).__name__)
    sink.close()
    del sink


def dying_ranks(folder: Path, rounds: int, ranks: int = 4, seed: int = 3) -> str:
    """One of several ranks is killed at a random moment: the others' records are all there, it is missing."""
    chance, compared = seeded(seed), 0
    for number in range(rounds):
        path, victim = folder / f"{number}.tlspec", chance.randrange(ranks)
        for rank in range(ranks):

            def work(say: Callable[[str], None], r: int = rank, p: Path = path, v: int = victim) -> None:
                with TlspecSink(p, context=SinkContext(rank=r, world_size=ranks)) as sink:
                    for step in range(10):
                        sink.write(captured(step))
                        sink.flush()
                        say(str(step))
                        if r == v and step == 5:
                            os._exit(9)

            child(work)
        recording = load(path)
        assert recording.missing_ranks == (victim,) and recording.failed
        assert len(recording) == (ranks - 1) * 20
        assert len(recover(path)) == (ranks - 1) * 20 + 12
        for rank in set(range(ranks)) - {victim}:
            compared += check(load(path / f"rank-{rank:05d}-of-{ranks:05d}"), range(10))
        shutil.rmtree(path)
    return (
        f"{rounds} runs of {ranks} ranks, one killed in each: {compared} records of others compared, 0 lost"
    )
