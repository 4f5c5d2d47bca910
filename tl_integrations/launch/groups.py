"""Stored configs as Hydra group options.

What `L.store` remembers is traced and put into Hydra's ConfigStore, when Hydra looks for configs and again
before each composition. Two things cannot lie there and are looked up through `tl-store://`: an installed
package's entry point (imported only when its option is chosen) and a thunk that failed (its error is raised
only when its option is chosen).
"""

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from inspect import signature
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.errors import ConfigCompositionException

from tl_integrations.errors import ConfigError
from tl_integrations.language import registry
from tl_integrations.launch.splitting import GroupOption, split_options

ENTRY_POINT_GROUP = "tl_integrations.configs"
PROVIDER = "tl_integrations"
# Hydra 1.3 always replaces; 1.4 wants it said.
REPLACE: dict[str, Any] = {"replace": True} if "replace" in signature(ConfigStore.store).parameters else {}


class StoredGroups:
    """What stands between `L.store` and Hydra: what is registered, what failed, what packages offer."""

    def __init__(self) -> None:
        self._registered: dict[str, registry.Entry] = {}
        self._options: dict[str, tuple[GroupOption, registry.Entry]] = {}
        self._failures: dict[str, ConfigCompositionException] = {}
        self._offers: dict[str, EntryPoint] | None = None

    def register(self) -> None:
        """Trace and register everything stored so far, and look for entry points without importing them."""
        self._registered.clear()
        self._options.clear()
        self._failures.clear()
        self._offers = None
        self.catch_up()

    def catch_up(self) -> None:
        """Register what was stored since the last look."""
        for entry in registry.entries():
            path = option_path(entry)
            if self._registered.get(path) is not entry:
                self._registered[path] = entry
                self._put(entry)

    def is_group(self, path: str) -> bool:
        """Whether an entry point or a failure lies below `path`."""
        return any(known.startswith(f"{path}/") for known in self._known())

    def is_config(self, path: str) -> bool:
        """Whether `path` is an entry point's option, or one that failed."""
        return path in self._known()

    def options(self, group: str) -> set[str]:
        """Names of the configs directly in `group` which the ConfigStore does not hold."""
        return {name for name, is_group in self._children(group) if not is_group}

    def subgroups(self, group: str) -> set[str]:
        """Names of the groups directly in `group` which only this lookup knows."""
        return {name for name, is_group in self._children(group) if is_group}

    def load(self, path: str) -> GroupOption:
        """Import and trace the entry point at `path`.

        Raises: ConfigCompositionException that says what failed, and where it was stored or offered.
        """
        if path in self._failures:
            raise self._failures[path]
        point = self._entry_points()[path]
        group, _, name = path.rpartition("/")
        try:
            return entry_options(registry.entry(point.load(), group=group, name=name))[0]
        except Exception as error:
            raise failure(path, f"entry point {path!r} = {point.value!r}", error) from error

    def _children(self, group: str) -> Iterator[tuple[str, bool]]:
        start = f"{group}/" if group else ""
        for path in self._known():
            if path.startswith(start):
                name, _, deeper = path[len(start) :].partition("/")
                yield name, bool(deeper)

    def _known(self) -> set[str]:
        self.catch_up()
        # The application's own option comes before a package's of the same name.
        return {*self._failures, *(path for path in self._entry_points() if not is_stored(path))}

    def _entry_points(self) -> dict[str, EntryPoint]:
        # Looked up when needed: a launcher's worker composes configs without having registered anything.
        if self._offers is None:
            self._offers = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
        return self._offers

    def _put(self, entry: registry.Entry) -> None:
        path = option_path(entry)
        self._failures.pop(path, None)
        try:
            options = entry_options(entry)
            for option in options:
                refuse_other(option, entry, self._options.get(option.path))
        except Exception as error:
            self._failures[path] = failure(path, place(entry), error)
            return
        for option in options:
            self._options[option.path] = (option, entry)
            put(option)


STORED = StoredGroups()


def register_all() -> None:
    """Trace every config given to `L.store` and register it with Hydra.

    The Hydra plugin does this whenever Hydra looks for configs; call it yourself where no plugin scan runs.
    A thunk that fails is left out, and its error raised when somebody chooses its option.
    """
    STORED.register()


def entry_options(entry: registry.Entry) -> list[GroupOption]:
    """Trace a stored config now: the option itself, and one more for each of its splits."""
    whole = GroupOption(group=entry.group, name=entry.name, body=entry.make(), package=entry.package)
    if not entry.split:
        return [whole]
    return split_options(whole, entry.split, shared=entry.make(sharing="reference"))


def refuse_other(
    option: GroupOption, entry: registry.Entry, known: tuple[GroupOption, registry.Entry] | None
) -> None:
    """Raise when two stored configs split off different bodies under one name: the later would win unseen."""
    if known is None or known[0].body == option.body or option_path(known[1]) == option_path(entry):
        return
    raise ConfigError(
        f"{option.path!r} is split off at {place(entry)} and at {place(known[1])}, and the two differ: "
        f"{option.body} and {known[0].body}. Give one of them another option name in split=."
    )


def place(entry: registry.Entry) -> str:
    return f"{entry.file}:{entry.line}"


def put(option: GroupOption) -> None:
    """One option into the ConfigStore, as the plain containers that travel to a launcher's workers."""
    ConfigStore.instance().store(
        name=option.name,
        node=option.body,
        group=option.group or None,
        package=option.package,
        provider=PROVIDER,
        **REPLACE,
    )


def is_stored(path: str) -> bool:
    """Whether the ConfigStore holds a config at `path`."""
    return bool(ConfigStore.instance().get_type(f"{path}.yaml") == ObjectType.CONFIG)


def option_path(entry: registry.Entry) -> str:
    return f"{entry.group}/{entry.name}" if entry.group else entry.name


def failure(path: str, where: str, error: Exception) -> ConfigCompositionException:
    """What Hydra prints when the option is chosen: the option, where it was stored, what went wrong there."""
    notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
    raised = ConfigCompositionException(
        f"Config {path!r} was stored at {where} and cannot be made: {type(error).__name__}: {error}{notes}"
    )
    raised.__cause__ = error
    return raised
