"""unsign_bytes: convert contractions of signed bytes to unsigned ones, if the target's dot products require
it.

Law: the function computes the same values bit for bit, because int32 sums wrap around.

    conv(x, w)      =>      conv(x + 128, w) - 128 * sum(w)        x int8, x + 128 uint8, w constant

The producers of the bytes add 128 and store the result; other readers subtract it again. Padding with zeros
becomes padding with 128.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dlc_core.decisions import Decision
from dlc_core.graph.node import Function, Node, const_array, constant, post_order
from dlc_core.op.declare import OpDecl
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.stored import StoredForm
from dlc_core.support.record import record
from dlc_core.target import Description

CONV, MATMUL, PAD, SUB, CAST, XOR = (
    OPS[name] for name in ("conv", "matmul", "pad", "sub", "cast", "bitwise_xor")
)
OFFSET = 128
SIGN_BIT = np.array(OFFSET, np.uint8)
BYTES = Decision(
    "dots.bytes",
    "Whether contractions read signed bytes as they are, or as unsigned ones with an offset of 128.",
    ("signed", "unsigned"),
)


@record(frozen=True)
class UnsignBytes(GraphPass):
    """Convert int8 activations to uint8 if dot products then take fewer instructions."""

    name: ClassVar[str] = "unsign_bytes"
    min_level: ClassVar[int] = 2

    def run_function(self, function: Function, context: PassContext) -> Function:
        if context.target is None:
            return function
        machine = context.target.describe()
        signed, mixed = (machine.dot(a, "int8", "int32") for a in ("int8", "uint8"))
        if signed is None or mixed is None or not any(map(_is_of_bytes, post_order(function.body))):
            return function
        preferred = "signed" if signed.steps <= mixed.steps else "unsigned"
        more = f"{signed.steps} steps of signed and {mixed.steps} of mixed dot products"
        if BYTES.choose(preferred, where=function.name, refused=lambda other: more) == "signed":
            return function
        body = _Unsigned(function, machine, signed.group).run()
        return function if body is function.body else function.with_body(body)


def _is_of_bytes(value: Node) -> bool:
    """Whether a node is a contraction of signed bytes with constant weights."""
    if value.op not in (CONV, MATMUL) or value.dtype.name != "int32":
        return False
    x, w = value.args[:2]
    return x.dtype.name == w.dtype.name == "int8" and const_array(w) is not None


class _Unsigned(StoredForm):
    def __init__(self, function: Function, machine: Description, group: int) -> None:
        self.machine = machine
        self.group = group
        super().__init__(function)

    def reads_form(self, value: Node) -> bool:
        if value.op not in (CONV, MATMUL) or value.dtype.name != "int32" or len(value.args) > 2:
            return False
        x, w = value.args
        array, attrs = const_array(w), value.attrs
        if array is None or not x.dtype.name == w.dtype.name == "int8":
            return False
        if value.op is MATMUL:
            return array.ndim == 2 and not attrs["transpose_a"] and not attrs["transpose_b"]
        last = attrs["layout"] == "NXC" and attrs["kernel_layout"] == "XIO"
        return last and bool(attrs["groups"] == 1 or array.shape[-2] % self.group == 0)

    def rebuilt_reader(self, old: Node) -> Node:
        decl, (x, w) = old.op, old.args
        assert isinstance(decl, OpDecl)
        value, attrs, weights = self.form(x), dict(old.attrs), const_array(w)
        assert weights is not None
        if decl is CONV and attrs["padding"] is not None and any(attrs["padding"]):
            rank = len(x.shape) - 2
            begins, ends = attrs["padding"][:rank], attrs["padding"][rank:]
            value = PAD.build(value, pads=(0, *begins, 0, 0, *ends, 0), value=float(OFFSET))
            attrs["padding"] = None
        sums = weights.sum(tuple(range(weights.ndim - 1)), dtype=np.int32)
        return SUB.build(decl.build(value, w, **attrs), constant(sums * np.int32(OFFSET)))

    def to_form(self, value: Node) -> Node:
        return XOR.build(CAST.build(value, to="uint8"), constant(SIGN_BIT))

    def from_form(self, value: Node) -> Node:
        return CAST.build(XOR.build(value, constant(SIGN_BIT)), to="int8")


__all__ = ["UnsignBytes"]
