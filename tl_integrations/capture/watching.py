"""One selector on one model: bound, planned, armed around a forward, and the forward made into a pass."""

import warnings
from collections.abc import Callable
from typing import Any

from torch import nn

from tl_integrations.capture.arena import Copy, copied
from tl_integrations.capture.arming import Arming, make_wrappers
from tl_integrations.capture.binding import Binding, binding_for
from tl_integrations.capture.calls import CallLog
from tl_integrations.capture.events import Event, Moment
from tl_integrations.capture.function_source import sparse_handler
from tl_integrations.capture.graph_building import named_tensors
from tl_integrations.capture.graph_source import RootWrapper, arguments_by_name, graph_handler
from tl_integrations.capture.keeping import Keeping
from tl_integrations.capture.leaves import tensor_leaves
from tl_integrations.capture.module_tree import ModuleTree, module_tree, unwrapped
from tl_integrations.capture.passes import Pass
from tl_integrations.capture.payloads import Aliases
from tl_integrations.capture.planning import leaves_fused_path
from tl_integrations.capture.raw_log import RawLog
from tl_integrations.capture.run import Run
from tl_integrations.capture.selector import Selector
from tl_integrations.capture.sources import SourceOffers
from tl_integrations.capture.window import Window
from tl_integrations.errors import OptionError
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
        self._arming: Arming | None = None
        self._bind(tree)

    def _bind(self, tree: ModuleTree) -> None:
        self.tree = tree
        halts = self.halt is not None
        self.binding: Binding = binding_for(self.selector, tree, self.options, graph=self.graph, halts=halts)
        self._wrappers = make_wrappers(self.binding.plan, tree)

    def begin(
        self, moment: Moment, run_index: int, on_error: Callable[[Exception], None], copy: Copy = copied
    ) -> Run:
        """A run to fill; the plan follows modules that were added or removed."""
        tree = module_tree(self.model)
        if tree is not self.tree:
            self._bind(tree)
        calls, binding = CallLog(tree), self.binding
        return Run(
            calls=calls,
            keeping=self.keeping,
            moment=moment,
            run_index=run_index,
            on_error=on_error,
            aliases=Aliases(copy),
            halt=self.halt,
            raw=RawLog(calls) if self.graph else None,
            source_text=self.options.save_source_context,
            window=Window(self.options.lookback, binding.succession) if binding.windowed else None,
            decides_late=binding.late,
            watches_functions=binding.plan.functions,
            counts_ops=binding.plan.counts_ops,
        )

    def armed(self, run: Run, *, notes_calls: bool = False) -> Arming:
        """Watch this thread until the block ends; then nothing of ours is left on the model or on torch.

        Args:
            run: The run.
            notes_calls: The caller calls the model: its arguments and results are to be noted.
        """
        if self.tree.has_fused:
            self._warn_of_fused_path()
        if self.tree.scripted:
            self._warn_of_scripts()
        table = self.binding.table
        handler = None
        if self.binding.plan.functions:
            handler = sparse_handler(run, table) if run.raw is None else graph_handler(run, table, run.raw)
        wrappers = self._wrappers
        if notes_calls and run.raw is not None:
            wrappers = [*wrappers, RootWrapper(unwrapped(self.model), self.note_arguments)]
        self._arming = Arming(self.binding.plan, wrappers, run, handler)
        return self._arming

    def note_arguments(self, run: Run, args: Any, kwargs: Any) -> None:
        """Make the model's arguments known to the graph as its inputs."""
        if run.raw is None:
            return
        arguments = arguments_by_name(unwrapped(self.model), args, kwargs)
        run.raw.add_inputs(arguments)
        if self._include_sources:
            offers = SourceOffers(run, self.binding.bound, unwrapped(self.model))
            run.raw.on_source = offers.offer_source
            offers.offer_inputs(arguments)

    def end(self, run: Run, out: Any, *, own_all: bool) -> Pass:
        """Finish a run.

        Args:
            run: The run.
            out: What the model returned: aliases on that memory become copies, its new owner may write it.
            own_all: Copy every alias.
        """
        if self._arming is not None:
            self._arming.disarm()
            self._arming = None
        try:
            run.settle()
            if own_all:
                run.aliases.release_all()
            else:
                run.aliases.release(leaf for _, leaf in tensor_leaves(out))
        except Exception as error:
            run.on_error(error)
        # What is left of the run holds neither the recorder, nor its arena, nor the model.
        run.on_error, run.halt, run.aliases.copy = _raise, None, copied
        if run.raw is not None:
            run.raw.add_outputs(out)
            run.raw.name_sources(lambda: named_tensors(self.tree))
        return Pass(
            run, forced_eager=self.tree.compiled, late=self.binding.bound if self.binding.late else None
        )

    def _warn_of_scripts(self) -> None:
        if self.binding.plan.functions and "scripted" not in self._warned:
            self._warned.add("scripted")
            names = ", ".join(map(repr, self.tree.scripted[:4]))
            warnings.warn(f"{names} runs inside TorchScript, where no function can be seen.", stacklevel=4)

    def _warn_of_fused_path(self) -> None:
        if "fused" in self._warned:
            return
        address = leaves_fused_path(self.binding.plan, self.tree)
        if address is not None:
            self._warned.add("fused")
            warnings.warn(
                f"{address!r} computes by a fused kernel, inside which no function or module can be seen. "
                "For this capture it computes step by step: slower, and equal only up to rounding. "
                "Selecting the outputs of whole layers with graph=False keeps it fused.",
                stacklevel=4,
            )


def _raise(error: Exception) -> None:
    try:
        raise error
    finally:
        # The error has this frame; the frame must not have the error.
        del error
