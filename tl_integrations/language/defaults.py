"""Default values of a signature, written into a config when it should show or pin them."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from tl_integrations.errors import TLError
from tl_integrations.language.encoding import Encoder
from tl_integrations.language.targets import Target

DefaultsMode = Literal["omit", "include", "pin"]
"""`omit`: only what was passed. `include`: every knob, for overriding. `pin`: the same, for a record of a
run."""

MODES = ("omit", "include", "pin")


def with_defaults(
    target: Target, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Sequence[Any], dict[str, Any], list[str]]:
    """Add what the signature would add.

    Returns: positional and named arguments, and the names of defaults that have no text form.
    """
    plan = target.plan
    if not plan.known:
        return args, kwargs, []
    filled: dict[str, Any] = {}
    skipped: list[str] = []
    for name in plan.names:
        if name in kwargs:
            filled[name] = kwargs[name]
        elif name in plan.defaults and name not in plan.positional[: len(args)]:
            try:
                filled[name] = Encoder().value(
                    _default(target.call, name, plan.defaults[name]), (target.label, name)
                )
            except TLError:
                skipped.append(name)
    filled.update({name: value for name, value in kwargs.items() if name not in filled})
    return args, filled, skipped


def _default(call: Any, name: str, default: Any) -> Any:
    """The default itself; a dataclass's factory is called, once per config."""
    if isinstance(call, type) and dataclasses.is_dataclass(call):
        spec = call.__dataclass_fields__.get(name)
        if spec is not None and spec.default_factory is not dataclasses.MISSING:
            return spec.default_factory()
    return default
