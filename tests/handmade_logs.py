"""Graphs written by hand: what a forward would have logged, op by op."""

from collections.abc import Sequence

from tl_integrations.capture.oplog import TENSOR, GraphLog, LineKind, ModuleLine, OpLine, PlainValue

Shape = tuple[int, ...]


class Sketch:
    """Writes a `GraphLog` line by line; tensors are line numbers.

    `sketch.op("linear", x, w, module="fc", shape=(2, 4))` is one op inside a new call of module `fc`; literal
    arguments follow the tensors.
    """

    def __init__(self, name: str = "Net") -> None:
        self.lines: list[OpLine] = []
        self.modules = [ModuleLine(class_name=name)]
        self.parameters: dict[str, int] = {}

    def source(self, kind: LineKind, shape: Shape = (2, 4), *, address: str = "", path: str = "") -> int:
        line = OpLine(kind=kind, type=kind, shape=shape, address=address, path=path)
        return self.add(line._replace(requires_grad=kind == "parameter"))

    def input(self, shape: Shape = (2, 4)) -> int:
        return self.source("input", shape, address="x")

    def parameter(self, address: str, shape: Shape = (4, 4)) -> int:
        if address not in self.parameters:
            self.parameters[address] = self.source("parameter", shape, address=address)
        return self.parameters[address]

    def call(self, address: str, class_name: str = "Block", parent: int = 0) -> int:
        passes = sum(call.address == address for call in self.modules)
        line = ModuleLine(address=address, class_name=class_name, pass_index=passes + 1, parent=parent)
        self.modules.append(line)
        return len(self.modules) - 1

    def op(
        self,
        func_name: str,
        *reads: int,
        module: str = "",
        call: int = 0,
        shape: Shape = (2, 4),
        literals: tuple[PlainValue, ...] = (),
        kwargs: tuple[tuple[str, PlainValue], ...] = (),
        path: str = "",
        seconds: float = 1e-6,
    ) -> int:
        if module:
            call = self.call(module, parent=call)
        return self.add(
            OpLine(
                type=func_name.strip("_").replace("_", ""),
                func_name=func_name,
                func=f"torch.{func_name}",
                reads=reads,
                call=call,
                shape=shape,
                path=path,
                args=(*(TENSOR for _ in reads), *literals),
                kwargs=kwargs,
                seconds=seconds,
            )
        )

    def linear(self, x: int, address: str, shape: Shape = (2, 4)) -> int:
        """One call of an `nn.Linear` at `address`, with its module call."""
        call = self.call(address, "Linear")
        width = self.lines[x].shape[-1]
        weight = self.parameter(f"{address}.weight", (shape[-1], width))
        bias = self.parameter(f"{address}.bias", (shape[-1],))
        made = self.op("linear", x, weight, bias, call=call, shape=shape)
        self.returns(call, made)
        return made

    def returns(self, call: int, *outputs: int) -> None:
        self.modules[call] = self.modules[call]._replace(outputs=outputs)

    def output(self, *made: int) -> GraphLog:
        for line in made:
            self.add(OpLine(kind="output", type="output", reads=(line,), shape=self.lines[line].shape))
        self.returns(0, *made)
        return GraphLog(lines=tuple(self.lines), modules=tuple(self.modules))

    def add(self, line: OpLine) -> int:
        self.lines.append(line)
        return len(self.lines) - 1


def names(labels: Sequence[str], passes: Sequence[int], log: GraphLog) -> str:
    """All ops as one text: `linear_1_1:1 relu_1_2:1`."""
    return " ".join(
        f"{label}:{k}" for label, k, line in zip(labels, passes, log.lines, strict=True) if line.kind == "op"
    )
