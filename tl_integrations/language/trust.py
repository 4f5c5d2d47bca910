"""Which `_target_` names may run. Trust belongs to names that Python code vouched for, never to a config or
its origin.

Checked twice: the name before anything is imported, and what it really leads to afterwards
(`logging.os.system` is an `os` function under another name). The deny list holds inside every allowed
package.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tl_integrations.errors import BuildError, UntrustedTargetError
from tl_integrations.language.denials import denial
from tl_integrations.language.keys import dotted
from tl_integrations.language.paths import load
from tl_integrations.language.scanning import GET_OBJECT
from tl_integrations.language.targets import real_name, trusted

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z")
_TORCH = ("torch.nn.", "torch.optim.")
_READABLE = ("torch.nn.functional.", "torch.nn.init.")
_RECIPES = frozenset(
    "builtins.bytearray builtins.complex builtins.dict builtins.frozenset builtins.list builtins.range "
    "builtins.set builtins.slice builtins.tuple collections.Counter collections.OrderedDict "
    "collections.defaultdict collections.deque datetime.date.fromisoformat datetime.datetime.fromisoformat "
    "datetime.time.fromisoformat datetime.timedelta datetime.timezone decimal.Decimal fractions.Fraction "
    "numpy.array numpy.bool_ numpy.bytes_ numpy.complex128 numpy.complex64 numpy.datetime64 numpy.dtype "
    "numpy.empty numpy.float16 numpy.float32 numpy.float64 numpy.int16 numpy.int32 numpy.int64 numpy.int8 "
    "numpy.str_ numpy.timedelta64 numpy.uint16 numpy.uint32 numpy.uint64 numpy.uint8 pathlib.Path "
    "pathlib.PurePath pathlib.PurePosixPath pathlib.PureWindowsPath re.compile torch.Generator "
    "torch.Generator.manual_seed torch.Size torch.device torch.empty torch.tensor urllib.parse.unquote "
    "uuid.UUID".split()
)
_CONSTANTS = frozenset(
    "builtins.Ellipsis builtins.NotImplemented builtins.int builtins.float builtins.str builtins.bool".split()
)
_HARMLESS_RESOLVERS = frozenset(
    {"oc.select", "oc.decode", "oc.create", "oc.dict.keys", "oc.dict.values", "oc.deprecated"}
)

_patterns: list[str] = []


def trust(*patterns: str) -> None:
    """Allow names for this process, once and for all: `L.trust("my_app.*")` in the module that starts the
    program.

    Args:
        patterns: Exact import paths, or patterns whose `*` also crosses dots; `"resolver:oc.env"` allows a
            resolver.
    Raises: ValueError for a pattern that is not a text or would allow everything.
    """
    _patterns.extend(_checked(patterns))


def _checked(patterns: Iterable[str]) -> list[str]:
    if isinstance(patterns, str):
        patterns = [patterns]
    found = list(patterns)
    for pattern in found:
        if not isinstance(pattern, str) or not re.match(r"[A-Za-z_]\w*", pattern):
            raise ValueError(
                f"An allowed name starts with a package, such as 'my_app.*'; {pattern!r} does not."
            )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """One name in a config that would be imported."""

    path: tuple[Any, ...]
    """Where it stands."""
    name: Any
    """The text of it, which may be no text at all."""
    called: bool
    """Whether it is called, or only handed over."""


class Policy:
    """What one `instantiate` allows: recorded names, recipes, torch's classes, `trust(...)` and its own
    `allow=`."""

    def __init__(self, allow: Iterable[str] | str | None = None) -> None:
        names = [*_patterns, *_checked(allow or ())]
        self._exact = {name for name in names if "*" not in name and "?" not in name and "[" not in name}
        self._wild = [name for name in names if name not in self._exact]

    def resolve(self, mentions: list[Mention]) -> dict[str, Any]:
        """Check all names, then import them, then check what they are.

        Raises: UntrustedTargetError that lists every refusal; BuildError for names that lead nowhere.
        """
        refused = [(m, why) for m in mentions if (why := self._refuse_name(m))]
        _raise(refused)
        found: dict[str, Any] = {}
        for mention in mentions:
            if type(mention.name) is str and mention.name not in found:
                try:
                    found[mention.name] = load(mention.name)
                except Exception as error:
                    raise _located(error, mention) from error
        _raise([(m, why) for m in mentions if (why := self._refuse_found(m, found))])
        return found

    def admits(self, name: str) -> bool:
        """Whether a target of this name may be imported at all."""
        return self._refuse_name(Mention(path=(), name=name, called=True)) is None

    def allows_resolver(self, name: str) -> bool:
        """Whether `${name:...}` may be evaluated."""
        return name in _HARMLESS_RESOLVERS or any(
            fnmatchcase(f"resolver:{name}", p) for p in (*self._exact, *self._wild)
        )

    def _refuse_name(self, mention: Mention) -> str | None:
        name = mention.name
        if type(name) is not str:
            return (
                None if callable(name) and not isinstance(name, str) else "is not the text of an import path"
            )
        if not _NAME.fullmatch(name):
            return "is not an import path"
        reason = denial(name)
        if reason:
            return f"is never allowed: {reason}"
        if self._exactly(name, mention.called) or self._by_pattern(name) or name.startswith(_TORCH):
            return None
        if not mention.called and (name.startswith(_READABLE) or re.fullmatch(r"torch\.\w+", name)):
            return None
        return "is not allowed here"

    def _exactly(self, name: str, called: bool) -> bool:
        return (
            name in trusted or name in _RECIPES or name in self._exact or (not called and name in _CONSTANTS)
        )

    def _by_pattern(self, name: str) -> str | None:
        return next((pattern for pattern in self._wild if fnmatchcase(name, pattern)), None)

    def _refuse_found(self, mention: Mention, found: dict[str, Any]) -> str | None:
        name = mention.name
        thing = name if type(name) is not str else found[name]
        real = _real(thing)
        reason = denial(real)
        if reason:
            return f"really is {real!r}, which is never allowed: {reason}"
        if type(name) is not str or self._exactly(name, mention.called):
            return None
        pattern = self._by_pattern(name)
        if pattern is not None:
            prefix = pattern.partition("*")[0]
            if self._by_pattern(real) or real.startswith(prefix):
                return None
        elif isinstance(thing, type) and real.startswith(_TORCH) and name.startswith(_TORCH):
            return None
        elif not mention.called and _is_readable(name, thing, real):
            return None
        return f"really is {real!r}, which is not allowed here"


def _is_readable(name: str, thing: Any, real: str) -> bool:
    if name.startswith(_READABLE):
        return (callable(thing) and real.startswith("torch.")) or real.startswith("_VariableFunctionsClass")
    return type(thing).__module__ == "torch" and type(thing).__name__ in ("dtype", "layout", "memory_format")


def _real(thing: Any) -> str:
    """The name an object gives itself; for an instance, that of its type."""
    inner = getattr(thing, "func", None) if type(thing).__name__ == "partial" else None
    return (
        real_name(inner if inner is not None else thing)
        or real_name(type(thing))
        or "an object without a name"
    )


def _located(error: Exception, mention: Mention) -> Exception:
    if isinstance(error, BuildError):
        return BuildError(f"{dotted(mention.path)}: {error}")
    error.add_note(f"in the config at {dotted(mention.path)}")
    return error


def _raise(refused: list[tuple[Mention, str]]) -> None:
    if not refused:
        return
    lines = [
        f"  {dotted((*m.path, '_target_' if m.called else 'path'))}: {m.name!r} {why}" for m, why in refused
    ]
    names = sorted(
        {m.name for m, why in refused if isinstance(m.name, str) and "never" not in why and "path" not in why}
    )
    cure = f"\nIf you trust them: allow={names!r}" if names else ""
    count = f"{len(refused)} names" if len(refused) > 1 else "A name"
    raise UntrustedTargetError(f"{count} in this config may not run:\n" + "\n".join(lines) + cure)


def mentions(node: Any, path: tuple[Any, ...] = (), seen: set[int] | None = None) -> Iterator[Mention]:
    """Every name that building `node` would import, in order."""
    seen = set() if seen is None else seen
    if not isinstance(node, dict | list) or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, list):
        for index, value in enumerate(node):
            yield from mentions(value, (*path, index), seen)
        return
    if "_target_" in node:
        target = node["_target_"]
        if target == GET_OBJECT:
            yield Mention(path=path, name=_object_path(node), called=False)
        else:
            yield Mention(path=path, name=target, called=True)
    for key, value in node.items():
        yield from mentions(value, (*path, key), seen)


def _object_path(node: dict[str, Any]) -> Any:
    args = node.get("_args_") or [None]
    return node.get("path", args[0] if isinstance(args, list) else None)
