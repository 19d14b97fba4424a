"""Operators that move elements, or make tensors of sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc_frontend_onnx.dtypes import number_of
from dlc_frontend_onnx.testing.random_models.builder import Builder, Refused, Value
from dlc_frontend_onnx.testing.random_models.templates import template


def _factors(b: Builder, size: int, most: int) -> list[int]:
    """Sizes whose product is `size`."""
    found: list[int] = []
    while size > 1 and len(found) < most - 1:
        divisors = [n for n in range(1, size + 1) if size % n == 0]
        found.append(b.rng.choice(divisors))
        size //= found[-1]
    found.append(size)
    b.rng.shuffle(found)
    return found


@template("Reshape", 2.0)
def reshape(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), when=lambda v: v.array.size > 0)
    wanted = _factors(b, value.array.size, b.rng.randint(1, 5))
    if b.chance(0.5):
        wanted[b.rng.randrange(len(wanted))] = -1
    elif b.chance(0.3) and value.rank:
        wanted = [0, *(_factors(b, value.array.size // value.shape[0], 3))]
    b.emit(op, [value, b.constant(wanted)], exact=True)


@template("Transpose", 2.0)
def transpose(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 5))
    order = b.rng.sample(range(value.rank), value.rank)
    attrs: dict[str, Any] = {"perm": order} if b.chance(0.85) else {}
    b.emit(op, [value], exact=True, **attrs)


@template("Flatten", 0.5)
def flatten(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 4))
    b.emit(op, [value], exact=True, axis=b.rng.randint(-value.rank if b.opset >= 11 else 0, value.rank))


@template("Squeeze Unsqueeze")
def squeezing(b: Builder, op: str) -> None:
    dtype = b.draw_dtype(op)
    if op == "Squeeze":
        value = b.need(dtype, when=lambda v: 1 in v.shape)
        ones = [axis for axis, size in enumerate(value.shape) if size == 1]
        axes = b.rng.sample(ones, b.rng.randint(1, len(ones)))
        if b.chance(0.2):
            b.emit(op, [value], exact=True)
            return
    else:
        value = b.need(dtype, (0, 3))
        count = b.rng.randint(1, 2)
        # The evaluator inserts axes one after another, so for it their order matters.
        axes = sorted(b.rng.sample(range(value.rank + count), count))
        if b.opset >= 11 and b.chance(0.3):
            axes = [axis - value.rank - count for axis in axes]
    if b.has_attribute(op, "axes"):
        b.emit(op, [value], exact=True, axes=axes)
    else:
        b.emit(op, [value, b.constant(axes)], exact=True)


@template("Expand")
def expand(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (0, 3), when=lambda v: v.array.size > 0)
    shape = [d if d > 1 else b.rng.choice((1, 2, 3, 5)) for d in value.shape]
    if b.chance(0.3):
        shape = [1 if b.chance(0.5) else d for d in shape]
    b.emit(op, [value, b.constant([b.rng.choice((1, 2, 3))] * b.rng.randint(0, 1) + shape)], exact=True)


@template("Tile", 0.7)
def tile(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 4))
    b.emit(op, [value, b.constant([b.rng.choice((1, 1, 2, 3)) for _ in value.shape])], exact=True)


@template("Concat", 1.5)
def concat(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 4))
    axis = b.axis(value.rank)

    def fits(other: Value) -> bool:
        rest = [d for i, d in enumerate(other.shape) if i != axis % value.rank]
        return other.rank == value.rank and rest == [
            d for i, d in enumerate(value.shape) if i != axis % value.rank
        ]

    others = [v for v in b.values if v.dtype == value.dtype and fits(v)]
    parts = [value] + [b.rng.choice(others) for _ in range(b.rng.randint(0, 2))]
    if b.chance(0.5):
        shape = list(value.shape)
        shape[axis] = b.size()
        parts.append(b.given(b.fill(shape, value.dtype)))
    b.rng.shuffle(parts)
    b.emit(op, parts, exact=True, axis=axis)


@template("Split")
def split(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 4), when=lambda v: max(v.shape) > 1)
    axis = b.rng.choice([i for i, d in enumerate(value.shape) if d > 1])
    size = value.shape[axis]
    if size % 2 == 0 and b.chance(0.3):
        attrs: dict[str, Any] = {"num_outputs": 2} if b.has_attribute(op, "num_outputs") else {}
        b.emit(op, [value], 2, exact=True, axis=axis, **attrs)
        return
    first = b.rng.randint(1, size - 1)
    parts = [first, size - first]
    if b.has_attribute(op, "split"):
        b.emit(op, [value], 2, exact=True, axis=axis, split=parts)
    else:
        b.emit(op, [value, b.constant(parts)], 2, exact=True, axis=axis)


@template("Slice", 2.0)
def slice_(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 4), when=lambda v: v.array.size > 0)
    axes = b.axes(value.rank)
    starts, ends, steps = [], [], []
    for axis in axes:
        size = value.shape[axis]
        step = b.rng.choice((1, 1, 1, 2, 3, -1, -2)) if b.opset >= 10 else 1
        start = b.rng.randint(-size - 2, size + 1)
        end = b.rng.choice((b.rng.randint(-size - 2, size + 2), (1 << 31) - 1 if step > 0 else -(1 << 31)))
        starts.append(start)
        ends.append(end)
        steps.append(step)
    if b.has_attribute(op, "starts"):
        b.emit(op, [value], exact=True, starts=starts, ends=ends, axes=axes)
        return
    kind = b.rng.choice(("int64", "int32"))
    more = [b.constant(axes, kind), b.constant(steps, kind)]
    b.emit(op, [value, b.constant(starts, kind), b.constant(ends, kind), *more], exact=True)


@template("Pad")
def pad(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 4), when=lambda v: v.array.size > 0)
    mode = b.rng.choice(("constant", "constant", "reflect", "edge"))
    if b.opset >= 19 and b.chance(0.2):
        mode = "wrap"
    least = -1 if mode == "constant" and b.chance(0.3) else 0
    pads = []
    for size in value.shape * 2:
        most = max(size - 1, 0) if mode in ("reflect", "wrap") else 2
        pads.append(b.rng.randint(max(least, 1 - size), min(2, most)))
    if b.has_attribute(op, "pads"):
        b.emit(op, [value], exact=True, mode=mode, pads=pads, value=0.5)
        return
    inputs: list[Value | None] = [value, b.constant(pads)]
    if mode == "constant" and b.chance(0.6):
        inputs.append(b.given(b.fill((), value.dtype)))
    b.emit(op, inputs, exact=True, mode=mode)


def _indices(b: Builder, shape: Any, size: int) -> Value:
    least = -size if b.opset >= 11 and b.chance(0.4) else 0
    numbers = [b.rng.randint(least, size - 1) for _ in range(int(np.prod(shape)))]
    array = np.array(numbers, b.rng.choice(("int64", "int32"))).reshape(shape)
    return b.given(array)


@template("Gather", 1.5)
def gather(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 4), when=lambda v: v.array.size > 0)
    axis = b.axis(value.rank)
    b.emit(op, [value, _indices(b, b.shape(0, 2), value.shape[axis])], exact=True, axis=axis)


@template("GatherElements", 0.7)
def gather_elements(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 3), when=lambda v: v.array.size > 0)
    axis = b.axis(value.rank)
    shape = [b.rng.randint(1, d) for d in value.shape]
    shape[axis] = b.size()
    b.emit(op, [value, _indices(b, shape, value.shape[axis])], exact=True, axis=axis)


@template("GatherND", 0.7)
def gather_nd(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 4), when=lambda v: v.array.size > 0)
    depth = b.rng.randint(1, value.rank)
    lead = b.shape(1, 2)
    columns = [
        [b.rng.randint(0, value.shape[i] - 1) for i in range(depth)] for _ in range(int(np.prod(lead)))
    ]
    indices = b.given(np.array(columns, np.int64).reshape(*lead, depth))
    b.emit(op, [value, indices], exact=True)


@template("ScatterElements", 0.7)
def scatter_elements(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 3), when=lambda v: v.array.size > 0)
    axis = b.axis(value.rank)
    reduction = b.rng.choice(("none", "add", "mul", "max", "min")) if b.opset >= 18 else "none"
    shape = [b.rng.randint(1, d) for d in value.shape]
    lanes = np.moveaxis(np.zeros(shape, np.int64), axis, -1)
    for position in np.ndindex(*lanes.shape[:-1]):
        # With repeated indices the result is undefined.
        lanes[position] = b.rng.sample(range(value.shape[axis]), lanes.shape[-1])
    indices = b.given(np.moveaxis(lanes, -1, axis))
    attrs: dict[str, Any] = {"reduction": reduction} if reduction != "none" else {}
    b.emit(op, [value, indices, b.given(b.fill(shape, value.dtype))], exact=True, axis=axis, **attrs)


@template("ScatterND", 0.7)
def scatter_nd(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 3), when=lambda v: v.array.size > 0)
    rows = b.rng.sample(range(value.shape[0]), b.rng.randint(1, value.shape[0]))
    updates = b.given(b.fill((len(rows), *value.shape[1:]), value.dtype))
    reduction = b.rng.choice(("none", "add", "mul", "max", "min")) if b.opset >= 18 else "none"
    attrs: dict[str, Any] = {"reduction": reduction} if reduction != "none" else {}
    b.emit(op, [value, b.given(np.array(rows, np.int64)[:, None]), updates], exact=True, **attrs)


@template("DepthToSpace SpaceToDepth", 0.4)
def blocks(b: Builder, op: str) -> None:
    block = b.rng.choice((2, 3))
    n, c, h, w = b.rng.choice((1, 2)), b.rng.choice((1, 2, 3)), b.rng.choice((1, 2, 3)), b.rng.choice((1, 2))
    dtype = b.draw_dtype(op)
    if op == "DepthToSpace":
        value = b.need(dtype, shape=(n, c * block * block, h, w))
        attrs: dict[str, Any] = {"mode": b.rng.choice(("DCR", "CRD"))} if b.opset >= 11 else {}
    else:
        value, attrs = b.need(dtype, shape=(n, c, h * block, w * block)), {}
    b.emit(op, [value], exact=True, blocksize=block, **attrs)


@template("Shape", 0.7)
def shape_of(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 4))
    attrs: dict[str, Any] = {}
    if b.opset >= 15 and b.chance(0.5):
        attrs = {"start": b.rng.randint(-3, 2), "end": b.rng.randint(-1, 4)}
    made = b.emit(op, [value], exact=True, **attrs)[0]
    if b.chance(0.6) and made.array.size and int(made.array.min()) > 0:
        b.emit("ConstantOfShape", [made], exact=True)


@template("Size", 0.3)
def size_of(b: Builder, op: str) -> None:
    b.emit(op, [b.need(b.draw_dtype(op))], exact=True)


@template("Range", 0.3)
def range_(b: Builder, op: str) -> None:
    dtype = b.draw_dtype(op, ("float32", "float64", "int32", "int64"))
    start, step = b.rng.randint(-3, 3), b.rng.choice((1, 2, -1, 3))
    limit = start + step * b.rng.randint(1, 6) + b.rng.randint(0, 1)
    b.emit(op, [b.constant(n, dtype) for n in (start, limit, step)], exact=True)


@template("OneHot", 0.5)
def one_hot(b: Builder, op: str) -> None:
    depth = b.rng.randint(1, 6)
    indices = _indices(b, b.shape(0, 2), depth)
    values = b.given(b.fill((2,), b.rng.choice(("float32", "int64", "int32"))))
    b.emit(
        op,
        [indices, b.constant(depth), values],
        exact=True,
        axis=b.rng.randint(-indices.rank - 1, indices.rank),
    )


@template("Trilu", 0.5)
def trilu(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (2, 3))
    inputs = [value, b.constant(b.rng.randint(-3, 3))] if b.chance(0.6) else [value]
    b.emit(op, inputs, exact=True, upper=int(b.chance(0.5)))


@template("EyeLike", 0.3)
def eye_like(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), 2)
    attrs: dict[str, Any] = {"k": b.rng.randint(-2, 2)} if b.chance(0.5) else {}
    if b.chance(0.5):
        attrs["dtype"] = number_of(b.rng.choice(("float32", "int32", "float64")))
    b.emit(op, [value], exact=True, **attrs)


@template("ReverseSequence", 0.3)
def reverse_sequence(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (2, 3), when=lambda v: v.array.size > 0)
    batch = b.rng.choice((0, 1))
    lengths = [b.rng.randint(1, value.shape[1 - batch]) for _ in range(value.shape[batch])]
    b.emit(
        op, [value, b.given(np.array(lengths, np.int64))], exact=True, batch_axis=batch, time_axis=1 - batch
    )


@template("NonZero Compress", 0.15)
def data_dependent(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 3), exact=True, when=lambda v: v.array.size > 0)
    if op == "NonZero":
        b.emit(op, [value], exact=True)
        return
    axis = b.axis(value.rank)
    b.emit(op, [value, b.given(b.fill((value.shape[axis],), "bool"))], exact=True, axis=axis)


@template("Unique", 0.15)
def unique(b: Builder, op: str) -> None:
    value = b.need(b.draw_dtype(op), (1, 3), exact=True, when=lambda v: v.array.size > 0)
    attrs: dict[str, Any] = {"axis": b.axis(value.rank)} if b.chance(0.5) else {}
    # Without sorting, the evaluator always takes slices along axis 0.
    unsorted = attrs.get("axis", 0) in (0, -value.rank) and b.chance(0.5)
    b.emit(op, [value], 4, exact=True, sorted=int(not unsorted), **attrs)


@template("QuantizeLinear", 0.4)
def quantize(b: Builder, op: str) -> None:
    value = b.need("float32", (1, 3), exact=True)
    if b.only not in (None, "float32"):
        raise Refused(op)
    kind = b.rng.choice(("uint8", "int8"))
    scale = b.constant(b.rng.choice((0.25, 0.5, 1.0)), "float32")
    zero = b.constant(b.rng.randint(0, 20), kind)
    quantized = b.emit(op, [value, scale, zero], exact=True)[0]
    if b.chance(0.6):
        b.emit("DequantizeLinear", [quantized, scale, zero], exact=True)
