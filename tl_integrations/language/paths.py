"""Objects <-> the dotted import paths that a config names them by."""

import functools
import importlib
import importlib.util
import sys
import types
from collections.abc import Iterable
from typing import Any

from tl_integrations.errors import BuildError, TraceError, near_names

_REEXPORTERS = (
    "torch",
    "torch.nn.functional",
    "torch.special",
    "torch.linalg",
    "torch.fft",
    "numpy",
    "operator",
)
"""Modules that own functions which do not know their own module, such as `torch.relu`."""


def import_path(target: Any) -> str:
    """The dotted path of an importable object, checked by importing it.

    Raises: TraceError when nobody else could import it: a lambda, a local function, a bound method of an
        instance.
    """
    if isinstance(target, types.ModuleType):
        return target.__name__
    owner = getattr(target, "__self__", None)
    if isinstance(owner, type) and isinstance(target, types.MethodType):
        return f"{import_path(owner)}.{target.__name__}"
    module, qualname = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    if isinstance(owner, types.ModuleType) and module is None:
        module = owner.__name__
    _refuse_unimportable(target, module, qualname)
    if isinstance(module, str) and isinstance(qualname, str):
        path = f"{module}.{qualname}"
        if (module.startswith("_") or "._" in module) and (public := _reexported(target)):
            return public
        if stands_for(lookup(path), target):
            return path
    found = _reexported(target)
    if found is None:
        raise TraceError(
            f"{target!r} cannot be imported by name: '{module}.{qualname}' is "
            f"{'something else' if lookup(f'{module}.{qualname}') is not None else 'not there'}. "
            "Define it at the top level of a module under its own name."
        )
    return found


def _refuse_unimportable(target: Any, module: Any, qualname: Any) -> None:
    if isinstance(target, functools.partial):
        raise TraceError(
            f"{target!r} has no import path. Write "
            f"L.partial({getattr(target.func, '__name__', 'target')})(...) for it."
        )
    text = str(qualname)
    if "<lambda>" in text:
        raise TraceError(
            f"<lambda> ({_defined_at(target)}) has no import path, so a config cannot name it. "
            "Give it a name at module level, or use L.partial(function)(...)."
        )
    if "<locals>" in text:
        raise TraceError(
            f"{module}.{text} is local to a function (<locals>), so no other process can import it. "
            "Move it to the top level of its module."
        )
    if isinstance(target, types.MethodType):
        raise TraceError(
            f"{text} is bound to a live object, which a config cannot name. Use a function or a classmethod."
        )


def _defined_at(target: Any) -> str:
    code = getattr(target, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else "unknown place"


def _reexported(target: Any) -> str | None:
    name = getattr(target, "__name__", None)
    if not isinstance(name, str):
        return None
    for module_name in _REEXPORTERS:
        module = sys.modules.get(module_name)
        if module is not None and getattr(module, name, None) is target:
            return f"{module_name}.{name}"
    return None


def stands_for(found: Any, target: Any) -> bool:
    """Whether importing gave `target` itself, its decorated form, or an equal bound classmethod."""
    if found is target or (found is not None and getattr(found, "__wrapped__", None) is target):
        return True
    if getattr(target, "__wrapped__", None) is found and found is not None:
        return True
    return isinstance(found, types.MethodType) and (found == target or found.__func__ is target)


def lookup(path: str) -> Any:
    """What already imported modules hold under `path`, or None; imports nothing."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        found: Any = sys.modules.get(".".join(parts[:cut]))
        if found is None:
            continue
        for part in parts[cut:]:
            found = getattr(found, part, None)
        return found
    return None


def load(path: str) -> Any:
    """Import what `path` names: modules as far as they go, then attributes.

    Raises: BuildError when a part is missing; whatever a module raises while it is imported, with a note.
    """
    parts = path.split(".")
    if not all(part.isidentifier() for part in parts):
        raise BuildError(f"{path!r} is not a dotted import path.")
    found: Any = _import(parts[0], path)
    for index, part in enumerate(parts[1:], 1):
        try:
            found = getattr(found, part)
        except AttributeError:
            if not isinstance(found, types.ModuleType):
                raise _nothing_there(path, parts, index) from None
            found = _submodule(found, parts, index)
    return found


def _submodule(module: types.ModuleType, parts: list[str], index: int) -> Any:
    name = ".".join(parts[: index + 1])
    if not hasattr(module, "__path__") or importlib.util.find_spec(name) is None:
        raise _nothing_there(".".join(parts), parts, index, dir(module))
    return _import(name, ".".join(parts))


def _import(name: str, path: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(f"{missing}."):
            raise BuildError(
                f"{path!r} cannot be imported: there is no module {missing!r}. Check its spelling and that "
                "its package is installed."
            ) from error
        error.add_note(f"while importing {path!r}, which a config names")
        raise
    except Exception as error:
        error.add_note(f"while importing {path!r}, which a config names")
        raise


def _nothing_there(path: str, parts: list[str], index: int, known: Iterable[str] = ()) -> BuildError:
    owner, name = ".".join(parts[:index]), parts[index]
    hint = near_names(name, known)
    return BuildError(
        f"{path!r} cannot be imported: {owner!r} has no attribute {name!r}. {hint}Check its spelling."
    )
