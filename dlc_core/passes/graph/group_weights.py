"""Weights in packed groups of a quantisation format: packed in products with few rows, floats with many.

Law: results stay within tolerance. Each weight has the value that the format defines.

    matmul(x, dequantize_groups(codes, scale))     =>   quantized_matmul(x, codes, scale)      pack_groups
    quantized_matmul(x, codes, scale), many rows   =>   matmul(x, weights)                     unpack_groups

Partitioners run between the two passes, so that another target sees packed weights for any number of rows.
With few rows each weight is used only a few times for each time that it is read. With many rows its
conversion would be repeated for each tile of rows. An unknown number of rows counts as few.
"""

from __future__ import annotations

from typing import ClassVar

from dlc_core.graph.node import CONST, Function, Node, constant, rewrite
from dlc_core.op.formats import quant_format
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.pack_weights import stored_choice
from dlc_core.support.record import record

MATMUL, PRODUCT, MATRIX = (OPS[name] for name in ("matmul", "quantized_matmul", "dequantize_groups"))


@record(frozen=True)
class PackGroups(GraphPass):
    """Let products read weights in packed groups instead of a matrix that is made of them.

    Before:

        @G.function
        def main(
            x: G.Tensor((2, 64), "float32"),
            q: G.Tensor((2, 16, 8), "uint8"),
            s: G.Tensor((2, 8), "float8_e8m0fnu"),
        ):
            return G.matmul(x, G.dequantize_groups(q, s, format="mxfp4"))

    After pack_groups:

        @G.function
        def main(
            x: G.Tensor((2, 64), "float32"),
            q: G.Tensor((2, 16, 8), "uint8"),
            s: G.Tensor((2, 8), "float8_e8m0fnu"),
        ):
            return G.quantized_matmul(x, q, s, format="mxfp4")
    """

    name: ClassVar[str] = "pack_groups"
    min_level: ClassVar[int] = 1
    exact: ClassVar[bool] = False

    def run_function(self, function: Function, context: PassContext) -> Function:
        body = rewrite(function.body, _packed)
        return function if body is function.body else function.with_body(body)


def _packed(old: Node, args: tuple[Node, ...]) -> Node | None:
    if old.op is not MATMUL or args[1].op is not MATRIX or args[0].dtype is not old.dtype:
        return None
    x, weights = args
    if weights.dtype is not x.dtype or x.dtype.bits == 64 or len(x.shape) < 2:
        return None
    if old.attrs["transpose_a"] or old.attrs["transpose_b"]:
        return None
    return PRODUCT.build(x, *weights.args, format=weights.attrs["format"])


@record(frozen=True)
class UnpackGroups(GraphPass):
    """Store constant weights in packed groups as floats if the product has more than `rows` rows.

    None takes the heuristic `weights.packed_rows`.
    """

    name: ClassVar[str] = "unpack_groups"
    min_level: ClassVar[int] = 2
    exact: ClassVar[bool] = False
    rows: int | None = None

    def run_function(self, function: Function, context: PassContext) -> Function:
        body = rewrite(function.body, self._visit)
        return function if body is function.body else function.with_body(body)

    def _visit(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        x, *parts = args if old.op is PRODUCT else (old,)
        if not parts or any(part.op is not CONST for part in parts):
            return None
        if stored_choice(old, x.shape[:-1], self.rows) == "packed":
            return None
        weights = quant_format(old.attrs["format"]).dequantize(*(part.attrs["value"].data for part in parts))
        return MATMUL.build(x, constant(weights.astype(x.dtype.numpy)))


__all__ = ["PackGroups", "UnpackGroups"]
