"""`trace`: one forward, every op described, its tensors where they were asked for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from torch import Tensor, nn

from tl_integrations.capture.events import Event
from tl_integrations.capture.graph import Trace, build
from tl_integrations.capture.protocols import Sink, SinkContext, SinkFactory
from tl_integrations.capture.recorder import Recorder
from tl_integrations.capture.recording import Recording
from tl_integrations.capture.selector import Selector
from tl_integrations.capture.settings import Save
from tl_integrations.capture.sinks import opened_when_needed
from tl_integrations.errors import PredicateError, TraceCaptureError
from tl_integrations.options import CaptureOptions, LookbackPayloadPolicy


def trace(
    model: nn.Module,
    input_args: Any = (),
    input_kwargs: Mapping[str, Any] | None = None,
    *,
    save: Save | Sequence[str | int | Selector] | None = None,
    capture: CaptureOptions = CaptureOptions(),
    storage: SinkFactory | None = None,
    halt: Callable[[Event], bool] | None = None,
    keep: Literal["alias", "clone"] = "alias",
    gradients: bool = False,
    activation_transform: Callable[[Tensor], Tensor] | None = None,
    random_seed: int | None = None,
    lookback: int | None = None,
    lookback_payload_policy: LookbackPayloadPolicy | None = None,
) -> Trace:
    """Run one forward and describe all of it.

    The forward is the user's own: once, in the mode and grad mode that hold, with the RNG left alone.

    Args:
        model: The model.
        input_args: A tuple or list of positional arguments, or the only one.
        input_kwargs: Keyword arguments.
        save: Which tensors to keep: a selector, its text, a list of texts, selectors and positions in
            `trace.ops` (`-1` is the last), or a function of an `Event`. None keeps all.
        capture: Source context and look-back.
        storage: Where the records go beyond memory, such as `tl.to_disk(path)`.
        halt: Ends the forward where this function of an `Event` returns True; the trace holds what ran.
        keep: "alias" copies a tensor only when something is about to write to it; "clone" at once.
        gradients: Keep what the caller's backward delivers to kept tensors: `op.grad`.
        activation_transform: Applied to each kept copy.
        random_seed: Seed for this forward; the caller's RNG state is put back after it.
        lookback: Short for `capture=CaptureOptions(lookback=...)`.
        lookback_payload_policy: Short for the same of `CaptureOptions`.
    Raises:
        TraceCaptureError: if the forward raised; the exception is `__cause__`, and `partial_trace` holds what
            ran before it.
        UnknownNameError: if `save` names nothing that exists.
    """
    if lookback is not None:
        capture = replace(capture, lookback=lookback)
    if lookback_payload_policy is not None:
        capture = replace(capture, lookback_payload_policy=lookback_payload_policy)
    later = _positions(save)
    everything = later is not None or save is None
    live = None if everything else cast("Save | None", save)
    sink: Sink | None = None
    if later is not None and storage is not None:
        sink = opened_when_needed(storage, lambda: SinkContext(selector=repr(save)))
    recorder = Recorder(
        model,
        save=live,
        default_op=everything,
        include_source_events=everything,
        storage=None if sink else storage,
        halt=halt,
        keep="clone" if sink else keep,
        capture=capture,
        gradients=gradients,
        activation_transform=activation_transform,
        random_seed=random_seed,
        on_predicate_error="accumulate",
    )
    with recorder:
        recording = _run(recorder, input_args, input_kwargs)
    whole = recording.to_trace()
    if later is None:
        return whole
    kept = whole.keeping(later)
    if sink is not None:
        sink.write(kept.captured())
        sink.close(kept.outcome)
    return kept


def _run(recorder: Recorder, input_args: Any, input_kwargs: Mapping[str, Any] | None) -> Recording:
    try:
        recorder.log(input_args, input_kwargs)
        return recorder.recording
    except PredicateError as error:
        if not error.failures:
            raise
        failures = [error.failures[0]]
    except Exception as error:
        partial = recorder.recording
        if not partial.failed:
            raise
        raise _with_partial(partial, error) from error
    # Here, and out of the list: an error that is its context's, or in its frames, keeps the forward alive.
    raise failures.pop()


def _with_partial(partial: Recording, error: Exception) -> TraceCaptureError:
    failed = TraceCaptureError(
        f"The forward raised {type(error).__name__}: {error}. `.partial_trace` holds the ops before it."
    )
    failed.partial_trace = build(partial.graph, partial, partial.outcome)
    return failed


def _positions(save: Any) -> list[Any] | None:
    """The items of a list that names positions, which are known only after the forward; else None."""
    items = [save] if isinstance(save, int) and not isinstance(save, bool) else save
    if not isinstance(items, list | tuple) or not any(type(item) is int for item in items):
        return None
    return list(items)
