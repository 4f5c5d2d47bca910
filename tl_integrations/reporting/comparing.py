"""`compare`: two steps, two runs or two checkpoints, layer by layer."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from tl_integrations.capture.events import Record
from tl_integrations.capture.recording import Recording
from tl_integrations.errors import RecordLookupError
from tl_integrations.reporting.comparison import Comparison, Difference
from tl_integrations.reporting.similarity import as_comparable, cosine, linear_cka, relative_change
from tl_integrations.reporting.summaries import captured_steps, layers

Comparable = Recording | Mapping[str, Any]
When = tuple[str, int | None, int | None]
"""Stage, step and evaluation batch; ("", None, None) for a checkpoint."""
Layers = Mapping[str, Callable[[], Tensor]]
Track = Callable[[Sequence[tuple[When, When, str]]], Iterable[tuple[When, When, str]]]


def compare(a: Comparable, b: Comparable, *, track: Track = iter) -> Comparison:
    """Compare what two captures, or two checkpoints, hold under the same names.

    Activations must be of the same samples in the same order: feed one batch to both models.

    Args:
        a: A Recording (a run, or one step of it: `run.at(100)`), or tensors by name, such as a state dict
            or a loaded checkpoint.
        b: The same kind. Two single steps are compared whatever their numbers; else equal steps are.
        track: Passes on the items of a sequence; a progress bar goes here.

    Returns: A Comparison, which also lists layers that only one of them has.

    Raises:
        RecordLookupError: if they have no step, or no layer, in common.
        PayloadUnavailableError: if the tensors were not kept.

    Example:
        ::

            print(tl.compare(run.at(0), run.at(500)))
    """
    first, second = _held(a), _held(b)
    pairs = [(when, when) for when in first if when in second]
    if len(first) == len(second) == 1:
        pairs = [(next(iter(first)), next(iter(second)))]
    if not pairs:
        raise RecordLookupError(
            f"No step is in both: {_some(first)} in the first, {_some(second)} in the second. "
            "Compare two single steps with `run.at(step)`."
        )
    common = [(one, two, name) for one, two in pairs for name in first[one] if name in second[two]]
    if not common:
        one, two = pairs[0]
        raise RecordLookupError(
            f"No layer is in both: {_some(first[one])} in the first, {_some(second[two])} in the second. "
            "Capture the same layers in both."
        )
    return Comparison(
        [
            _difference(name, one, two, first[one][name](), second[two][name]())
            for one, two, name in track(common)
        ],
        only_first=_alone((first[one], second[two]) for one, two in pairs),
        only_second=_alone((second[two], first[one]) for one, two in pairs),
    )


def _held(value: Comparable) -> dict[When, Layers]:
    """The layers of each moment, unread."""
    if isinstance(value, Recording):
        outputs = captured_steps(record for record in value if record.io == "output")
        return {
            (each.moment.stage, each.moment.step, each.moment.batch): {
                name: _reader(record) for name, record in layers(each)
            }
            for each in outputs
        }
    tensors = value.get("state_dict", value)
    return {("", None, None): {k: _constant(v) for k, v in tensors.items() if isinstance(v, Tensor)}}


def _reader(record: Record) -> Callable[[], Tensor]:
    return lambda: record.out


def _constant(value: Tensor) -> Callable[[], Tensor]:
    return lambda: value


def _difference(name: str, one: When, two: When, a: Tensor, b: Tensor) -> Difference:
    x, y = as_comparable(a), as_comparable(b)
    same = a.shape == b.shape and x.shape == y.shape
    return Difference(
        layer=name,
        step=one[1],
        other_step=two[1],
        stage=one[0],
        shape=tuple(a.shape),
        other_shape=tuple(b.shape),
        change=relative_change(x, y) if same else math.nan,
        cosine=cosine(x, y) if same else math.nan,
        cka=linear_cka(x, y),
    )


def _alone(pairs: Iterable[tuple[Layers, Layers]]) -> list[str]:
    """Names that the first of a pair has and the second has not."""
    return list(dict.fromkeys(name for mine, other in pairs for name in mine if name not in other))


def _some(names: Iterable[object]) -> str:
    shown = [each[1] if isinstance(each, tuple) else each for each in names]
    more = ", ..." if len(shown) > 4 else ""
    return f"{', '.join(map(repr, shown[:4]))}{more}" if shown else "none"
