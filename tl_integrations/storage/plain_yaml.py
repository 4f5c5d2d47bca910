"""The config inside a bundle: plain data to YAML that Hydra reads the same, and back, as data only."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from tl_integrations.errors import BundleCorruptError, BundleError

_DEPTH = 64
_MOST_NODES = 100_000
# OmegaConf reads these as numbers where YAML 1.1 reads texts: a text that looks so has to be quoted.
_NUMBER = re.compile(
    r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][-+]?\d+)?|[-+]?\.?(inf|Inf|INF)|\.?(nan|NaN|NAN)"
)


class _Writer(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


_Writer.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(f"^(?:{_NUMBER.pattern})$"), list("-+0123456789.iInN")
)


class _Reader(yaml.SafeLoader):
    """A safe loader that refuses duplicate keys and anything larger than a config."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._nodes, self._depth = 0, 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._nodes, self._depth = self._nodes + 1, self._depth + 1
        if self._depth > _DEPTH or self._nodes > _MOST_NODES or self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("nested too deep, too large, or with aliases")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        found = super().construct_mapping(node, deep=deep)
        if len(found) != len(node.value):
            raise yaml.YAMLError("a key stands twice")
        return found


def write_config(config: Mapping[str, Any]) -> bytes:
    """YAML of plain data.

    Raises:
        BundleError: if the config holds anything but mappings, lists, texts, numbers, booleans and None.
    """
    _check(config, "config", 0)
    return yaml.dump(
        _plain(config),
        Dumper=_Writer,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=1000,
    ).encode()


def read_config(content: bytes, where: str) -> dict[str, Any]:
    """The plain data again; nothing in it is ever called.

    Raises:
        BundleCorruptError: if it is not the YAML that `write_config` makes.
    """
    try:
        loader = _Reader(content.decode())
        try:
            found = loader.get_single_data()
        finally:
            loader.dispose()
    except (ValueError, RecursionError, yaml.YAMLError, TypeError) as error:
        raise BundleCorruptError(f"{where} is not plain YAML: {str(error)[:120]}") from error
    if not isinstance(found, dict):
        raise BundleCorruptError(f"{where} is not a mapping.")
    return found


def _check(value: Any, place: str, depth: int) -> None:
    if depth > _DEPTH:
        raise BundleError(f"The config is nested deeper than {_DEPTH} at {place}, or refers to itself.")
    if isinstance(value, Mapping):
        for key, part in value.items():
            if type(key) not in (str, int, float, bool):
                raise BundleError(f"The config has the key {key!r} at {place}; keys are texts or numbers.")
            _check(part, f"{place}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for position, part in enumerate(value):
            _check(part, f"{place}[{position}]", depth + 1)
    elif value is not None and type(value) not in (str, int, float, bool):
        raise BundleError(
            f"The config holds a {type(value).__name__} at {place}. A bundle keeps plain data: "
            "give the dict that `L.trace(..., as_dict=True)` makes."
        )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value
