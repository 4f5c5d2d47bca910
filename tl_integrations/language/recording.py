"""What a trace records: calls as they are made, bound to names and encoded on the spot."""

from collections.abc import Sequence
from typing import Any

from tl_integrations.language.binding import Plan, bind
from tl_integrations.language.encoding import Encoder
from tl_integrations.language.nodes import Call, Node, Tree, call_spot, stand_in
from tl_integrations.language.scanning import is_config_object
from tl_integrations.language.targets import Target


class Tape:
    """What one trace has recorded so far."""

    __slots__ = ("calls", "closed", "encoder")

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.closed: bool = False
        self.encoder: Encoder = Encoder(owner=self)

    def record(
        self,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        star: bool = False,
        partial: bool = False,
    ) -> Node:
        """Bind and encode one call. Raises TypeError at the call site, as calling for real would.

        Called by what the user called, so that the frame above that is the call site.
        """
        plan = target.plan
        positional, named = bind(plan, args, kwargs, star, partial)
        call = encode_call(target, plan, positional, named, self.encoder, partial)
        call.spot = call_spot(2)
        self.calls.append(call)
        return stand_in(call)


def encode_call(
    target: Target,
    plan: Plan,
    positional: Sequence[Any],
    named: dict[str, Any],
    encoder: Encoder,
    partial: bool,
) -> Call:
    """A call with encoded arguments; raises TraceError for a target or argument that a config cannot hold."""
    target.path  # noqa: B018 - fails here, at the call, where there is none
    if plan.takes_config:
        return _encode_with_configs(target, positional, named, encoder, partial)
    flat = encoder.arguments(named, target.label) and not positional and not partial
    args = _positional(target, positional, encoder) if positional else positional
    call = _blank(Call)  # filled here, since every recorded call comes by and an `__init__` doubles the time
    call.target = target
    call.args = args
    call.kwargs = named
    call.partial = partial
    call.flat = flat
    call.owner = encoder.owner
    return call


_blank = object.__new__


def _positional(target: Target, values: Sequence[Any], encoder: Encoder) -> list[Any]:
    return [encoder.value(value, (target.label, index)) for index, value in enumerate(values)]


def _encode_with_configs(
    target: Target, positional: Sequence[Any], named: dict[str, Any], encoder: Encoder, partial: bool
) -> Call:
    named, configs = _split_configs(target, named)
    encoder.arguments(named, target.label)
    call = Call(target, _positional(target, positional, encoder), {**named, **configs}, partial)
    call.owner = encoder.owner
    return call


def _split_configs(target: Target, named: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Tree]]:
    configs: dict[str, Tree] = {}
    for name in target.plan.takes_config:
        value = named.get(name)
        if is_config_object(value):
            content = Encoder().value(value, (target.label, name)).content
            configs[name] = Tree(content, as_config=True)
    return {name: None if name in configs else value for name, value in named.items()}, configs
