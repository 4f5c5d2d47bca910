"""Kill -9 at any moment: nothing committed is lost, nothing torn is read, and the run can go on."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from faults.disks import CountingDisk, KillingDisk
from faults.oracle import captured, check, seeded
from faults.processes import child

from tl_integrations.capture.protocols import SinkContext
from tl_integrations.errors import BundleError, BundleNotFinalizedError
from tl_integrations.storage import TlspecSink, load, recover
from tl_integrations.storage.filesystem import DISK, Disk
from tl_integrations.storage.options import WriteOptions

SMALL_SHARDS = WriteOptions(shard_bytes=2000)
SHORT_RUN = 10
"""Steps of 2 records each: 20 records."""


def write_run(
    path: Path,
    steps: range,
    say: Callable[[str], None],
    options: WriteOptions = SMALL_SHARDS,
    disk: Disk = DISK,
) -> None:
    """Write steps, saying each when it is committed."""
    sink = TlspecSink(path, options=options, disk=disk, context=SinkContext(config={"model": {"depth": 3}}))
    for number in steps:
        sink.write(captured(number))
        sink.flush()
        say(str(number))
    sink.close()


def after_a_kill(path: Path, said: list[str]) -> int:
    """What a reader sees then. Returns: records compared."""
    if not path.exists():
        assert not said
        return 0
    committed = [int(line) for line in said]
    try:
        return check(load(path), committed)
    except BundleNotFinalizedError:
        live = check(load(path, live=True), committed)
        assert live == check(recover(path), committed)
        return live
    except BundleError:
        # Killed before the first file was there: then nothing had been said.
        assert not said
        return 0


def random_kills(folder: Path, kills: int, seed: int = 0) -> str:
    """Kill a writing process at random moments."""
    chance, compared, finished = seeded(seed), 0, 0
    began = time.monotonic()
    child(lambda say: write_run(folder / "whole.tlspec", range(40), say))
    longest = time.monotonic() - began
    for number in range(kills):
        path = folder / f"{number}.tlspec"
        ended = child(lambda say, path=path: write_run(path, range(40), say), chance.uniform(0.0, longest))  # type: ignore[misc]
        compared += after_a_kill(path, ended.lines)
        finished += ended.status == 0
        shutil.rmtree(path, ignore_errors=True)
    assert finished < kills and compared, "every run ended before its kill, or before it began"
    return (
        f"{kills} random kills ({kills - finished} in writing): {compared} records compared, 0 lost, 0 wrong"
    )


def every_call(folder: Path, every: int = 1, steps: int = SHORT_RUN) -> str:
    """Kill a short run at every system call that changes the disk: before, within and after it."""
    counting = CountingDisk()
    write_run(folder / "whole.tlspec", range(steps), lambda _: None, disk=counting)
    compared = kills = 0
    for moment in ("before", "within", "after"):
        for k in range(1, counting.calls + 1, every):
            path = folder / f"{moment}-{k}.tlspec"
            disk = KillingDisk(k, moment)
            ended = child(lambda say, p=path, d=disk: write_run(p, range(steps), say, disk=d))  # type: ignore[misc]
            assert ended.status != 1, f"{moment} call {k}: an exception instead of a kill"
            compared += after_a_kill(path, ended.lines)
            kills += ended.status < 0
            shutil.rmtree(path, ignore_errors=True)
    return f"{kills} kills at {counting.calls} system calls: {compared} records compared, 0 lost, 0 wrong"


def resumed(folder: Path, kills: int, seed: int = 1, steps: int = 30) -> str:
    """Kill a run and go on with `resume=True` until it is through: the steps are those of a whole run."""
    chance, restarts = seeded(seed), 0
    began = time.monotonic()
    child(lambda say: write_run(folder / "whole.tlspec", range(steps), say))
    longest = time.monotonic() - began
    again = WriteOptions(shard_bytes=2000, resume=True)
    for number in range(kills):
        path = folder / f"{number}.tlspec"
        done: list[int] = []
        for attempt in range(100):
            # A checkpoint may be older than the last commit: some steps run twice.
            start = max(done[-1] + 1 - chance.randrange(3), 0) if done else 0
            options = again if path.exists() else SMALL_SHARDS
            wait = chance.uniform(0.0, 0.7 * longest) if attempt < 3 else None

            def work(
                say: Callable[[str], None], p: Path = path, s: int = start, o: WriteOptions = options
            ) -> None:
                write_run(p, range(s, steps), say, o)

            ended = child(work, wait)
            done += [int(line) for line in ended.lines]
            restarts += 1
            if ended.status == 0:
                break
            assert ended.status < 0 or not path.exists() or _barely_begun(path), "resuming failed"
            if path.exists() and _barely_begun(path):
                shutil.rmtree(path)
                done = []
        recording = load(path)
        assert recording.steps == list(range(steps)) and len(recording) == 2 * steps
        check(recording, range(steps))
        shutil.rmtree(path)
    return f"{kills} runs killed and resumed ({restarts} starts): steps equal, 0 duplicates"


def _barely_begun(path: Path) -> bool:
    """Killed before the bundle said what it is: there is nothing to go on with, and nothing was committed."""
    return not (path / "manifest.json.part").exists() and not (path / "manifest.json").exists()
