"""From the records of a captured step to named numbers: tags, a budget, keys that stay."""

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tl_integrations.capture.events import Moment, Record
from tl_integrations.capture.protocols import CapturedStep
from tl_integrations.options import ReportOptions

SUBJECTS = {"output": "act", "input": "act_in", "gradient": "grad", "parameter": "param"}
ROOT = "(model)"
"""How the model itself is written, whose address is empty."""


def layers(captured: CapturedStep) -> Iterator[tuple[str, Record]]:
    """Each record with the name of its layer: unique within the step, the same in every step.

    A record of a further microbatch, call, forward or loader has that behind its name, so that no record
    stands in for another.
    """
    runs: dict[Moment, dict[int, int]] = {}
    for record in captured.records:
        moment = record.moment
        seen = runs.setdefault(moment, {})
        run = seen.setdefault(record.run_index, len(seen) + 1)
        yield layer_name(record) + _qualifier(moment, run), record


def captured_steps(records: Iterable[Record]) -> list[CapturedStep]:
    """Records, such as all of a bundle, as the steps they were captured in."""
    moments: dict[tuple[str, int | None, int | None], list[Record]] = {}
    for record in records:
        moment = record.moment
        moments.setdefault((moment.stage, moment.step, moment.batch), []).append(record)
    return [CapturedStep(moment=members[0].moment, records=members) for members in moments.values()]


def layer_name(record: Record) -> str:
    """The layer of a record without the moment it was captured in."""
    return record.layer or record.name or ROOT


def _qualifier(moment: Moment, run: int) -> str:
    parts = (
        f"/microbatch_{moment.microbatch}" * (moment.microbatch > 0),
        f"/call_{moment.call}" * (moment.call > 0),
        f"/run_{run}" * (run > 1),
        f"/loader_{moment.dataloader_idx}" * (moment.dataloader_idx > 0),
    )
    return "".join(parts)


def tag(statistic: str, layer: str, options: ReportOptions, stage: str = "train", of: str = "output") -> str:
    """The tag of one number: `act_std/encoder.0`, `validate_act_std/encoder.0`, or the layer first.

    Args:
        of: What the number describes, as `Record.io` says it.
    """
    name = f"{SUBJECTS.get(of, of)}_{statistic}"
    name = name if stage == "train" else f"{stage}_{name}"
    first, second = (layer, name) if options.group_by == "layer" else (name, layer)
    return f"{options.prefix}{first}/{second}"


def cost_tag(name: str, options: ReportOptions, stage: str = "train") -> str:
    """The tag of what capturing a step took."""
    return (
        f"{options.prefix}capture/{name}" if stage == "train" else f"{options.prefix}capture/{stage}_{name}"
    )


def step_of(captured: CapturedStep) -> int:
    """The x-axis of a captured step; 0 outside a loop."""
    return captured.moment.step or 0


class Summaries:
    """Makes the metrics of captured steps, within a budget of tags.

    Past `max_tags` further tags are left out, with one warning.

    Args:
        statistics: Names of the statistics to report, as they stand in `Record.statistics`; those of
            parameters are reported whenever they are there.
        options: Prefix, grouping, budget.
        selector: What selects the records, for the warning.
    """

    def __init__(self, statistics: Sequence[str], options: ReportOptions, selector: str = "") -> None:
        self._statistics = tuple(statistics)
        self._options = options
        self._selector = selector
        self._kept: dict[str, dict[str, None]] = {}
        self._warned = False

    def row(self, captured: CapturedStep) -> dict[str, float]:
        """The metrics of a step with the keys of all steps so far, NaN where this step has none.

        Loggers that write tables start anew when keys change.
        """
        metrics = self.metrics(captured)
        return dict.fromkeys(self._kept[captured.moment.stage], math.nan) | metrics

    def metrics(self, captured: CapturedStep) -> dict[str, float]:
        """All numbers of one captured step by tag, plain floats."""
        stage = captured.moment.stage
        found = self._found(captured, stage)
        known = self._kept.setdefault(stage, {})
        self._admit(found, known)
        cost = {
            cost_tag("time_ms", self._options, stage): 1000 * captured.seconds,
            cost_tag("bytes", self._options, stage): float(captured.nbytes),
            cost_tag("events", self._options, stage): float(captured.event_count),
        }
        return {key: value for key, value in found.items() if key in known} | cost

    def _found(self, captured: CapturedStep, stage: str) -> Mapping[str, float]:
        return {
            tag(name, layer, self._options, stage, record.io): float(value)
            for layer, record in layers(captured)
            for name, value in (record.statistics or {}).items()
            if name in self._statistics or str(record.io) == "parameter"
        }

    def _admit(self, found: Mapping[str, float], known: dict[str, None]) -> None:
        room = self._options.max_tags - sum(map(len, self._kept.values()))
        fresh = [key for key in found if key not in known]
        known.update(dict.fromkeys(fresh[: max(room, 0)]))
        if len(fresh) > room and not self._warned:
            self._warned = True
            what = f" by save={self._selector!r}" if self._selector else ""
            warnings.warn(
                f"{len(fresh) - max(room, 0)} of {len(fresh)} new tags are left out: "
                f"{self._options.max_tags} are shown at most, and more were selected{what}. "
                "Select fewer layers or statistics, or raise ReportOptions(max_tags=...).",
                stacklevel=2,
            )
