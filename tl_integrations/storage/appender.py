"""Writes captured steps into an open bundle, one commit after the other, on the calling thread.

Every commit is whole or not there: bytes of tensors first, then the lines, the commit's line last. When
something fails in between, files and columns go back to where they were, and the next commit may try again.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from xxhash import xxh3_128

from tl_integrations.capture.events import Moment
from tl_integrations.capture.protocols import CapturedStep, Outcome
from tl_integrations.errors import BundleIOError
from tl_integrations.storage.filesystem import Folder, UnsyncedError, io_errors, sync_folder
from tl_integrations.storage.fragments import Fragments
from tl_integrations.storage.growing import Growing, Mark
from tl_integrations.storage.options import WriteOptions
from tl_integrations.storage.position import Position, State
from tl_integrations.storage.record_lines import step_number
from tl_integrations.storage.shard_file import ShardFile
from tl_integrations.storage.tensors import Pair
from tl_integrations.storage.tlspec import (
    INDEX,
    MANIFEST,
    OPEN_MANIFEST,
    Plain,
    index_name,
    sum_of,
    sum_text,
    write_manifest,
)

_HASHED_AT_ONCE = 1 << 20


class Appender:
    """The open files of one bundle.

    Args:
        folder: The bundle, locked for us.
        about: The manifest's fields that are known from the start.
        position: Where to go on; a fresh one for a new bundle.
        rewind: The run continues at this step: what was committed at or after it is superseded.
        continued: The bundle held something before: a first step that goes back is a rewind too.
    """

    def __init__(
        self,
        folder: Folder,
        options: WriteOptions,
        about: Mapping[str, Any],
        position: Position,
        *,
        rewind: int | None = None,
        continued: bool = False,
    ) -> None:
        self.folder: Folder = folder
        self.options: WriteOptions = options
        self.position: Position = position
        self.broken: BaseException | None = None
        """Why nothing more can be written; None while all is well."""
        self._about = dict(about)
        self._rewind, self._continued = rewind, continued
        self._run_generation = 0
        self._waiting_commits = 0
        self._named_shard = 0
        self._fragments = Fragments()
        self._growing = self._begin_shard()
        self._fd = folder.open(INDEX, os.O_RDWR | os.O_CREAT)
        self._hash = xxh3_128()
        try:
            self._hash_what_is_there()
        except BaseException:
            self.close()
            raise

    def commit(self, captured: CapturedStep, tensors: Sequence[Pair]) -> None:
        """Write one captured step.

        Args:
            tensors: For each record its tensor and its gradient, on the CPU.
        """
        self._refuse_when_broken()
        with self._noticing_failed_syncs("write to"):
            self._roll_if_full()
            mark, before = self._growing.mark(), self.position.state()
            waiting = self._waiting_commits
            # A number is never used twice, so that lines of a failed commit never join another one.
            number, self.position.commit = self.position.commit, self.position.commit + 1
            try:
                self._add_step(number, captured, tensors)
                self._waiting_commits += 1
                if self._waiting_commits >= self.options.steps_per_commit:
                    self._write_lines()
            except BaseException:
                self._waiting_commits = waiting if self._growing.shard.number == mark.shard else 0
                self._restore(mark, before)
                raise

    def flush(self) -> None:
        """Write lines that wait for a later commit."""
        self._refuse_when_broken()
        if self._growing.lines:
            with self._noticing_failed_syncs("write to"):
                self._write_lines()

    def finish(self, outcome: Outcome, finished: str) -> None:
        """Complete shard and index, and publish the manifest."""
        self._refuse_when_broken()
        with self._noticing_failed_syncs("finish"):
            if self._rewind is not None:
                self._add_rewind(self._rewind)
            self._roll()
            self.folder.disk.sync(self._fd)
            self.folder.sync()
            self.folder.publish(MANIFEST, write_manifest(self._manifest(outcome, finished)))
            self.folder.unlink(OPEN_MANIFEST)
            sync_folder(self.folder.path.parent, self.folder.disk)

    def close(self) -> None:
        """Let go of the files without finishing anything."""
        self._growing.shard.close()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                self.folder.disk.close(fd)

    @contextmanager
    def _noticing_failed_syncs(self, doing: str) -> Iterator[None]:
        """After a failed sync nothing that was not durable before can be trusted: writing ends."""
        with io_errors(doing, self.folder.path):
            try:
                yield
            except UnsyncedError as error:
                self.broken = error
                raise

    def _add_step(self, number: int, captured: CapturedStep, tensors: Sequence[Pair]) -> None:
        position, records, nbytes = self.position, captured.records, 0
        self._notice_rewind(captured.moment)
        while records:
            self._roll_if_full(len(records[0].shape))
            added = self._growing.add_records(number, records, tensors, position.generation)
            records, tensors = records[added.records :], tensors[added.records :]
            position.counts.gradients += added.gradients
            nbytes += added.nbytes
        graph = captured.graph
        if graph is not None and graph.graph_id not in position.graphs:
            self._growing.add_graph(graph)
            position.graphs |= {graph.graph_id}
        self._growing.add_commit(number, captured, nbytes)
        position.counts.records += len(captured.records)
        position.counts.commits += 1
        position.counts.nbytes += nbytes
        if captured.moment.stage == "train":
            position.last_step = max(position.last_step, step_number(captured.moment.step))

    def _notice_rewind(self, moment: Moment) -> None:
        """Say that the run went back, before the first step that it runs again."""
        step = moment.step
        if step is not None and moment.stage == "train":
            went_back = moment.generation > self._run_generation
            went_back |= self._continued and step <= self.position.last_step
            if went_back and self._rewind is None:
                self._rewind = step
            self._run_generation = max(self._run_generation, moment.generation)
            self._continued = False
        if self._rewind is not None:
            self._add_rewind(self._rewind)

    def _add_rewind(self, step: int) -> None:
        position, self._rewind = self.position, None
        if position.counts.commits:
            position.generation += 1
            self._growing.add_rewind(step, position.generation)
            position.last_step = min(position.last_step, step - 1)

    def _roll_if_full(self, dimensions: int = 0) -> None:
        if self._growing.is_full(dimensions):
            self._roll()

    def _roll(self) -> None:
        """End the shard, write its columns, begin the next; what fails is begun again by the next call."""
        growing, position = self._growing, self.position
        if growing.lines:
            self._write_lines()
        if growing.columns.empty:
            return
        finished = growing.shard.finish()
        if finished is not None:
            position.shards.append(finished)
        about = {
            "bundle": self._about["id"],
            "shard": growing.shard.number,
            "index_end": position.index_nbytes,
        }
        if position.shards and position.shards[-1]["name"] == growing.shard.name:
            shard = position.shards[-1]
            about |= {"shard_nbytes": shard["nbytes"], "shard_sum": shard["sum"]}
        content, name = growing.columns.encode(about), index_name(growing.shard.number)
        self.folder.publish(name, content, sync_folder=False)
        position.indexes.append({"name": name, "nbytes": len(content), "sum": sum_of(content)})
        position.shard += 1
        position.record = growing.next_record
        self._growing = self._begin_shard()

    def _begin_shard(self) -> Growing:
        durable = self.options.durability == "power"
        shard = ShardFile(self.folder, self.position.shard, self._about["id"], durable=durable)
        return Growing(shard, self.position.record, self.options, self._fragments)

    def _write_lines(self) -> None:
        """Append the lines; with durability "power" only after all that they speak of is durable."""
        growing, content = self._growing, "".join(self._growing.lines).encode()
        power = self.options.durability == "power"
        if power:
            growing.shard.sync()
            if growing.shard.opened and self._named_shard != growing.shard.number:
                self.folder.sync()
                self._named_shard = growing.shard.number
        try:
            self.folder.disk.write(self._fd, [content])
            if power:
                self.folder.disk.sync(self._fd)
        except OSError:
            self._cut_index()
            raise
        self._hash.update(content)
        self.position.index_nbytes += len(content)
        growing.lines.clear()
        self._waiting_commits = 0

    def _cut_index(self) -> None:
        try:
            self.folder.disk.truncate(self._fd, self.position.index_nbytes)
            self.folder.disk.seek(self._fd, self.position.index_nbytes)
        except OSError as error:
            self.broken = error

    def _restore(self, mark: Mark, before: State) -> None:
        """Take back what a failed commit did; what it rolled over stays, as lines without a commit."""
        self.position.restore(before)
        try:
            self._growing.restore(mark)
        except OSError as error:
            self.broken = error

    def _refuse_when_broken(self) -> None:
        if self.broken is not None:
            raise BundleIOError(
                f"{str(self.folder.path)!r} cannot be written any more: {self.broken}. "
                "`tl.recover(path)` reads what was committed before."
            ) from self.broken

    def _hash_what_is_there(self) -> None:
        disk, offset = self.folder.disk, 0
        while content := disk.read(self._fd, _HASHED_AT_ONCE, offset):
            self._hash.update(content)
            offset += len(content)
        self.position.index_nbytes = offset
        disk.seek(self._fd, offset)

    def _manifest(self, outcome: Outcome, finished: str) -> Plain:
        position = self.position
        return self._about | {
            "finished": finished,
            "status": outcome.status,
            "reason": outcome.reason,
            "counts": asdict(position.counts),
            "shards": position.shards,
            "indexes": position.indexes,
            "index": {"nbytes": position.index_nbytes, "sum": sum_text(self._hash.digest())},
        }
