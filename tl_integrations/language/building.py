"""A config -> the object, with the config's path and the place that recorded it in every error."""

import functools
from collections.abc import Iterable
from typing import Any, Literal

from tl_integrations.errors import BuildError
from tl_integrations.language import provenance, tracing
from tl_integrations.language.keys import Path, dotted
from tl_integrations.language.nodes import Site, place
from tl_integrations.language.opening import Opened, open_config
from tl_integrations.language.paths import load
from tl_integrations.language.records import record_of, takes_record
from tl_integrations.language.resolving import Resolver
from tl_integrations.language.targets import target_of
from tl_integrations.language.trust import GET_OBJECT, Policy, mentions

_WORDS = frozenset({"_target_", "_args_", "_partial_", "_convert_", "_recursive_"})
_MODES = ("none", "partial", "object", "all")


def instantiate(
    cfg: Any,
    /,
    *args: Any,
    allow: Iterable[str] | str | None = None,
    engine: Literal["fast", "hydra"] = "fast",
    **overrides: Any,
) -> Any:
    """Build what a config describes.

    Args:
        cfg: A DictConfig, or plain dicts and lists; what lies inside a bigger config still sees its parents.
        *args: Positional arguments instead of the config's `_args_`.
        allow: Names and patterns that may run besides those recorded in this process, the recipes of values,
            the classes of `torch.nn` and `torch.optim`, and what `trust` allows.
        engine: `"fast"` keeps an object that two keys refer to as one; `"hydra"` checks and then calls
            Hydra's, which makes two.
        **overrides: Arguments of the root that replace the config's; live objects are passed through as they
            are.
    Raises: UntrustedTargetError before anything is imported, with all refused names; BuildError for a config
        that is not complete or consistent; whatever a builder raises, with a note that names the config's
        path.
    """
    opened = open_config(cfg)
    policy = Policy(allow)
    tree = Resolver(opened.root, policy.allows_resolver, opened.evaluate).at(opened.path)
    found = policy.resolve(list(mentions(tree, opened.path)))
    with tracing.untraced():
        if engine == "hydra":
            return _with_hydra(tree, args, overrides)
        if engine != "fast":
            raise BuildError(f"engine={engine!r} is neither 'fast' nor 'hydra'.")
        return _Builder(opened, found).root(tree, args, overrides)


def _with_hydra(tree: Any, args: tuple[Any, ...], overrides: dict[str, Any]) -> Any:
    built = load("hydra.utils.instantiate")(tree, *args, **overrides)
    if type(built).__module__.partition(".")[0] == "omegaconf":
        return load("omegaconf.OmegaConf.to_container")(built, resolve=True)
    return built


class _Builder:
    """One build: every node once, so that a node referred to twice is one object."""

    def __init__(self, opened: Opened, found: dict[str, Any]) -> None:
        self._sites = opened.sites
        self._base = opened.path
        self._found = found
        self._built: dict[int, Any] = {}
        self._busy: set[int] = set()

    def root(self, tree: Any, args: tuple[Any, ...], overrides: dict[str, Any]) -> Any:
        if isinstance(tree, dict) and "_target_" in tree:
            return self._node(tree, self._base, "none", args, overrides)
        if args or overrides:
            raise BuildError("Arguments were given for a config that has no `_target_` at its root.")
        return self._value(tree, self._base, "none", True)

    def _value(self, value: Any, path: Path, mode: str, recursive: bool) -> Any:
        if type(value) is dict:
            if "_target_" in value and recursive:
                identity = id(value)
                if identity not in self._built:
                    self._built[identity] = self._node(value, path, mode, (), {})
                return self._built[identity]
            mode = value.get("_convert_", mode)
            return {key: self._value(item, (*path, key), mode, recursive) for key, item in value.items()}
        if type(value) is list:
            return [self._value(item, (*path, index), mode, recursive) for index, item in enumerate(value)]
        if type(value) is str and value == "???":
            raise BuildError(f"{dotted(path)} is missing ('???'). Give it a value before building.")
        return value

    def _node(
        self, node: dict[str, Any], path: Path, mode: str, args: tuple[Any, ...], overrides: dict[str, Any]
    ) -> Any:
        if id(node) in self._busy:
            raise BuildError(f"{dotted(path)} contains itself.")
        self._busy.add(id(node))
        mode, recursive, partial = self._words(node, path, mode)
        given = list(args)
        if not args and "_args_" in node:
            if type(node["_args_"]) is not list:
                raise BuildError(f"{dotted((*path, '_args_'))} must be a list, not {node['_args_']!r}.")
            where = (*path, "_args_")
            given = [self._argument(v, (*where, i), mode, recursive) for i, v in enumerate(node["_args_"])]
        named: dict[str, Any] = {}
        for key, value in node.items():
            if key in _WORDS or key in overrides or (partial and value == "???" and type(value) is str):
                continue
            named[key] = self._argument(value, (*path, key), mode, recursive)
        self._busy.discard(id(node))
        return self._call(node["_target_"], given, {**named, **overrides}, partial, path)

    def _argument(self, value: Any, path: Path, mode: str, recursive: bool) -> Any:
        kind = type(value)
        if kind is not dict and kind is not list and kind is not str:
            return value
        built = self._value(value, path, mode, recursive)
        if mode == "none" and (kind is list or (kind is dict and not ("_target_" in value and recursive))):
            return load("omegaconf.OmegaConf.create")(built, flags={"allow_objects": True})
        return built

    def _words(self, node: dict[str, Any], path: Path, mode: str) -> tuple[str, bool, bool]:
        mode, recursive, partial = (
            node.get("_convert_", mode),
            node.get("_recursive_", True),
            node.get("_partial_", False),
        )
        mode = getattr(mode, "value", mode)
        if mode not in _MODES:
            raise BuildError(f"{dotted((*path, '_convert_'))} is {mode!r}, not one of {', '.join(_MODES)}.")
        for word, flag in (("_recursive_", recursive), ("_partial_", partial)):
            if not isinstance(flag, bool):
                raise BuildError(f"{dotted((*path, word))} must be true or false, not {flag!r}.")
        return mode, recursive, partial

    def _call(self, name: Any, args: list[Any], kwargs: dict[str, Any], partial: bool, path: Path) -> Any:
        if name == GET_OBJECT:
            return self._found[kwargs["path"] if "path" in kwargs else args[0]]
        target = self._found[name] if type(name) is str else name
        try:
            if not callable(target):
                raise BuildError(
                    f"{dotted(path)}: {name!r} is {type(target).__name__}, which cannot be called."
                )
            if partial:
                return functools.partial(target, *args, **kwargs)
            built = target(*args, **kwargs)
        except Exception as error:
            error.add_note(f"while building {dotted(path)} ({name}){self._recorded_at(path)}")
            raise
        self._remember(target, built, args, kwargs)
        return built

    def _recorded_at(self, path: Path) -> str:
        site: Site | None = self._sites.get(path)
        return f", recorded at {place(site)}" if site else ""

    def _remember(self, target: Any, built: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Undecorated targets leave no record of their own."""
        if getattr(target, "_tl_target", None) is None and takes_record(built) and record_of(built) is None:
            plain_args, plain_kwargs = provenance.snapshot(tuple(args), kwargs)
            provenance.remember(target_of(target), built, plain_args, plain_kwargs)
