"""What a forward did, as it happens: tuples appended by the hot path, made into a `GraphLog` when asked for.

Tensors are known by `id`, and an id counts only while a weak reference to the same tensor is alive: ids are
reused as soon as a tensor dies, and holding tensors to keep their ids would pin every activation.
"""

from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from tl_integrations.capture.calls import CallLog
from tl_integrations.capture.leaves import tensor_leaves
from tl_integrations.capture.oplog import TENSOR, Code
from tl_integrations.capture.places import Place, user_place

_SHOWN_AS_CODE = (
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    slice,
    range,
    complex,
    bytes,
    type(...),
)
_LONGEST_CODE = 200
PLAIN = frozenset({int, float, bool, str, type(None)})


class RawLog:
    """Lines in the order in which a forward met its tensors."""

    __slots__ = (
        "_calls",
        "_forwards",
        "call_outputs",
        "callers",
        "failing",
        "ids",
        "lines",
        "on_source",
        "outputs",
        "sources",
    )

    def __init__(self, calls: CallLog) -> None:
        self._calls = calls
        self._forwards = calls.tree.forwards
        self.callers: dict[int, Place | None] = {}
        """Where the user's code called each module call."""
        self.lines: list[tuple[Any, ...]] = []
        """A source is `(kind, name, path, call, shape, dtype, device, requires_grad)`; an op is longer and
        begins with its entry."""
        self.ids: dict[int, tuple[int, ref[Tensor]]] = {}
        self.sources: list[tuple[int, Tensor]] = []
        """Sources whose names are not known yet, held until the forward ends."""
        self.outputs: list[tuple[str, int, tuple[Any, ...]]] = []
        self.call_outputs: dict[int, tuple[int, ...]] = {}
        self.on_source: Callable[[Tensor, int], None] | None = None
        """Told of each source when an op first reads it."""
        self.failing: tuple[str, str] | None = None
        """Function and argument shapes of the call that raised."""

    def line_of(self, tensor: Tensor) -> int | None:
        """The line of a tensor that was met before."""
        known = self.ids.get(id(tensor))
        return known[0] if known is not None and known[1]() is tensor else None

    def source(self, tensor: Tensor) -> int:
        """The line of a tensor that no op here made: a parameter, a buffer or a constant."""
        number = len(self.lines)
        self.lines.append(("constant", "", "", self._calls.current, *described(tensor)))
        self.ids[id(tensor)] = (number, ref(tensor))
        self.sources.append((number, tensor))
        if self.on_source is not None:
            self.on_source(tensor, number)
        return number

    def add_inputs(self, arguments: Mapping[str, Any]) -> None:
        """The leaves of the model's arguments."""
        for name, value in arguments.items():
            for path, leaf in tensor_leaves(value):
                if self.line_of(leaf) is None:
                    self.ids[id(leaf)] = (len(self.lines), ref(leaf))
                    self.lines.append(("input", name, path, 0, *described(leaf)))

    def add_outputs(self, out: Any) -> None:
        """The leaves of what the model returned."""
        for path, leaf in tensor_leaves(out):
            number = self.line_of(leaf)
            made = self.source(leaf) if number is None else number
            self.outputs.append((path, made, described(leaf)))

    def place(self, frame: FrameType, call: int) -> Place | None:
        """Where the user's code called something.

        Args:
            frame: The frame that called it.
            call: The module call around it: where that is one of torch's, the user's code called the module.
        """
        if call not in self.callers:
            return user_place(frame)
        return user_place(frame, self._forwards[self._calls.calls[call][0]], self.callers[call])

    def note_outputs(self, call: int, out: Any) -> None:
        """The tensors that a module call returned."""
        found = (self.line_of(leaf) for _, leaf in tensor_leaves(out))
        self.call_outputs[call] = tuple(number for number in found if number is not None)

    def name_sources(self, names: Callable[[], Mapping[int, tuple[str, str, Tensor]]]) -> None:
        """Give parameters and buffers their names, and let go of all sources.

        Args:
            names: Makes, for the ids of the model's parameters and buffers, kind, name and tensor.
        """
        known = names() if self.sources else {}
        for number, tensor in self.sources:
            found = known.get(id(tensor))
            if found is not None and found[2] is tensor:
                self.lines[number] = (found[0], found[1], "", *self.lines[number][3:])
        self.on_source = None
        self.sources.clear()
        self.ids.clear()


def described(tensor: Tensor) -> tuple[Any, ...]:
    """Shape, dtype, device and requires_grad."""
    return tuple(tensor.shape), tensor.dtype, tensor.device, tensor.requires_grad


def literal(value: Any, reads: list[int], log: RawLog) -> Any:
    """An argument that is no plain tensor, as a plain value; tensors inside it are added to `reads`."""
    kind: type[Any] = type(value)
    if kind in PLAIN:
        return value
    if isinstance(value, Tensor):
        number = log.line_of(value)
        reads.append(log.source(value) if number is None else number)
        return TENSOR
    if isinstance(value, tuple | list):
        return tuple(literal(item, reads, log) for item in value)
    if isinstance(value, _SHOWN_AS_CODE):
        return Code(repr(value)[:_LONGEST_CODE])
    return Code(f"<{kind.__name__}>")
