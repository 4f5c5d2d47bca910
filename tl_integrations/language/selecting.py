"""All nodes of one target in a config, for looking and for changing many at once."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

from tl_integrations.errors import ConfigError, near_names
from tl_integrations.language.binding import RESERVED
from tl_integrations.language.encoding import Encoder
from tl_integrations.language.keys import Path, dotted
from tl_integrations.language.lowering import lower, to_plain
from tl_integrations.language.targets import target_of


class Selection:
    """The nodes that were found. Changes reach the config they lie in."""

    def __init__(self, target: Any, found: list[tuple[Path, Any]]) -> None:
        self._target = target
        self._found = found

    @property
    def keys(self) -> list[str]:
        """Dotted keys of the nodes, in the order of the config."""
        return [dotted(path) for path, _ in self._found]

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Any]:
        return (node for _, node in self._found)

    def __repr__(self) -> str:
        return f"<{len(self)} of {self._target.label}: {', '.join(self.keys[:5])}>"

    def set(self, **values: Any) -> "Selection":
        """Give every node these arguments, encoded as in a trace.

        Raises: ConfigError for a name that the target does not take; then nothing is changed.
        """
        plan = self._target.plan
        for name in values:
            if name in RESERVED or (plan.known and name not in plan.nameable and plan.double_star is None):
                raise ConfigError(
                    f"{plan.label}() takes no {name!r}. {near_names(name, plan.names)}Nothing was changed."
                )
        encoder = Encoder()
        plain = {
            name: lower(encoder.value(value, (plan.label, name))).content for name, value in values.items()
        }
        for node in self:
            for name, value in plain.items():
                node[name] = copy.deepcopy(value)
                if isinstance(value, list) or (isinstance(value, dict) and "_target_" not in value):
                    node["_convert_"] = "all"
        return self


def select(cfg: Any, target: Callable[..., Any]) -> Selection:
    """Find every node that calls `target`: `L.select(cfg, Encoder).set(depth=3)`.

    Args:
        cfg: A DictConfig or plain dict; changes are made in it.
        target: The class or function, decorated or not.
    Raises: TraceError when the target has no import path.
    """
    wanted = target_of(target)
    names = {wanted.path}
    return Selection(wanted, list(_search(cfg, to_plain(cfg), names, ())))


def _search(live: Any, plain: Any, names: set[str], path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(plain, dict):
        if plain.get("_target_") in names:
            yield path, live
        for key, value in plain.items():
            if isinstance(value, dict | list):
                yield from _search(live[key], value, names, (*path, key))
    elif isinstance(plain, list):
        for index, value in enumerate(plain):
            if isinstance(value, dict | list):
                yield from _search(live[index], value, names, (*path, index))
