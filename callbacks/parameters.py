"""ParameterWatch: gradient norm and update ratio of parameters over one optimizer step."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tl_integrations.capture.events import Moment, Record
from tl_integrations.errors import OptionError, UnsupportedModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class _Before:
    """A parameter as it was when its optimizer stepped."""

    value: Tensor
    grad_norm: Tensor


class ParameterWatch:
    """Looks at parameters before an optimizer step and after it.

    `grad_norm` is the 2-norm of the gradient as the optimizer gets it (unscaled under AMP, before clipping
    by the Trainer has run or after, as `on_before_optimizer_step` sees it). `update_ratio` is the 2-norm of
    the step by that of the parameter before it; NaN for a parameter of norm 0. Costs one copy of every
    watched parameter on a captured step, and one transfer per device.

    Args:
        module: Whose parameters.
        addresses: Modules whose parameters, and those of what is inside them, are watched; None: all.

    Raises:
        OptionError: if these modules have no parameters.
        UnsupportedModelError: if parameters are sharded over processes (FSDP).
    """

    def __init__(self, module: nn.Module, addresses: Collection[str] | None = None) -> None:
        self._names = {
            id(parameter): name
            for name, parameter in module.named_parameters()
            if addresses is None or any(name.startswith(f"{address}.") for address in addresses)
        }
        self._parameters = {
            name: parameter for name, parameter in module.named_parameters() if id(parameter) in self._names
        }
        self._before: dict[str, _Before] = {}
        if not self._names:
            what = "the model" if addresses is None else ", ".join(map(repr, sorted(addresses)))
            raise OptionError(
                f"parameters=True watches the parameters of the captured modules, and {what} has none. "
                "Select modules that have parameters, or leave it out."
            )
        if any(hasattr(parameter, "full_tensor") for parameter in self._parameters.values()):
            raise UnsupportedModelError(
                "parameters=True needs norms of whole parameters, and those of this model are sharded over "
                "processes: every step would have to wait for all of them. Leave it out; activations and "
                "their gradients are captured."
            )

    def before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Keep what the optimizer is about to change; an optimizer that steps again is kept anew."""
        for parameter in _parameters_of(optimizer):
            name = self._names.get(id(parameter))
            if name is not None and parameter.grad is not None:
                value = parameter.detach()
                self._before[name] = _Before(value=value.clone(), grad_norm=_norm(parameter.grad.detach()))

    def take(self, moment: Moment) -> list[Record]:
        """One statistics-only record per parameter that an optimizer changed, and forget them."""
        before, self._before = self._before, {}
        if not before:
            return []
        rows: dict[str, list[Tensor]] = {}
        for name, old in before.items():
            step = self._parameters[name].detach() - old.value
            rows[name] = [old.grad_norm, _norm(step), _norm(old.value)]
        return [
            _record(moment, self._parameters[name], name, numbers) for name, numbers in _to_host(rows).items()
        ]


def _parameters_of(optimizer: Optimizer) -> Iterable[nn.Parameter]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def _norm(tensor: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(tensor, dtype=torch.float32)
    return norm


def _to_host(rows: dict[str, list[Tensor]]) -> dict[str, list[float]]:
    """Numbers of every parameter with one transfer per device."""
    by_device: dict[torch.device, list[str]] = {}
    for name, numbers in rows.items():
        by_device.setdefault(numbers[0].device, []).append(name)
    host: dict[str, list[float]] = {}
    for names in by_device.values():
        stacked = torch.stack([torch.stack(rows[name]) for name in names])
        host.update(zip(names, stacked.tolist(), strict=True))
    return {name: host[name] for name in rows}


def _record(moment: Moment, parameter: nn.Parameter, name: str, numbers: list[float]) -> Record:
    grad_norm, step, norm = numbers
    ratio = step / norm if norm else float("nan")
    return Record(
        moment=moment,
        func_name="parameter",
        address=name,
        io="parameter",
        layer=name,
        shape=tuple(parameter.shape),
        dtype=parameter.dtype,
        device=str(parameter.device),
        statistics={"grad_norm": grad_norm, "update_ratio": ratio},
    )
