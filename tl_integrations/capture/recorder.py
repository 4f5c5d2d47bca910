"""A recorder: watches forwards of one model, keeps what its selector takes, hands it on."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Any, Literal

from torch import Tensor, nn

from tl_integrations.capture.calling import call_form, check_watchable, explain_call
from tl_integrations.capture.error_ledger import ErrorLedger
from tl_integrations.capture.events import Event, Moment
from tl_integrations.capture.failure import Failure, failure_of
from tl_integrations.capture.halting import HaltSignal
from tl_integrations.capture.outbox import Outbox
from tl_integrations.capture.passes import Pass, PassGraphs
from tl_integrations.capture.planning import captured_modules
from tl_integrations.capture.protocols import CapturedStep, Outcome, SinkFactory
from tl_integrations.capture.record_tables import MemoryTable
from tl_integrations.capture.recording import Recording
from tl_integrations.capture.remarks import Remarks
from tl_integrations.capture.run import Run
from tl_integrations.capture.settings import (
    OnForwardError,
    OnPredicateError,
    Save,
    check_choice,
    keeping_of,
    outcome_of,
    selector_of,
    with_seed,
)
from tl_integrations.capture.watching import Watcher
from tl_integrations.errors import OptionError, RecorderStateError
from tl_integrations.options import CaptureOptions, CaptureSpec, SummaryOptions

# Made once: making a frozen dataclass takes a microsecond, and ten where the model has filled the caches.
_NO_MOMENT, _NO_FAILURE, _COMPLETE = Moment(), Failure(), Outcome()


class Recorder:
    """Watches forwards of one model; constructing it attaches nothing.

    `recorder(x)` runs the model and records that pass; `with recorder.watch():` records the caller's own
    calls. Many passes may follow each other. Used as a context manager it closes itself.

    Args:
        model: The model; a wrapper of DDP or torch.compile is looked through for names.
        save: What to keep: a selector, its text, a list of texts, or a function of an `Event`.
        storage: Where records go beyond memory, such as `tl.to_disk(path)`.
        graph: Log every op, so that labels are known and `to_trace()` works; False arms the least that
            answers `save`.
        keep: "alias" copies a tensor only when something is about to write to it; "clone" at once.
        capture: Source context and look-back.
        summaries: Statistics and histograms to compute of each kept tensor, on its device.
        payloads: Keep the tensors themselves.
        gradients: Keep what the caller's backward delivers to kept tensors.
        save_grads: The same for some of them: what a selector takes.
        default_op: What holds where a predicate returns None; with `save=None` the whole selector.
        include_source_events: Also offer the model's inputs and buffers.
        halt: Ends a forward where this function of an `Event` returns True.
        activation_transform: Applied to each kept copy.
        backward_ready: Keep floating tensors on the autograd graph.
        random_seed: Seed for each pass that the recorder runs; the caller's RNG state is put back after it.
        on_forward_error: "raise"; "attach_partial" adds `.partial_recording` to the exception;
            "return_partial" returns None and leaves the partial in `recording`.
        on_predicate_error: "fail_fast" raises inside the forward; "accumulate" after it; "auto" accumulates
            in memory and fails fast with storage.
        max_predicate_failures: How many failures an error lists.
        intervene: Refused: a capture never changes what a model computes.
    Raises:
        UnknownNameError: if `save` names nothing that exists.
        UnsupportedModelError: if the model cannot be watched.
        OptionError: if another argument has a value that it cannot have.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        save: Save | None = None,
        storage: SinkFactory | None = None,
        graph: bool = True,
        keep: Literal["alias", "clone"] = "alias",
        capture: CaptureOptions = CaptureOptions(),
        summaries: SummaryOptions = SummaryOptions(),
        payloads: bool = True,
        gradients: bool = False,
        save_grads: bool | Save | None = None,
        default_op: bool | CaptureSpec = False,
        include_source_events: bool = False,
        halt: Callable[[Event], bool] | None = None,
        activation_transform: Callable[[Tensor], Tensor] | None = None,
        backward_ready: bool = False,
        random_seed: int | None = None,
        on_forward_error: OnForwardError = "raise",
        on_predicate_error: OnPredicateError = "auto",
        max_predicate_failures: int = 32,
        intervene: None = None,
    ) -> None:
        tree = check_watchable(model)
        if intervene is not None:
            raise OptionError("intervene= is out of scope: a capture watches a model and never changes it.")
        check_choice("keep", keep, ("alias", "clone"))
        check_choice("on_forward_error", on_forward_error, ("raise", "attach_partial", "return_partial"))
        check_choice("on_predicate_error", on_predicate_error, ("auto", "accumulate", "fail_fast"))
        self.model = model
        self._on_forward_error = on_forward_error
        fails_fast = on_predicate_error == "fail_fast" or (
            on_predicate_error == "auto" and storage is not None
        )
        self._random_seed = random_seed
        keeping = keeping_of(
            tree,
            payloads=payloads,
            keep=keep,
            gradients=gradients,
            save_grads=save_grads,
            summaries=summaries,
            default_op=default_op,
            backward_ready=backward_ready,
            capture=capture,
            transform=activation_transform,
        )
        self._watcher = Watcher(
            model,
            tree,
            selector_of(save, default_op),
            keeping,
            graph=graph,
            options=capture,
            include_sources=include_source_events,
            halt=halt,
        )
        self._outbox = Outbox(storage, repr(self._watcher.selector))
        self._ledger = ErrorLedger(fails_fast, max_predicate_failures, self._watcher.selector)
        self._run: Run | None = None
        self._run_count = 0
        self._outcome = _COMPLETE
        self._failure = _NO_FAILURE
        self._output: tuple[Any, ...] = ()
        self._state: Literal["ready", "failed", "closed"] = "ready"
        self._remarks = Remarks()
        self._untold: list[str] = []
        """Remarks on the last watched block, to be told when it is drained."""

    def __call__(self, input_args: Any = (), input_kwargs: Mapping[str, Any] | None = None) -> Any:
        """Run the model, record the pass, return the output."""
        return self.log(input_args, input_kwargs)

    def log(self, input_args: Any = (), input_kwargs: Mapping[str, Any] | None = None) -> Any:
        """Run the model, record the pass, return the output.

        Args:
            input_args: A tuple or list of positional arguments, or the only one.
            input_kwargs: Keyword arguments.
        Returns: The output; None after a halt, or after a failure with `on_forward_error="return_partial"`.
        """
        args, kwargs = call_form(input_args, input_kwargs)
        run = self._begin(_NO_MOMENT, watching=False)
        out: Any = None
        try:
            self._watcher.note_arguments(run, args, kwargs)
            with self._watcher.armed(run), self._seeded():
                out = self.model(*args, **kwargs)
        except HaltSignal as signal:
            self._outcome = Outcome(status="halted", reason=signal.reason)
        except BaseException as error:
            explain_call(error, self.model, args, kwargs)
            # Raised here: from a frame that has the error in a variable, the two would keep each other alive,
            # with all that the forward computed.
            if self._failed(run, error):
                raise
            return None
        finally:
            self._run = None
        ended = self._end(run, out, own_all=False)
        self._output = (out,)
        self._ledger.raise_all()
        if not run.halted:
            ended.check_final_labels()
        return out

    @contextmanager
    def watch(self, moment: Moment | None = None) -> Iterator["Recorder"]:
        """Record the caller's own calls of the model, on this thread, until the block ends.

        The block is one pass: `pass_index` counts calls of a module within it.

        Args:
            moment: What the records say of when they were made, such as `Moment(step=100)`.
        Raises:
            RecorderStateError: if the recorder is closed, has failed, or is watching already.
        """
        run = self._begin(moment or _NO_MOMENT, watching=True)
        failed = True
        try:
            with self._watcher.armed(run, notes_calls=True):
                yield self
            failed = False
        finally:
            self._run = None
            self._end(run, None, own_all=True, warn=False)
            self._untold = [] if failed else self._remarks_on(run)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Take no notice of what happens in the block; may be nested."""
        run = self._run
        if run is None:
            yield
            return
        run.calls.paused += 1
        try:
            yield
        finally:
            run.calls.paused -= 1

    def drain(self, *, loss_scale: float = 1.0, accumulate: int = 1) -> CapturedStep:
        """Hand over what was recorded since the last drain, and forget it.

        Args:
            loss_scale: What the loss was multiplied with, noted with each gradient.
            accumulate: How many microbatches the loss was divided by, noted with each gradient.
        Returns: Records whose payloads are memory of their own, with statistics fetched in one transfer per
            device and with the gradients that arrived.
        Raises:
            PredicateError: if a predicate or the capture itself had failed.
        """
        texts, self._untold = self._untold, []
        step = self._outbox.drain(loss_scale=loss_scale, accumulate=accumulate)
        self._ledger.raise_all()
        for text in texts:
            warnings.warn(text, stacklevel=2)
        return step

    def discard(self) -> None:
        """Forget what is pending; never raises."""
        self._ledger.clear()
        self._outbox.discard()

    @property
    def captured_modules(self) -> frozenset[str] | None:
        """Addresses of the modules that the selector looks into; None: the whole model."""
        return captured_modules(self._watcher.binding.plan)

    @property
    def recording(self) -> Recording:
        """What was recorded so far and not drained; without tensors where they went to a storage."""
        passes = self._outbox.passes
        return Recording(
            MemoryTable(record for one in passes for record in one.records),
            outcome=self._outcome,
            graphs=PassGraphs(passes),
            failure=self._failure,
            output=self._output,
            aliases=self._watcher.tree.aliases(),
        )

    def flush(self) -> None:
        """Return when everything recorded so far is committed to the storage."""
        self._outbox.flush()

    def close(self) -> None:
        """Finish the storage in order; a second call does nothing."""
        if self._state != "closed":
            self._state = "closed"
            self._outbox.close(self._outcome)

    def __enter__(self) -> "Recorder":
        self._check_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._outcome.status == "complete":
            self._outcome = outcome_of(error)
        self.close()

    def _begin(self, moment: Moment, *, watching: bool) -> Run:
        self._check_ready()
        copy = self._outbox.begin(watching=watching)
        self._run_count += 1
        self._run = self._watcher.begin(moment, self._run_count, self._ledger.note, copy)
        return self._run

    def _check_ready(self) -> None:
        if self._state == "failed":
            raise RecorderStateError(
                f"A forward of this recorder failed ({self._outcome.reason}); its recording is the partial. "
                "Make a new Recorder."
            )
        if self._state == "closed":
            raise RecorderStateError("This recorder is closed. Make a new Recorder.")
        if self._run is not None:
            raise RecorderStateError(
                "This recorder is watching already. Use a second Recorder for nested captures."
            )

    def _seeded(self) -> AbstractContextManager[None]:
        return nullcontext() if self._random_seed is None else with_seed(self._random_seed)

    def _end(self, run: Run, out: Any, *, own_all: bool, warn: bool = True) -> Pass:
        ended = self._watcher.end(run, out, own_all=own_all)
        self._outbox.add(ended)
        for text in self._remarks_on(run) if warn else ():
            warnings.warn(text, stacklevel=4)
        return ended

    def _remarks_on(self, run: Run) -> list[str]:
        ended = not run.halted and not self._ledger.errors
        return self._remarks.on(run, self._watcher.binding, ended=ended)

    def _failed(self, run: Run, error: BaseException) -> bool:
        """Keep what there is of a forward that raised; True where the error is to reach the caller."""
        self._outcome = outcome_of(error)
        ended = self._end(run, None, own_all=True, warn=False)
        if self._on_forward_error != "raise":
            self._state = "failed"
        self._failure = failure_of(error, ended)
        if self._on_forward_error == "attach_partial" and isinstance(error, Exception):
            error.partial_recording = self.recording  # type: ignore[attr-defined]
        return self._on_forward_error != "return_partial" or not isinstance(error, Exception)
