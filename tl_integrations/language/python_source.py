"""A config -> the Python that says the same: nested calls of the real builders."""

import keyword
import re
from typing import Any
from urllib.parse import unquote

from tl_integrations.errors import ConfigError
from tl_integrations.language.binding import RESERVED
from tl_integrations.language.keys import Path, dotted
from tl_integrations.language.lowering import to_plain
from tl_integrations.language.paths import lookup
from tl_integrations.language.resolving import Resolver
from tl_integrations.language.scanning import GET_OBJECT

_DISPLAYS = {
    "builtins.tuple": "tuple",
    "builtins.set": "set",
    "builtins.dict": "dict",
    "builtins.list": "list",
}


def to_python(cfg: Any) -> str:
    """Source of a function `build()` that makes, in ordinary Python, what the config describes.

    An object that two keys share becomes a variable. Run inside `trace`, it gives the config back when its
    builders are configurable.

    Args:
        cfg: A DictConfig or plain dict whose interpolations lead to other keys of it.
    Raises: ConfigError for a key that Python cannot pass by name.
    """
    tree = Resolver(to_plain(cfg), _no_resolvers, _unresolved).at(())
    writer = _Writer(tree)
    result = writer.value(tree, ())
    body = "\n".join(f"    {line}" for line in (*writer.lines, f"return {result}"))
    imports = "\n".join(sorted(writer.imports))
    return f"{imports}\n\n\ndef build():\n{body}\n" if imports else f"def build():\n{body}\n"


def _no_resolvers(name: str) -> bool:
    return False


def _unresolved(path: Path) -> Any:
    raise ConfigError(f"{dotted(path)} holds an interpolation that has no Python form.")


class _Writer:
    def __init__(self, tree: Any) -> None:
        self.imports: set[str] = set()
        self.lines: list[str] = []
        self._names: dict[int, str] = {}
        self._taken: dict[str, str] = {}
        self._uses: dict[int, int] = {}
        self._count(tree)

    def _count(self, value: Any) -> None:
        if isinstance(value, dict | list):
            self._uses[id(value)] = self._uses.get(id(value), 0) + 1
            if self._uses[id(value)] == 1:
                for item in value.values() if isinstance(value, dict) else value:
                    self._count(item)

    def value(self, value: Any, path: Path) -> str:
        if isinstance(value, list):
            return f"[{', '.join(self.value(item, (*path, i)) for i, item in enumerate(value))}]"
        if not isinstance(value, dict):
            return _scalar(value, path)
        if "_target_" not in value:
            pairs = [f"{_scalar(k, path)}: {self.value(v, (*path, k))}" for k, v in value.items()]
            return f"{{{', '.join(pairs)}}}"
        if self._uses[id(value)] > 1:
            return self._variable(value, path)
        return self._node(value, path)

    def _variable(self, node: dict[str, Any], path: Path) -> str:
        if id(node) not in self._names:
            text = self._node(node, path)
            name = re.sub(r"\W", "_", str(path[-1] if path else "shared"))
            name = f"shared_{name}_{len(self._names) + 1}"
            self.lines.append(f"{name} = {text}")
            self._names[id(node)] = name
        return self._names[id(node)]

    def _node(self, node: dict[str, Any], path: Path) -> str:
        target, args = node["_target_"], node.get("_args_", [])
        if target == GET_OBJECT:
            return self._name(node.get("path", args[0] if args else ""))
        if target == "urllib.parse.unquote":
            return repr(unquote(*args))
        if target in _DISPLAYS and len(args) == 1 and len(node) <= 3:
            return self._display(_DISPLAYS[target], args[0], path)
        return self._call(node, target, args, path)

    def _call(self, node: dict[str, Any], target: str, args: list[Any], path: Path) -> str:
        written = [self.value(item, (*path, "_args_", index)) for index, item in enumerate(args)]
        for key, item in node.items():
            if key in RESERVED:
                continue
            if not isinstance(key, str) or not key.isidentifier() or keyword.iskeyword(key):
                raise ConfigError(f"{dotted((*path, key))} is no name that Python can pass.")
            written.append(f"{key}={self.value(item, (*path, key))}")
        name = self._name(target)
        if node.get("_partial_"):
            self.imports.add("import functools")
            return f"functools.partial({', '.join([name, *written])})"
        return f"{name}({', '.join(written)})"

    def _display(self, kind: str, content: Any, path: Path) -> str:
        where = (*path, "_args_", 0)
        if kind == "dict" and isinstance(content, list):
            pairs = (f"{self.value(k, where)}: {self.value(v, where)}" for k, v in content)
            return f"{{{', '.join(pairs)}}}"
        if not isinstance(content, list):
            return f"{kind}({self.value(content, where)})"
        items = [self.value(item, (*where, index)) for index, item in enumerate(content)]
        if kind == "tuple":
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        if kind == "set":
            return f"{{{', '.join(items)}}}" if items else "set()"
        return f"[{', '.join(items)}]"

    def _name(self, path: str) -> str:
        """Import what a path names, and give the expression for it; two of the same name keep their
        modules."""
        module, parts = _split(path)
        if module == "builtins":
            return ".".join(parts)
        head = parts[0] if parts else module
        if parts and self._taken.setdefault(head, module) == module and head != "build":
            self.imports.add(f"from {module} import {head}")
            return ".".join(parts)
        self.imports.add(f"import {module}")
        return ".".join([module, *parts])


def _split(path: str) -> tuple[str, list[str]]:
    """The module and the attributes of a dotted path; without importing, classes are told by their capital
    letter."""
    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        found = lookup(".".join(parts[:cut]))
        if found is not None and type(found).__name__ == "module":
            return ".".join(parts[:cut]), parts[cut:]
    cut = next((i for i, part in enumerate(parts) if part[:1].isupper()), len(parts) - 1)
    return ".".join(parts[:cut]) or parts[0], parts[cut:]


def _scalar(value: Any, path: Path) -> str:
    if isinstance(value, float) and value != value:
        return 'float("nan")'
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    if isinstance(value, str) and value == "???":
        raise ConfigError(
            f"{dotted(path)} is missing ('???'), which Python cannot say. Give it a value first."
        )
    return repr(value)
