"""What is wrong with one node of a config, without building it."""

import inspect
from collections.abc import Iterable

from tl_integrations.errors import TLError
from tl_integrations.errors import near_names as near
from tl_integrations.language.binding import RESERVED
from tl_integrations.language.denials import denial
from tl_integrations.language.paths import load
from tl_integrations.language.targets import real_name, target_of


def problems(target: str, keys: Iterable[str], *, positional: int = 0, partial: bool = False) -> list[str]:
    """Check a node's target and its keys against the signature; imports the target.

    Args:
        target: The text of `_target_`.
        keys: The other keys of the node; Hydra's own are skipped.
        positional: How many `_args_` there are.
        partial: Whether required parameters may be absent.
    Returns: One sentence per problem; empty when it would bind.
    """
    reason = denial(target)
    if reason:
        return [f"{target!r} is never allowed: {reason}."]
    try:
        found = load(target)
    except (TLError, ImportError) as error:
        return [str(error)]
    except Exception as error:
        return [f"{target!r} cannot be imported: {type(error).__name__}: {error}"]
    real = real_name(found) or target
    reason = denial(real)
    if reason:
        return [f"{target!r} really is {real!r}, which is never allowed: {reason}."]
    if not callable(found):
        return [f"{target!r} is {inspect.cleandoc(type(found).__name__)}, which cannot be called."]
    return _binding_problems(found, [key for key in keys if key not in RESERVED], positional, partial)


def _binding_problems(found: object, keys: list[str], positional: int, partial: bool) -> list[str]:
    plan = target_of(found).plan
    if not plan.known:
        return []
    said: list[str] = []
    taken = set(plan.positional[:positional])
    for key in keys:
        if key in plan.positional[: plan.positional_only]:
            said.append(f"{plan.label}() takes {key!r} by position only; put it into _args_.")
        elif key in taken:
            said.append(f"{plan.label}() gets {key!r} twice, by position and by name.")
        elif key not in plan.nameable and plan.double_star is None:
            said.append(
                f"{plan.label}() takes no {key!r}. {near(key, plan.names)}It takes: {', '.join(plan.names)}."
            )
    if positional > len(plan.positional) and plan.star is None:
        said.append(
            f"{plan.label}() takes {len(plan.positional)} positional arguments, and _args_ holds "
            f"{positional}."
        )
    missing = [
        n for n in (*plan.positional, *plan.names) if n in plan.required and n not in taken and n not in keys
    ]
    if missing and not partial:
        said.append(f"{plan.label}() needs {', '.join(map(repr, dict.fromkeys(missing)))}.")
    return said
