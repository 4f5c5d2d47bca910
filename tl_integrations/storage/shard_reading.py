"""Opening a shard to read while its writer may be finishing it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tl_integrations.errors import BundleCorruptError
from tl_integrations.storage.filesystem import Folder
from tl_integrations.storage.shards import HEADER_ROOM, header_length
from tl_integrations.storage.tlspec import shard_name


@contextmanager
def reading_shard(folder: Folder, shard: int) -> Iterator[tuple[int, str]]:
    """A descriptor of a shard, and the name it was found under.

    A shard that grows is renamed when it is finished, perhaps between two looks: the finished name is tried,
    then the growing one, then the finished one again.

    Raises:
        BundleCorruptError: if the shard is there under neither name.
        BundleUnsafePathError: if it is anything but a regular file.
    """
    name = shard_name(shard)
    with ExitStack() as opened:
        fd, present = _open(opened, folder, (name, f"{name}.part", name))
        yield fd, present


def data_start(folder: Folder, fd: int, name: str, nbytes: int) -> int:
    """Where the tensors of a shard of so many bytes begin: behind its header, or the room left for one.

    Args:
        name: Under which it was found.
    """
    if name.endswith(".part"):
        return HEADER_ROOM
    return 8 + header_length(bytes(folder.disk.read(fd, 8, 0)), nbytes, str(folder.path / name))


def _open(opened: ExitStack, folder: Folder, names: tuple[str, ...]) -> tuple[int, str]:
    for name in names[:-1]:
        try:
            return opened.enter_context(folder.reading(name)), name
        except BundleCorruptError:
            continue
    return opened.enter_context(folder.reading(names[-1])), names[-1]
