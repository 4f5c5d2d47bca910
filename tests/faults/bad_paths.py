"""Names and links that lead out of a bundle: each is refused, and nothing outside is read."""

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

from bundles import bundle
from xxhash import xxh3_64_hexdigest

from tl_integrations.capture.recording import Recording
from tl_integrations.errors import BundleError
from tl_integrations.storage import load, recover, to_disk

NAMES = (
    "../secret",
    "../../etc/passwd",
    "/etc/passwd",
    "a/../../secret",
    "./shard-00001.safetensors",
    "shard-00001.safetensors/../../secret",
    "C:\\secret",
    "\\\\host\\share",
    "file:///etc/passwd",
    "shard-00001.safetensors\0",
    "shard-1.safetensors",
    "SHARD-00001.SAFETENSORS",
    "shard-00001.safetensors ",
    "shard-\u0660\u0660\u0660\u0660\u0661.safetensors",
    "",
    ".",
    "..",
    "metadata.pkl",
    "manifest.json",
    "shard-99999999999999999999.safetensors",
)
"""Names that a manifest may claim."""
SECRET = b"nobody reads this"


def bad_paths(folder: Path) -> str:
    """Try bad names in every list of a manifest, and every kind of file in place of every file."""
    outside = folder / "secret"
    outside.write_bytes(SECRET)
    tried = 0
    for key in ("shards", "indexes"):
        for name in NAMES:
            path = bundle(folder / "named.tlspec")
            _claim(path, key, name)
            tried += _refused(path)
            shutil.rmtree(path)
    for name in ("manifest.json", "index.jsonl", "shard-00001.safetensors", "index-00001.safetensors"):
        for make in (_link_outside, _link_to_device, _pipe, _folder, _socket):
            path = bundle(folder / "linked.tlspec")
            os.unlink(path / name)
            make(path / name, outside)
            tried += _refused(path)
            shutil.rmtree(path)
    assert outside.read_bytes() == SECRET
    return f"{tried} names and links refused, 0 reads outside"


def _claim(path: Path, key: str, name: str) -> None:
    """Put a name into the manifest and seal it again."""
    manifest = json.loads((path / "manifest.json").read_text())
    manifest.pop("check")
    manifest[key][0]["name"] = name
    body = json.dumps(manifest)[:-1].encode()
    (path / "manifest.json").write_bytes(body + b',"check":"' + xxh3_64_hexdigest(body).encode() + b'"}')


def _refused(path: Path) -> int:
    """Reading everything in every way gives no byte of the secret."""
    errors = 0
    readers: list[Callable[[], Recording]] = [lambda: load(path), lambda: recover(path)]
    for reader in readers:
        try:
            for record in reader():
                assert SECRET not in bytes(record.out.numpy().tobytes())
        except BundleError:
            errors += 1
    assert errors, f"{sorted(os.listdir(path))} was read without a word"
    return 1


def _link_outside(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def _link_to_device(path: Path, outside: Path) -> None:
    path.symlink_to("/dev/zero")


def _pipe(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path, outside: Path) -> None:
    path.mkdir()


def _socket(path: Path, outside: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def writing_is_refused(folder: Path) -> str:
    """Writers refuse links in place of the bundle, and a parent that is a link to nothing."""
    real = bundle(folder / "real.tlspec")
    (folder / "link.tlspec").symlink_to(real)
    (folder / "dangling").symlink_to(folder / "nowhere")
    targets = (folder / "link.tlspec", folder / "dangling", folder / "dangling" / "run.tlspec")
    for target in targets:
        for options in ({}, {"overwrite": True}, {"resume": True}):
            try:
                to_disk(target, **options).open()  # type: ignore[arg-type]
            except BundleError:
                continue
            raise AssertionError(f"{target} was written")
    assert load(real).steps == [0, 1, 2] and not (folder / "nowhere").exists()
    return f"{len(targets) * 3} writes through links refused"
