"""Stored configs as Hydra group options.

What `L.store` remembers is traced and put into Hydra's ConfigStore when Hydra looks for configs. Three
things come later than that and are looked up through `tl-store://`: a store made after Hydra started, an
installed package's entry point (imported only when its option is chosen) and a thunk that failed (its error
is raised only when its option is chosen).
"""

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points

from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.errors import ConfigCompositionException

from tl_integrations.errors import ConfigError
from tl_integrations.language import registry
from tl_integrations.launch.splitting import GroupOption, split_options

ENTRY_POINT_GROUP = "tl_integrations.configs"
PROVIDER = "tl_integrations"


class StoredGroups:
    """What stands between `L.store` and Hydra: which stored configs are registered, and which failed."""

    def __init__(self) -> None:
        self._registered: dict[str, registry.Entry] = {}
        self._options: dict[str, tuple[GroupOption, str]] = {}
        self._failures: dict[str, ConfigCompositionException] = {}
        self._unloaded: dict[str, EntryPoint] = {}

    def register(self) -> None:
        """Trace and register everything stored so far, and list the entry points without importing them."""
        self._registered.clear()
        self._options.clear()
        self._failures.clear()
        self._unloaded = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
        self.catch_up()

    def catch_up(self) -> None:
        """Register what was stored since the last look."""
        for entry in registry.entries():
            path = option_path(entry)
            if self._registered.get(path) is not entry:
                self._registered[path] = entry
                self._put(entry)

    def is_group(self, path: str) -> bool:
        """Whether `path` is a group only because of an entry point or a failure."""
        self.catch_up()
        return any(known.startswith(f"{path}/") for known in (*self._failures, *self._unloaded))

    def is_config(self, path: str) -> bool:
        """Whether `path` can only be answered with an error; what can be registered is, and found in the
        ConfigStore.
        """
        self.catch_up()
        if path in self._unloaded:
            self._load(path, self._unloaded.pop(path))
        return path in self._failures

    def options(self, group: str) -> set[str]:
        """Names of the configs directly in `group` which the ConfigStore does not hold."""
        return {name for name, is_group in self._children(group) if not is_group}

    def subgroups(self, group: str) -> set[str]:
        """Names of the groups directly in `group` which only this lookup knows."""
        return {name for name, is_group in self._children(group) if is_group}

    def failure(self, path: str) -> ConfigCompositionException:
        """The error to raise when somebody chooses `path`."""
        return self._failures[path]

    def _children(self, group: str) -> Iterator[tuple[str, bool]]:
        self.catch_up()
        start = f"{group}/" if group else ""
        for path in (*self._failures, *self._unloaded):
            if path.startswith(start):
                name, _, deeper = path[len(start) :].partition("/")
                yield name, bool(deeper)

    def _load(self, path: str, point: EntryPoint) -> None:
        if is_stored(path):
            return  # the application's own option of that name comes first
        group, _, name = path.rpartition("/")
        where = f"entry point {path!r} = {point.value!r}"
        try:
            entry = registry.entry(point.load(), group=group, name=name)
        except Exception as error:
            self._failures[path] = failure(path, where, error)
        else:
            self._put(entry, where)

    def _put(self, entry: registry.Entry, where: str | None = None) -> None:
        path, where = option_path(entry), where or f"{entry.file}:{entry.line}"
        self._failures.pop(path, None)
        try:
            options = entry_options(entry)
            for option in options:
                refuse_other(option, where, self._options.get(option.path))
        except Exception as error:
            self._failures[path] = failure(path, where, error)
            return
        for option in options:
            self._options[option.path] = (option, where)
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


def refuse_other(option: GroupOption, where: str, known: tuple[GroupOption, str] | None) -> None:
    """Raise when two stored configs split off different bodies under one name: the later would win unseen."""
    if known is not None and known[1] != where and known[0].body != option.body:
        raise ConfigError(
            f"{option.path!r} is split off at {where} and at {known[1]}, and the two differ: "
            f"{option.body} and {known[0].body}. Give one of them another option name in split=."
        )


def put(option: GroupOption) -> None:
    """One option into the ConfigStore, as the plain containers that travel to a launcher's workers."""
    ConfigStore.instance().store(
        name=option.name,
        node=option.body,
        group=option.group or None,
        package=option.package,
        provider=PROVIDER,
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
