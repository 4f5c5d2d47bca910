"""Views on the modules of a traced graph: `ModuleCall` is one call, `Module` is all calls of one module."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from tl_integrations.capture.oplog import ModuleLine, OpLine
from tl_integrations.capture.ops import Op, Records
from tl_integrations.capture.structure import Structure


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """One call of one module, such as `block:2`."""

    _structure: Structure
    _records: Records
    _index: int

    @property
    def address(self) -> str:
        """Name of the module, `""` for the root; of several names the first."""
        return self._facts.address

    @property
    def pass_index(self) -> int:
        """k-th call of this module, 1-based."""
        return self._facts.pass_index

    @property
    def label(self) -> str:
        """Address and call number, such as `block:2`; `self:1` for the root."""
        return f"{self.address or 'self'}:{self.pass_index}"

    @property
    def class_name(self) -> str:
        """Class of the module."""
        return self._facts.class_name

    @property
    def parent(self) -> str | None:
        """The call around it; None for the root."""
        parent = self._facts.parent
        return None if parent < 0 else ModuleCall(self._structure, self._records, parent).label

    @property
    def ops(self) -> tuple[Op, ...]:
        """Ops and buffers within it, at any depth, in order."""
        lines = self._structure.inside(self._index)
        return tuple(Op(self._structure, self._records, line) for line in lines)

    @property
    def outputs(self) -> tuple[Op, ...]:
        """The ops whose tensors it returned, leaf by leaf."""
        lines = self._facts.outputs if self._index else self._structure.returned
        return tuple(Op(self._structure, self._records, line) for line in lines)

    @property
    def _facts(self) -> ModuleLine:
        return self._structure.log.modules[self._index]

    def __repr__(self) -> str:
        return f"<ModuleCall {self.label}: {self.class_name}, {len(self.ops)} ops>"


@dataclass(frozen=True, slots=True)
class Module:
    """One module of the model and all its calls in the forward."""

    _structure: Structure
    _records: Records
    _index: int
    """Its first call."""

    @property
    def address(self) -> str:
        """Name in the model, `""` for the root; of several names the first."""
        return self._facts.address

    @property
    def aliases(self) -> tuple[str, ...]:
        """Its other names."""
        return self._facts.aliases

    @property
    def class_name(self) -> str:
        """Class of the module."""
        return self._facts.class_name

    @property
    def training(self) -> bool:
        """Whether it was in training mode."""
        return self._facts.training

    @property
    def calls(self) -> tuple[ModuleCall, ...]:
        """Its calls, in order."""
        indices = self._structure.calls_at[self.address]
        return tuple(ModuleCall(self._structure, self._records, index) for index in indices)

    @property
    def ops(self) -> tuple[Op, ...]:
        """Ops and buffers within all its calls, at any depth, in order."""
        return tuple(op for call in self.calls for op in call.ops)

    @property
    def layers(self) -> tuple[str, ...]:
        """Labels of the layers within it, each once."""
        return tuple(dict.fromkeys(op.layer_label for op in self.ops))

    @property
    def children(self) -> tuple[str, ...]:
        """Addresses of the modules that it called directly, each once."""
        modules = self._structure.log.modules
        own = set(self._structure.calls_at[self.address])
        return tuple(dict.fromkeys(call.address for call in modules if call.parent in own))

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters under its address, called or not, and of those that its ops read."""
        return tuple(line.address for line in self._parameters)

    @property
    def num_params(self) -> int:
        """Elements of these parameters."""
        return sum(prod(line.shape) for line in self._parameters)

    @property
    def flops_forward(self) -> int:
        """FLOPs of the ops within it that have a formula."""
        return _known(op.flops_forward for op in self.ops)

    @property
    def macs_forward(self) -> int:
        """Multiply-accumulates of the ops within it that have a formula."""
        return _known(op.macs_forward for op in self.ops)

    @property
    def nbytes(self) -> int:
        """Size of the tensors that the ops within it made."""
        return sum(op.nbytes for op in self.ops if op.kind == "op")

    @property
    def seconds(self) -> float:
        """Time of the ops within it."""
        return sum(op.seconds or 0.0 for op in self.ops)

    @property
    def _facts(self) -> ModuleLine:
        return self._structure.log.modules[self._index]

    @property
    def _parameters(self) -> list[OpLine]:
        structure, prefix = self._structure, f"{self.address}." if self.address else ""
        read = {p for op in self.ops for p in structure.parameters(op.line)}
        return [
            line
            for index, line in enumerate(structure.lines)
            if line.kind == "parameter" and (index in read or line.address.startswith(prefix))
        ]

    def __repr__(self) -> str:
        calls = len(self._structure.calls_at[self.address])
        return f"<Module {self.address or 'self'}: {self.class_name}, {calls} call{'s' if calls > 1 else ''}>"


def _known(values: Iterable[int | None]) -> int:
    return sum(value for value in values if value is not None)
