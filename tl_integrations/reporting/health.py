"""What the numbers of a run say, in words: a few rules, each with its formula, threshold and source.

| rule | formula | flagged when | source |
|---|---|---|---|
| `nonfinite` | share of values that are NaN or infinite | > 0 | |
| `dead` | share of units that are 0 for every sample, else share of zeros | > 0.5, else > 0.95 | Lu et al. 2019, arXiv 1903.06733 |
| `saturated` | mean slope of sigmoid or tanh by its greatest, from mean and std | < 0.1 | Glorot & Bengio 2010 |
| `constant` | std / absmax | < 1e-6 | |
| `overflow` | absmax / greatest value of the dtype | > 0.5 | Micikevicius et al. 2018, arXiv 1710.03740 |
| `depth` | growth of rms from the first to the last layer, log-linear fit | > 100 or < 0.01 | He et al. 2015, arXiv 1502.01852 |
| `drift` | largest change of rms between two captured steps after step 0, by its greatest ratio | > 10 | |
| `gradient_depth` | growth of the gradients' rms from the last to the first layer | > 100 or < 0.01 | Pascanu et al. 2013, arXiv 1211.5063 |
| `gradient_ratio` | rms of the gradient / rms of the activation | > 1 or < 1e-9 | |
| `update_ratio` | norm of the update / norm of the parameter | > 0.1 or < 1e-6 | Bengio 2012, arXiv 1206.5533 |

All are ratios without a unit, but for `gradient_ratio` (1 / loss). Rules look at the newest step, `nonfinite` at the
first where it happened and `drift` at all but step 0, since every network grows out of its initial weights. Where
no source is given the threshold is a convention of this package.
"""  # noqa: E501

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from tl_integrations.capture.events import Record
from tl_integrations.capture.nonfinite import Origin
from tl_integrations.reporting.series import History, Series

SIGMOIDS, TANHS = ("sigmoid", "hardsigmoid"), ("tanh", "hardtanh")
RECTIFIERS = ("relu", "relu6", "relu_", "threshold", "leakyrelu", "leaky_relu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that looks wrong."""

    rule: str
    """Name of the rule, as in this module's table."""
    layer: str
    step: int
    value: float
    """What the formula gave."""
    threshold: float
    """What it was held against."""
    words: str
    """The finding as a sentence."""
    stage: str = "train"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What was found in a run, and the statistics it was found in."""

    findings: Sequence[Finding]
    history: History

    @property
    def healthy(self) -> bool:
        """Whether no rule was broken."""
        return not self.findings

    def of(self, layer: str, stage: str = "train") -> list[Finding]:
        """What was found in one layer."""
        return [each for each in self.findings if each.layer == layer and each.stage == stage]

    def __str__(self) -> str:
        if self.healthy:
            return "Nothing looks wrong."
        return "\n".join(each.words for each in self.findings)


Rule = Callable[[History, str], Iterator[Finding]]


def examine(history: History) -> Health:
    """Hold the statistics of a run against every rule.

    A rule is silent where the statistics that it needs were not captured.
    """
    stages = history.stages or ["train"]
    return Health(
        findings=[finding for stage in stages for rule in RULES for finding in rule(history, stage)],
        history=history,
    )


def with_origin(health: Health, origin: Origin | None) -> Health:
    """The same with what is known, beyond the captured numbers, of where values stopped being finite."""
    if origin is None:
        return health
    said = Finding(
        rule="nonfinite",
        layer=origin.address or "",
        step=origin.step,
        value=math.nan,
        threshold=0.0,
        words=f"{origin.words[0].upper()}{origin.words[1:]}.",
    )
    return Health(findings=[said, *health.findings], history=health.history)


def nonfinite(history: History, stage: str) -> Iterator[Finding]:
    """The first layer, in the order they ran, of the first step that had a value which was not finite."""
    series = history.series(stage)
    shares = series.matrix("nonfinite_fraction")
    broken = np.nan_to_num(shares, nan=0.0) > 0
    if not broken.any():
        return
    column = int(broken.any(axis=0).argmax())
    row = int(broken[:, column].argmax())
    layer, step, others = list(series.layers)[row], series.steps[column], int(broken[:, column].sum()) - 1
    before = f"; the capture before, step {series.steps[column - 1]}, was finite" if column else ""
    # Steps between two captures were not looked at.
    unseen = step - (series.steps[column - 1] if column else -1) > 1
    before += f"; first non-finite at or before step {step}" if unseen and stage == "train" else ""
    yield Finding(
        rule="nonfinite",
        layer=layer,
        step=step,
        stage=stage,
        value=float(shares[row, column]),
        threshold=0.0,
        words=f"{layer!r} is the first layer that is not finite: {shares[row, column]:.0%} of its values "
        f"at step {step} (threshold 0), and {others} further layers with it{before}.",
    )


def dead(history: History, stage: str) -> Iterator[Finding]:
    """Layers of which most units never answer."""
    series = history.series(stage)
    for layer, described in series.layers.items():
        latest = series.latest(layer)
        if "dead_fraction" in latest:
            if (share := latest["dead_fraction"]) > 0.5:
                words = f"{share:.0%} of the units of {layer!r} are 0 for the whole batch"
                yield _finding("dead", series, layer, share, 0.5, words, stage)
        elif (share := latest.get("zero_fraction", 0.0)) > 0.95 and _is(described, RECTIFIERS):
            words = f"{share:.1%} of the values of {layer!r} are 0: units may be dead"
            yield _finding("dead", series, layer, share, 0.95, words, stage)


def saturated(history: History, stage: str) -> Iterator[Finding]:
    """Sigmoids and tanhs that work where they are flat, so that little gradient comes through."""
    series = history.series(stage)
    for layer, described in series.layers.items():
        latest = series.latest(layer)
        if not {"mean", "std"} <= set(latest):
            continue
        mean, square = latest["mean"], latest["mean"] ** 2 + latest["std"] ** 2
        if _is(described, SIGMOIDS):
            slope = 4 * (mean - square)
        elif _is(described, TANHS):
            slope = 1 - square
        else:
            continue
        if slope < 0.1:
            words = f"{layer!r} is saturated: its mean slope is {max(slope, 0):.1%} of the greatest possible"
            yield _finding("saturated", series, layer, slope, 0.1, words, stage)


def constant(history: History, stage: str) -> Iterator[Finding]:
    """Layers that answer the same everywhere."""
    series = history.series(stage)
    for layer, described in series.layers.items():
        latest = series.latest(layer)
        largest = latest.get("absmax", 0.0)
        if "std" not in latest or not 0 < largest < math.inf or math.prod(described.shape) < 2:
            continue
        if (spread := latest["std"] / largest) < 1e-6:
            words = f"{layer!r} gives nearly the same value everywhere: std is {spread:.1g} of absmax"
            yield _finding("constant", series, layer, spread, 1e-6, words, stage)


def overflow(history: History, stage: str) -> Iterator[Finding]:
    """Layers whose values come near the end of their dtype."""
    series = history.series(stage)
    for layer, described in series.layers.items():
        if not described.dtype.is_floating_point:
            continue
        share = series.latest(layer).get("absmax", 0.0) / torch.finfo(described.dtype).max
        if 0.5 < share < math.inf:
            words = f"{layer!r} comes near overflow: absmax is {share:.0%} of the greatest {described.dtype}"
            yield _finding("overflow", series, layer, share, 0.5, words, stage)


def depth(history: History, stage: str) -> Iterator[Finding]:
    """Activations that grow or shrink from layer to layer."""
    series = history.series(stage)
    if (ratio := growth(_scales(series))) is not None and not 0.01 <= ratio <= 100:
        verb = "grow" if ratio > 1 else "shrink"
        names = list(series.layers)
        words = f"activations {verb} {_times(ratio)} in scale from {names[0]!r} to {names[-1]!r}"
        yield _finding("depth", series, names[-1], ratio, 100.0 if ratio > 1 else 0.01, words, stage)


def drift(history: History, stage: str) -> Iterator[Finding]:
    """Layers whose scale jumped between two captured steps; the largest jump of each."""
    series = history.series(stage)
    for layer in series.layers:
        scale = np.sqrt(series.row(layer, "mean") ** 2 + series.row(layer, "std") ** 2)
        known = np.flatnonzero(np.isfinite(scale) & (scale > 0) & (np.array(series.steps) > 0))
        if len(known) < 2:
            continue
        jumps = np.log(scale[known[1:]] / scale[known[:-1]])
        place = int(np.abs(jumps).argmax())
        if (ratio := float(np.exp(jumps[place]))) > 10 or ratio < 0.1:
            before, after = series.steps[known[place]], series.steps[known[place + 1]]
            verb = "grew" if ratio > 1 else "shrank"
            yield Finding(
                rule="drift",
                layer=layer,
                step=after,
                stage=stage,
                value=ratio,
                threshold=10.0 if ratio > 1 else 0.1,
                words=f"{layer!r} {verb} {_times(ratio)} in scale between steps {before} and {after} "
                f"(threshold {'10' if ratio > 1 else '0.1'}).",
            )


def gradient_depth(history: History, stage: str) -> Iterator[Finding]:
    """Gradients that explode or vanish on their way back."""
    series = history.series(stage, "gradient")
    if (ratio := growth(_scales(series)[::-1])) is not None and not 0.01 <= ratio <= 100:
        verb = "explode" if ratio > 1 else "vanish"
        names = list(series.layers)
        words = f"gradients {verb}: {_times(ratio)} in scale from {names[-1]!r} back to {names[0]!r}"
        yield _finding("gradient_depth", series, names[0], ratio, 100.0 if ratio > 1 else 0.01, words, stage)


def gradient_ratio(history: History, stage: str) -> Iterator[Finding]:
    """Gradients out of proportion to the activations that they belong to."""
    gradients, outputs = history.series(stage, "gradient"), history.series(stage)
    for layer in gradients.layers:
        gradient, output = rms(gradients, layer), rms(outputs, layer)
        if gradient is None or output is None or output == 0:
            continue
        ratio = gradient / output
        if ratio > 1 or ratio < 1e-9:
            size = "large" if ratio > 1 else "small"
            words = f"the gradient of {layer!r} is {size}: {ratio:.2g} of the activation"
            yield _finding(
                "gradient_ratio", gradients, layer, ratio, 1.0 if ratio > 1 else 1e-9, words, stage
            )


def update_ratio(history: History, stage: str) -> Iterator[Finding]:
    """Parameters that an optimizer step moves too far, or hardly."""
    series = history.series(stage, "parameter")
    for layer in series.layers:
        ratio = series.latest(layer).get("update_ratio")
        if ratio is not None and (ratio > 0.1 or ratio < 1e-6):
            size = "far" if ratio > 0.1 else "hardly"
            words = f"an update moves {layer!r} {size}: {ratio:.2g} of its norm"
            yield _finding("update_ratio", series, layer, ratio, 0.1 if ratio > 0.1 else 1e-6, words, stage)


RULES: tuple[Rule, ...] = (
    nonfinite,
    overflow,
    dead,
    saturated,
    constant,
    depth,
    drift,
    gradient_depth,
    gradient_ratio,
    update_ratio,
)


def rms(series: Series, layer: str) -> float | None:
    """Root of the mean square of a layer's newest values; None where mean or std is not known or finite."""
    latest = series.latest(layer)
    square = latest.get("mean", math.nan) ** 2 + latest.get("std", math.nan) ** 2
    return math.sqrt(square) if math.isfinite(square) else None


def growth(scales: NDArray[np.float64]) -> float | None:
    """By what factor the scales grow from first to last along a log-linear fit; None for fewer than four."""
    known = scales[np.isfinite(scales) & (scales > 0)]
    if len(known) < 4:
        return None
    slope = np.polyfit(np.arange(len(known)), np.log(known), 1)[0]
    return float(np.exp(np.clip(slope * (len(known) - 1), -700, 700)))


def _scales(series: Series) -> NDArray[np.float64]:
    return np.array([rms(series, layer) or math.nan for layer in series.layers])


def _is(record: Record, names: Sequence[str]) -> bool:
    return record.func_name.lower() in names


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times" if ratio > 1 else f"to 1/{1 / ratio:.3g}"


def _finding(
    rule: str, series: Series, layer: str, value: float, threshold: float, words: str, stage: str
) -> Finding:
    step = series.latest_step(layer)
    return Finding(
        rule=rule,
        layer=layer,
        step=step,
        stage=stage,
        value=value,
        threshold=threshold,
        words=f"{words[0].upper()}{words[1:]} at step {step} (threshold {threshold:g}).",
    )
