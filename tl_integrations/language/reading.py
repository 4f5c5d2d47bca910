"""YAML text -> a config, safe on any text: no tags, no bombs, no doubled keys, and every number as OmegaConf
reads it."""

import os
import re
from pathlib import Path
from typing import Any

import yaml

from tl_integrations.errors import ConfigTextError
from tl_integrations.language.lowering import Lowered, to_config

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_NODES = 100_000

_PREFIX = "tag:yaml.org,2002:"
_TAGS = frozenset(
    _PREFIX + name for name in ("str", "int", "float", "bool", "null", "binary", "seq", "map", "merge")
)
_KEYS = (str, int, float, bool, bytes)
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """Refuses doubled keys; reads floats such as `1e-3` as OmegaConf does, and dates as text."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if key.tag == f"{_PREFIX}merge":
                continue
            named = (key.tag, str(key.value))
            if named in seen:
                raise ConfigTextError(
                    f"The key {key.value!r} is there twice, {_at(key)}. Remove one of them."
                )
            seen.add(named)
        mapping = super().construct_mapping(node, deep)
        for key in mapping:
            if type(key) not in _KEYS:
                raise ConfigTextError(
                    f"{key!r} cannot be a key, {_at(node)}: keys are texts, numbers or true/false."
                )
        return mapping


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, regexp) for tag, regexp in resolvers if tag not in (f"{_PREFIX}timestamp", f"{_PREFIX}float")
    ]
    for first, resolvers in _Base.yaml_implicit_resolvers.items()
}
_FLOAT = re.compile(
    r"""^(?:[-+]?[0-9]+(?:_[0-9]+)*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+)
    |\.[0-9]+(?:_[0-9]+)*(?:[eE][-+][0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*(?::[0-5]?[0-9])+\.[0-9_]*
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""",
    re.X,
)
_Loader.add_implicit_resolver(f"{_PREFIX}float", _FLOAT, list("-+0123456789."))


def load_config(path: str | os.PathLike[str], *, as_dict: bool = False) -> Any:
    """Read a YAML config from a file. Nothing is imported, built or resolved.

    Args:
        path: A UTF-8 file with one mapping.
        as_dict: Give a plain dict instead of a DictConfig.
    Raises: ConfigTextError for text that is not a safe config: tags that name Python objects, keys that are
        there twice, more than 1 MiB, 64 levels or 100,000 nodes with aliases counted as often as they are
        used. OSError as open().
    """
    with Path(path).open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    try:
        plain = parse_config(raw)
    except ConfigTextError as error:
        raise ConfigTextError(f"{os.fspath(path)}: {error}") from error.__cause__
    return plain if as_dict else to_config(Lowered(content=plain))


def parse_config(raw: bytes) -> dict[Any, Any]:
    """The plain dict that YAML text holds. Raises ConfigTextError as `load_config`."""
    if len(raw) > MAX_BYTES:
        raise ConfigTextError(f"The text is larger than {MAX_BYTES // 1024} KiB, which no config is.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigTextError(f"The text is not UTF-8: {error}.") from error
    try:
        _check_events(text)
        plain = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigTextError(f"The text is not YAML: {' '.join(str(error).split())}") from error
    except (RecursionError, ValueError, OverflowError) as error:
        if isinstance(error, ConfigTextError):
            raise
        raise ConfigTextError(f"The text holds a value that cannot be read: {error}") from error
    if plain is None:
        return {}
    if not isinstance(plain, dict):
        raise ConfigTextError(f"A config is a mapping, and this is {type(plain).__name__}.")
    return plain


def _check_events(text: str) -> None:
    """Walk the text once without building anything, and count what building would make."""
    counter = _Counter()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for event in yaml.parse(text, Loader=loader):
        counter.see(event)


class _Counter:
    """Size and depth of a document with every alias expanded."""

    def __init__(self) -> None:
        self.documents = 0
        self.open: list[tuple[str | None, int, int]] = []
        self.size = 0
        self.deepest = 0
        self.anchors: dict[str, tuple[int, int]] = {}

    def see(self, event: Any) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise ConfigTextError(f"The text holds several documents, {_at(event)}; a config is one.")
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.ScalarEvent):
            _check_tag(event)
            self._grow(1, event)
            if event.anchor:
                self.anchors[event.anchor] = (1, 0)
        elif isinstance(event, yaml.CollectionStartEvent):
            _check_tag(event)
            self._grow(1, event)
            self.open.append((event.anchor, self.size - 1, self.deepest))
            self.deepest = len(self.open)
            self._check_depth(len(self.open), event)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before, outer = self.open.pop()
            if anchor:
                self.anchors[anchor] = (self.size - before, self.deepest - len(self.open))
            self.deepest = max(outer, self.deepest)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self.anchors:
            raise ConfigTextError(f"The alias *{event.anchor} refers to itself or to nothing, {_at(event)}.")
        size, depth = self.anchors[event.anchor]
        self._grow(size, event)
        self.deepest = max(self.deepest, len(self.open) + depth)
        self._check_depth(len(self.open) + depth, event)

    def _grow(self, size: int, event: Any) -> None:
        self.size += size
        if self.size > MAX_NODES:
            raise ConfigTextError(f"The text stands for more than {MAX_NODES} values, {_at(event)}.")

    def _check_depth(self, depth: int, event: Any) -> None:
        if depth > MAX_DEPTH:
            raise ConfigTextError(f"The text is nested more than {MAX_DEPTH} levels deep, {_at(event)}.")


def _check_tag(event: Any) -> None:
    if event.tag and event.tag != "!" and event.tag not in _TAGS:
        raise ConfigTextError(
            f"The tag {event.tag!r} is not allowed, {_at(event)}: a config is plain values only."
        )


def _at(mark: Any) -> str:
    start = mark.start_mark
    return f"line {start.line + 1}, column {start.column + 1}"
