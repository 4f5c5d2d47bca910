"""Arguments as a caller wrote them -> named arguments in the order of the signature."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tl_integrations.errors import TraceError

RESERVED = frozenset(
    {
        "_args_",
        "_convert_",
        "_execution_whitelist_",
        "_isolate_",
        "_partial_",
        "_recursive_",
        "_target_",
    }
)
"""Keys that mean something to Hydra inside a node, in 1.3 or 1.4."""

_CONFIG_TYPES = ("DictConfig", "ListConfig")
_MOST_SHAPES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What binding needs to know of a signature, worked out once per target."""

    label: str
    """The name Python uses in its own messages, such as `Encoder.__init__`."""
    positional: tuple[str, ...] = ()
    """Parameters that positional arguments fill, the positional-only ones first."""
    positional_only: int = 0
    """How many of them cannot be named."""
    names: tuple[str, ...] = ()
    """Parameters that can be named, in signature order."""
    nameable: frozenset[str] = frozenset()
    """The same as a set."""
    required: frozenset[str] = frozenset()
    """Parameters without a default, of every kind."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Default values by parameter."""
    star: str | None = None
    """Name of the `*args` parameter."""
    double_star: str | None = None
    """Name of the `**kwargs` parameter."""
    bound: int = 0
    """1 when Python counts a `self` in its messages."""
    takes_config: frozenset[str] = frozenset()
    """Parameters annotated as DictConfig or ListConfig, which are handed such an object unchanged."""
    known: bool = True
    """False when the callable has no signature that Python can tell."""
    shapes: dict[tuple[Any, ...], tuple[str, ...]] = field(default_factory=dict, compare=False, repr=False)
    """Ways it was called so far, as `(number of positionals, *names)`, with the order of the bound names."""


def make_plan(label: str, signature: inspect.Signature | None, *, bound: int = 0) -> Plan:
    """The plan of a signature; `None` stands for a callable that has none."""
    if signature is None:
        return Plan(label=label, known=False)
    parameters = list(signature.parameters.values())
    kinds = inspect.Parameter
    positional = [p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    nameable = [p.name for p in parameters if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)]
    named = [p for p in parameters if p.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)]
    return Plan(
        label=label,
        positional=tuple(p.name for p in positional),
        positional_only=sum(p.kind is kinds.POSITIONAL_ONLY for p in positional),
        names=tuple(nameable),
        nameable=frozenset(nameable),
        required=frozenset(p.name for p in named if p.default is kinds.empty),
        defaults={p.name: p.default for p in named if p.default is not kinds.empty},
        star=next((p.name for p in parameters if p.kind is kinds.VAR_POSITIONAL), None),
        double_star=next((p.name for p in parameters if p.kind is kinds.VAR_KEYWORD), None),
        bound=bound,
        takes_config=frozenset(p.name for p in named if _is_config_type(p.annotation)),
    )


def _is_config_type(annotation: object) -> bool:
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return any(name in text for name in _CONFIG_TYPES)


def bind(
    plan: Plan,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    star: bool = False,
    partial: bool = False,
) -> tuple[Sequence[Any], dict[str, Any]]:
    """Bind like Python would, with Python's own complaints.

    Args:
        star: Whether values for `*args` may be kept as positional arguments.
        partial: Whether required parameters may be absent; positional arguments then stay positional.
    Returns: positional arguments that have no name, and named ones in signature order, then `**kwargs`.
    Raises: TypeError as the call itself would; TraceError for what a config cannot name.
    """
    order = None if partial else plan.shapes.get((len(args), *kwargs))
    if order is None:
        return _bind_anew(plan, args, kwargs, star, partial)
    if len(args) == 1:
        kwargs = {plan.positional[0]: args[0], **kwargs}
    elif args:
        kwargs = {**dict(zip(plan.positional, args)), **kwargs}
    return (), {name: kwargs[name] for name in order} if order else kwargs


def _bind_anew(
    plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], star: bool, partial: bool
) -> tuple[Sequence[Any], dict[str, Any]]:
    """Bind a call of an unknown shape; one that fits is kept, since it binds alike each time."""
    positional, named = _checked(plan, args, kwargs, star, partial)
    if plan.known and not positional and not partial and len(plan.shapes) < _MOST_SHAPES:
        as_called = [*plan.positional[: len(args)], *kwargs]
        plan.shapes[len(args), *kwargs] = () if [*named] == as_called else tuple(named)
    return positional, named


def _checked(
    plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], star: bool, partial: bool
) -> tuple[Sequence[Any], dict[str, Any]]:
    if not plan.known:
        if args and not star:
            raise TraceError(
                f"{plan.label}() has no signature that Python can tell, so positional arguments cannot be "
                f"named. Pass them by keyword, or write L.call({plan.label})(...), which keeps them "
                "positional."
            )
        _refuse_reserved(plan, kwargs)
        return list(args), kwargs
    positional, named = _place(plan, args, partial)
    _merge(plan, args, named, kwargs)
    if len(args) > len(plan.positional):
        _refuse_variadic(plan, args, kwargs, star)
        positional, named = list(args), {k: v for k, v in named.items() if k not in plan.positional}
    if not partial:
        _refuse_missing(plan, len(args), named)
    order = [name for name in plan.names if name in named]
    extra = [name for name in named if name not in plan.nameable]
    _refuse_reserved(plan, named)
    return positional, {name: named[name] for name in (*order, *extra)}


def _place(plan: Plan, args: tuple[Any, ...], partial: bool) -> tuple[list[Any], dict[str, Any]]:
    """Split positional arguments into those that keep their place and those that get a name."""
    if partial:
        return list(args), {}
    first = plan.positional_only
    return list(args[:first]), dict(zip(plan.positional[first:], args[first:], strict=False))


def _refuse_variadic(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], star: bool) -> None:
    if plan.star is None:
        only = sum(name in plan.nameable and name not in plan.positional for name in kwargs)
        raise TypeError(_too_many(plan, len(args), only))
    if not star:
        raise TraceError(
            f"{plan.label}(*{plan.star}) cannot be traced: variadic positional arguments have no name in a "
            f"config. Take a list parameter instead, or write L.call({plan.label})(...), which keeps them "
            "positional."
        )


def _merge(plan: Plan, args: tuple[Any, ...], named: dict[str, Any], kwargs: dict[str, Any]) -> None:
    """Add keyword arguments, complaining in the order in which Python looks at them."""
    taken = set(plan.positional[: len(args)])
    for name, value in kwargs.items():
        if name in plan.nameable:
            if name in taken:
                raise TypeError(f"{plan.label}() got multiple values for argument {name!r}")
        elif plan.double_star is None:
            only = [other for other in plan.positional[: plan.positional_only] if other in kwargs]
            if only:
                raise TypeError(
                    f"{plan.label}() got some positional-only arguments passed as keyword arguments: "
                    f"'{', '.join(only)}'"
                )
            raise TypeError(f"{plan.label}() got an unexpected keyword argument {name!r}")
        named[name] = value


def _refuse_missing(plan: Plan, given: int, named: dict[str, Any]) -> None:
    required = [name for name in plan.positional[given:] if name in plan.required]
    for kind, names in (
        ("positional", [name for name in required if name not in named]),
        (
            "keyword-only",
            [n for n in plan.names if n in plan.required and n not in plan.positional and n not in named],
        ),
    ):
        if names:
            plural = "s" if len(names) > 1 else ""
            raise TypeError(
                f"{plan.label}() missing {len(names)} required {kind} argument{plural}: {_listed(names)}"
            )


def _listed(names: list[str]) -> str:
    quoted = [repr(name) for name in names]
    if len(quoted) < 3:
        return " and ".join(quoted)
    return f"{', '.join(quoted[:-1])}, and {quoted[-1]}"


def _too_many(plan: Plan, given: int, keyword_only: int) -> str:
    most = len(plan.positional) + plan.bound
    least = most - sum(name in plan.defaults for name in plan.positional)
    expected = f"from {least} to {most}" if least != most else str(most)
    given += plan.bound
    said = str(given)
    if keyword_only:
        said += (
            f" positional argument{_s(given)} (and {keyword_only} keyword-only argument{_s(keyword_only)})"
        )
    plural = "s" if most != 1 or least != most else ""
    verb = "was" if given == 1 and not keyword_only else "were"
    return f"{plan.label}() takes {expected} positional argument{plural} but {said} {verb} given"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _refuse_reserved(plan: Plan, names: Any) -> None:
    clash = RESERVED.intersection(names)
    if clash:
        raise TraceError(
            f"{plan.label}() cannot be written as a config: a parameter called {min(clash)!r} means "
            "something else to Hydra. Rename the parameter."
        )
