"""The code generator and the simulated device."""

from __future__ import annotations

from dlc_backend_npu16.kind import KIND
from dlc_core.backend.scratchpad import StreamCodegen, StreamDevice
from dlc_core.graph import Node
from dlc_core.target import Description, Target

FORMAT = "npu16-stream"
PRODUCTS = ("conv", "matmul")
ELEMENTWISE = (
    "add",
    "sub",
    "mul",
    "div",
    "maximum",
    "minimum",
    "relu",
    "clip",
    "neg",
    "abs",
    "sqrt",
    "exp",
    "tanh",
)
OPERATIONS = frozenset({"add", "sub", "mul", "div", "max", "min", "neg", "abs", "sqrt", "exp", "tanh"})


class Npu16Codegen(StreamCodegen):
    """Streams of commands for the units."""

    name, kinds, format = "npu16", ("npu16",), FORMAT
    operations = OPERATIONS

    def supports(self, node: Node, target: Target) -> bool | str:
        """Products, and elementwise operations of the vector unit."""
        fits = super().supports(node, target)
        if fits is not True:
            return fits
        if node.op.name == "div" and node.args[0].tensor_type.dtype.kind != "float":
            return "the vector unit divides floats only"
        if node.op.name in ELEMENTWISE:
            return True
        if node.op.name not in PRODUCTS:
            return "the array multiplies, and the vector unit has elementwise operations only"
        if node.attrs.get("groups", 1) != 1:
            return "the array has no grouped convolutions"
        return True


class Npu16Device(StreamDevice):
    """A simulated card with memory of its own. `cycles` counts the cycles of all launches."""

    name, formats = "npu16", (FORMAT,)
    memory_bytes = 1 << 32

    def describe(self, target: str) -> Description:
        """The machine of a target's text."""
        return Target.parse(target, {"npu16": KIND}).describe()


__all__ = ["ELEMENTWISE", "FORMAT", "PRODUCTS", "Npu16Codegen", "Npu16Device"]
