"""What people write for a schedule (number, list, text, mapping) -> `Schedule`; nothing is evaluated."""

import ast
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Any

from tl_integrations.errors import ScheduleError, near_names
from tl_integrations.schedule import predicates, reactive, schedules
from tl_integrations.schedule.algebra import Schedule

LONGEST_TEXT = 10_000
NAMES: Mapping[str, Callable[..., Schedule]] = {
    "every": schedules.every,
    "at": schedules.at,
    "first": schedules.first,
    "last": schedules.last,
    "log_spaced": schedules.log_spaced,
    "windows": schedules.windows,
    "every_epoch": schedules.every_epoch,
    "every_seconds": reactive.every_seconds,
    "on_loss_spike": reactive.on_loss_spike,
    "on_nonfinite": reactive.on_nonfinite,
    "when": predicates.when,
    "limit": reactive.limit,
    "never": schedules.never,
    "always": schedules.always,
}
SHARED_WITH_EVERY = ("start", "stop", "align")


def as_schedule(value: object) -> Schedule:
    """The schedule that a shorthand means.

    | written | means |
    |---|---|
    | a schedule | itself |
    | `100` | `every(100)` |
    | `[0, 10, 500]` | `at(0, 10, 500)` |
    | `["every(100)", [0, 1]]` | `every(100)` or `at(0, 1)` |
    | `"every(100) \\| at(0, 1)"` | what `parse` reads |
    | `{"every": 100, "at": [0], "stop": 1000}` | `every(100, stop=1000)` or `at(0)` |
    | a `timedelta` | `every_seconds(...)` |
    | `None` | `never()` |

    Args:
        value: One of these.
    Raises:
        ScheduleError: naming the value and what would do.
    """
    if isinstance(value, Schedule):
        return value
    if value is None:
        return schedules.never()
    if isinstance(value, str):
        return parse(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return schedules.every(value)
    if isinstance(value, timedelta):
        return reactive.every_seconds(value.total_seconds())
    if isinstance(value, Mapping):
        return _from_mapping(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return _from_sequence(value)
    raise ScheduleError(
        f"{value!r} ({type(value).__name__}) says no schedule. Give a number of steps, a list of steps, "
        'a text such as "every(100) | at(0, 1)", a mapping such as {"every": 100, "at": [0]}, or None.'
    )


def parse(text: str) -> Schedule:
    """Read a schedule from its text, such as `"every(100, stop=1000) | at(0, 1)"`.

    The names are those of this module, the operators `| & ~ -`; arguments are numbers, texts, lists, True,
    False, None and schedules. Anything else is refused unevaluated.

    Args:
        text: What the repr of a schedule writes.
    Raises:
        ScheduleError: naming the text and the part that is wrong.
    """
    if len(text) > LONGEST_TEXT:
        raise ScheduleError(
            f"A schedule text of {len(text)} characters is too long; {LONGEST_TEXT} are read."
        )
    try:
        return _schedule(ast.parse(text.strip(), mode="eval").body, text)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        if isinstance(error, ScheduleError):
            raise
        reason = getattr(error, "msg", None) or str(error) or type(error).__name__
        raise _refusal(text, f"it does not parse ({reason})") from None


def _refusal(text: str, why: str) -> ScheduleError:
    return ScheduleError(f'Schedule {text!r}: {why}. Write, for example, "every(100) | at(0, 1)".')


def _schedule(node: ast.expr, text: str) -> Schedule:
    """The schedule that a part of the text says."""
    match node:
        case ast.BinOp(left, ast.BitOr(), right):
            return _schedule(left, text) | _schedule(right, text)
        case ast.BinOp(left, ast.BitAnd(), right):
            return _schedule(left, text) & _schedule(right, text)
        case ast.BinOp(left, ast.Sub(), right):
            return _schedule(left, text) - _schedule(right, text)
        case ast.UnaryOp(ast.Invert(), operand):
            return ~_schedule(operand, text)
        case ast.Call():
            return _call(node, text)
        case ast.Constant() | ast.List() | ast.Tuple():
            return as_schedule(_literal(node, text))
    raise _refusal(text, f"{ast.unparse(node)!r} is no schedule")


def _call(node: ast.Call, text: str) -> Schedule:
    name = _name(node.func, text)
    positional = [_argument(each, text) for each in node.args]
    named = {str(each.arg): _argument(each.value, text) for each in node.keywords if each.arg is not None}
    if len(named) < len(node.keywords):
        raise _refusal(text, "** is not read in a schedule")
    return _made(name, positional, named)


def _name(node: ast.expr, text: str) -> str:
    match node:
        case ast.Name(name) | ast.Attribute(ast.Name("S" | "schedule"), name):
            if name in NAMES:
                return name
            raise _refusal(text, f"{name!r} is not known. {near_names(name, NAMES)}Known: {', '.join(NAMES)}")
    raise _refusal(text, f"{ast.unparse(node)!r} cannot be called in a schedule")


def _argument(node: ast.expr, text: str) -> object:
    match node:
        case ast.Call() | ast.BinOp() | ast.UnaryOp(ast.Invert(), _):
            return _schedule(node, text)
    return _literal(node, text)


def _literal(node: ast.expr, text: str) -> object:
    match node:
        case ast.Constant(bool() | int() | float() | str() | None as value):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
            return -value
        case ast.List(elements) | ast.Tuple(elements):
            return [_literal(each, text) for each in elements]
    raise _refusal(text, f"{ast.unparse(node)!r} is no number, text, list or schedule")


def _made(name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Schedule:
    try:
        return NAMES[name](*positional, **named)
    except TypeError as error:
        raise ScheduleError(
            f"{name}: {_plain(error)}. See `help(tl_integrations.schedule.{name})`."
        ) from None


def _plain(error: TypeError) -> str:
    """A signature mismatch as Python words it, without the class behind the name."""
    return str(error).rpartition("__init__() ")[2]


def _from_sequence(values: Sequence[object]) -> Schedule:
    items = list(values)
    if not items:
        raise ScheduleError(
            "An empty list says no schedule. Give steps such as [0, 10, 500], or None for never."
        )
    if all(isinstance(each, int) for each in items):
        return schedules.At(items)  # type: ignore[arg-type]
    return reduce(or_, map(as_schedule, items))


def _from_mapping(given: Mapping[Any, object]) -> Schedule:
    """The union of the schedules that a mapping names; `start`, `stop` and `align` belong to its `every`."""
    shared = {key: given[key] for key in SHARED_WITH_EVERY if key in given}
    named = {key: value for key, value in given.items() if key not in shared}
    if unknown := [key for key in named if key not in NAMES]:
        raise ScheduleError(
            f"{unknown[0]!r} in the mapping {dict(given)!r} is no schedule. "
            f"{near_names(str(unknown[0]), NAMES)}Known: {', '.join(NAMES)}."
        )
    if not named or (shared and "every" not in named):
        raise ScheduleError(
            f'{dict(given)!r} says no schedule. Write, for example, {{"every": 100, "stop": 1000}}.'
        )
    return reduce(or_, (_entry(name, value, shared) for name, value in named.items()))


def _entry(name: str, value: object, shared: Mapping[str, object]) -> Schedule:
    more = shared if name == "every" else {}
    if isinstance(value, Mapping):
        inner = ("schedule", "then")
        named = {str(key): as_schedule(each) if key in inner else each for key, each in value.items()}
        return _made(name, [], {**named, **more})
    if value is None:
        return _made(name, [], more)
    return _made(name, [value], more)
