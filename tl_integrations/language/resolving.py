"""Interpolations of a config -> values, with a reference to a whole node kept as that very node.

Simple references are followed here. Only resolvers and nested forms are handed to OmegaConf, and only those
resolvers that the policy allows.
"""

import re
from collections.abc import Callable
from typing import Any

from tl_integrations.errors import BuildError, UntrustedTargetError
from tl_integrations.language.keys import Path, dotted

_KEY = r"\.*(?:[^\s${}:.\[\]]+|\[[^\s${}\[\]]+\])(?:\.[^\s${}:.\[\]]+|\[[^\s${}\[\]]+\])*"
_WHOLE = re.compile(rf"\$\{{({_KEY}|\.+)\}}")
_PART = re.compile(rf"(?<!\\)\$\{{({_KEY})\}}")
_RESOLVER = re.compile(r"\$\{\s*([A-Za-z_][\w.]*)\s*:")
_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


class Resolver:
    """Resolves one config against the root it belongs to."""

    def __init__(self, root: Any, allows: Callable[[str], bool], evaluate: Callable[[Path], Any]) -> None:
        self.root = root
        self._allows = allows
        self._evaluate = evaluate
        self._done: dict[Path, Any] = {}
        self._busy: set[Path] = set()

    def at(self, path: Path) -> Any:
        """The resolved value at a path; the same path gives the same object each time.

        Raises: BuildError naming the key of a reference that leads nowhere or back to itself.
        """
        if path in self._done:
            return self._done[path]
        if path in self._busy:
            raise BuildError(f"{dotted(path)} refers to itself. Break the circle of interpolations.")
        self._busy.add(path)
        try:
            value = self._done[path] = self._resolve(self._raw(path), path)
        finally:
            self._busy.discard(path)
        return value

    def _raw(self, path: Path) -> Any:
        found = self.root
        for key in path:
            found = found[key]
        return found

    def _resolve(self, value: Any, path: Path) -> Any:
        if type(value) is dict:
            return {key: self.at((*path, key)) for key in value}
        if type(value) is list:
            return [self.at((*path, index)) for index in range(len(value))]
        if isinstance(value, str) and "${" in value:
            return self._text(value, path)
        return value

    def _text(self, text: str, path: Path) -> Any:
        whole = _WHOLE.fullmatch(text)
        if whole:
            return self._follow(whole[1], path, text)
        self._check_resolvers(text, path)
        if "\\" not in text and not _PART.sub("", text).count("${"):
            return _PART.sub(lambda part: str(self._follow(part[1], path, text)), text)
        self._check_all_resolvers()
        try:
            return self._evaluate(path)
        except Exception as error:
            raise BuildError(f"{dotted(path)}: {text!r} cannot be resolved: {error}") from error

    def _check_all_resolvers(self) -> None:
        """A nested form may reach any other key, so none of them may call what is not allowed."""
        for path, text in _texts(self.root, ()):
            self._check_resolvers(text, path)

    def _check_resolvers(self, text: str, path: Path) -> None:
        for name in _RESOLVER.findall(text):
            if not self._allows(name):
                raise UntrustedTargetError(
                    f"{dotted(path)}: {text!r} calls the resolver {name!r}, which may not run. "
                    f"If you trust it: allow=['resolver:{name}']"
                )

    def _follow(self, key: str, path: Path, text: str) -> Any:
        dots = len(key) - len(key.lstrip("."))
        if dots > len(path):
            raise BuildError(f"{dotted(path)}: {text!r} leads above the root of the config.")
        start: Path = path[: len(path) - dots] if dots else ()
        for bracketed, plain in _STEP.findall(key.lstrip(".")):
            start = (*start, self._step(start, bracketed or plain, path, text))
        return self.at(start)

    def _step(self, at: Path, key: str, path: Path, text: str) -> Any:
        holder = self._raw_or_resolved(at)
        if isinstance(holder, list):
            if key.lstrip("-").isdigit() and -len(holder) <= int(key) < len(holder):
                return int(key) % len(holder)
        elif isinstance(holder, dict):
            if key in holder:
                return key
            for other in holder:
                if not isinstance(other, str) and str(other) == key:
                    return other
        raise BuildError(f"{dotted(path)}: {text!r} leads nowhere: there is no {key!r} in {dotted(at)}.")

    def _raw_or_resolved(self, path: Path) -> Any:
        value = self._raw(path)
        return self.at(path) if isinstance(value, str) else value


def _texts(node: Any, path: Path) -> Any:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _texts(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _texts(value, (*path, index))
    elif isinstance(node, str) and "${" in node:
        yield path, node
