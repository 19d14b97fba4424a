"""Elementwise arithmetic of dequantized bytes in integers, for machines without floating point.

    a + b             =    (n (p - pz) + m (q - qz)) S        n, m integers of 20 bits for the two scales
    a b               =    ((p - pz) (q - qz)) (s t)
    f(a)              =    a table of 256 results             f any chain of operations on one number

Products and tables are exact. In a sum, the smaller scale is rounded to a multiple of 2^-20 of the larger
one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core.graph.node import Node, const_array, constant
from dlc_core.op.declare import NDArray, OpDecl
from dlc_core.op.reference import folded
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.op.std.integer_product import BYTES, INT32
from dlc_core.passes.graph.quantized import DEQUANTIZE, number

ADD, SUB, MUL, CAST, GATHER = (OPS[name] for name in ("add", "sub", "mul", "cast", "gather"))
WEIGHT_BITS = 20
"""The bits of a weight: 255 times two such weights fits in int32."""


def centred(value: Node) -> Node | None:
    """Return q - zero in int32 for a dequantize of bytes with one scale; None for other values."""
    if value.op is not DEQUANTIZE or value.args[0].dtype.name not in BYTES:
        return None
    q, scale, *zero = value.args
    if scale.shape or scale.dtype.name != "float32" or any(z.shape for z in zero):
        return None
    points = [const_array(z) for z in zero]
    wide = CAST.build(q, to=INT32)
    for point in points:
        if point is None:
            return None
        wide = SUB.build(wide, number(int(point), INT32)) if point else wide
    return wide


def weighted_sum(old: Node, args: Sequence[Node]) -> Node | None:
    """Rewrite an addition or subtraction of dequantized bytes."""
    parts = [part for part in map(centred, args) if part is not None]
    if len(parts) < 2:
        return None
    scales = [const_array(arg.args[1]) for arg in args]
    steps = [float(s) for s in scales if s is not None and s > 0]
    if len(steps) < 2:
        return None
    unit = np.float32(max(steps) * 2.0**-WEIGHT_BITS)
    if not unit > np.finfo(np.float32).tiny:
        return None
    weights = [round(step / float(unit)) for step in steps]
    a, b = (MUL.build(p, number(w, INT32)) for p, w in zip(parts, weights, strict=True))
    return DEQUANTIZE.build((ADD if old.op is ADD else SUB).build(a, b), constant(unit))


def product(old: Node, args: Sequence[Node]) -> Node | None:
    """Rewrite a multiplication of dequantized bytes."""
    a, b = (centred(arg) for arg in args)
    if a is None or b is None:
        return None
    scales = [const_array(arg.args[1]) for arg in args]
    if scales[0] is None or scales[1] is None:
        return None
    return DEQUANTIZE.build(MUL.build(a, b), constant(np.asarray(scales[0] * scales[1])))


def table(value: Node) -> Node | None:
    """Return the lookup table of a chain of elementwise operations on dequantized bytes; None for other
    chains.
    """
    chain: list[Node] = []
    source = value
    while source.op is not DEQUANTIZE:
        rest = [arg for arg in source.args if const_array(arg) is None]
        small = all(array.size == 1 for arg in source.args if (array := const_array(arg)) is not None)
        kind = source.op.kind if isinstance(source.op, OpDecl) else ""
        if kind not in ("elementwise", "broadcast") or len(set(rest)) != 1 or not small:
            return None
        if rest[0].shape != source.shape:
            return None
        chain.append(source)
        source = rest[0]
    if centred(source) is None or not chain:
        return None
    q = source.args[0]
    low, high = q.dtype.int_range()
    results: dict[Node, NDArray] = {q: np.arange(low, high + 1).astype(q.dtype.numpy)}
    for step in (source, *reversed(chain)):
        results[step] = _over_all(step, results)
    index = CAST.build(q, to=INT32)
    position = SUB.build(index, number(low, INT32)) if low else index
    return GATHER.build(constant(results[value]), position, axis=0)


def _over_all(step: Node, results: dict[Node, NDArray]) -> NDArray:
    """Evaluate a step of a chain for all bytes."""
    assert isinstance(step.op, OpDecl)
    given = [(arg, const_array(arg)) for arg in step.args]
    arrays = [results[arg] if array is None else array.reshape(()) for arg, array in given]
    made = const_array(folded(step.op, *map(constant, arrays), **step.attrs))
    assert made is not None
    return made


__all__ = ["centred", "product", "table", "weighted_sum"]
