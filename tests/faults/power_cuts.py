"""Power cuts with writes lost, torn and reordered: with `durability="power"` nothing committed is lost."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from faults.disks import PowerModel
from faults.oracle import captured, check, seeded

from tl_integrations.errors import BundleError, BundleNotFinalizedError
from tl_integrations.storage import TlspecSink, load, recover
from tl_integrations.storage.options import WriteOptions

STEPS = 12


def power_cuts(folder: Path, replays: int, seed: int = 0) -> str:
    """Cut the power at random places of a recorded run, and look at what the disk may hold then."""
    chance = seeded(seed)
    model = PowerModel(folder / "run.tlspec")
    options = WriteOptions(durability="power", shard_bytes=2000)
    sink = TlspecSink(folder / "run.tlspec", options=options, disk=model)
    committed: list[tuple[int, int]] = []
    for number in range(STEPS):
        sink.write(captured(number))
        sink.flush()
        committed.append((len(model.journal), number))
        assert model.parent_synced, "the bundle's own name is not durable"
    sink.close()
    end, compared, unfinished = len(model.journal), 0, 0
    for number in range(replays):
        cut = chance.randrange(end + 1) if number else end
        target = folder / f"cut-{number}.tlspec"
        model.replay(cut, chance, target)
        kept = [step for at, step in committed if at <= cut]
        found, whole = _look(target, kept)
        assert whole or cut < end, "a finished bundle did not survive"
        compared += found
        unfinished += not whole
        shutil.rmtree(target)
    return f"{replays} power cuts ({unfinished} before the end): {compared} records compared, 0 lost, 0 wrong"


def _look(path: Path, kept: Iterable[int]) -> tuple[int, bool]:
    kept = list(kept)
    try:
        return check(load(path), kept), True
    except BundleNotFinalizedError:
        pass
    except BundleError:
        assert not kept, "it does not even recover"
        return 0, False
    try:
        return check(recover(path), kept), False
    except BundleError:
        assert not kept, "it does not even recover"
        return 0, False
