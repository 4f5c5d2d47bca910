"""A config -> the object, with the config's path and the place that recorded it in every error."""

import functools
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from tl_integrations.errors import BuildError, ConfigError
from tl_integrations.language import tracing
from tl_integrations.language.encoding import EXACT
from tl_integrations.language.keeping import keep, kept
from tl_integrations.language.keys import Path, Where, dotted, path_of
from tl_integrations.language.nodes import Site, place
from tl_integrations.language.opening import open_config
from tl_integrations.language.paths import load
from tl_integrations.language.remembering import snapshot
from tl_integrations.language.resolving import Resolver
from tl_integrations.language.scanning import GET_OBJECT, is_config_object, plain_names
from tl_integrations.language.targets import real_name, target_of
from tl_integrations.language.trust import Mention, Policy, mentions

_WORDS = frozenset({"_args_", "_partial_", "_convert_", "_recursive_"})
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
    if engine not in ("fast", "hydra"):
        raise BuildError(f"engine={engine!r} is neither 'fast' nor 'hydra'.")
    if "_target_" in overrides:
        raise BuildError("The target of a config is not an argument of it. Change the config instead.")
    policy = Policy(allow)
    builder = _without_resolving(cfg, policy) or _with_resolving(cfg, policy)
    with tracing.untraced():
        if engine == "hydra":
            return builder.with_hydra(args, overrides)
        return builder.root(args, overrides)


def _without_resolving(cfg: Any, policy: Policy) -> "_Builder | None":
    """The way of plain dicts that hold no interpolation: a twentieth of the time of the other."""
    names = plain_names(cfg) if type(cfg) is dict or type(cfg) is list else None
    if names is None:
        return None
    try:
        found = policy.resolve(
            [Mention(path=(), name=name, called=True) for name in names.called]
            + [Mention(path=(), name=name, called=False) for name in names.given]
        )
    except (ConfigError, ImportError):
        return None
    return _Builder(cfg, found, sharing=False)


def _with_resolving(cfg: Any, policy: Policy) -> "_Builder":
    opened = open_config(cfg)
    try:
        tree = Resolver(opened.root, policy.allows_resolver, opened.evaluate).at(opened.path)
        named = list(mentions(tree, opened.path))
    except RecursionError:
        raise BuildError("The config is nested too deeply to be built.") from None
    found = policy.resolve(named)
    return _Builder(tree, found, sharing=True, base=opened.path, sites=opened.sites)


class _Builder:
    """One build: every node once, so that a node referred to twice is one object.

    Paths are linked `(outer, key)` pairs, walked only for an error: a tuple per value would double the time.
    """

    def __init__(
        self,
        tree: Any,
        found: dict[str, Any],
        *,
        sharing: bool,
        base: Path = (),
        sites: Mapping[Path, Site] | None = None,
    ) -> None:
        self.tree = tree
        self._found = found
        self._sharing = sharing
        self._base = base
        self._sites = sites or {}
        self._built: dict[int, Any] = {}

    def root(self, args: tuple[Any, ...], overrides: dict[str, Any]) -> Any:
        """Build the whole tree, with arguments for its root node."""
        tree = self.tree
        if isinstance(tree, dict) and "_target_" in tree:
            return self._node(tree, None, "none", args, overrides)
        if args or overrides:
            raise BuildError("Arguments were given for a config that has no `_target_` at its root.")
        return self._value(tree, None, "none", True)

    def with_hydra(self, args: tuple[Any, ...], overrides: dict[str, Any]) -> Any:
        """Let Hydra build the checked tree; one that wants to know what may run is told just that."""
        build = load("hydra.utils.instantiate")
        if "_execution_whitelist_" in inspect.signature(build).parameters:
            names = {GET_OBJECT, *self._found, *(real_name(found) or "" for found in self._found.values())}
            overrides = {**overrides, "_execution_whitelist_": sorted(names - {""})}
        built = build(self.tree, *args, **overrides)
        if is_config_object(built):
            return load("omegaconf.OmegaConf.to_container")(built, resolve=True)
        return built

    def _value(self, value: Any, where: Where, mode: str, recursive: bool) -> Any:
        kind = type(value)
        if kind is dict:
            if recursive and "_target_" in value:
                return (
                    self._shared(value, where, mode)
                    if self._sharing
                    else self._node(value, where, mode, (), {})
                )
            mode = value.get("_convert_", mode)
            return {
                key: item if type(item) in EXACT else self._value(item, (where, key), mode, recursive)
                for key, item in value.items()
            }
        if kind is list:
            return [
                item if type(item) in EXACT else self._value(item, (where, index), mode, recursive)
                for index, item in enumerate(value)
            ]
        if _is_missing(value):
            raise BuildError(f"{self._key(where)} is missing ('???'). Give it a value before building.")
        return value

    def _shared(self, node: dict[str, Any], where: Where, mode: str) -> Any:
        identity = id(node)
        if identity not in self._built:
            self._built[identity] = self._node(node, where, mode, (), {})
        return self._built[identity]

    def _node(
        self, node: dict[str, Any], where: Where, mode: str, args: tuple[Any, ...], overrides: dict[str, Any]
    ) -> Any:
        named = {**node, **overrides} if overrides else node.copy()
        name = named.pop("_target_")
        recursive, partial = True, False
        given: Sequence[Any] = args
        if not _WORDS.isdisjoint(named):
            mode, recursive, partial = self._words(named, where, mode)
            given = args or self._positional(named.pop("_args_", ()), where, mode, recursive)
            for word in _WORDS.intersection(named):
                del named[word]
            if partial:
                named = {key: value for key, value in named.items() if not _is_missing(value)}
        for key, value in named.items():
            kind = type(value)
            if kind not in EXACT and (kind is not str or value == "???") and key not in overrides:
                named[key] = self._argument(value, (where, key), mode, recursive)
        return self._call(name, given, named, partial, where)

    def _positional(self, values: Any, where: Where, mode: str, recursive: bool) -> list[Any]:
        below = (where, "_args_")
        if not isinstance(values, list | tuple):
            raise BuildError(f"{self._key(below)} must be a list, not {values!r}.")
        return [self._argument(value, (below, i), mode, recursive) for i, value in enumerate(values)]

    def _argument(self, value: Any, where: Where, mode: str, recursive: bool) -> Any:
        kind = type(value)
        if kind is not dict and kind is not list and not _is_missing(value):
            return value
        built = self._value(value, where, mode, recursive)
        if mode == "none" and (kind is list or (kind is dict and not (recursive and "_target_" in value))):
            return load("omegaconf.OmegaConf.create")(built, flags={"allow_objects": True})
        return built

    def _key(self, where: Where) -> str:
        return dotted((*self._base, *path_of(where)))

    def _words(self, node: dict[str, Any], where: Where, mode: str) -> tuple[str, bool, bool]:
        mode, recursive, partial = (
            node.get("_convert_", mode),
            node.get("_recursive_", True),
            node.get("_partial_", False),
        )
        mode = getattr(mode, "value", mode)
        if mode not in _MODES:
            raise BuildError(
                f"{self._key((where, '_convert_'))} is {mode!r}, not one of {', '.join(_MODES)}."
            )
        for word, flag in (("_recursive_", recursive), ("_partial_", partial)):
            if not isinstance(flag, bool):
                raise BuildError(f"{self._key((where, word))} must be true or false, not {flag!r}.")
        return mode, recursive, partial

    def _call(
        self, name: Any, args: Sequence[Any], kwargs: dict[str, Any], partial: bool, where: Where
    ) -> Any:
        if name == GET_OBJECT:
            return self._found[kwargs["path"] if "path" in kwargs else args[0]]
        target = self._found[name] if type(name) is str else name
        try:
            if partial:
                return functools.partial(target, *args, **kwargs)
            built = target(*args, **kwargs)
        except Exception as error:
            if not callable(target):
                kind = type(target).__name__
                raise BuildError(f"{self._key(where)}: {name!r} is {kind}, which cannot be called.") from None
            error.add_note(f"while building {self._key(where)} ({name}){self._recorded_at(where)}")
            raise
        if getattr(target, "_tl_target", None) is None and kept(built) is None:
            keep(built, target_of(target), *snapshot(args, kwargs))
        return built

    def _recorded_at(self, where: Where) -> str:
        site = self._sites.get((*self._base, *path_of(where)))
        return f", recorded at {place(site)}" if site else ""


def _is_missing(value: Any) -> bool:
    return type(value) is str and value == "???"
