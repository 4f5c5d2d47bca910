"""Run a captured step again: the model from the bundle's own config, given weights, a given batch."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

import tl_integrations as tl
from tl_integrations import language as L
from tl_integrations.errors import ConfigError

Key = tuple[str, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One recorded activation, and what the replay gave in its place."""

    name: str
    """Module address or label, with `:k` for a repeated call and the output path."""
    same: bool
    """Whether the two are within the tolerance; False too where the replay gave none."""
    difference: float | None
    """Largest absolute difference; None where shapes differ or the replay gave none."""
    text: str
    """In words."""

    def __str__(self) -> str:
        return f"{'same' if self.same else 'DIFFERENT':<10} {self.name}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """The outcome of a replay, in the order of the recording."""

    step: int
    replayed: tuple[Replayed, ...]
    skipped: int
    """Records that cannot be found again: without a tensor, or ops without a label."""

    @property
    def first_difference(self) -> Replayed | None:
        """Where the replay leaves the recording, or None when all is the same."""
        return next((one for one in self.replayed if not one.same), None)

    def __str__(self) -> str:
        same = sum(one.same for one in self.replayed)
        first = self.first_difference
        end = f"first difference: {first.name}" if first else "no difference"
        skipped = f", {self.skipped} not comparable" if self.skipped else ""
        lines = [str(one) for one in self.replayed]
        return "\n".join([*lines, f"step {self.step}: {same} of {len(lines)} the same{skipped}; {end}"])


def rerun(
    bundle: str | PathLike[str],
    *,
    step: int,
    batch: Any,
    checkpoint: str | PathLike[str] | Mapping[str, Any] | None = None,
    stage: str = "train",
    allow: Iterable[str] = (),
    tolerance: float = 0.0,
) -> Rerun:
    """Build the model from the bundle's config, load weights, run one batch, compare with what was recorded.

    Dropout and other random layers draw other numbers than the run did; what lies behind them differs.

    Args:
        bundle: A `.tlspec` path whose run carried its config.
        step: The captured step.
        batch: What the step was given: for a LightningModule the batch of `training_step`, else the model's
            input or a tuple of inputs. A path is read as a file of tensors.
        checkpoint: Weights from before that step: a state dict, or a file with one, also under `state_dict`.
        stage: Which stage of that step to compare with.
        allow: Targets that may run, as in `L.instantiate`.
        tolerance: Largest absolute difference that counts as the same.
    Raises:
        ConfigError: when the bundle carries no config.
        UntrustedTargetError: naming what `allow` must hold.
        RecordLookupError: when the step was not captured.
    """
    recording = tl.load(bundle)
    recorded = list(recording.at(step, stage=stage))
    if recording.config is None:
        raise ConfigError(f"{str(bundle)!r} carries no config, so its model cannot be built again.")
    wanted = {key: record for record in recorded if (key := key_of(record)) is not None}
    model = L.instantiate(dict(recording.config), allow=list(allow))
    if checkpoint is not None:
        model.load_state_dict(state_dict(checkpoint))
    replay = replayed_records(model, list(wanted), loaded(batch), stage) if wanted else {}
    return Rerun(
        step=step,
        replayed=tuple(
            compared(key, record.out, replay.get(key), tolerance) for key, record in wanted.items()
        ),
        skipped=len(recorded) - len(wanted),
    )


def key_of(record: Any) -> Key | None:
    """What finds a record again in another run: label or address, pass, output path."""
    name = record.label or (record.address if record.kind == "module" else "")
    if record.payload is None or not name or record.io != "output":
        return None
    return (name, record.pass_index, record.path)


def replayed_records(model: nn.Module, keys: list[Key], batch: Any, stage: str) -> dict[Key, Tensor]:
    """Run the batch once, and keep what the keys name."""
    addresses = {name for name, _ in model.named_modules()}
    selectors = [tl.module(name) if name in addresses else tl.label(name) for name, _, _ in keys]
    labelled = any(name not in addresses for name, _, _ in keys)
    model.train(stage == "train")
    recorder = tl.Recorder(model, save=reduce(or_, selectors), graph=labelled)
    with recorder, recorder.watch():
        run_batch(model, batch, stage)
    return {key: record.out for record in recorder.recording if (key := key_of(record)) is not None}


def run_batch(model: nn.Module, batch: Any, stage: str) -> None:
    """The step of a LightningModule as its trainer calls it, or a plain forward."""
    step = getattr(
        model, {"train": "training_step", "validate": "validation_step"}.get(stage, f"{stage}_step"), None
    )
    with warnings.catch_warnings():
        # Outside a trainer `self.log` has nowhere to go, which is right here.
        warnings.filterwarnings("ignore", message=r".*self\.log.*|.*self\.trainer.*")
        if step is not None:
            step(batch, 0)
        else:
            model(*batch) if isinstance(batch, tuple) else model(batch)


def compared(key: Key, recorded: Tensor, replayed: Tensor | None, tolerance: float) -> Replayed:
    name, pass_index, path = key
    shown = f"{name}{f':{pass_index}' if pass_index > 1 else ''}{path}"
    if replayed is None:
        return Replayed(name=shown, same=False, difference=None, text="the replay did not reach it")
    if recorded.shape != replayed.shape:
        text = f"shape {tuple(recorded.shape)} recorded, {tuple(replayed.shape)} replayed"
        return Replayed(name=shown, same=False, difference=None, text=text)
    if recorded.numel() == 0:
        return Replayed(name=shown, same=True, difference=0.0, text="empty")
    difference = largest_difference(recorded, replayed.detach().to(recorded.device))
    return Replayed(
        name=shown,
        same=difference <= tolerance,
        difference=difference,
        text="exactly" if difference == 0 else f"largest difference {difference:.3g}",
    )


def largest_difference(a: Tensor, b: Tensor) -> float:
    """Largest absolute difference; NaN on both sides is none, on one side it is endless."""
    wide = torch.complex128 if a.is_complex() else torch.float64
    gap = (a.to(wide) - b.to(wide)).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
    return float(gap.masked_fill((a == b) | (a.isnan() & b.isnan()), 0.0).max())


def state_dict(checkpoint: str | PathLike[str] | Mapping[str, Any]) -> Mapping[str, Any]:
    """The weights of a checkpoint, without running anything that the file may hold."""
    held = checkpoint if isinstance(checkpoint, Mapping) else read_tensors(checkpoint)
    inner = held.get("state_dict", held)
    if not isinstance(inner, Mapping):
        raise ConfigError(f"The checkpoint holds no state dict: found {type(inner).__name__}.")
    return inner


def loaded(batch: Any) -> Any:
    """The batch itself, or what the file at that path holds."""
    return read_tensors(batch) if isinstance(batch, str | PathLike) else batch


def read_tensors(path: str | PathLike[str]) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)
