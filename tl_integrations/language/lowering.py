"""Recorded calls -> one plain dict; and, in the only place that needs OmegaConf, -> one config object."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tl_integrations.errors import TraceError
from tl_integrations.language.defaults import DefaultsMode, with_defaults
from tl_integrations.language.encoding import EXACT, Encoder, is_compound
from tl_integrations.language.keys import Path, Where, dotted, path_of, relative
from tl_integrations.language.nodes import Call, Site, Tree, place, site_of
from tl_integrations.language.scanning import holds_target, is_config_object

Sharing = Literal["reference", "duplicate", "refuse"]


@dataclass(slots=True, kw_only=True)
class Lowered:
    """A plain config and what was noticed on the way."""

    content: Any = None
    """Scalars, lists and dicts only."""
    placed: dict[Call | Tree, Where] = field(default_factory=dict)
    """What was put in, with the place of its first use."""
    copies: list[tuple[Call, Where]] = field(default_factory=list)
    """Further uses that were written out once more."""
    unpinned: list[str] = field(default_factory=list)
    """Dotted keys of defaults that cannot be written."""
    spliced: bool = False
    """Whether finished configs were put in, whose targets were not looked at."""

    def sites(self) -> dict[Path, Site]:
        """Where each node was recorded, by its path."""
        known = [*self.placed.items(), *self.copies]
        return {path_of(w): site_of(v.spot) for v, w in known if type(v) is Call and v.spot is not None}


class _Lowering:
    """One pass over the recorded tree; a call met again becomes a relative interpolation."""

    def __init__(self, sharing: Sharing, defaults: DefaultsMode) -> None:
        self.sharing = sharing
        self.defaults = defaults
        self.result = Lowered()
        self._placed = self.result.placed
        self.handing_on: list[Path] = []

    def value(self, value: Any, where: Where) -> Any:
        kind = type(value)
        if kind is Call or kind is Tree:
            if self._placed.setdefault(value, where) is not where:
                return self._again(value, where)
            if kind is Call and value.flat and (value.target.defaults or self.defaults) == "omit":
                return {"_target_": value.target.path, **value.kwargs}
            return self._once(value, where)
        if kind is dict:
            return {key: v if type(v) in EXACT else self.value(v, (where, key)) for key, v in value.items()}
        if kind is list:
            return [v if type(v) in EXACT else self.value(v, (where, i)) for i, v in enumerate(value)]
        return str(value) if isinstance(value, str) else value

    def _again(self, value: Call | Tree, where: Where) -> Any:
        first = self._placed[value]
        if self.sharing == "refuse":
            raise TraceError(_refusal(value, path_of(first), path_of(where)))
        if self.sharing == "reference":
            return relative(path_of(where), path_of(first))
        if type(value) is Call:
            self.result.copies.append((value, where))
        return self._once(value, where)

    def _once(self, value: Call | Tree, where: Where) -> Any:
        if isinstance(value, Call):
            return self._call(value, where)
        self.result.spliced = True
        return _copy(value.content)

    def _call(self, call: Call, where: Where) -> dict[str, Any]:
        kwargs, args = call.kwargs, call.args
        if (call.target.defaults or self.defaults) != "omit" and not call.partial:
            args, kwargs, skipped = with_defaults(call.target, args, kwargs)
            self.result.unpinned += [dotted((*path_of(where), name)) for name in skipped]
        node: dict[str, Any] = {"_target_": call.target.path}
        if call.partial:
            node["_partial_"] = True
        if args:
            node["_args_"] = self.value(args, (where, "_args_"))
        compound = False
        for name, value in kwargs.items():
            kind = type(value)
            if kind in EXACT or kind is str:
                node[name] = value
            else:
                node[name] = self.value(value, (where, name))
                compound = True
        if compound or args:
            self._say_how_to_convert(node, kwargs, args, where)
        return node

    def _say_how_to_convert(
        self, node: dict[str, Any], kwargs: Any, args: Sequence[Any], where: Where
    ) -> None:
        if any(type(v) is Tree and v.as_config for v in (*kwargs.values(), *args)):
            path = path_of(where)
            self.handing_on.append(path)
            _hand_on_configs(node, kwargs, args, path)
        elif any(map(_is_container, kwargs.values())) or any(map(is_compound, args)):
            node["_convert_"] = "all"


def _is_container(value: Any) -> bool:
    if type(value) is Tree:
        value = value.content
    return type(value) is list or (type(value) is dict and "_target_" not in value)


def _hand_on_configs(node: dict[str, Any], kwargs: dict[str, Any], args: Sequence[Any], path: Path) -> None:
    """Without `_convert_` an argument that is a config arrives as one; other containers then need their own
    node."""
    holds = any(
        type(v) is Tree and v.as_config and holds_target(v.content) for v in (*kwargs.values(), *args)
    )
    for name, value in kwargs.items():
        if type(value) is Tree:
            continue
        if holds and type(value) not in EXACT and type(value) is not str:
            raise TraceError(
                f"{dotted((*path, name))} would not be built: the same call is given a config that holds "
                "targets, which must arrive unbuilt. Pass that config by its own builder."
            )
        if _is_container(value):
            kind = "list" if type(value) is list else "dict"
            content = node[name] if kind == "list" else [[key, item] for key, item in node[name].items()]
            node[name] = {"_target_": f"builtins.{kind}", "_convert_": "all", "_args_": [content]}
    if holds:
        node["_recursive_"] = False


def _shield(content: Any, handing_on: list[Path]) -> None:
    """Nodes inherit `_convert_`; one that hands on configs must say so below one that converts."""
    for path in handing_on:
        mode, node = "none", content
        for key in path:
            mode = node.get("_convert_", mode) if isinstance(node, dict) else mode
            node = node[key]
        if mode != "none":
            node["_convert_"] = "none"


def _copy(content: Any) -> Any:
    if type(content) is dict:
        return {key: _copy(value) for key, value in content.items()}
    if type(content) is list:
        return [_copy(value) for value in content]
    return content


def _refusal(value: Call | Tree, first: Path, path: Path) -> str:
    name = f"{value.target.label!r} (recorded at {place(value.site)})" if type(value) is Call else "a config"
    return (
        f"{name} is used twice, at {dotted(first)!r} and {dotted(path)!r}. Plain Hydra would build two "
        f"objects. Choose "
        'sharing="reference" and build with L.instantiate, which keeps one, or sharing="duplicate" for two.'
    )


def lower(root: Any, *, sharing: Sharing = "reference", defaults: DefaultsMode = "omit") -> Lowered:
    """Turn an encoded value into plain data.

    Raises: TraceError for a tree that is too deep, or for a node used twice with `sharing="refuse"`.
    """
    work = _Lowering(sharing, defaults)
    try:
        work.result.content = work.value(root, None)
        _shield(work.result.content, work.handing_on)
    except RecursionError:
        raise TraceError("The recorded calls are nested too deeply for a config.") from None
    return work.result


def to_plain(cfg: Any) -> Any:
    """Any config as plain scalars, lists and dicts: a DictConfig unresolved, a mapping copied, a node
    lowered."""
    if is_config_object(cfg):
        cfg = Encoder().value(cfg, "config")
    return lower(cfg).content if type(cfg) in (Call, Tree) else _copy(cfg)


def to_config(lowered: Lowered) -> Any:
    """The config object of OmegaConf: made once, of the whole tree, since copies at every level grow
    quadratically."""
    from omegaconf import OmegaConf

    config = OmegaConf.create(lowered.content)
    config.__dict__["_tl_sites"] = lowered.sites()
    return config
