"""One selector on one model: bound, planned, armed around a forward, and the forward made into a pass."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from torch import nn

from tl_integrations.capture.arming import Arming
from tl_integrations.capture.calls import CallLog
from tl_integrations.capture.decision_table import DecisionTable, table_for
from tl_integrations.capture.events import Event, Moment
from tl_integrations.capture.function_source import sparse_handler
from tl_integrations.capture.graph_building import named_tensors
from tl_integrations.capture.graph_source import arguments_by_name, graph_handler
from tl_integrations.capture.leaves import tensor_leaves
from tl_integrations.capture.module_tree import ModuleTree, module_tree, unwrapped
from tl_integrations.capture.passes import Pass, has_final_labels
from tl_integrations.capture.planning import bound_to, leaves_fused_path, plan_for
from tl_integrations.capture.raw_log import RawLog
from tl_integrations.capture.run import Keeping, Run
from tl_integrations.capture.selector import Selector
from tl_integrations.capture.sources import SourceOffers
from tl_integrations.capture.watching_mode import Handler
from tl_integrations.capture.window import Window
from tl_integrations.capture.windows import checked_succession, uses_window
from tl_integrations.errors import OptionError, SelectorError
from tl_integrations.options import CaptureOptions


class Watcher:
    """Watches forwards of a model for one selector.

    Args:
        model: The model; nothing is attached to it before `armed`.
        tree: Its modules.
        selector: What to keep, not bound yet.
        keeping: How to keep it.
        graph: Whether the whole graph is logged.
        options: Look-back and source context.
        include_sources: Also ask about inputs and buffers.
        halt: Ends a forward early where it says True.
    Raises:
        UnknownNameError: if the selector names nothing that exists.
        SelectorError: if nothing can answer to it, or only a logged graph could.
    """

    def __init__(
        self,
        model: nn.Module,
        tree: ModuleTree,
        selector: Selector,
        keeping: Keeping,
        *,
        graph: bool,
        options: CaptureOptions,
        include_sources: bool = False,
        halt: Callable[[Event], Any] | None = None,
    ) -> None:
        self.model = model
        self.keeping = keeping
        self.selector = selector
        self.graph = graph
        self.halt = halt
        self.options = options
        self._include_sources = include_sources
        if include_sources and not graph:
            raise OptionError(
                "include_source_events=True needs graph=True: sources are met as ops read them."
            )
        self._warned: set[str] = set()
        self._bind(tree)

    def _bind(self, tree: ModuleTree) -> None:
        self.tree = tree
        self.bound = bound_to(self.selector, tree)
        self.succession = checked_succession(self.bound, self.options)
        self.late = has_final_labels(self.bound)
        if self.late and not self.graph:
            raise SelectorError(
                f"{self.selector!r} has a final label, which is known only where every op is logged. "
                "Record with graph=True, or name a module's address or a short label such as 'relu_1'."
            )
        windowed = self.options.lookback > 0 or uses_window(self.bound)
        self._windowed = windowed and self.bound.takes_ops()
        every_op = self.halt is not None or self._windowed
        self.plan = plan_for(self.bound, tree, graph=self.graph, every_op=every_op)
        self._arming = Arming(self.plan, tree)
        asked = self.bound if self.succession is None else self.succession.candidate
        self._table = DecisionTable(asked, every=True) if every_op else table_for(asked)

    def begin(self, moment: Moment, run_index: int, on_error: Callable[[Exception], None]) -> Run:
        """A run to fill; the plan follows modules that were added or removed."""
        tree = module_tree(self.model)
        if tree is not self.tree:
            self._bind(tree)
        calls = CallLog(tree)
        return Run(
            calls=calls,
            keeping=self.keeping,
            moment=moment,
            run_index=run_index,
            on_error=on_error,
            halt=self.halt,
            raw=RawLog(calls) if self.plan.graph else None,
            source_text=self.options.save_source_context,
            window=Window(self.options.lookback, self.succession) if self._windowed else None,
            decides_late=self.late,
            watches_functions=self.plan.functions,
            counts_ops=self.plan.counts_ops,
        )

    @contextmanager
    def armed(self, run: Run) -> Iterator[None]:
        """Watch this thread until the block ends; then nothing of ours is left on the model or on torch."""
        self._warn_of_fused_path()
        self._warn_of_scripts()
        start = perf_counter()
        with self._arming.armed(run, self._handler_for(run)):
            try:
                yield
            finally:
                run.seconds = perf_counter() - start

    def _handler_for(self, run: Run) -> Callable[[], Handler]:
        if run.raw is None:
            return lambda: sparse_handler(run, self._table)
        raw = run.raw
        return lambda: graph_handler(run, self._table, raw)

    def note_arguments(self, run: Run, args: Any, kwargs: Any) -> None:
        """Make the model's arguments known to the graph as its inputs."""
        if run.raw is None:
            return
        arguments = arguments_by_name(unwrapped(self.model), args, kwargs)
        run.raw.add_inputs(arguments)
        if self._include_sources:
            offers = SourceOffers(run, self.bound, unwrapped(self.model))
            run.raw.on_source = offers.offer_source
            offers.offer_inputs(arguments)

    def end(self, run: Run, out: Any, *, own_all: bool) -> Pass:
        """Finish a run.

        Args:
            run: The run.
            out: What the model returned: aliases on that memory become copies, its new owner may write it.
            own_all: Copy every alias.
        """
        try:
            run.settle()
            if own_all:
                run.aliases.release_all()
            else:
                run.aliases.release(leaf for _, leaf in tensor_leaves(out))
        except Exception as error:
            run.on_error(error)
        # What is left of the run holds neither the recorder nor the model.
        run.on_error, run.halt = _raise, None
        if run.raw is not None:
            run.raw.add_outputs(out)
            run.raw.name_sources(lambda: named_tensors(self.tree))
        return Pass(run, forced_eager=self.tree.compiled, late=self.bound if self.late else None)

    def _warn_of_scripts(self) -> None:
        if self.tree.scripted and self.plan.functions and "scripted" not in self._warned:
            self._warned.add("scripted")
            names = ", ".join(map(repr, self.tree.scripted[:4]))
            warnings.warn(f"{names} runs inside TorchScript, where no function can be seen.", stacklevel=4)

    def _warn_of_fused_path(self) -> None:
        if "fused" in self._warned or not self.tree.has_fused:
            return
        address = leaves_fused_path(self.plan, self.tree)
        if address is not None:
            self._warned.add("fused")
            warnings.warn(
                f"{address!r} computes by a fused kernel, inside which no function or module can be seen. "
                "For this capture it computes step by step: slower, and equal only up to rounding. "
                "Selecting the outputs of whole layers with graph=False keeps it fused.",
                stacklevel=4,
            )


def _raise(error: Exception) -> None:
    raise error
