"""`record`: one forward, only what was selected."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict, Unpack, overload

from torch import Tensor, nn

from tl_integrations.capture.events import Event
from tl_integrations.capture.protocols import SinkFactory
from tl_integrations.capture.recorder import Recorder
from tl_integrations.capture.recording import Recording
from tl_integrations.capture.settings import OnForwardError, OnPredicateError, Save
from tl_integrations.options import CaptureOptions, CaptureSpec, SummaryOptions


class RecordOptions(TypedDict, total=False):
    """The options of `record`, for type checkers."""

    save: Save | None
    storage: SinkFactory | None
    graph: bool
    keep: Literal["alias", "clone"]
    capture: CaptureOptions
    summaries: SummaryOptions
    gradients: bool
    save_grads: bool | Save | None
    default_op: bool | CaptureSpec
    include_source_events: bool
    halt: Callable[[Event], bool] | None
    activation_transform: Callable[[Tensor], Tensor] | None
    backward_ready: bool
    random_seed: int | None
    on_forward_error: OnForwardError
    on_predicate_error: OnPredicateError
    max_predicate_failures: int
    intervene: None


@overload
def record(
    model: nn.Module,
    input_args: Any = ...,
    input_kwargs: Mapping[str, Any] | None = ...,
    *,
    return_output: Literal[False] = ...,
    **options: Unpack[RecordOptions],
) -> Recording: ...
@overload
def record(
    model: nn.Module,
    input_args: Any = ...,
    input_kwargs: Mapping[str, Any] | None = ...,
    *,
    return_output: Literal[True],
    **options: Unpack[RecordOptions],
) -> tuple[Recording, Any]: ...
def record(
    model: nn.Module,
    input_args: Any = (),
    input_kwargs: Mapping[str, Any] | None = None,
    *,
    save: Save | None = None,
    storage: SinkFactory | None = None,
    graph: bool = True,
    keep: Literal["alias", "clone"] = "alias",
    capture: CaptureOptions = CaptureOptions(),
    summaries: SummaryOptions = SummaryOptions(),
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
    return_output: bool = False,
) -> Recording | tuple[Recording, Any]:
    """Run a model once and keep what a selector takes.

    The model's mode, its gradients and the random number generators are left as they are. The options are
    those of `Recorder`.

    Args:
        model: The model.
        input_args: A tuple or list of positional arguments, or the only one. A single argument that is itself
            a tuple or list is written `((a, b),)`.
        input_kwargs: Keyword arguments.
        return_output: Return the model's output as well.
    Returns: The recording, or with `return_output=True` the recording and the output.
    Raises: what `Recorder` raises; PredicateError if a predicate failed; whatever the forward raises.
    """
    recorder = Recorder(
        model,
        save=save,
        storage=storage,
        graph=graph,
        keep=keep,
        capture=capture,
        summaries=summaries,
        gradients=gradients,
        save_grads=save_grads,
        default_op=default_op,
        include_source_events=include_source_events,
        halt=halt,
        activation_transform=activation_transform,
        backward_ready=backward_ready,
        random_seed=random_seed,
        on_forward_error=on_forward_error,
        on_predicate_error=on_predicate_error,
        max_predicate_failures=max_predicate_failures,
        intervene=intervene,
    )
    with recorder:
        out = recorder.log(input_args, input_kwargs)
        recording = recorder.recording
    return (recording, out) if return_output else recording
