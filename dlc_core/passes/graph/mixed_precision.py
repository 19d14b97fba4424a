"""mixed_precision: compute contractions in a narrower dtype if the caller allows it, with sums in float32.

Law: parameters and results keep their dtypes; results stay within the tolerance that the precision states.

    relu(conv(x, w, b))     =>     relu(conv(cast(x, to=bfloat16), w', b, out_dtype=float32))

Each operation has a policy:

- *lower*: convolutions and products by constant weights take both operands in the narrow dtype and sum in
  float32;
- *follow*: operations that only move elements, or choose among them, work on the stored dtype;
- attention has a policy of its own: the pass `attention` chooses operands in the narrow dtype;
- *keep*: all other operations compute in float32, such as normalisations, softmax and reductions.

The input of a contraction is stored in the narrow dtype, so its producer rounds it before the store. Other
readers, such as a residual addition, widen it again. Results of the function are never rounded.

If the target has neither dot products of the narrow dtype nor matrix units for it, only weights are narrow.
They take half the memory, and all arithmetic is in float32.
"""

from __future__ import annotations

from typing import ClassVar

from dlc_core.graph.node import CONST, Function, Node, const_array, constant
from dlc_core.ir.dtype import DType, dtype
from dlc_core.op.declare import OpDecl
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.stored import StoredForm
from dlc_core.support.record import record

FLOAT32 = dtype("float32")
FAST = "fast"
"""The precision that allows algorithms with fewer multiplications in float32."""
CAST = OPS["cast"]
LOWER = tuple(OPS[name] for name in ("conv", "conv_transpose", "matmul"))


def narrow_dtype(context: PassContext) -> DType:
    """Return the narrowest dtype of operands that the context's precision allows."""
    return FLOAT32 if is_fast(context) else dtype(_precision(context))


def is_fast(context: PassContext) -> bool:
    """Whether algorithms with fewer multiplications and larger errors are allowed in float32."""
    return _precision(context) == FAST


def _precision(context: PassContext) -> str:
    return str(context.config.get("precision", FLOAT32.name))


def lowers_activations(context: PassContext) -> bool:
    """Whether contractions take both operands in the narrow dtype, instead of the weights alone."""
    narrow = narrow_dtype(context)
    if narrow is FLOAT32 or context.target is None:
        return False
    machine, types = context.target.describe(), (narrow.name, narrow.name, "float32")
    return machine.dot(*types) is not None or machine.matrix_unit(*types) is not None


@record(frozen=True)
class MixedPrecision(GraphPass):
    """Compute contractions in the dtype of the compile's `precision`; do nothing if that is float32."""

    name: ClassVar[str] = "mixed_precision"
    exact: ClassVar[bool] = False
    precisions: ClassVar[tuple[str, ...]] = ("bfloat16", "float16")

    def run_function(self, function: Function, context: PassContext) -> Function:
        narrow = narrow_dtype(context)
        if narrow is FLOAT32:
            return function
        body = _Lowering(function, narrow, lowers_activations(context)).run()
        return function if body is function.body else function.with_body(body)


def _is_lowered(value: Node) -> bool:
    """Whether a node is a contraction in float32 by constant weights."""
    if value.op not in LOWER or value.dtype is not FLOAT32:
        return False
    return value.args[1].op is CONST and all(arg.dtype is FLOAT32 for arg in value.args)


class _Lowering(StoredForm):
    def __init__(self, function: Function, narrow: DType, activations: bool) -> None:
        self.narrow = narrow
        self.activations = activations
        super().__init__(function)

    def reads_form(self, value: Node) -> bool:
        return self.activations and _is_lowered(value)

    def rebuilt_reader(self, old: Node) -> Node:
        decl = old.op
        assert isinstance(decl, OpDecl)
        first = self.form(old.args[0]) if self.activations else self.read(old.args[0])
        attrs = {**old.attrs, "out_dtype": FLOAT32}
        return decl.build(first, self.form(old.args[1]), *map(self.read, old.args[2:]), **attrs)

    def to_form(self, value: Node) -> Node:
        array = const_array(value)
        return (
            CAST.build(value, to=self.narrow) if array is None else constant(array.astype(self.narrow.numpy))
        )

    def from_form(self, value: Node) -> Node:
        return CAST.build(value, to=FLOAT32)

    def _rebuilt(self, old: Node) -> Node:
        return self.rebuilt_reader(old) if _is_lowered(old) else super()._rebuilt(old)


__all__ = ["FAST", "MixedPrecision", "is_fast", "lowers_activations", "narrow_dtype"]
