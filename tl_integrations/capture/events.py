"""A tensor on its way: `Moment` (when), `Event` (what a selector sees), `Record` (what is kept)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor

from tl_integrations.errors import PayloadUnavailableError

Kind = Literal["op", "module", "input", "buffer"]
Io = Literal["output", "input", "gradient", "parameter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When a forward ran: the part of a record's key that the loop knows."""

    step: int | None = None
    """Training step, 0-based; None outside a loop."""
    stage: str = "train"
    """One of train, validate, test, predict."""
    microbatch: int = 0
    """Which forward of an accumulated step."""
    call: int = 0
    """Which call of `training_step` within a batch (LBFGS closures call it again)."""
    dataloader_idx: int = 0
    """Which of the evaluation loaders, 0-based."""
    batch: int | None = None
    """Batch number within the evaluation run; None while training."""
    rank: int = 0
    """The process that captured it, 0-based."""
    generation: int = 0
    """How often the run was rewound before; readers see the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One tensor that a forward just produced, as a selector sees it: never its values."""

    kind: Kind = "op"
    """`op`: a function's result; `module`: a module's output or input; `input`, `buffer`: a source."""
    func_name: str = ""
    """The function's own name, such as `__add__`; a module's class name for `kind="module"`."""
    type: str = ""
    """Normalised function name, such as `add`; empty for a module."""
    label: str = ""
    """Short label, such as `relu_1`: the type and its k-th occurrence; empty where ops are not counted."""
    final_label: str | None = None
    """Final label, such as `relu_1_2`; known only after the forward, and only where the graph is logged."""
    address: str = ""
    """Innermost module, `""` for the root."""
    module_type: str = ""
    """Class name of that module."""
    modules: tuple[str, ...] = ()
    """Module calls it happened in, outermost first, such as `("encoder:1", "encoder.0:1")`."""
    pass_index: int = 1
    """k-th call of the innermost module within this run, 1-based."""
    path: str = ""
    """Which leaf of the output, such as `["h"][0]`; empty for a single tensor."""
    output_index: int = 0
    """The leaf's number, 0-based."""
    io: Literal["input", "output"] = "output"
    """`input` where a module was given it."""
    shape: tuple[int, ...] = ()
    """Of the tensor."""
    dtype: torch.dtype = torch.float32
    """Of the tensor."""
    device: str = "cpu"
    """Where the tensor lies, such as `cuda:0`."""
    requires_grad: bool = False
    """Whether autograd follows it."""
    run_index: int = 1
    """Which forward of the recorder, 1-based."""
    moment: Moment = field(default_factory=Moment)
    """When the forward runs."""
    recent_ops: tuple["Event", ...] = ()
    """The last ops before it, oldest first: as many as `lookback` holds."""

    @property
    def step(self) -> int | None:
        """Training step, 0-based; None outside a loop."""
        return self.moment.step


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Counts of finite values between edges that rise; of large tensors, of an evenly strided sample.

    All other numbers here are of the same values.
    """

    edges: tuple[float, ...]
    """`bins + 1` numbers."""
    counts: tuple[int, ...]
    """`bins` numbers."""
    minimum: float
    """Least finite value."""
    maximum: float
    """Greatest finite value."""
    total: float
    """Sum of the finite values."""
    squares: float
    """Sum of their squares."""

    @property
    def num(self) -> int:
        """How many finite values were counted."""
        return sum(self.counts)


class Payload(Protocol):
    """A kept tensor, wherever it lies."""

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        ...

    def read(self) -> Tensor:
        """The tensor as it was when captured.

        Raises:
            PayloadOverwrittenError: if that can no longer be had.
            BundleError: if it lies on disk and cannot be read.
        """
        ...


@dataclass(slots=True, kw_only=True, eq=False, weakref_slot=True)
class Gradient:
    """What autograd delivered for one activation; filled during the user's backward."""

    payload: Payload | None = None
    """The gradient, of the activation's shape; None until it arrived."""
    loss_scale: float = 1.0
    """What the loss was multiplied with (AMP)."""
    accumulate: int = 1
    """How many microbatches the loss was divided by."""
    reason: str = ""
    """Why there is none; empty where one arrived."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Record:
    """One captured tensor and where it came from."""

    moment: Moment = field(default_factory=Moment)
    """When its forward ran."""
    run_index: int = 1
    """Which forward of the recorder, 1-based."""
    kind: Kind = "op"
    """`op`: a function's result; `module`: a module's output or input; `input`, `buffer`: a source."""
    label: str | None = None
    """Final label such as `relu_1_2`; None where the plan cannot know it."""
    raw_label: str | None = None
    """Label in flight, such as `relu_1_3_raw`; None where the plan cannot know it."""
    short_label: str | None = None
    """Type and its k-th occurrence in the run, such as `relu_1`; None where the plan cannot know it."""
    func_name: str = ""
    """The captured function's own name, or the module class's for a module's output."""
    address: str = ""
    """Innermost module, `""` for the root; for a module's output that module."""
    modules: tuple[str, ...] = ()
    """Module calls it happened in, outermost first, such as `("encoder:1", "encoder.0:1")`; a module's
    output happens in that module."""
    pass_index: int = 1
    """k-th call of that module or layer within one run, 1-based."""
    path: str = ""
    """Which leaf of the output, such as `["h"][0]`; empty for a single tensor."""
    io: Io = "output"
    """`output`; `input` for `module(address, io="input")`; `gradient`, `parameter` for their statistics."""
    layer: str = ""
    """Name for tags and tables, unique within a run and the same on every step: the address (`:k` for a
    repeated call) and, where several ops of one module call are kept, the short label."""
    line: int | None = None
    """Position of its line in the run's `GraphLog`; None where no graph was logged."""
    shape: tuple[int, ...] = ()
    """Of the tensor when it was captured."""
    dtype: torch.dtype = torch.float32
    """Of the tensor when it was captured; a kept copy may have been cast."""
    device: str = "cpu"
    """Where the tensor was computed."""
    requires_grad: bool = False
    """Whether autograd followed it."""
    forced_eager: bool = False
    """A compiled model ran eagerly for this capture."""
    statistics: Mapping[str, float] | None = None
    """Numbers by name, such as `"mean"`; None where none were asked for."""
    histogram: Histogram | None = None
    """Counts of its values; None where none was asked for."""
    payload: Payload | None = None
    """The kept tensor, which `out` reads; None where it was not kept."""
    gradient: Gradient | None = None
    """What `grad` reads; None where gradients were not asked for; one without a payload says the reason."""
    placement: str = ""
    """Of a distributed tensor: how it lies over its mesh, such as `Shard(dim=0) on a mesh of 2`. The shape is
    that of the whole, the payload this process's part."""

    @property
    def out(self) -> Tensor:
        """The captured tensor, of shape `shape` unless a transform changed it.

        Raises:
            PayloadUnavailableError: if only its metadata or statistics were kept.
        """
        if self.payload is None:
            raise PayloadUnavailableError(
                f"The tensor of {self.name!r} was not kept. "
                "Record again with a `save=` that selects it (and a storage that keeps tensors)."
            )
        return self.payload.read()

    @property
    def grad(self) -> Tensor | None:
        """The gradient as autograd delivered it, of shape `shape`; None where none was: `gradient.reason`."""
        if self.gradient is None or self.gradient.payload is None:
            return None
        return self.gradient.payload.read()

    @property
    def grad_unscaled(self) -> Tensor | None:
        """The gradient without the loss scale of AMP; equal to `grad` where nothing was scaled."""
        grad = self.grad
        return grad if grad is None or self.gradient is None else grad / self.gradient.loss_scale

    @property
    def name(self) -> str:
        """The label, or where it is not known the name of its layer."""
        if self.label is not None:
            return self.label
        repeat = f":{self.pass_index}" if self.pass_index > 1 else ""
        return self.layer or f"{self.address}{repeat}"

    def __repr__(self) -> str:
        # One line, and no tensor is read: recordings hold thousands, and a payload may lie on disk.
        when = "" if self.step is None else f" at step {self.step}"
        shape = ", ".join(map(str, self.shape))
        kept = "" if self.payload is not None else ", not kept"
        leaf = "" if self.name.endswith(self.path) else self.path
        part = f", {self.placement}" if self.placement else ""
        return (
            f"<Record {self.name or '(root)'}{leaf}{when}: "
            f"{str(self.dtype).removeprefix('torch.')}[{shape}] of {self.func_name or self.kind}{part}{kept}>"
        )

    @property
    def step(self) -> int | None:
        """Training step, 0-based; None outside a loop."""
        return self.moment.step

    @property
    def stage(self) -> str:
        """One of train, validate, test, predict."""
        return self.moment.stage

    @property
    def microbatch(self) -> int:
        """Which forward of an accumulated step, 0-based."""
        return self.moment.microbatch

    @property
    def rank(self) -> int:
        """The process that captured it, 0-based."""
        return self.moment.rank
