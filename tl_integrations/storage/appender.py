"""Writes captured steps into an open bundle, one commit after the other, on the calling thread.

Every commit is whole or not there: bytes of tensors first, then the lines, the commit's line last. When
something fails in between, files and columns go back to where they were, and the next commit may try again.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from tl_integrations.capture.events import Moment
from tl_integrations.capture.protocols import CapturedStep, Outcome
from tl_integrations.errors import BundleIOError
from tl_integrations.storage.chunks import Chunk
from tl_integrations.storage.filesystem import Folder, UnsyncedError, io_errors, sync_folder
from tl_integrations.storage.fragments import Fragments
from tl_integrations.storage.growing import Growing, Mark
from tl_integrations.storage.index_log import IndexLog
from tl_integrations.storage.options import WriteOptions
from tl_integrations.storage.position import Position, State
from tl_integrations.storage.record_lines import step_number
from tl_integrations.storage.shard_file import ShardFile
from tl_integrations.storage.tlspec import (
    MANIFEST,
    OPEN_MANIFEST,
    Plain,
    index_name,
    sum_of,
    write_manifest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """A shard whose files are written, and not durable yet."""

    shard: Plain | None
    """Its line in the manifest; None without a tensor."""
    index: Plain
    """Likewise of its columns."""
    fd: int
    """Of the columns."""


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
        self._log = IndexLog(folder)

    def commit(self, captured: CapturedStep, chunk: Chunk) -> None:
        """Write one captured step.

        Args:
            chunk: Its records, with what is stored of them.
        """
        self._refuse_when_broken()
        with self._noticing_failed_syncs("write to"):
            self._roll_if_full()
            mark, before = self._growing.mark(), self.position.state()
            waiting = self._waiting_commits
            # A number is never used twice, so that lines of a failed commit never join another one.
            number, self.position.commit = self.position.commit, self.position.commit + 1
            try:
                self._add_step(number, captured, chunk)
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
            self._publish(outcome, finished)
            sync_folder(self.folder.path.parent, self.folder.disk)

    def close(self) -> None:
        """Let go of the files without finishing anything."""
        self._growing.shard.close()
        self._log.close()

    @contextmanager
    def _noticing_failed_syncs(self, doing: str) -> Iterator[None]:
        """After a failed sync nothing that was not durable before can be trusted: writing ends."""
        with io_errors(doing, self.folder.path):
            try:
                yield
            except UnsyncedError as error:
                self.broken = error
                raise

    def _add_step(self, number: int, captured: CapturedStep, chunk: Chunk) -> None:
        position, nbytes = self.position, 0
        self._notice_rewind(captured.moment)
        while len(chunk):
            self._roll_if_full(len(chunk.records[0].shape))
            added = self._growing.add_records(number, chunk, position.generation)
            chunk = chunk.cut(added.records, len(chunk))
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
        with self._ending_shard() as ended:
            if ended is not None:
                self._end_shard(ended)

    @contextmanager
    def _ending_shard(self) -> Iterator[_Ended | None]:
        """Write what is missing of the shard and its columns, without waiting for the disk."""
        growing, disk = self._growing, self.folder.disk
        if growing.lines:
            self._write_lines()
        if growing.columns.empty:
            yield None
            return
        shard = growing.shard.prepare()
        content, name = growing.columns.encode(self._about_index(shard)), index_name(growing.shard.number)
        with self.folder.written(name, content) as fd:
            disk.begin_sync(fd)
            yield _Ended(
                shard=shard, index={"name": name, "nbytes": len(content), "sum": sum_of(content)}, fd=fd
            )

    def _end_shard(self, ended: _Ended) -> None:
        """Make the shard and its columns durable, and begin the next."""
        growing, position = self._growing, self.position
        if ended.shard is not None:
            growing.shard.finish(ended.shard)
        self.folder.disk.sync(ended.fd)
        self.folder.rename_written(ended.index["name"])
        position.shards, position.indexes = self._files(ended)
        position.shard += 1
        position.record = growing.next_record
        self._growing = self._begin_shard()

    def _files(self, ended: _Ended | None) -> tuple[list[Plain], list[Plain]]:
        """The lists of the manifest: shards, and files of columns."""
        position = self.position
        if ended is None:
            return position.shards, position.indexes
        shards = [] if ended.shard is None else [ended.shard]
        return [*position.shards, *shards], [*position.indexes, ended.index]

    def _publish(self, outcome: Outcome, finished: str) -> None:
        """End the shard and put the manifest in place, which speaks of durable files only.

        All is on its way to the disk before the first sync waits, so that the later ones wait for less.
        """
        folder, disk = self.folder, self.folder.disk
        with self._ending_shard() as ended:
            content = write_manifest(self._manifest(outcome, finished, ended))
            with folder.written(MANIFEST, content) as fd:
                disk.begin_sync(fd)
                self._log.begin_sync()
                if ended is not None:
                    self._end_shard(ended)
                self._log.sync()
                folder.sync()
                disk.sync(fd)
        folder.rename_written(MANIFEST)
        folder.sync()
        folder.unlink(OPEN_MANIFEST)

    def _about_index(self, shard: Plain | None) -> Plain:
        about = {
            "bundle": self._about["id"],
            "shard": self._growing.shard.number,
            "index_end": self._log.nbytes,
        }
        if shard is not None:
            about |= {"shard_nbytes": shard["nbytes"], "shard_sum": shard["sum"]}
        return about

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
            self._log.append(content, durable=power)
        finally:
            self.broken = self.broken or self._log.broken
        growing.lines.clear()
        self._waiting_commits = 0

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

    def _manifest(self, outcome: Outcome, finished: str, ended: _Ended | None) -> Plain:
        position = self.position
        shards, indexes = self._files(ended)
        return self._about | {
            "finished": finished,
            "status": outcome.status,
            "reason": outcome.reason,
            "counts": asdict(position.counts),
            "shards": shards,
            "indexes": indexes,
            "index": {"nbytes": self._log.nbytes, "sum": self._log.sum},
        }
