"""A view on a traced graph: `Op` is one tensor of the forward."""

import os
import stat
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from tl_integrations.capture.configuration import func_config
from tl_integrations.capture.events import Record
from tl_integrations.capture.flops import Cost, cost
from tl_integrations.capture.oplog import OpLine, PlainValue
from tl_integrations.capture.structure import Structure
from tl_integrations.errors import PayloadUnavailableError

Records = dict[int, Record]


@dataclass(frozen=True, slots=True)
class Op:
    """One tensor of a traced forward: a result of a function, an input, a buffer or a leaf of the output.

    It belongs to its trace and keeps it alive.
    """

    _structure: Structure
    _records: Records
    _line: int

    @property
    def line(self) -> int:
        """Its position in the graph's log."""
        return self._line

    @property
    def kind(self) -> str:
        """`op`, `input`, `buffer`, `constant` (a tensor that is none of the model's) or `output`."""
        return self._facts.kind

    @property
    def label(self) -> str:
        """Its name: the layer's label, with `:k` where the layer has several passes."""
        return self._structure.name(self._line)

    @property
    def layer_label(self) -> str:
        """The layer's label, such as `relu_1_2`."""
        return self._structure.labels[self._line]

    @property
    def raw_label(self) -> str:
        """The label in flight, such as `relu_1_3_raw`."""
        return self._structure.raw_label_of[self._line]

    @property
    def pass_index(self) -> int:
        """k-th pass of its layer, 1-based."""
        return self._structure.passes[self._line]

    @property
    def num_passes(self) -> int:
        """Passes of its layer."""
        return len(self._structure.members[self.layer_label])

    @property
    def step_index(self) -> int:
        """k-th op of the forward, 1-based; 0 for what is no op."""
        return self._structure.steps.get(self._line, 0)

    @property
    def type(self) -> str:
        """Normalised function name, such as `relu` for `relu_`."""
        return self._facts.type

    @property
    def func_name(self) -> str:
        """The function's own name, such as `__add__`; empty for what is no op."""
        return self._facts.func_name

    @property
    def func(self) -> str:
        """Where the function lives, such as `torch.nn.functional.relu`."""
        return self._facts.func

    @property
    def func_config(self) -> dict[str, PlainValue]:
        """The arguments that are no tensors, by name where the function's signature is known."""
        return func_config(self._facts, self._structure.lines)

    @property
    def parents(self) -> tuple[str, ...]:
        """Labels of what it read, in the order of its arguments; what was read twice stands twice."""
        return tuple([self._structure.name(parent) for parent in self._structure.parents(self._line)])

    @property
    def children(self) -> tuple[str, ...]:
        """Labels of what read it, each once."""
        return tuple([self._structure.name(child) for child in self._structure.children[self._line]])

    @property
    def siblings(self) -> tuple[str, ...]:
        """Labels of what else its parents' tensors went into."""
        parents = dict.fromkeys(self._structure.parents(self._line))
        lines = dict.fromkeys(child for parent in parents for child in self._structure.children[parent])
        return tuple([self._structure.name(line) for line in lines if line != self._line])

    @property
    def modules(self) -> tuple[str, ...]:
        """Module calls around it, outermost first, without the root: `("encoder:1", "encoder.0:1")`."""
        return self._structure.stacks[self._facts.call]

    @property
    def address(self) -> str:
        """Innermost module around it, `""` for the root; of a buffer its own name in the model."""
        return self._facts.address or self.module

    @property
    def module(self) -> str:
        """Address of the innermost module around it."""
        return self._structure.log.modules[self._facts.call].address

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters it read, each once."""
        lines = self._structure.lines
        return tuple([lines[p].address for p in self._structure.parameters(self._line)])

    @property
    def parameter_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of `parameters`, in their order."""
        lines = self._structure.lines
        return tuple([lines[p].shape for p in self._structure.parameters(self._line)])

    @property
    def num_params(self) -> int:
        """Elements of the parameters it read."""
        return sum(prod(shape) for shape in self.parameter_shapes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor, kept or not."""
        return self._facts.shape

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the tensor when it was made, whatever it was stored as."""
        dtype = getattr(torch, self._facts.dtype)
        assert isinstance(dtype, torch.dtype)
        return dtype

    @property
    def device(self) -> str:
        """Where it was made, such as `cuda:0`."""
        return self._facts.device

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor, whether it was kept or not; a view counts in full."""
        return prod(self._facts.shape) * self.dtype.itemsize

    @property
    def path(self) -> str:
        """Which leaf of the call's result, of the arguments or of the output, such as `["h"][0]`."""
        return self._facts.path

    @property
    def requires_grad(self) -> bool:
        """Whether autograd followed it."""
        return self._facts.requires_grad

    @property
    def is_input(self) -> bool:
        """An argument of the model."""
        return self._facts.kind == "input"

    @property
    def is_output(self) -> bool:
        """A leaf of what the model returned."""
        return self._facts.kind == "output"

    @property
    def is_buffer(self) -> bool:
        """A buffer of the model, or another tensor that the forward found without making it."""
        return self._facts.kind in ("buffer", "constant")

    @property
    def is_inplace(self) -> bool:
        """Its function wrote one of its arguments and returned it."""
        return self._facts.inplace

    @property
    def seconds(self) -> float | None:
        """Seconds of its call on the host; calls with several results count at the first."""
        first = self._facts.first
        return 0.0 if first >= 0 and first != self._line else self._facts.seconds

    @property
    def cost(self) -> Cost:
        """FLOPs and MACs of its call."""
        return cost(self._facts, self._structure.lines)

    @property
    def flops_forward(self) -> int | None:
        """FLOPs of its call, a multiply-accumulate as two; None where no formula is known.

        Source: contractions as `torch.utils.flop_counter` counts them; pointwise functions cost a fixed
        number per element, which `tl_integrations.capture.flops` lists.
        """
        return self.cost.flops

    @property
    def macs_forward(self) -> int | None:
        """Multiply-accumulates of its call; None where no formula is known."""
        return self.cost.macs

    @property
    def file(self) -> str:
        """The user's source file that called it."""
        return self._facts.file

    @property
    def line_number(self) -> int:
        """The line of `file`, 1-based; less than 1 where it is not known."""
        return self._facts.line

    @property
    def source(self) -> str | None:
        """The text of that line: as captured, or from the file if it is unchanged since; else None."""
        return self._facts.source or _read_source(self._facts, self._structure)

    @property
    def has_saved_activation(self) -> bool:
        """Whether its tensor was kept."""
        record = self._records.get(self._line)
        return record is not None and record.payload is not None

    @property
    def record(self) -> Record | None:
        """What was kept of it beyond the graph."""
        return self._records.get(self._line)

    @property
    def out(self) -> Tensor:
        """The tensor, of shape `shape`.

        Raises:
            PayloadUnavailableError: if it was not kept.
        """
        record = self._records.get(self._line)
        if record is None or record.payload is None:
            raise PayloadUnavailableError(
                f"The tensor of op {self.label!r} was not saved. "
                f"Run again with a `save=` that selects it, such as `save=[{self.label!r}]`."
            )
        return record.out

    @property
    def grad(self) -> Tensor | None:
        """The gradient that reached it in backward, of shape `shape`; None where none was kept."""
        record = self._records.get(self._line)
        return None if record is None else record.grad

    @property
    def _facts(self) -> OpLine:
        return self._structure.lines[self._line]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Op) and self._structure is other._structure and self._line == other._line

    def __hash__(self) -> int:
        return hash((id(self._structure), self._line))

    def __repr__(self) -> str:
        where = f" in {self.module}" if self.module else ""
        kept = ", saved" if self.has_saved_activation else ""
        return f"<Op {self.label}: {self._facts.dtype}{list(self.shape)}{where}{kept}>"


def _read_source(line: OpLine, structure: Structure) -> str | None:
    stamp = structure.files.get(line.file)
    if stamp is None or line.line < 1:
        return None
    try:
        found = os.stat(line.file)
        if not stat.S_ISREG(found.st_mode) or (found.st_mtime_ns, found.st_size) != stamp:
            return None
        with open(line.file, encoding="utf-8") as file:
            return next((text.strip() for number, text in enumerate(file, 1) if number == line.line), None)
    except (OSError, UnicodeDecodeError):
        return None
