"""Reading `index.jsonl` itself, as a live reader, `recover` and a resumed writer do: lines to columns."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tl_integrations.errors import BundleCorruptError
from tl_integrations.storage.columns import Columns, Segment
from tl_integrations.storage.filesystem import Folder, io_errors
from tl_integrations.storage.record_lines import (
    read_histogram,
    read_moment,
    read_site,
    split_line,
    step_number,
)
from tl_integrations.storage.strict_json import dump, read_number
from tl_integrations.storage.tlspec import INDEX, LINE_LIMIT, NO_STEP, SUM, Plain, read_line

_CHUNK = 1 << 20


@dataclass(slots=True, kw_only=True)
class Scan:
    """What the lines say."""

    segments: list[Segment] = field(default_factory=list)
    committed_end: int = 0
    """Bytes of the index up to and with the last commit's line."""
    nbytes: int = 0
    """Bytes of whole lines that were read."""
    last_commit: int = -1
    """The largest number of a commit that any line mentions."""
    commits: int = 0
    tensor_bytes: int = 0
    """Of committed records."""
    damaged: list[str] = field(default_factory=list)
    """One sentence per line that could not be read."""
    lost_records: int = 0
    """Records of committed steps whose line is damaged."""
    uncommitted: int = 0
    """Records whose step was never committed."""
    torn: bool = False
    """The last line is not whole."""


def scan(folder: Folder, start: int = 0, *, first: int = 0, skip_damage: bool = False) -> Scan:
    """Read the index from byte `start` on.

    Args:
        first: Number of the first record that may come.
        skip_damage: Go on after a damaged line and say so in the result, instead of raising.
    Raises:
        BundleCorruptError: naming the first damaged line.
    """
    reading = _Reading(first)
    result = reading.result
    for number, (content, end, whole) in enumerate(_lines(folder, start), start=1):
        if not whole:
            result.torn = True
            break
        where = f"Line {number} of {str(folder.path / INDEX)!r}"
        if start:
            where = f"Line {number} after byte {start} of {str(folder.path / INDEX)!r}"
        result.nbytes = end
        try:
            reading.take(read_line(content, where), where, end)
        except BundleCorruptError as error:
            if not skip_damage:
                raise
            result.damaged.append(str(error))
            reading.damaged_line()
    return reading.finish()


def _lines(folder: Folder, start: int) -> Iterator[tuple[bytes, int, bool]]:
    """Lines with the offset of their end and whether they are whole; the file is read in pieces."""
    rest, offset, end = b"", start, start
    with folder.reading(INDEX) as fd, io_errors("read", folder.path / INDEX):
        while piece := folder.disk.read(fd, _CHUNK, offset):
            offset += len(piece)
            *lines, rest = (rest + piece).split(b"\n")
            for content in lines:
                end += len(content) + 1
                yield content, end, True
            if len(rest) > LINE_LIMIT:
                # Longer than any line: damage that would otherwise pile up in memory.
                end += len(rest)
                yield rest, end, True
                rest = b""
    if rest:
        yield rest, end, False


class _Reading:
    """Takes lines one by one; rows count when their commit's line has come."""

    def __init__(self, first: int) -> None:
        self.result = Scan()
        self._columns = Columns(first)
        self._shard = 0
        self._pending: list[tuple[Plain, str]] = []
        self._commit_may_be_damaged = False

    def take(self, content: Plain, where: str, end: int) -> None:
        kind = content.get("kind")
        if kind in ("record", "grad"):
            _check(kind, content, where)
            self._begin_commit(content["commit"])
            self._pending.append((content, where))
            self.result.last_commit = max(self.result.last_commit, content["commit"])
        elif kind == "commit":
            self._begin_commit(_whole(content, "commit", where))
            self._commit(content, where)
            self.result.committed_end = end
        elif kind in ("op", "module", "rewind"):
            self._pending.append((content, where))
        else:
            raise BundleCorruptError(f"{where} is of the unknown kind {str(kind)[:40]!r}.")

    def damaged_line(self) -> None:
        self._commit_may_be_damaged = bool(self._pending)

    def finish(self) -> Scan:
        self._drop_pending()
        self._end_segment()
        return self.result

    def _begin_commit(self, number: int) -> None:
        """Lines of a commit stand together: what waits for an earlier one has lost its commit's line."""
        earlier = [content["commit"] for content, _ in self._pending if "commit" in content]
        if not earlier or earlier[-1] == number:
            return
        if self._commit_may_be_damaged:
            step = next((c["step"] for c, _ in self._pending if "step" in c), None)
            self._accept(earlier[-1], step, None)
        else:
            self._drop_pending()

    def _commit(self, content: Plain, where: str) -> None:
        number, step = _whole(content, "commit", where), content.get("step")
        graph = content.get("graph")
        known = step is None or (type(step) is int and 0 <= step < 1 << 63)
        if not known or not (graph is None or isinstance(graph, str)):
            raise BundleCorruptError(f"{where} ends step {str(step)[:40]!r} with graph {str(graph)[:40]!r}.")
        found = sum(1 for row, _ in self._pending if row["kind"] == "record")
        self.result.lost_records += max(_whole(content, "records", where) - found, 0)
        self.result.last_commit = max(self.result.last_commit, number)
        self._accept(number, step, graph)

    def _accept(self, number: int, step: int | None, graph: str | None) -> None:
        pending, self._pending, self._commit_may_be_damaged = self._pending, [], False
        for content, where in pending:
            kind = content["kind"]
            if kind == "record":
                self._add_record(content, where)
            elif kind == "grad":
                self._add_gradient(content, where)
            else:
                self._columns.add_line(dump(content))
        self._columns.add_commit(number, step_number(step), graph)
        self.result.commits += 1

    def _add_record(self, content: Plain, where: str) -> None:
        shard, record = content.get("shard", self._shard), content["record"]
        if record != self._columns.first + len(self._columns) or (shard != self._shard and self._shard):
            self._end_segment()
            self._columns = Columns(record)
        self._shard = shard
        moment, site = split_line(content)
        statistics = content.get("statistics")
        numbers = {} if statistics is None else {n: read_number(v) for n, v in statistics.items()}
        step = NO_STEP if content["step"] is None else content["step"]
        place = (content.get("offset", -1), content.get("nbytes", -1))
        self._columns.add(
            (step, content["commit"], content["run"], *place),
            moment,
            site,
            _digest(content),
            None if statistics is None else dump(list(numbers)),
            tuple(float(v) for v in numbers.values() if v is not None),
            dump(content["histogram"]) if "histogram" in content else "",
        )
        self.result.tensor_bytes += content.get("nbytes", 0)

    def _add_gradient(self, content: Plain, where: str) -> None:
        owner = content["record"]
        here = self._columns.first <= owner < self._columns.first + len(self._columns)
        if not here or content["shard"] != self._shard:
            # Its record's line is damaged, so there is nothing that it could belong to.
            return
        self._columns.add_gradient(
            record=owner,
            site=dump({"shape": content["shape"], "dtype": content["dtype"]})[1:-1],
            offset=content["offset"],
            nbytes=content["nbytes"],
            digest=_digest(content),
            loss_scale=float(content["loss_scale"]),
            accumulate=content["accumulate"],
        )
        self.result.tensor_bytes += content["nbytes"]

    def _drop_pending(self) -> None:
        self.result.uncommitted += sum(1 for content, _ in self._pending if content["kind"] == "record")
        self._pending.clear()

    def _end_segment(self) -> None:
        if not self._columns.empty:
            segment = Segment(
                self._columns.arrays(), first=self._columns.first, shard=self._shard, where="The open index"
            )
            self.result.segments.append(segment)
            self._columns = Columns(self._columns.first + len(self._columns))


def _check(kind: str, content: Plain, where: str) -> None:
    """Refuse a record's or gradient's line whose values do not fit columns."""
    for name in ("record", "commit"):
        _whole(content, name, where)
    if kind == "grad" or any(name in content for name in ("shard", "offset", "nbytes", "sum")):
        for name in ("shard", "offset", "nbytes"):
            _whole(content, name, where, least=1 if name == "shard" else 0)
        _digest_text(content, where)
    if kind == "grad":
        read_site(content, where, bare=True)
        if read_number(content.get("loss_scale")) is None:
            raise BundleCorruptError(f"{where} has the loss scale {str(content.get('loss_scale'))[:40]!r}.")
        _whole(content, "accumulate", where)
        return
    step = content.get("step", -1)
    if not (step is None or (type(step) is int and 0 <= step < 1 << 63)):
        raise BundleCorruptError(f"{where} has the step {str(step)[:40]!r}.")
    _whole(content, "run", where)
    read_moment(content, where)
    statistics = content.get("statistics")
    if statistics is not None and not (
        isinstance(statistics, dict) and all(read_number(v) is not None for v in statistics.values())
    ):
        raise BundleCorruptError(f"{where} has statistics that are no numbers.")
    if "histogram" in content:
        read_histogram(content["histogram"], where)


def _whole(content: Plain, name: str, where: str, least: int = 0) -> int:
    value = content.get(name)
    if type(value) is not int or not least <= value < 1 << 62:
        raise BundleCorruptError(f"{where} has {name} {str(value)[:40]!r}.")
    return value


def _digest_text(content: Plain, where: str) -> None:
    text = content.get("sum")
    if not isinstance(text, str) or not SUM.fullmatch(text):
        raise BundleCorruptError(f"{where} has the checksum {str(text)[:60]!r}.")


def _digest(content: Plain) -> bytes:
    return bytes.fromhex(content["sum"].partition(":")[2]) if "sum" in content else bytes(16)
