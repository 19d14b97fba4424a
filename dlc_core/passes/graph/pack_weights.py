"""pack_weights: keep weights of 8 bits and less packed in memory if the GEMM is memory-bound.

Law: results stay within tolerance. Each weight has the value that dequantize defines.

    matmul(x, dequantize(q, repeat(s), repeat(z)))   =>   packed_matmul(x, pack(q), s, z)       few rows of x
    packed_matmul(x, q, s, z)                        =>   matmul(x, weights)                    many rows

With few rows, as in text generation, each weight is used only a few times for each time it is read. With many
rows the widening would be repeated for each tile of rows, so it is better to store the weights as floats. An
unknown number of rows counts as few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dlc_core.decisions import Decision
from dlc_core.diag import UsageError
from dlc_core.graph.node import Function, Node, const_array, constant, rewrite
from dlc_core.ir.types import Dim
from dlc_core.op.declare import NDArray
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.op.std.packed_product import WIDTHS, packed, unpacked
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.heuristics import WEIGHTS
from dlc_core.support.record import record

MATMUL, PACKED, DEQUANTIZE, REPEAT = (
    OPS[name] for name in ("matmul", "packed_matmul", "dequantize", "repeat")
)
STORED = Decision(
    "weights.stored",
    "Whether GEMM with low-bit weights reads these as they are stored, or as floats.",
    ("packed", "floats"),
)


@record(frozen=True)
class PackWeights(GraphPass):
    """Let GEMMs of at most `rows` rows read packed weights, and GEMMs of more rows read floats.

    None takes the heuristic `weights.packed_rows`.
    """

    name: ClassVar[str] = "pack_weights"
    min_level: ClassVar[int] = 2
    exact: ClassVar[bool] = False
    rows: int | None = None

    def __post_init__(self) -> None:
        if self.rows is not None and self.rows < 0:
            raise UsageError(f"pack_weights for {self.rows} rows", hint="0 never packs")

    def run_function(self, function: Function, context: PassContext) -> Function:
        body = rewrite(function.body, self._visit)
        return function if body is function.body else function.with_body(body)

    def _visit(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        if old.op is PACKED and not self._stay_packed(old, args):
            return _as_floats(old, args)
        if old.op is MATMUL and args[1].op is DEQUANTIZE and self._stay_packed(old, args):
            return _as_packed(old, args)
        return None

    def _stay_packed(self, old: Node, args: tuple[Node, ...]) -> bool:
        return stored_choice(old, args[0].shape[:-1], self.rows) == "packed"


def stored_choice(product: Node, lead: Sequence[Dim], rows: int | None) -> str:
    """Choose how a product stores its weights. `lead` are the dims of its rows, and `rows` is the largest
    number that keeps packed weights; None takes the heuristic.
    """
    most = WEIGHTS.packed_rows if rows is None else rows
    few = not all(isinstance(d, int) for d in lead) or math.prod(map(int, lead)) <= most  # type: ignore[arg-type]
    reasons = {
        "packed": f"more than {most} rows would unpack each weight again",
        "floats": f"at most {most} rows are memory-bound: packed weights are fewer bytes",
    }
    where = " ".join(str(arg.shape) for arg in product.args[:2])
    preferred = "packed" if few else "floats"
    return STORED.choose(preferred, where=where, refused=reasons.__getitem__, spans=product.spans)


def _as_floats(old: Node, args: tuple[Node, ...]) -> Node | None:
    x, *rest = args
    arrays = [array for value in rest if (array := const_array(value)) is not None]
    if len(arrays) < len(rest):
        return None
    q, scale, *zero = arrays
    bits = old.attrs["bits"]
    middle = zero[0].astype(np.float32)[:, None] if zero else np.float32(1 << (bits - 1))
    weights = (unpacked(q, bits).astype(np.float32) - middle) * scale[:, None].astype(np.float32)
    return MATMUL.build(x, constant(weights.reshape(-1, q.shape[2]).astype(scale.dtype)))


def _as_packed(old: Node, args: tuple[Node, ...]) -> Node | None:
    x, weights = args
    q, bits = const_array(weights.args[0]), weights.args[0].dtype.bits
    if q is None or q.ndim != 2 or bits not in WIDTHS or old.attrs["transpose_a"] or len(x.shape) < 2:
        return None
    if x.dtype is not weights.dtype or x.dtype.name == "float64" or old.dtype is not x.dtype:
        return None
    transposed = old.attrs["transpose_b"]
    wide = q.astype(np.int16)
    numbers = wide.T if transposed else wide
    parts = [_blocks(value, numbers.shape, transposed) for value in weights.args[1:]]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    blocks = max(part.shape[0] for part in known)
    depth, columns = numbers.shape
    if any(blocks % part.shape[0] for part in known) or (depth // blocks) % (8 // bits):
        return None
    scale, *zero = (np.repeat(part, blocks // part.shape[0], axis=0) for part in known)
    # Signed weights are stored with an offset that makes them non-negative; zero points get the same offset.
    offset = 1 << (bits - 1) if weights.args[0].dtype.kind == "int" else 0
    points = zero[0].astype(np.int16) if zero else np.zeros_like(scale, np.int16)
    rest = [] if offset and not zero else [constant((points + offset).astype(np.uint8))]
    stored = packed((numbers + offset).reshape(blocks, depth // blocks, columns), bits)
    return PACKED.build(x, constant(stored), constant(scale), *rest, bits=bits)


def _blocks(value: Node, shape: tuple[int, ...], transposed: bool) -> NDArray | None:
    """Return scales or zero points of weights [depth, columns] as [blocks, columns]; None for other forms."""
    depth, columns = shape
    times = 1
    if value.op is REPEAT and value.attrs["axis"] % 2 == (1 if transposed else 0):
        times, value = value.attrs["repeats"], value.args[0]
    array = const_array(value)
    if array is None or array.ndim > 2:
        return None
    matrix = np.atleast_2d(array)
    matrix = matrix.T if transposed else matrix
    if matrix.shape[1] not in (1, columns) or depth % matrix.shape[0]:
        return None
    if matrix.shape[0] > 1 and matrix.shape[0] * times != depth:
        return None
    return np.ascontiguousarray(np.broadcast_to(matrix, (matrix.shape[0], columns)))


__all__ = ["PackWeights", "stored_choice"]
