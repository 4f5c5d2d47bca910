"""Mutated bundles: what loads is right, everything else is one typed error, and nothing outside is touched.

Runs in a process of its own: the audit hook that watches it cannot be taken off again.
"""

import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from bundles import record
from faults.oracle import captured, same, tensor_of
from xxhash import xxh3_64_hexdigest

from tl_integrations.capture.events import Histogram
from tl_integrations.capture.protocols import CapturedStep, SinkContext
from tl_integrations.capture.recording import Recording
from tl_integrations.errors import BundleError
from tl_integrations.storage import TlspecSink, load, recover
from tl_integrations.storage.options import WriteOptions
from tl_integrations.storage.tlspec import OWN_NAME

MOST_SECONDS = 2.0
"""Processor time of the three reads of one bundle, whatever else the machine does."""
MOST_MEMORY = 512 << 20
Files = dict[str, bytes]

_FORBIDDEN = ("exec", "compile", "import", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen")
_FORBIDDEN += ("pickle.find_class", "socket.connect", "shutil.rmtree", "os.remove", "os.rename", "os.mkdir")


class Watch:
    """An audit hook that notes what reading a bundle must never do."""

    def __init__(self) -> None:
        self.folder = ""
        self.on = False
        self.seen: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in _FORBIDDEN:
            self.seen.append(f"{event} {args!r:.200}")
        elif event == "open":
            path, _, flags = args
            inside = (
                isinstance(path, int) or OWN_NAME.fullmatch(str(path)) or str(path).startswith(self.folder)
            )
            writing = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if not inside or writing:
                self.seen.append(f"open {args!r:.200}")


def mutated_bundles(count: int, seed: int = 0) -> str:
    """Mutate bundles and read each with `load`, `load(live=True)` and `recover`."""
    watch, chance = Watch(), random.Random(seed)
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    try:
        sources = [_source(folder / f"source-{kind}", kind) for kind in range(4)]
        for kind in range(len(sources)):
            assert set(_read_all(folder / f"source-{kind}", _truth(kind), watch)) <= {"equal", "refused"}
        # The first reads import what numpy and torch load late.
        watch.seen.clear()
        before, slowest, counts = _memory(), 0.0, {"equal": 0, "subset": 0, "refused": 0}
        for _ in range(count):
            kind = chance.randrange(len(sources))
            files, forged = _mutate(dict(sources[kind]), chance, sources)
            path = folder / "mutated.tlspec"
            _put(path, files)
            began = time.process_time()
            for outcome in _read_all(path, _truth(kind), watch, forged):
                counts[outcome] += 1
            slowest = max(slowest, time.process_time() - began)
            shutil.rmtree(path)
        grown = _memory() - before
        assert not watch.seen, watch.seen[:5]
        assert slowest < MOST_SECONDS, f"one took {slowest:.1f} s"
        assert grown < MOST_MEMORY, f"memory grew by {grown >> 20} MiB"
    finally:
        watch.on = False
        shutil.rmtree(folder)
    told = ", ".join(f"{number} {what}" for what, number in counts.items())
    watched = f"0 other errors, 0 opens outside, slowest {slowest:.2f} s, memory +{grown >> 20} MiB"
    return f"{count} mutated bundles, 3 reads each: {told}; {watched}"


def _memory() -> int:
    """Peak resident bytes so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _steps(kind: int) -> range:
    return range(1 + kind, 6 + kind)


def _source(path: Path, kind: int) -> Files:
    """A bundle of one of four kinds: finished, many shards, unfinished, with histograms."""
    options = WriteOptions(shard_bytes=(1 << 28, 1500, 1500, 1 << 28)[kind])
    sink = TlspecSink(path, options=options, context=SinkContext(config={"a": {"b": [1, "x"]}}))
    for number in _steps(kind):
        sink.write(_with_histogram(captured(number)) if kind == 3 else captured(number))
    sink.flush()
    if kind != 2:
        sink.close()
    files = {name: (path / name).read_bytes() for name in sorted(os.listdir(path)) if name != "lock"}
    sink.close()
    return files


def _with_histogram(step: CapturedStep) -> CapturedStep:
    histogram = Histogram(edges=(0.0, 1.0), counts=(3,), minimum=0.0, maximum=1.0, total=1.0, squares=1.0)
    more = record(None, "extra_1_1", moment=step.moment, histogram=histogram)
    return CapturedStep(moment=step.moment, records=[*step.records, more])


def _truth(kind: int) -> dict[tuple[int, str], torch.Tensor | None]:
    found: dict[tuple[int, str], torch.Tensor | None] = {
        (step, f"relu_{p}_{p}"): tensor_of(step, p) for step in _steps(kind) for p in range(2)
    }
    if kind == 3:
        found |= {(step, "extra_1_1"): None for step in _steps(kind)}
    return found


def _read_all(
    path: Path, truth: dict[tuple[int, str], torch.Tensor | None], watch: Watch, forged: bool = False
) -> list[str]:
    readers: list[Callable[[], Recording]] = [
        lambda: load(path),
        lambda: load(path, live=True),
        lambda: recover(path),
    ]
    return [_read(reader, truth, path, watch, forged) for reader in readers]


def _read(
    reader: Callable[[], Recording],
    truth: dict[tuple[int, str], torch.Tensor | None],
    path: Path,
    watch: Watch,
    forged: bool,
) -> str:
    """Read everything; a tensor that comes back must be the one that was written."""
    watch.folder, watch.on = str(path), True
    try:
        recording = reader()
        repr(recording)
        steps = recording.steps
        rows = [_row(recording, index) for index in range(len(recording))]
    except BundleError:
        return "refused"
    finally:
        watch.on = False
    right = 0
    for found in rows:
        if found is None:
            continue
        step, label, tensor = found
        assert step is None or step in steps
        if forged and (step, label) not in truth:
            # A line sealed anew, or an index of another bundle, may name what it likes; bytes stay checked.
            continue
        wanted = truth[step, label]
        assert (wanted is None) == (tensor is None), (step, label)
        assert tensor is None or (wanted is not None and same(tensor, wanted)), (step, label)
        right += 1
    return "equal" if right == len(truth) else "subset"


def _row(recording: Recording, index: int) -> tuple[Any, Any, torch.Tensor | None] | None:
    try:
        found = recording[index]
        _ = found.histogram, found.grad
        return found.step, found.label, None if found.payload is None else found.out
    except BundleError:
        return None


def _put(path: Path, files: Files) -> None:
    path.mkdir()
    for name, content in files.items():
        (path / name).write_bytes(content)


def _mutate(files: Files, chance: random.Random, sources: list[Files]) -> tuple[Files, bool]:
    """The files changed in one to four ways, and whether it could be another bundle's records."""
    chosen = [chance.choice(_MUTATIONS) for _ in range(chance.choice((1, 1, 1, 2, 4)))]
    for mutation in chosen:
        mutation(files, chance, sources)
    return files, _edit_json in chosen or _swap in chosen


def _any(files: Files, chance: random.Random) -> str:
    return chance.choice(sorted(files))


def _flip(files: Files, chance: random.Random, _: Any) -> None:
    name = _any(files, chance)
    content = bytearray(files[name])
    for _ in range(chance.choice((1, 1, 3, 20))):
        if content:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    files[name] = bytes(content)


def _cut(files: Files, chance: random.Random, _: Any) -> None:
    name = _any(files, chance)
    files[name] = files[name][: chance.randrange(len(files[name]) + 1)]


def _insert(files: Files, chance: random.Random, _: Any) -> None:
    name = _any(files, chance)
    content, at = files[name], chance.randrange(len(files[name]) + 1)
    extra = chance.choice(
        (b"\0" * 64, chance.randbytes(16), b"\n", b"{}\n", b'{"kind":"record"}\n', b"[" * 5000)
    )
    files[name] = content[:at] + extra + content[at:]


def _splice(files: Files, chance: random.Random, _: Any) -> None:
    name = _any(files, chance)
    content = files[name]
    a, b = sorted(chance.randrange(len(content) + 1) for _ in range(2))
    files[name] = content[:a] + content[b:] if chance.random() < 0.5 else content[:b] + content[a:]


def _remove(files: Files, chance: random.Random, _: Any) -> None:
    del files[_any(files, chance)]
    if not files:
        files["manifest.json"] = b""


def _swap(files: Files, chance: random.Random, sources: list[Files]) -> None:
    other = chance.choice(sources)
    name = _any(other, chance)
    files[name] = other[name]


def _rename(files: Files, chance: random.Random, _: Any) -> None:
    source, target = _any(files, chance), _any(files, chance)
    files[target], files[source] = files[source], files[target]


_VALUES = (
    -1,
    0,
    1 << 63,
    1 << 70,
    1.5,
    True,
    None,
    "",
    "../../etc/passwd",
    "nan",
    [],
    {},
    [1] * 70,
    "\udcff",
    1e300,
)


def _edit_json(files: Files, chance: random.Random, _: Any) -> None:
    """Change a value in a line or manifest and seal it again, as an attacker would."""
    names = [name for name in files if name.startswith(("manifest", "index.jsonl"))]
    if not names:
        return
    name = chance.choice(sorted(names))
    lines = files[name].split(b"\n") if name == "index.jsonl" else [files[name]]
    at = chance.randrange(len(lines))
    with suppress(ValueError, TypeError, AttributeError):
        found = json.loads(lines[at])
        found.pop("check", None)
        _change(found, chance)
        body = json.dumps(found, separators=(",", ":"))[:-1].encode("utf-8", "surrogatepass")
        lines[at] = body + b',"check":"' + xxh3_64_hexdigest(body).encode() + b'"}'
        files[name] = b"\n".join(lines)


def _change(found: Any, chance: random.Random) -> None:
    """Somewhere inside, put a value that does not belong there."""
    while True:
        keys = list(found) if isinstance(found, dict) else list(range(len(found)))
        key = chance.choice(keys)
        if isinstance(found[key], dict | list) and found[key] and chance.random() < 0.7:
            found = found[key]
            continue
        if chance.random() < 0.2 and isinstance(found, dict):
            del found[key]
        else:
            found[key] = chance.choice(_VALUES)
        return


def _edit_header(files: Files, chance: random.Random, _: Any) -> None:
    """Change a number in a safetensors header, keeping its length."""
    names = [name for name in files if name.endswith(".safetensors")]
    if not names:
        return
    name = chance.choice(sorted(names))
    content = bytearray(files[name])
    length = int.from_bytes(content[:8], "little")
    digits = [at for at in range(8, min(8 + length, len(content))) if chr(content[at]).isdigit()]
    if chance.random() < 0.2:
        content[:8] = chance.choice((0, 1 << 62, (1 << 64) - 1, length + 8)).to_bytes(8, "little")
    elif digits:
        content[chance.choice(digits)] = ord(chance.choice("0123456789"))
    files[name] = bytes(content)


_MUTATIONS = (
    _flip,
    _flip,
    _cut,
    _insert,
    _splice,
    _remove,
    _swap,
    _rename,
    _edit_json,
    _edit_json,
    _edit_header,
)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(mutated_bundles(int(sys.argv[1])), flush=True)
