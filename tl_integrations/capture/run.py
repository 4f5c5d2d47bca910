"""The state of one watched forward: what the sources fill while it runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from tl_integrations.capture.calls import CallLog
from tl_integrations.capture.catch import Catch, Held
from tl_integrations.capture.distributed import local_part, placement_of
from tl_integrations.capture.events import Event, Kind, Moment
from tl_integrations.capture.gradients import RECOMPUTED, GradientTap
from tl_integrations.capture.keeping import Keeping
from tl_integrations.capture.payloads import Aliases, KeptTensor, held_payload, is_functorch_wrapped, take
from tl_integrations.capture.raw_log import RawLog
from tl_integrations.capture.window import Window
from tl_integrations.options import CaptureSpec

backward_task: Callable[[], int] = torch._C._current_graph_task_id
"""Which backward is at work on this thread, -1 for none: what runs inside one is a recomputation."""


Note = Literal["transformed", "recomputed"]
"""What a capture had to leave out: tensors inside a functional transform, gradients inside a checkpoint."""


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """One forward from arming to disarming."""

    calls: CallLog
    keeping: Keeping
    moment: Moment
    run_index: int
    aliases: Aliases = field(default_factory=Aliases)
    held: list[Held] = field(default_factory=list)
    """What was kept after `catches` and is not one of them yet: sizes and storages are looked at when
    something is about to write, or when the forward has ended and the processor's caches are free for it."""
    catches: list[Catch] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """How often each type of op ran, for short labels."""
    event_count: int = 0
    """How many events the selector was asked about."""
    notes: set[Note] = field(default_factory=set)
    """For one warning each."""
    raw: RawLog | None = None
    """What the graph is made of, where it is logged."""
    source_text: bool = False
    """The graph keeps the text of each call's line."""
    halt: Callable[[Event], Any] | None = None
    halted: bool = False
    watches_functions: bool = False
    """A function mode is on."""
    counts_ops: bool = False
    """Every op is seen, so that short labels are right."""
    seconds: float = 0.0
    """Time of the whole forward."""
    window: Window | None = None
    """The ops just before, where somebody looks at them."""
    decides_late: bool = False
    """The selector is asked again when final labels are known."""
    on_error: Callable[[Exception], None]
    """Called with an error of the capture or of a user's predicate; raises it, or keeps it for later."""

    @property
    def holds(self) -> bool:
        """Whether a tensor that is kept whatever it is can be held first and looked at later."""
        keeping = self.keeping
        plain = keeping.payloads and keeping.plain is None and keeping.transform is None
        looked_at = keeping.gradients or keeping.summariser is not None or self.halt is not None
        return plain and not (looked_at or self.decides_late or self.window is not None)

    @property
    def skipping(self) -> bool:
        """Whether events do not count now: paused, or a recomputation inside a backward."""
        return self.calls.paused > 0 or backward_task() != -1

    def settle(self) -> None:
        """Make catches of what was only held so far."""
        held = self.held[:]
        self.held.clear()
        self.event_count += len(held)
        for kept, version, call, source, count, requires_grad, line in held:
            if isinstance(source, str):
                caught = Catch(kept, call, "module", source, line=line)
            else:
                caught = Catch(kept, call, "op", source.func_name, source.type, count, line=line)
            caught.requires_grad = requires_grad
            try:
                caught.payload = held_payload(kept, version, self.aliases)
                if caught.payload is None and is_functorch_wrapped(kept):
                    self.notes.add("transformed")
                self.catches.append(caught)
            except Exception as error:
                self.on_error(error)

    def add(self, *caught: Catch) -> None:
        """Append catches, in capture order."""
        if self.held:
            self.settle()
        self.catches += caught

    def keep(self, caught: Catch, out: Tensor, verdict: bool | CaptureSpec, args: Any, kwargs: Any) -> Catch:
        """Take hold of what was caught: payload, numbers and gradient, as far as they are wanted."""
        keeping = self.keeping
        if type(out) is not Tensor:
            caught.placement = placement_of(out)
        spec = keeping.plain if verdict is True else verdict or None
        if keeping.payloads:
            # Behind a module's output any code may write, unseen where only hooks are armed.
            may_alias = keeping.aliases and caught.kind == "op"
            kept = take(out, self.aliases, args, kwargs, spec, may_alias=may_alias)
            if kept is None and is_functorch_wrapped(out):
                self.notes.add("transformed")
            caught.payload = kept if keeping.transform is None or kept is None else self._changed(kept)
        if keeping.summariser is not None:
            caught.measured = keeping.summariser.measure(local_part(out))
        if keeping.gradients and self._wants_gradient(caught, out):
            caught.gradient = GradientTap(out)
            if caught.gradient.gradient.reason == RECOMPUTED:
                self.notes.add("recomputed")
        return caught

    def _wants_gradient(self, caught: Catch, out: Tensor) -> bool:
        selector = self.keeping.gradients_of
        if selector is None:
            return True
        event = self.event(
            out,
            kind=caught.kind,
            func_name=caught.func_name,
            type_name=caught.type_name,
            label=caught.short_label or "",
            path=caught.path,
            output_index=caught.index,
            io=caught.io,
        )
        return bool(selector(event))

    def _changed(self, kept: KeptTensor) -> KeptTensor:
        """The payload after the user's transform, which gets memory of its own."""
        assert self.keeping.transform is not None
        return KeptTensor(self.keeping.transform(kept.read()).clone())

    def event(
        self,
        out: Tensor,
        *,
        kind: Kind,
        func_name: str,
        type_name: str,
        label: str,
        path: str,
        output_index: int,
        io: Literal["input", "output"] = "output",
    ) -> Event:
        """What a selector sees of a tensor."""
        call = self.calls.path(self.calls.current)
        return Event(
            kind=kind,
            func_name=func_name,
            type=type_name,
            label=label,
            address=call.node.address,
            module_type=call.node.class_name,
            modules=call.modules,
            pass_index=call.pass_index,
            path=path,
            output_index=output_index,
            io=io,
            shape=tuple(out.shape),
            dtype=out.dtype,
            device=str(out.device),
            requires_grad=out.requires_grad,
            run_index=self.run_index,
            moment=self.moment,
            recent_ops=self.window.events if self.window is not None else (),
        )
