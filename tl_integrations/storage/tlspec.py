"""The `.tlspec` format, version 1: this text is its description; the functions below are pure.

    run.tlspec/
        manifest.json                 written last: whole and checked, or not there
        manifest.json.part            the same, as far as it is known while the bundle is being written
        index.jsonl                   what was recorded, line by line; only ever appended to
        shard-00001.safetensors       tensors; `.part` while it grows
        index-00001.safetensors       the lines of a finished shard once more, as columns
        config.yaml                   the config that built the model: plain YAML, nothing but data
        lock                          held by the writer

    Several ranks that keep records write folders of this shape inside one:
    `run.tlspec/rank-00003-of-00008/`.

**Checksums** are xxh3: 128 bits for what is stored (`"xxh3-128:<32 hex digits>"`), 64 bits for a line
(`"check"`, 16 hex digits). A check is always the last key of its JSON object and covers every byte of the
text before the comma that precedes it.

**index.jsonl.** One JSON object per line; keys with their default value are left out.

    record   one captured tensor: `record` (number, from 0 without holes), `commit` (which commit it belongs
             to), `step` (null outside a loop), `stage`, `microbatch`, `rank`, `call`, `dataloader_idx`,
             `batch`, `generation`, `run` (which forward), then what it is: `kind_of` ("op", "module", ...),
             `label`, `raw_label`, `short_label`, `func`, `layer`, `address`, `modules`, `pass`, `path`,
             `io`, `line`, `shape`, `dtype`, `device`, `requires_grad`, `forced_eager`, `placement`; `stored`
             = {"dtype", "shape"} of the tensor itself where a reduction, or a distributed tensor of which
             this is one part, made them differ; then where: `shard`, `offset`, `nbytes`, `sum`
             (all absent when only numbers were kept), and `statistics` {name: number} and `histogram`
             {"edges", "counts", "minimum", "maximum", "total", "squares"}
    grad     its gradient: `record`, `commit`, `dtype`, `shape`, `shard`, `offset`, `nbytes`, `sum`,
             `loss_scale`, `accumulate`
    op       one line of a forward's graph, written once per distinct graph: `graph`, then the graph's keys
    module   one module call of a graph, likewise
    commit   ends a captured step: `commit` (number, rising), `step`, `records`, `nbytes`, `seconds`,
             `events`, `graph`
    rewind   the run went back: records before this line with a step at or after `step` are superseded by
             later ones; `generation` counts these

A record exists when its commit's line exists. Its line is written after its bytes, and the commit's line
after all of its records. `shard` is a file's number and `offset` counts from the start of that file's data
area, so that a shard may be rewritten with a tighter header.

**Shards** are safetensors files. A growing one has 4 MiB of room before its data; when it is finished the
header is filled in, the rest of the room with spaces, and it is renamed. A finished shard whose data is
small is written anew without the room. It ends at `shard_bytes` or 16,384 records. Tensors are named
`r<record>` and `g<record>` (9 digits or more), fillers between them `p<number>`; metadata says `{"format":
"pt", "bundle": id}`.

**index-NNNNN.safetensors** holds what the index's lines up to `index_end` say since the previous one.
Columns, one entry per record: `step`, `commit`, `run`, `offset`, `nbytes` (-1: no tensor), `sum` (16 bytes
each), `moment`, `site`, `statistics_names` (rows of the tables below; -1: none), `statistics` (n, most
names), and with histograms `histogram_end`. Per gradient: `grad_record`, `grad_offset`, `grad_nbytes`,
`grad_sum`, `grad_site`, `grad_loss_scale`, `grad_accumulate`. Per commit: `commits`, `commit_steps`,
`commit_graphs`. Tables as JSON text: `moments`, `sites`, `names`, `graphs`, `histograms`, and `lines`
(graph and rewind lines with the number of the record that follows). An absent step is -2^63. Metadata:
`format` "tlspec-index", `version`, `bundle`, `shard`, `first` (first record's number), `index_end`,
`shard_nbytes` and `shard_sum` (empty without a shard), `sum` of the data area.

**manifest.json**: `format` "tlspec", `version` 1, `id`, `run_id`, `kind` ("recording" or "trace"),
`created`, `finished`, `producer`, `provenance`, `status` ("complete", "interrupted", "failed", "halted"),
`reason`, `rank`, `world_size`, `ranks`, `schedule`, `selector`, `reductions`, `counts` {"records",
"gradients", "commits", "nbytes", "dropped_steps", "dropped_records", "lost_steps"}, `shards` [{"name",
"nbytes", "sum"}] (the sum covers the header and then the 16-byte sums of its tensors in file order),
`indexes` [{"name", "nbytes", "sum"}], `index` {"nbytes", "sum"}, `config` {"nbytes", "sum"} or null,
`check`.

**Versions.** A reader opens its own version and every older one; a newer version is refused by number, by
`recover` too. Unknown keys are ignored; a new meaning of an old key, a new line kind or a new file that a
reader must know raises the version. A golden bundle of every version stays in the tests.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from xxhash import xxh3_64_hexdigest, xxh3_128_digest

from tl_integrations.errors import BundleCorruptError, BundleVersionError
from tl_integrations.storage.strict_json import dump, parse

Plain: TypeAlias = dict[str, Any]

FORMAT = "tlspec"
VERSION = 1
MANIFEST = "manifest.json"
OPEN_MANIFEST = "manifest.json.part"
INDEX = "index.jsonl"
CONFIG = "config.yaml"
LOCK = "lock"
MOST_RECORDS_PER_SHARD = 16_384
NO_STEP = -(1 << 63)
LINE_LIMIT = 1 << 20
MANIFEST_LIMIT = 16 << 20
INDEX_LIMIT = 1 << 28
CONFIG_LIMIT = 1 << 20
RANK_FOLDER = re.compile(r"rank-(\d{5})-of-(\d{5})")
OWN_NAME = re.compile(
    r"(manifest\.json(\.part)?|index\.jsonl|config\.yaml|(shard|index)-\d{5,9}\.safetensors)(\.part|\.tmp)?|lock"
)
SHARD_NAME = re.compile(r"shard-(\d{5,9})\.safetensors(\.part)?")
INDEX_NAME = re.compile(r"index-(\d{5,9})\.safetensors")
SUM = re.compile(r"xxh3-128:[0-9a-f]{32}")
_CHECK = re.compile(rb',\s*"check":\s*"([0-9a-f]{16})"\s*\}')
_CHECK_TAIL = 48


def shard_name(number: int) -> str:
    return f"shard-{number:05d}.safetensors"


def index_name(number: int) -> str:
    return f"index-{number:05d}.safetensors"


def rank_folder(rank: int, world_size: int) -> str:
    return f"rank-{rank:05d}-of-{world_size:05d}"


def sum_text(digest: bytes) -> str:
    return f"xxh3-128:{digest.hex()}"


def sum_of(content: bytes | bytearray | memoryview) -> str:
    return sum_text(xxh3_128_digest(content))


def sealed(text: str) -> str:
    """A line from its JSON object without the closing brace (`{"kind":"op",...`): check and end are added."""
    return f'{text},"check":"{xxh3_64_hexdigest(text.encode())}"}}\n'


def sealed_all(texts: Sequence[str]) -> list[str]:
    """The same of several, in two thirds of the time."""
    checks = map(xxh3_64_hexdigest, map(str.encode, texts))
    return [f'{text},"check":"{check}"}}\n' for text, check in zip(texts, checks)]


def line(content: Mapping[str, Any]) -> str:
    """A whole line of the index; ASCII."""
    return sealed(dump(dict(content))[:-1])


def read_line(content: bytes, where: str) -> Plain:
    """The object of a line, without its check.

    Raises:
        BundleCorruptError: if the check does not fit, or it is not one JSON object.
    """
    if len(content) > LINE_LIMIT:
        raise BundleCorruptError(f"{where} has {len(content)} bytes; lines have at most {LINE_LIMIT}.")
    return _unsealed(content, where)


def write_manifest(fields: Mapping[str, Any]) -> bytes:
    """The manifest's bytes, ending with its check."""
    body = ",\n".join(f"  {dump(key)}: {dump(value)}" for key, value in fields.items())
    sealed_part = ("{\n" + body).encode()
    return b'%b,\n  "check": "%b"\n}\n' % (sealed_part, xxh3_64_hexdigest(sealed_part).encode())


def read_manifest(content: bytes, where: str) -> Plain:
    """The manifest without its check, its format and version known to be ours.

    Raises:
        BundleCorruptError: if it is damaged or no manifest of a `.tlspec` bundle.
        BundleVersionError: if a newer version wrote it, or its version is no number.
    """
    found = parse(content, where)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise BundleCorruptError(f"{where} is not the manifest of a .tlspec bundle.")
    version = found.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise BundleVersionError(
            f"{where} has format version {str(version)[:40]!r}; this reader knows 1 to {VERSION}. "
            "Install a newer tl_integrations to read it."
        )
    return _unsealed(content, where)


def _unsealed(content: bytes, where: str) -> Plain:
    tail = content[-_CHECK_TAIL:].rstrip()
    found = _CHECK.search(tail)
    end = len(content) - len(content[-_CHECK_TAIL:]) + found.start() if found else 0
    if found is None or found.end() != len(tail) or found[1].decode() != xxh3_64_hexdigest(content[:end]):
        raise BundleCorruptError(f"{where} is damaged: its check does not fit its bytes.")
    value = parse(content, where)
    if not isinstance(value, dict):
        raise BundleCorruptError(f"{where} is not a JSON object.")
    value.pop("check")
    return value
