"""ONNX operators in functions of torch, on tensors, on proxies of `torch.fx`, or on both.

Arguments that are numbers or lists of numbers in torch, such as shapes, are so here too; see `NUMBERS`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from onnx import TensorProto
from torch import fx
from torch.nn import functional

Value = Any
"""A tensor, or a proxy of one."""

DTYPES = {
    TensorProto.FLOAT: torch.float32,
    TensorProto.DOUBLE: torch.float64,
    TensorProto.FLOAT16: torch.float16,
    TensorProto.BFLOAT16: torch.bfloat16,
    TensorProto.INT8: torch.int8,
    TensorProto.INT16: torch.int16,
    TensorProto.INT32: torch.int32,
    TensorProto.INT64: torch.int64,
    TensorProto.UINT8: torch.uint8,
    TensorProto.BOOL: torch.bool,
}


@dataclass(frozen=True)
class Node:
    """The arguments of an operator's function, except its inputs."""

    attributes: Mapping[str, Any]
    opset: int
    outputs: int
    shapes: Sequence[Sequence[int | None] | None]
    """Of the inputs; None where a dimension or the rank is not known."""
    dtypes: Sequence[torch.dtype | None]
    """Of the inputs."""

    def get(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def rank(self, index: int = 0) -> int:
        shape = self.shapes[index]
        if shape is None:
            raise NotImplementedError("the rank of an input is not known")
        return len(shape)

    def spatial(self, index: int = 0) -> int:
        """Dimensions besides the batch and the channels."""
        return self.rank(index) - 2


def record(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Record a call if an argument is a proxy, else make it. For functions that do not handle proxies
    themselves.
    """
    proxies: list[fx.Proxy] = []
    fx.node.map_aggregate(
        (arguments, named), lambda each: proxies.append(each) if isinstance(each, fx.Proxy) else None
    )
    if not proxies:
        return function(*arguments, **named)
    return proxies[0].tracer.create_proxy("call_function", function, arguments, named)


# Elementwise


def _numbers(*values: Value) -> list[Value]:
    """Scalar constants as numbers, which are faster in torch, unless all operands are constants."""
    if not any(isinstance(each, fx.Proxy) for each in values):
        return list(values)
    return [each.item() if _is_number(each) else each for each in values]


def _is_number(value: Value) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 0 and value.dtype != torch.bool


def _of_one(function: Callable[..., Any]) -> Callable[..., Value]:
    return lambda node, x: function(x)


def _of_two(function: Callable[..., Any]) -> Callable[..., Value]:
    return lambda node, a, b: record(function, *_numbers(a, b))


def _of_many(function: Callable[..., Any]) -> Callable[..., Value]:
    def all_of(node: Node, first: Value, *others: Value) -> Value:
        for other in others:
            first = record(function, first, other)
        return first

    return all_of


def div(node: Node, a: Value, b: Value) -> Value:
    whole = node.dtypes[0] is not None and not node.dtypes[0].is_floating_point
    a, b = _numbers(a, b)
    return torch.div(a, b, rounding_mode="trunc") if whole else record(operator.truediv, a, b)


def mod(node: Node, a: Value, b: Value) -> Value:
    return (torch.fmod if node.get("fmod", 0) else torch.remainder)(*_numbers(a, b))


def where(node: Node, condition: Value, a: Value, b: Value) -> Value:
    return torch.where(condition, a, b)


def clip(node: Node, x: Value, low: Value = None, high: Value = None) -> Value:
    low, high = (each.item() if isinstance(each, torch.Tensor) else each for each in (low, high))
    low, high = node.get("min", low), node.get("max", high)
    return torch.clamp(x, low, high)


def prelu(node: Node, x: Value, slope: Value) -> Value:
    return torch.where(x < 0, x * slope, x)


def gelu(node: Node, x: Value) -> Value:
    return functional.gelu(x, approximate=node.get("approximate", "none"))


def hard_sigmoid(node: Node, x: Value) -> Value:
    return torch.clamp(x * node.get("alpha", 0.2) + node.get("beta", 0.5), 0, 1)


def cast(node: Node, x: Value) -> Value:
    return x.to(DTYPES[node.get("to")])


# Products


def _linear(x: Value, weight: torch.Tensor, bias: Value = None) -> Value:
    """A linear layer with a weight of shape (in, out), which is stored as in torch's layer."""
    return functional.linear(x, weight.t().contiguous(), bias)


def matmul(node: Node, a: Value, b: Value) -> Value:
    if isinstance(b, torch.Tensor) and b.dim() == 2:
        return _linear(a, b)
    return torch.matmul(a, b)


def gemm(node: Node, a: Value, b: Value, c: Value = None) -> Value:
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    a = a.t() if node.get("transA", 0) else a
    b = b.t() if node.get("transB", 0) else b
    if isinstance(b, torch.Tensor) and (c is None or (isinstance(c, torch.Tensor) and c.dim() == 1)):
        return _linear(a, b if alpha == 1 else alpha * b, c if c is None or beta == 1 else beta * c)
    if c is None:
        return torch.matmul(a, b) * alpha
    return torch.addmm(c, a, b, beta=beta, alpha=alpha)


def einsum(node: Node, *values: Value) -> Value:
    return torch.einsum(node.get("equation"), *values)


# Windows


def _pads(node: Node, sizes: Sequence[int], value: float, x: Value) -> tuple[Value, list[int]]:
    """The input and its symmetric padding. Asymmetric padding is applied to the input here."""
    rank = len(sizes)
    kind, pads = node.get("auto_pad", "NOTSET"), list(node.get("pads", [0] * 2 * rank))
    if kind == "VALID":
        pads = [0] * 2 * rank
    elif kind != "NOTSET":
        pads = _same(node, sizes, lower=kind == "SAME_LOWER")
    if pads[:rank] == pads[rank:]:
        return x, pads[:rank]
    around = [each for axis in reversed(range(rank)) for each in (pads[axis], pads[axis + rank])]
    return functional.pad(x, around, value=value), [0] * rank


def _same(node: Node, sizes: Sequence[int], lower: bool) -> list[int]:
    rank = len(sizes)
    shape = node.shapes[0]
    if shape is None or None in shape[2:]:
        raise NotImplementedError("auto_pad where the input's size is not known")
    totals = []
    for size, stride, step, wide in zip(sizes, *_steps(node, rank), shape[2:]):
        assert wide is not None
        totals.append(max((-(-wide // stride) - 1) * stride + step * (size - 1) + 1 - wide, 0))
    less, more = [each // 2 for each in totals], [each - each // 2 for each in totals]
    return more + less if lower else less + more


def _steps(node: Node, rank: int) -> tuple[list[int], list[int]]:
    """Strides and dilations."""
    return list(node.get("strides", [1] * rank)), list(node.get("dilations", [1] * rank))


def conv(node: Node, x: Value, weight: Value, bias: Value = None) -> Value:
    rank = node.spatial()
    function = (torch.conv1d, torch.conv2d, torch.conv3d)[rank - 1]
    strides, dilations = _steps(node, rank)
    sizes = node.get("kernel_shape") or node.shapes[1][2:]  # type: ignore[index]
    x, pads = _pads(node, sizes, 0.0, x)
    return function(x, weight, bias, strides, pads, dilations, node.get("group", 1))


def conv_transpose(node: Node, x: Value, weight: Value, bias: Value = None) -> Value:
    rank = node.spatial()
    function = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)[rank - 1]
    strides, dilations = _steps(node, rank)
    pads = list(node.get("pads", [0] * 2 * rank))
    more = node.get("output_padding", [0] * rank)
    if pads[:rank] != pads[rank:] or node.get("output_shape") or node.get("auto_pad", "NOTSET") != "NOTSET":
        raise NotImplementedError("ConvTranspose with padding that is not symmetric")
    return function(x, weight, bias, strides, pads[:rank], more, node.get("group", 1), dilations)


def max_pool(node: Node, x: Value) -> Value:
    if node.outputs > 1:
        raise NotImplementedError("MaxPool with indices")
    sizes = node.get("kernel_shape")
    function = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[len(sizes) - 1]
    strides, dilations = _steps(node, len(sizes))
    x, pads = _pads(node, sizes, float("-inf"), x)
    return function(x, sizes, strides, pads, dilations, bool(node.get("ceil_mode", 0)))


def average_pool(node: Node, x: Value) -> Value:
    sizes, counted = node.get("kernel_shape"), bool(node.get("count_include_pad", 0))
    function = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[len(sizes) - 1]
    strides, dilations = _steps(node, len(sizes))
    if any(each != 1 for each in dilations):
        raise NotImplementedError("AveragePool with dilations")
    padded, pads = _pads(node, sizes, 0.0, x)
    if padded is x or counted:
        return function(padded, sizes, strides, pads, bool(node.get("ceil_mode", 0)), counted)
    inside, _ = _pads(node, sizes, 0.0, torch.ones_like(x))
    ceil = bool(node.get("ceil_mode", 0))
    return function(padded, sizes, strides, 0, ceil) / function(inside, sizes, strides, 0, ceil)


# Norms


def batch_norm(node: Node, x: Value, scale: Value, bias: Value, mean: Value, var: Value) -> Value:
    if node.get("training_mode", 0):
        raise NotImplementedError("BatchNormalization that trains")
    return functional.batch_norm(x, mean, var, scale, bias, False, 0.0, node.get("epsilon", 1e-5))


def layer_norm(node: Node, x: Value, scale: Value, bias: Value = None) -> Value:
    if node.outputs > 1:
        raise NotImplementedError("LayerNormalization with a mean as output")
    return functional.layer_norm(x, _normalised(node, scale), scale, bias, node.get("epsilon", 1e-5))


def rms_norm(node: Node, x: Value, scale: Value) -> Value:
    return functional.rms_norm(x, _normalised(node, scale), scale, node.get("epsilon", 1e-5))


def _normalised(node: Node, scale: Value) -> list[int]:
    rank = node.rank() - node.get("axis", -1) % node.rank()
    if not isinstance(scale, torch.Tensor) or scale.dim() != rank:
        raise NotImplementedError("a norm whose scale is not a constant of the normalised shape")
    return list(scale.shape)


def instance_norm(node: Node, x: Value, scale: Value, bias: Value) -> Value:
    return functional.instance_norm(x, weight=scale, bias=bias, eps=node.get("epsilon", 1e-5))


def group_norm(node: Node, x: Value, scale: Value, bias: Value) -> Value:
    groups = node.get("num_groups")
    if node.opset < 21:
        channels = node.shapes[0][1]  # type: ignore[index]
        scale, bias = (each.repeat_interleave(channels // groups) for each in (scale, bias))
    return functional.group_norm(x, groups, scale, bias, node.get("epsilon", 1e-5))


def lrn(node: Node, x: Value) -> Value:
    size, alpha, beta = node.get("size"), node.get("alpha", 1e-4), node.get("beta", 0.75)
    return functional.local_response_norm(x, size, alpha, beta, node.get("bias", 1.0))


def _softmax(function: Callable[..., Any]) -> Callable[..., Value]:
    def softmax(node: Node, x: Value) -> Value:
        axis = node.get("axis", -1 if node.opset >= 13 else 1)
        if node.opset >= 13 or axis in (-1, node.rank() - 1):
            return function(x, axis)
        return function(x.flatten(axis), -1).view_as(x)

    return softmax


# Reductions


def _reduction(function: Callable[..., Any]) -> Callable[..., Value]:
    def reduction(node: Node, x: Value, axes: list[int] | None = None) -> Value:
        axes = node.get("axes", axes)
        if not axes:
            if node.get("noop_with_empty_axes", 0):
                return x
            axes = list(range(node.rank()))
        return function(x, axes, bool(node.get("keepdims", 1)))

    return reduction


def _product(x: Value, axes: list[int], keep: bool) -> Value:
    for axis in axes:
        x = torch.prod(x, axis, keepdim=True)
    return x if keep else x.squeeze(tuple(axes))


def _argument(function: Callable[..., Any]) -> Callable[..., Value]:
    def argument(node: Node, x: Value) -> Value:
        if node.get("select_last_index", 0):
            raise NotImplementedError("the last of equal elements")
        return function(x, node.get("axis", 0), bool(node.get("keepdims", 1)))

    return argument


def top_k(node: Node, x: Value, count: list[int]) -> list[Value]:
    largest, ordered = bool(node.get("largest", 1)), bool(node.get("sorted", 1))
    found = torch.topk(x, count[0], node.get("axis", -1), largest, ordered)
    return [found[0], found[1]]


def cumulative_sum(node: Node, x: Value, axis: Value) -> Value:
    if node.get("exclusive", 0) or node.get("reverse", 0):
        raise NotImplementedError("CumSum that is exclusive or reversed")
    return torch.cumsum(x, int(axis))


# Moves


def reshape(node: Node, x: Value, shape: list[Any]) -> Value:
    keep = not node.get("allowzero", 0)
    known = node.shapes[0]

    def size(axis: int) -> Any:
        return x.shape[axis] if known is None or known[axis] is None else known[axis]

    return x.reshape([size(i) if keep and isinstance(n, int) and n == 0 else n for i, n in enumerate(shape)])


def flatten(node: Node, x: Value) -> Value:
    axis = node.get("axis", 1)
    if axis == 1:
        return x.flatten(1)
    known = node.shapes[0]
    if known is None or None in known:
        raise NotImplementedError("Flatten of a shape that is not known")
    return x.reshape([prod(known[:axis]), -1])


def transpose(node: Node, x: Value) -> Value:
    return x.permute(node.get("perm") or list(reversed(range(node.rank()))))


def squeeze(node: Node, x: Value, axes: list[int] | None = None) -> Value:
    axes = node.get("axes", axes)
    return x.squeeze(tuple(axes)) if axes else x.squeeze()


def unsqueeze(node: Node, x: Value, axes: list[int] | None = None) -> Value:
    axes = node.get("axes", axes) or []
    rank = node.rank() + len(axes)
    for axis in sorted(each % rank for each in axes):
        x = x.unsqueeze(axis)
    return x


def expand(node: Node, x: Value, shape: list[Any]) -> Value:
    return record(broadcast, x, shape)


def broadcast(x: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Broadcast in both directions: the shape may have ones for larger dims of the tensor."""
    return x.expand(torch.broadcast_shapes(x.shape, tuple(shape)))


def tile(node: Node, x: Value, repeats: list[int]) -> Value:
    return x.repeat(*repeats)


def concat(node: Node, *values: Value) -> Value:
    return torch.cat(list(values), node.get("axis", 1))


def split(node: Node, x: Value, sizes: list[int] | None = None) -> list[Value]:
    axis, sizes = node.get("axis", 0), node.get("split", sizes)
    parts = x.split(sizes, axis) if sizes else x.chunk(node.outputs, axis)
    return [parts[index] for index in range(node.outputs)]


def slices(
    node: Node,
    x: Value,
    starts: list[Any] | None = None,
    ends: list[Any] | None = None,
    axes: list[int] | None = None,
    steps: list[int] | None = None,
) -> Value:
    starts, ends = node.get("starts", starts), node.get("ends", ends)
    assert starts is not None
    assert ends is not None
    axes = node.get("axes", axes) or list(range(len(starts)))
    for start, end, axis, step in zip(starts, ends, axes, steps or [1] * len(starts)):
        if step < 0:
            raise NotImplementedError("Slice backwards")
        taken, every = slice(start, end, step), slice(None)
        index = (*[every] * axis, taken) if axis >= 0 else (..., taken, *[every] * (-axis - 1))
        x = record(operator.getitem, x, index)
    return x


def gather(node: Node, x: Value, indices: Value) -> Value:
    axis = node.get("axis", 0)
    if isinstance(indices, torch.Tensor):
        if indices.dim() == 0:
            return x.select(axis, int(indices))
        if indices.dim() == 1 and bool((indices >= 0).all()):
            return x.index_select(axis, indices)
    if isinstance(x, torch.Tensor) and x.dim() == 2 and axis == 0:
        return functional.embedding(indices, x)
    return record(operator.getitem, x, (*[slice(None)] * (axis % node.rank()), indices))


def gather_elements(node: Node, x: Value, indices: Value) -> Value:
    axis = node.get("axis", 0)
    return torch.gather(x, axis, indices % x.shape[axis])


def gather_nd(node: Node, x: Value, indices: Value) -> Value:
    count = node.shapes[1] and node.shapes[1][-1]
    if node.get("batch_dims", 0) or count is None:
        raise NotImplementedError("GatherND with batches, or of a depth that is not known")
    return record(operator.getitem, x, tuple(indices[..., index] for index in range(count)))


def pad(
    node: Node, x: Value, pads: list[int] | None = None, value: Value = None, axes: list[int] | None = None
) -> Value:
    pads, value = node.get("pads", pads), node.get("value", value)
    assert pads is not None
    rank = node.rank()
    axes = [each % rank for each in axes] if axes else list(range(rank))
    around = [0] * 2 * rank
    for coordinates, axis in enumerate(axes):
        around[2 * (rank - 1 - axis)] = pads[coordinates]
        around[2 * (rank - 1 - axis) + 1] = pads[coordinates + len(axes)]
    mode = node.get("mode", "constant")
    if mode == "constant":
        return functional.pad(x, around, value=float(value or 0))
    while around[-2:] == [0, 0]:  # other modes of torch take padding only for the padded axes
        del around[-2:]
    return functional.pad(x, around, {"edge": "replicate", "wrap": "circular"}.get(mode, mode))


def resize(
    node: Node,
    x: Value,
    region: Value = None,
    scales: list[float] | None = None,
    sizes: list[int] | None = None,
) -> Value:
    mode, coordinates = node.get("mode", "nearest"), node.get("coordinate_transformation_mode", "half_pixel")
    rank = node.spatial()
    how = {"mode": mode}
    if mode == "nearest":
        if coordinates != "asymmetric" or node.get("nearest_mode", "round_prefer_floor") != "floor":
            raise NotImplementedError(f"Resize to the nearest by {coordinates}")
    elif mode == "linear" and coordinates in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        how = {"mode": ("linear", "bilinear", "trilinear")[rank - 1], "align_corners": coordinates[0] == "a"}
    else:
        raise NotImplementedError(f"Resize {mode} by {coordinates}")
    if node.get("axes") or node.get("antialias", 0):
        raise NotImplementedError("Resize of some axes, or without aliases")
    if sizes:
        return functional.interpolate(x, size=sizes[2:], **how)
    if not scales:
        raise NotImplementedError("Resize of operator set 10")
    return functional.interpolate(x, scale_factor=scales[2:], **how)


def depth_to_space(node: Node, x: Value) -> Value:
    size = node.get("blocksize")
    if node.get("mode", "DCR") == "DCR":
        x = x.unflatten(1, (size * size, -1)).transpose(1, 2).flatten(1, 2)
    return functional.pixel_shuffle(x, size)


# Operators that depend only on sizes


def span(node: Node, start: Any, limit: Any, delta: Any) -> Value:
    return record(torch.arange, start, limit, delta, dtype=node.dtypes[0])


def filled(node: Node, shape: list[Any]) -> Value:
    value = node.get("value", torch.zeros(1))
    return record(torch.full, shape, value.item(), dtype=value.dtype)


def triangle(node: Node, x: Value, diagonal: Value = None) -> Value:
    return (torch.triu if node.get("upper", 1) else torch.tril)(x, int(diagonal or 0))


Function = Callable[..., Any]

OPS: Mapping[str, Function] = {
    **{
        name: _of_one(function)
        for name, function in {
            "Abs": torch.abs, "Acos": torch.acos, "Asin": torch.asin, "Atan": torch.atan,
            "Ceil": torch.ceil, "Cos": torch.cos, "Cosh": torch.cosh, "Erf": torch.erf, "Exp": torch.exp,
            "Floor": torch.floor, "HardSwish": functional.hardswish, "IsNaN": torch.isnan,
            "Log": torch.log, "Mish": functional.mish, "Neg": torch.neg, "Not": torch.logical_not,
            "Reciprocal": torch.reciprocal, "Relu": torch.relu, "Round": torch.round,
            "Sigmoid": torch.sigmoid, "Sign": torch.sign, "Sin": torch.sin, "Sinh": torch.sinh,
            "Softplus": functional.softplus, "Softsign": functional.softsign, "Sqrt": torch.sqrt,
            "Tan": torch.tan, "Tanh": torch.tanh,
        }.items()
    },
    **{
        name: _of_two(function)
        for name, function in {
            "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Pow": operator.pow,
            "And": torch.logical_and, "Or": torch.logical_or, "Xor": torch.logical_xor,
            "Equal": operator.eq, "Greater": operator.gt, "GreaterOrEqual": operator.ge,
            "Less": operator.lt, "LessOrEqual": operator.le,
        }.items()
    },
    "Sum": _of_many(operator.add), "Max": _of_many(torch.maximum), "Min": _of_many(torch.minimum),
    "Div": div, "Mod": mod, "Where": where, "Clip": clip, "PRelu": prelu, "Gelu": gelu,
    "HardSigmoid": hard_sigmoid, "Cast": cast,
    "LeakyRelu": lambda node, x: functional.leaky_relu(x, node.get("alpha", 0.01)),
    "Elu": lambda node, x: functional.elu(x, node.get("alpha", 1.0)),
    "Selu": _of_one(functional.selu),
    "Identity": lambda node, x: x,
    "Dropout": lambda node, x, *_: x,
    "MatMul": matmul, "Gemm": gemm, "Einsum": einsum,
    "Conv": conv, "ConvTranspose": conv_transpose, "MaxPool": max_pool, "AveragePool": average_pool,
    "GlobalAveragePool": lambda node, x: x.mean(list(range(2, node.rank())), True),
    "GlobalMaxPool": lambda node, x: x.amax(list(range(2, node.rank())), True),
    "BatchNormalization": batch_norm, "LayerNormalization": layer_norm, "RMSNormalization": rms_norm,
    "InstanceNormalization": instance_norm, "GroupNormalization": group_norm, "LRN": lrn,
    "Softmax": _softmax(torch.softmax), "LogSoftmax": _softmax(torch.log_softmax),
    "ReduceMean": _reduction(torch.mean), "ReduceSum": _reduction(torch.sum),
    "ReduceMax": _reduction(torch.amax), "ReduceMin": _reduction(torch.amin),
    "ReduceProd": _reduction(_product),
    "ReduceL1": _reduction(lambda x, axes, keep: torch.abs(x).sum(axes, keep)),
    "ReduceL2": _reduction(lambda x, axes, keep: torch.sqrt((x * x).sum(axes, keep))),
    "ReduceSumSquare": _reduction(lambda x, axes, keep: (x * x).sum(axes, keep)),
    "ReduceLogSumExp": _reduction(torch.logsumexp),
    "ArgMax": _argument(torch.argmax), "ArgMin": _argument(torch.argmin), "TopK": top_k,
    "CumSum": cumulative_sum,
    "Reshape": reshape, "Flatten": flatten, "Transpose": transpose, "Squeeze": squeeze,
    "Unsqueeze": unsqueeze, "Expand": expand, "Tile": tile, "Concat": concat, "Split": split,
    "Slice": slices, "Gather": gather, "GatherElements": gather_elements, "GatherND": gather_nd,
    "Pad": pad, "Resize": resize, "DepthToSpace": depth_to_space,
    "Range": span, "ConstantOfShape": filled, "Trilu": triangle,
    "Constant": lambda node: torch.as_tensor(*node.attributes.values()),
}  # fmt: skip

NUMBERS: Mapping[str, Sequence[int]] = {
    **{f"Reduce{name}": (1,) for name in ("Mean", "Sum", "Max", "Min", "Prod", "L1", "L2", "SumSquare")},
    "ReduceLogSumExp": (1,), "TopK": (1,), "Reshape": (1,), "Squeeze": (1,), "Unsqueeze": (1,),
    "Expand": (1,), "Tile": (1,), "Split": (1,), "Slice": (1, 2, 3, 4), "Pad": (1, 3), "Resize": (2, 3),
    "Range": (0, 1, 2), "ConstantOfShape": (0,),
}  # fmt: skip
"""The inputs that functions take as a number or a list of numbers."""
