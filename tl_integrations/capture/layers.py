"""A view on a traced graph: `Layer` is all passes of one op."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tl_integrations.capture.oplog import PlainValue
from tl_integrations.capture.ops import Op, Records
from tl_integrations.capture.structure import Structure
from tl_integrations.errors import AmbiguousRecordError


@dataclass(frozen=True, slots=True)
class Layer:
    """All passes of one op. With one pass it answers like that op; of several name one: `"fc_1_1:2"`."""

    _structure: Structure
    _records: Records
    label: str
    """Such as `relu_1_2`."""

    @property
    def ops(self) -> tuple[Op, ...]:
        """Its passes, in order."""
        return tuple(Op(self._structure, self._records, line) for line in self._lines)

    @property
    def num_passes(self) -> int:
        """How often it ran in this forward."""
        return len(self._lines)

    @property
    def parents(self) -> tuple[str, ...]:
        """Labels of the layers that any pass read, each once: the rolled graph."""
        reads = (parent for line in self._lines for parent in self._structure.parents(line))
        return tuple(dict.fromkeys(self._structure.labels[read] for read in reads))

    @property
    def children(self) -> tuple[str, ...]:
        """Labels of the layers that read any pass, each once."""
        readers = (child for line in self._lines for child in self._structure.children[line])
        return tuple(dict.fromkeys(self._structure.labels[reader] for reader in readers))

    @property
    def flops_forward(self) -> int | None:
        """FLOPs of all passes; None where no formula is known."""
        flops = [op.flops_forward for op in self.ops]
        return None if None in flops else sum(f for f in flops if f is not None)

    @property
    def macs_forward(self) -> int | None:
        """Multiply-accumulates of all passes; None where no formula is known."""
        macs = [op.macs_forward for op in self.ops]
        return None if None in macs else sum(m for m in macs if m is not None)

    @property
    def seconds(self) -> float:
        """Seconds of all passes."""
        return sum(op.seconds or 0.0 for op in self.ops)

    @property
    def has_saved_activation(self) -> bool:
        """Whether every pass was kept."""
        return all(op.has_saved_activation for op in self.ops)

    @property
    def type(self) -> str:
        """Normalised function name, such as `relu` for `relu_`."""
        return self._any.type

    @property
    def func_name(self) -> str:
        """The function's own name, such as `__add__`; empty for what is no op."""
        return self._any.func_name

    @property
    def func_config(self) -> dict[str, PlainValue]:
        """Arguments of the first pass that are no tensors, by name where the signature is known."""
        return self._any.func_config

    @property
    def address(self) -> str:
        """Innermost module around the first pass, `""` for the root; of a buffer its own name."""
        return self._any.address

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters it reads, each once."""
        return self._any.parameters

    @property
    def num_params(self) -> int:
        """Elements of the parameters it reads."""
        return self._any.num_params

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the first pass."""
        return self._any.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of its only pass."""
        return self.op.shape

    @property
    def modules(self) -> tuple[str, ...]:
        """Module calls around its only pass, outermost first, without the root."""
        return self.op.modules

    @property
    def pass_index(self) -> int:
        """1, for its only pass."""
        return self.op.pass_index

    @property
    def out(self) -> Tensor:
        """The tensor of its only pass, of shape `shape`.

        Raises:
            AmbiguousRecordError: if it has several.
            PayloadUnavailableError: if it was not kept.
        """
        return self.op.out

    @property
    def grad(self) -> Tensor | None:
        """The gradient of its only pass, of shape `shape`; None where none was kept.

        Raises:
            AmbiguousRecordError: if it has several.
        """
        return self.op.grad

    @property
    def op(self) -> Op:
        """Its only pass.

        Raises:
            AmbiguousRecordError: if it has several.
        """
        if self.num_passes > 1:
            raise AmbiguousRecordError(
                f"Layer {self.label!r} has {self.num_passes} passes, which may differ here. "
                f"Name one, such as {self.label + ':1'!r}, or read `.ops`."
            )
        return self._any

    @property
    def _any(self) -> Op:
        return Op(self._structure, self._records, self._lines[0])

    @property
    def _lines(self) -> Sequence[int]:
        return self._structure.members[self.label]

    def __repr__(self) -> str:
        passes = f", {self.num_passes} passes" if self.num_passes > 1 else ""
        return f"<Layer {self.label}: {self._any.dtype}{list(self._any.shape)}{passes}>"
