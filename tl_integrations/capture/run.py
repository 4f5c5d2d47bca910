"""The state of one watched forward: what the sources fill while it runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from tl_integrations.capture.calls import CallLog
from tl_integrations.capture.events import Event, Kind, Moment
from tl_integrations.capture.gradients import GradientTap
from tl_integrations.capture.payloads import Aliases, KeptTensor, take
from tl_integrations.capture.raw_log import RawLog
from tl_integrations.capture.statistics import Measured, Numbers, Summariser
from tl_integrations.capture.window import Window
from tl_integrations.options import CaptureSpec

_backward_task = torch._C._current_graph_task_id


@dataclass(slots=True, kw_only=True, eq=False)
class Catch:
    """One kept tensor before it becomes a record."""

    kind: Kind
    func_name: str
    call: int
    """Module call it happened in."""
    short_label: str | None
    path: str
    output_index: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str
    requires_grad: bool
    io: Literal["input", "output"] = "output"
    line: int | None = None
    payload: KeptTensor | None = None
    measured: Measured | None = None
    numbers: Numbers | None = None
    """What was measured, once it was fetched."""
    gradient: GradientTap | None = None
    event: Event | None = None
    """What the selector saw, where it must be asked again with the final label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """How a recorder keeps what its selector takes."""

    payloads: bool = True
    aliases: bool = True
    gradients: bool = False
    summariser: Summariser | None = None
    default: bool | CaptureSpec = False
    """What holds where a predicate has no opinion."""
    plain: CaptureSpec | None = None
    """How a tensor is kept that a plain True takes; None: as it is."""
    transform: Callable[[Tensor], Tensor] | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """One forward from arming to disarming."""

    calls: CallLog
    keeping: Keeping
    moment: Moment
    run_index: int
    aliases: Aliases = field(default_factory=Aliases)
    catches: list[Catch] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """How often each type of op ran, for short labels."""
    event_count: int = 0
    """How many events the selector was asked about."""
    notes: set[str] = field(default_factory=set)
    """What the capture had to leave out, for one warning each."""
    raw: RawLog | None = None
    """What the graph is made of, where it is logged."""
    halt: Callable[[Event], Any] | None = None
    halted: bool = False
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
    def skipping(self) -> bool:
        """Whether events do not count now: paused, or a recomputation inside a backward."""
        return self.calls.paused > 0 or _backward_task() != -1

    def catch(
        self,
        out: Tensor,
        verdict: bool | CaptureSpec,
        args: Any,
        kwargs: Any,
        *,
        kind: Kind,
        func_name: str,
        short_label: str | None,
        path: str = "",
        output_index: int = 0,
        io: Literal["input", "output"] = "output",
        line: int | None = None,
        event: Event | None = None,
    ) -> None:
        """Keep a tensor that the selector took."""
        self.catches.append(
            self.caught(
                out,
                verdict,
                args,
                kwargs,
                kind=kind,
                func_name=func_name,
                short_label=short_label,
                path=path,
                output_index=output_index,
                io=io,
                line=line,
                event=event,
            )
        )

    def caught(
        self,
        out: Tensor,
        verdict: bool | CaptureSpec,
        args: Any,
        kwargs: Any,
        *,
        kind: Kind,
        func_name: str,
        short_label: str | None,
        path: str = "",
        output_index: int = 0,
        io: Literal["input", "output"] = "output",
        line: int | None = None,
        event: Event | None = None,
    ) -> Catch:
        """Take a tensor without deciding yet that it is kept."""
        spec = self.keeping.plain if verdict is True else verdict or None
        caught = Catch(
            kind=kind,
            func_name=func_name,
            call=self.calls.current,
            short_label=short_label,
            path=path,
            output_index=output_index,
            shape=tuple(out.shape),
            dtype=out.dtype,
            device=str(out.device),
            requires_grad=out.requires_grad,
            io=io,
            line=line,
            event=event if self.decides_late else None,
        )
        self._keep(caught, out, args, kwargs, spec)
        return caught

    def _keep(self, caught: Catch, out: Tensor, args: Any, kwargs: Any, spec: CaptureSpec | None) -> None:
        keeping = self.keeping
        if keeping.payloads:
            # Behind a module's output any code may write, unseen where only hooks are armed.
            aliases = self.aliases if keeping.aliases and caught.kind == "op" else None
            kept = take(out, aliases, args, kwargs, spec)
            if kept is None and (spec is None or spec.save_out):
                self.notes.add("data")
            caught.payload = kept if keeping.transform is None or kept is None else self._changed(kept)
        if keeping.summariser is not None:
            caught.measured = keeping.summariser.measure(out)
        if keeping.gradients and out.requires_grad:
            caught.gradient = GradientTap(out)

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
        recent_ops: tuple[Event, ...] = (),
    ) -> Event:
        """What a selector sees of a tensor."""
        path_of_call = self.calls.path(self.calls.current)
        return Event(
            kind=kind,
            func_name=func_name,
            type=type_name,
            label=label,
            address=path_of_call.node.address,
            module_type=path_of_call.node.class_name,
            modules=path_of_call.modules,
            pass_index=path_of_call.pass_index,
            path=path,
            output_index=output_index,
            io=io,
            shape=tuple(out.shape),
            dtype=out.dtype,
            device=str(out.device),
            requires_grad=out.requires_grad,
            run_index=self.run_index,
            moment=self.moment,
            recent_ops=recent_ops,
        )
