"""Inputs and buffers as events, where a recorder is asked for them."""

from typing import Any

from torch import Tensor, nn

from tl_integrations.capture.catch import Catch
from tl_integrations.capture.events import Kind
from tl_integrations.capture.leaves import tensor_leaves
from tl_integrations.capture.run import Run
from tl_integrations.capture.selector import Selector


class SourceOffers:
    """Asks a selector about inputs when the model is called, and about a buffer when it is first read."""

    def __init__(self, run: Run, selector: Selector, model: nn.Module) -> None:
        self._run = run
        self._selector = selector
        self._buffers = {id(t): (name, t) for name, t in model.named_buffers()}

    def offer_inputs(self, arguments: dict[str, Any]) -> None:
        """The leaves of the model's arguments."""
        raw = self._run.raw
        assert raw is not None, "sources are offered only where the graph is logged"
        for name, value in arguments.items():
            for path, leaf in tensor_leaves(value):
                self._offer("input", f"{name}{path}", leaf, raw.line_of(leaf))

    def offer_source(self, tensor: Tensor, line: int) -> None:
        """A tensor that an op reads and that no op made."""
        name, known = self._buffers.get(id(tensor), ("", None))
        if known is tensor:
            self._offer("buffer", name, tensor, line)

    def _offer(self, kind: Kind, name: str, tensor: Tensor, line: int | None) -> None:
        run = self._run
        count = run.counts[kind] = run.counts.get(kind, 0) + 1
        label = f"{kind}_{count}"
        where: dict[str, Any] = {"kind": kind, "func_name": kind, "path": name, "output_index": 0}
        run.event_count += 1
        try:
            event = run.event(tensor, type_name=kind, label=label, **where)
            verdict = self._selector(event)
            verdict = run.keeping.default if verdict is None else verdict
            if verdict:
                seen = event if run.decides_late else None
                caught = Catch(tensor, 0, kind, kind, kind, count, name, 0, "output", line, seen)
                run.add(run.keep(caught, tensor, verdict, (tensor,), None))
        except Exception as error:
            run.on_error(error)
