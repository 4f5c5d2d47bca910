"""Named builders waiting to become config groups: `store` remembers, the launch room makes configs of
them."""

import inspect
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tl_integrations.errors import TraceError
from tl_integrations.language.defaults import DefaultsMode
from tl_integrations.language.lowering import Sharing
from tl_integrations.language.markers import MISSING
from tl_integrations.language.targets import is_decorated, target_of
from tl_integrations.language.tracing import trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One stored builder or thunk."""

    group: str
    """Config group, such as `"model"` or `"model/enc"`."""
    name: str
    """Option name within the group."""
    build: Callable[..., Any]
    """The builder or thunk itself."""
    args: tuple[Any, ...] = ()
    """Positional arguments for a builder."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Named arguments for a builder."""
    package: str | None = None
    """Where the config lands; None for the group's own place."""
    split: Mapping[str, str | None] = field(default_factory=dict)
    """Keys that become groups of their own, with the name of their option."""
    sharing: Sharing = "refuse"
    """What becomes of an object that is used twice."""
    qualname: str
    """`module.qualname` of the builder or thunk."""
    module: str
    """The module that stored it."""
    file: str
    """The file that stored it."""
    line: int
    """The line there."""

    def make(self, *, sharing: Sharing | None = None, defaults: DefaultsMode = "include") -> dict[str, Any]:
        """Trace it now. A decorated builder is recorded with `???` for what it needs; anything else runs as a
        thunk.

        Raises: whatever tracing raises, with a note that names the place that stored it.
        """
        try:
            plain = trace(self._thunk(), as_dict=True, defaults=defaults, sharing=sharing or self.sharing)
        except Exception as error:
            error.add_note(
                f"while making the config {self.group}/{self.name}, stored at {self.file}:{self.line}"
            )
            raise
        assert isinstance(plain, dict)
        return plain

    def _thunk(self) -> Callable[[], Any]:
        build, kwargs = self.build, dict(self.kwargs)
        if is_decorated(build):
            plan = target_of(build).plan
            filled = {*plan.positional[: len(self.args)], *kwargs}
            kwargs.update(
                {name: MISSING for name in plan.names if name in plan.required and name not in filled}
            )
        return lambda: build(*self.args, **kwargs)


_entries: dict[tuple[str, str], Entry] = {}


def store(
    builder_or_thunk: Callable[..., Any],
    /,
    *,
    group: str,
    name: str,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    package: str | None = None,
    split: Mapping[str, str | None] | None = None,
    sharing: Sharing = "refuse",
) -> None:
    """Offer a builder or a thunk as option `name` of a Hydra config group. Nothing runs until Hydra asks for
    it.

    Args:
        builder_or_thunk: A configurable (recorded as one node; required parameters that are not given become
            `???`), or any function that returns such a call.
        group: Config group, such as `"model"`.
        name: Option name.
        args: Positional arguments of the builder.
        kwargs: Named arguments of the builder.
        package: Where the config lands, as in Hydra's `@package`.
        split: Arguments that become groups below this one, with their option's name.
        sharing: `"refuse"` an object that is used twice, since plain Hydra would build two; or `"reference"`,
            `"duplicate"`.
    Raises: TraceError for what cannot be stored, and for another builder under a taken name.
    """
    frame = sys._getframe(1)
    made = entry(
        builder_or_thunk,
        group=group,
        name=name,
        args=args,
        kwargs=kwargs,
        package=package,
        split=split,
        sharing=sharing,
        module=str(frame.f_globals.get("__name__", "")),
        file=frame.f_code.co_filename,
        line=frame.f_lineno,
    )
    taken = _entries.get((group, name))
    if taken is not None and taken.qualname != made.qualname:
        raise TraceError(
            f"{group}/{name} is taken by {taken.qualname} ({taken.file}:{taken.line}), so {made.qualname} "
            "cannot have it. Choose another name."
        )
    _entries[group, name] = made


def entry(
    builder_or_thunk: Callable[..., Any],
    /,
    *,
    group: str,
    name: str,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    package: str | None = None,
    split: Mapping[str, str | None] | None = None,
    sharing: Sharing = "refuse",
    module: str = "",
    file: str = "",
    line: int = 0,
) -> Entry:
    """An entry that is not remembered, for builders that come from elsewhere than `store`."""
    if not callable(builder_or_thunk):
        raise TraceError(
            f"L.store() takes a builder or a function without arguments, not {builder_or_thunk!r}."
        )
    for text, what in ((group, "group"), (name, "name")):
        if not isinstance(text, str) or not text.strip("/"):
            raise TraceError(f"{what}={text!r} is not a name.")
    build = outside_main(builder_or_thunk)
    return Entry(
        group=group,
        name=name,
        build=build,
        args=tuple(args),
        kwargs=dict(kwargs or {}),
        package=package,
        split=dict(split or {}),
        sharing=sharing,
        qualname=f"{build.__module__}.{getattr(build, '__qualname__', type(build).__name__)}",
        module=module,
        file=file,
        line=line,
    )


def outside_main(build: Any) -> Any:
    """A builder of the running script under the name that other processes import it by.

    Raises: TraceError when the script has no such name.
    """
    if getattr(build, "__module__", None) != "__main__" or not is_decorated(build):
        return build
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    name = spec.name if spec is not None else inspect.getmodulename(file) if file else None
    module: types.ModuleType | None = sys.modules.get(name) if name else None
    found = getattr(module, build.__qualname__, None) if module is not None else None
    if found is None:
        script = Path(file).name if file else "this session"
        raise TraceError(
            f"{build.__qualname__} is defined in {script}, the script that runs, which no other process can "
            "import as __main__. Move it to a module of its own and import it here."
        )
    return found


def entries() -> list[Entry]:
    """Everything stored so far, in storing order."""
    return list(_entries.values())
