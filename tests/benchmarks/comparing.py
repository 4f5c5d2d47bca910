"""Sentences about who is faster, worked out from the rows so that they cannot go stale."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from results import Row

LEVEL = 0.05
"""Two ways are level within this, the noise of an interleaved run."""


@dataclass(frozen=True, slots=True)
class Beside:
    """A way of ours and those that it is set beside, case by case."""

    table: str
    """How the table's title begins."""
    ours: str
    """Our way's name."""
    others: Sequence[str]
    """Theirs."""


OTHERS, CHAIN, STEP = "Other", "Every", "CPU time of a training"
TREE, FILES = "501", "33 MB of tensors by"
ZEN = ("hydra-zen, config objects", "hydra-zen, builds() for each")
TEXTS = ("OmegaConf, YAML", "PyYAML in C, YAML", "hydra-zen, YAML", "fiddle, JSON")
CREATES = ("OmegaConf.create of a dict", "hydra-zen, objects to a DictConfig")
PROFILER = "every 10, torchlens LayerProfilerCallback"
HISTOGRAMS = "every 10, statistics and 64-bin histograms"
READERS = ("safetensors, a file per step", "torch.load of all, memory-mapped")

BESIDE: Mapping[str, Sequence[Beside]] = {
    "capture": (
        Beside(OTHERS, "modules, graph=False", ("hooks with clone", "fx", "captum", "nnsight")),
        Beside(OTHERS, "record, graph=False", ("torchlens record",)),
        Beside(OTHERS, "trace", ("torchlens trace",)),
    ),
    "scaling": (
        Beside(CHAIN, "record, graph=False", ("hooks with clone", "torchlens record")),
        Beside(CHAIN, "trace", ("torchlens trace",)),
    ),
    "training-loop": (
        Beside(STEP, HISTOGRAMS, ("every 10, hand-written monitor",)),
        Beside(STEP, "every 10, statistics", (PROFILER,)),
    ),
    "config": (
        Beside(TREE, "ours, a dict", (*ZEN, "fiddle, auto_config")),
        Beside(TREE, "ours, a DictConfig", CREATES),
        Beside(TREE, "ours, built", ("Hydra", "hydra-zen", "fiddle")),
        Beside(TREE, "ours, YAML", TEXTS),
    ),
    "storage": (
        Beside(FILES, "bundle", ("os.write", "safetensors", "torch.save")),
        Beside("One forward", "to disk", ("hooks, safetensors", "hooks, torch.save")),
        Beside("One tensor", "recording already open", READERS),
        Beside("One tensor", "opened for it", READERS),
    ),
    "reporting": (Beside("Statistics", "ours", ("add_histogram",)),),
}


def comparisons(section: str, rows: Sequence[Row]) -> list[str]:
    """A list for each way of ours that has others beside it."""
    return [text for beside in BESIDE.get(section, ()) if (text := _list(beside, rows))]


def _list(beside: Beside, rows: Sequence[Row]) -> str:
    ways: dict[tuple[str, str], Row] = {
        (row.way, row.case): row for row in rows if row.table.startswith(beside.table)
    }
    cases = [case for way, case in ways if way == beside.ours]
    found = []
    for other in beside.others:
        pairs = {
            case: (ways[beside.ours, case], ways[other, case]) for case in cases if (other, case) in ways
        }
        if pairs:
            found.append(f"- {other}: {sentence(pairs)}.")
    return "\n".join([f"Beside `{beside.ours}`:", "", *found]) if found else ""


def sentence(pairs: Mapping[str, tuple[Row, Row]]) -> str:
    """Where the other is faster, level and slower than ours, and where it fails."""
    faster, level, slower, failing = [], [], [], []
    for case, (own, other) in pairs.items():
        if other.failure:
            failing.append(case)
            continue
        factor = _cost(other) / _cost(own)
        if factor > 1 + LEVEL:
            slower.append((case, factor))
        elif factor < 1 / (1 + LEVEL):
            faster.append((case, 1 / factor))
        else:
            level.append(case)
    if len(pairs) == 1:
        return _alone(faster, slower, failing)
    parts = [_with_factors("faster", faster), "level on " + _listed(level) if level else ""]
    parts += [_with_factors("slower", slower), "fails on " + _listed(failing) if failing else ""]
    return "; ".join(part for part in parts if part)


def _alone(
    faster: Sequence[tuple[str, float]], slower: Sequence[tuple[str, float]], failing: Sequence[str]
) -> str:
    """What is said where the table has but one case."""
    for word, found in (("faster", faster), ("slower", slower)):
        if found:
            return f"{_factor(found[0][1])} times {word}"
    return "fails" if failing else "level"


def _cost(row: Row) -> float:
    found = row.ratio if row.ratio is not None else row.value
    assert found is not None
    return found


def _with_factors(word: str, found: Sequence[tuple[str, float]]) -> str:
    if not found:
        return ""
    if len(found) > 3:
        factors = [factor for _, factor in found]
        span = f"{_factor(min(factors))} to {_factor(max(factors))} times (middle {_factor(median(factors))})"
        return f"{span} {word} on {_listed([case for case, _ in found])}"
    return ", ".join(f"{_factor(factor)} times {word} on {case}" for case, factor in found)


def _factor(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1.95 else f"{value:.2f}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]
