"""`dlc_core.quantization.quantize_weights`: weights of products in packed groups of a quantisation format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlc_core.diag import UsageError
from dlc_core.driver import load
from dlc_core.graph.node import Function, Node, const_array, constant, rewrite
from dlc_core.ir.module import IRModule
from dlc_core.op.formats import quant_format
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes import PassContext
from dlc_core.quantization.quantize import PREPARED

MATMUL, PRODUCT = OPS["matmul"], OPS["quantized_matmul"]
_FLOATS = ("float32", "float16", "bfloat16")


def quantize_weights(
    model: Any,
    format: str,  # noqa: A002
    *,
    skip: Sequence[str] = (),
    shapes: Mapping[str, Any] | None = None,
    frontend: str | None = None,
) -> IRModule:
    """The model with constant weights of matrix products in a quantisation format, as a module to compile.

    `model` is an argument of `dlc.compile`, and `format` a name of `dlc dtypes --formats`. Activations stay
    floats, so no data is needed. A product stays in floats if its weights are not a matrix whose rows are
    whole groups, or if `skip` names its model node.

    Raises UsageError for an unknown format, and if nothing can be quantized.
    """
    made, count = quant_format(format), 0
    module = PREPARED.run(load(model, frontend=frontend, shapes=shapes), PassContext())

    def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
        nonlocal count
        if old.op is not MATMUL or old.attrs["transpose_a"] or any(span.name in skip for span in old.spans):
            return None
        x, weights = args[0], const_array(args[1])
        if weights is None or weights.ndim != 2 or x.dtype.name not in _FLOATS or old.dtype is not x.dtype:
            return None
        matrix = weights.T if old.attrs["transpose_b"] else weights
        if matrix.shape[0] % made.group or args[1].dtype is not x.dtype:
            return None
        count += 1
        return PRODUCT.build(x, *map(constant, made.quantize(matrix)), format=format)

    functions = {
        name: function.with_body(rewrite(function.body, visit))
        for name, function in module.of_kind(Function).items()
    }
    if not count:
        why = f"there is no product with a constant matrix whose rows are whole groups of {made.group}"
        raise UsageError(f"nothing can be quantized to {format}", why=why)
    return module.with_functions(functions)


__all__ = ["quantize_weights"]
