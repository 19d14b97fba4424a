"""Matrix products, convolutions, pooling, normalization, resizing, recurrent layers and attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc_frontend_onnx.testing.random_models.builder import FLOATS, Builder, Refused, Value
from dlc_frontend_onnx.testing.random_models.templates import template


@template("MatMul", 2.0)
def matmul(b: Builder, op: str) -> None:
    a = b.need(b.draw_dtype(op), (1, 4), when=lambda v: v.array.size > 0)
    inner, n = a.shape[-1], b.size()
    choice = b.rng.random()
    if choice < 0.2:
        other: tuple[int, ...] = (inner,)
    elif choice < 0.6 or a.rank < 3:
        other = (inner, n)
    else:
        other = (*(d if b.chance(0.7) else 1 for d in a.shape[:-2]), inner, n)
    b.emit(op, [a, b.need(a.dtype, shape=other, fresh=0.6)], exact=True)


@template("Gemm", 1.2)
def gemm(b: Builder, op: str) -> None:
    a = b.need(b.draw_dtype(op), 2, when=lambda v: v.array.size > 0)
    attrs: dict[str, Any] = {}
    if b.chance(0.3):
        attrs["transA"] = 1
    m, k = a.shape[::-1] if "transA" in attrs else a.shape
    n = b.size()
    if b.chance(0.5):
        attrs["transB"] = 1
    w = b.given(b.fill((n, k) if "transB" in attrs else (k, n), a.dtype))
    if b.chance(0.3):
        attrs |= {"alpha": 0.5, "beta": 2.0}
    c = b.given(b.fill(b.rng.choice(((n,), (1, n), (m, 1), (m, n), (1,))), a.dtype))
    b.emit(op, [a, w, c if b.opset < 11 or b.chance(0.7) else None], exact=True, **attrs)


@template("Einsum", 0.6)
def einsum(b: Builder, op: str) -> None:
    letters = {name: b.rng.choice((1, 2, 3, 4, 5)) for name in "abijk"}
    equation = b.rng.choice(
        (
            "ij,jk->ik",
            "bij,bjk->bik",
            "bij,bkj->bik",
            "ij->ji",
            "ij->i",
            "i,j->ij",
            "bij,jk->bik",
            "ij,ij->",
            "abij,abkj->abik",
        )
    )
    dtype = b.draw_dtype(op)
    terms = equation.split("->")[0].split(",")
    b.emit(
        op, [b.need(dtype, shape=tuple(letters[c] for c in t)) for t in terms], exact=True, equation=equation
    )


def _window(b: Builder, spatial: tuple[int, ...], least: int = 1) -> tuple[list[int], dict[str, Any]]:
    """A kernel that fits the image, with strides, dilations and pads."""
    kernel = [b.rng.randint(1, min(3, size)) for size in spatial]
    attrs: dict[str, Any] = {}
    if b.chance(0.5):
        attrs["strides"] = [b.rng.choice((1, 2)) for _ in spatial]
    if b.chance(0.3):
        attrs["dilations"] = [2 if 2 * (k - 1) < size else 1 for k, size in zip(kernel, spatial)]
    if b.chance(0.5):
        attrs["pads"] = [b.rng.randint(0, max(0, k - 1)) for k in kernel] * 2
        if b.chance(0.4):
            attrs["pads"] = [b.rng.randint(0, max(0, k - 1)) for k in kernel * 2]
    elif b.chance(0.3) and "dilations" not in attrs:
        # For strides larger than the kernel, the formula of "SAME" gives negative pads, which are undefined.
        covers = all(s <= k for s, k in zip(attrs.get("strides", ()), kernel))
        attrs["auto_pad"] = b.rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID")) if covers else "VALID"
    return kernel, attrs


def _image(b: Builder, dtype: str, least: int = 1, most: int = 3) -> Value:
    rank = b.rng.choices((1, 2, 3), (2, 6, 1))[0]
    value = b.need(dtype, rank + 2, when=lambda v: min(v.shape) > 0 and v.array.size <= 2048, fresh=0.4)
    if not least <= value.rank - 2 <= most:
        raise Refused("rank")
    return value


@template("Conv", 3.0)
def conv(b: Builder, op: str) -> None:
    x = _image(b, b.draw_dtype(op))
    channels = x.shape[1]
    kernel, attrs = _window(b, x.shape[2:])
    group = b.rng.choice([g for g in (1, 1, 2, 3, channels) if channels % g == 0])
    out = group * b.rng.choice((1, 2, 3, 4, 8))
    w = b.given(b.fill((out, channels // group, *kernel), x.dtype), constant=b.chance(0.8))
    bias = b.given(b.fill((out,), x.dtype)) if b.chance(0.5) else None
    if group > 1:
        attrs["group"] = group
    if b.chance(0.5):
        attrs["kernel_shape"] = kernel
    made = b.emit(op, [x, w, bias], exact=True, **attrs)[0]
    if b.chance(0.4):
        b.emit(b.rng.choice(("Relu", "Sigmoid", "Tanh", "LeakyRelu")), [made])
    elif b.chance(0.4):
        b.emit(
            "Add",
            [made, b.given(b.fill(made.shape if b.chance(0.5) else (out, *[1] * (x.rank - 2)), x.dtype))],
        )


@template("ConvTranspose", 1.0)
def conv_transpose(b: Builder, op: str) -> None:
    x = _image(b, b.draw_dtype(op), most=2)
    channels = x.shape[1]
    spatial = x.shape[2:]
    kernel = [b.rng.randint(1, 3) for _ in spatial]
    group = b.rng.choice([g for g in (1, 1, 1, 2) if channels % g == 0])
    attrs: dict[str, Any] = {"group": group} if group > 1 else {}
    strides = [b.rng.choice((1, 2)) for _ in spatial]
    if b.chance(0.6):
        attrs["strides"] = strides
        if b.chance(0.4):
            attrs["output_padding"] = [b.rng.randint(0, s - 1) for s in strides]
    if b.chance(0.4):
        attrs["pads"] = [b.rng.randint(0, k // 2) for k in kernel] * 2
        if 1 in spatial:
            # The standard does not define pads that remove the whole result.
            del attrs["pads"]
    w = b.given(b.fill((channels, b.rng.choice((1, 2, 3)), *kernel), x.dtype), constant=b.chance(0.8))
    bias = b.given(b.fill((w.shape[1] * group,), x.dtype)) if b.chance(0.4) else None
    b.emit(op, [x, w, bias], exact=True, **attrs)


@template("MaxPool AveragePool LpPool", 1.2)
def pool(b: Builder, op: str) -> None:
    x = _image(b, b.draw_dtype(op))
    kernel, attrs = _window(b, x.shape[2:])
    if not b.has_attribute(op, "dilations"):
        attrs.pop("dilations", None)
    if "pads" in attrs:
        attrs["pads"] = [min(p, k - 1) for p, k in zip(attrs["pads"], kernel * 2)]
    if b.has_attribute(op, "ceil_mode") and b.chance(0.4) and "auto_pad" not in attrs:
        attrs["ceil_mode"] = 1
    if op == "AveragePool" and b.chance(0.4):
        attrs["count_include_pad"] = 1
    if op == "LpPool":
        attrs["p"] = b.rng.choice((1, 2))
    b.emit(op, [x], exact=op == "MaxPool", kernel_shape=kernel, **attrs)


@template("GlobalAveragePool GlobalMaxPool GlobalLpPool", 0.5)
def global_pool(b: Builder, op: str) -> None:
    x = _image(b, b.draw_dtype(op))
    if op == "GlobalMaxPool" and x.rank != 4:
        raise Refused("the evaluator takes the wrong axes")
    b.emit(op, [x], exact=op == "GlobalMaxPool")


@template("BatchNormalization", 1.0)
def batch_normalization(b: Builder, op: str) -> None:
    x = b.need(b.draw_dtype(op), (2, 4), when=lambda v: v.array.size > 0)
    c = x.shape[1]
    scale, bias, mean = (b.given(b.fill((c,), x.dtype), constant=True) for _ in range(3))
    var = b.given(np.abs(b.fill((c,), x.dtype)) + x.array.dtype.type(0.5), constant=True)
    attrs: dict[str, Any] = {"epsilon": 1e-3} if b.chance(0.5) else {}
    b.emit(op, [x, scale, bias, mean, var], **attrs)


@template("InstanceNormalization", 0.5)
def instance_normalization(b: Builder, op: str) -> None:
    x = b.need(b.draw_dtype(op), (3, 4), when=lambda v: v.array.size > 0)
    b.emit(op, [x, *(b.given(b.fill((x.shape[1],), x.dtype)) for _ in range(2))])


@template("GroupNormalization", 0.5)
def group_normalization(b: Builder, op: str) -> None:
    x = b.need(b.draw_dtype(op), (3, 4), when=lambda v: v.array.size > 0)
    c = x.shape[1]
    groups = b.rng.choice([g for g in range(1, c + 1) if c % g == 0])
    length = c if b.opset >= 21 else groups
    b.emit(op, [x, *(b.given(b.fill((length,), x.dtype)) for _ in range(2))], num_groups=groups)


@template("LRN", 0.3)
def lrn(b: Builder, op: str) -> None:
    # The evaluator normalizes as many channels as the batch has images.
    x = b.need(b.draw_dtype(op), 4, when=lambda v: v.array.size > 0 and v.shape[0] >= v.shape[1])
    b.emit(op, [x], size=b.rng.choice((1, 3, 5)))


@template("Resize", 1.0)
def resize(b: Builder, op: str) -> None:
    x = b.need(b.draw_dtype(op), (3, 4), when=lambda v: 0 < v.array.size <= 512)
    if b.opset < 11:
        scales = b.constant([1.0, 1.0, *(b.rng.choice((1.0, 2.0)) for _ in x.shape[2:])], "float32")
        b.emit(op, [x, scales], mode=b.rng.choice(("nearest", "linear")) if x.dtype in FLOATS else "nearest")
        return
    # The standard does not define how interpolated integers are rounded.
    mode = b.rng.choice(("nearest", "linear", "cubic")) if x.dtype in FLOATS else "nearest"
    attrs: dict[str, Any] = {"mode": mode}
    attrs["coordinate_transformation_mode"] = b.rng.choice(
        ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    )
    if mode == "nearest":
        attrs["nearest_mode"] = b.rng.choice(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
        # Near the middle of two elements, the last bit of a coordinate selects the nearest one.
        attrs["coordinate_transformation_mode"] = b.rng.choice(("asymmetric", "half_pixel"))
    if attrs["coordinate_transformation_mode"] == "pytorch_half_pixel" and min(x.shape[2:]) < 4:
        raise Refused("one element is left: the evaluator scales it wrongly")
    if mode == "cubic" and b.chance(0.5):
        attrs["cubic_coeff_a"] = -0.5
    if b.chance(0.5):
        scales = b.constant([1.0, 1.0, *(b.rng.choice((0.5, 1.0, 2.0, 4.0)) for _ in x.shape[2:])], "float32")
        inputs: list[Value | None] = [x, b.constant([], "float32") if b.opset < 13 else None, scales]
    else:
        sizes = [*x.shape[:2], *(d * b.rng.choice((1, 2, 4)) for d in x.shape[2:])]
        inputs = [x, None, None, b.constant(sizes)]
        if b.opset < 13:
            inputs = [x, b.constant([], "float32"), b.constant([], "float32"), b.constant(sizes)]
    b.emit(op, inputs, **attrs)


@template("Upsample", 0.4)
def upsample(b: Builder, op: str) -> None:
    x = b.need(b.draw_dtype(op), 4, when=lambda v: 0 < v.array.size <= 512)
    scales = [1.0, 1.0, b.rng.choice((1.0, 2.0, 3.0)), b.rng.choice((1.0, 2.0))]
    mode = b.rng.choice(("nearest", "linear")) if x.dtype in FLOATS else "nearest"
    if b.has_attribute(op, "scales"):
        b.emit(op, [x], exact=False, mode=mode, scales=scales)
    else:
        b.emit(op, [x, b.constant(scales, "float32")], mode=mode)


@template("GridSample", 0.4)
def grid_sample(b: Builder, op: str) -> None:
    x = b.need(b.draw_dtype(op, ("float32", "float64")), 4, when=lambda v: 0 < v.array.size <= 512)
    grid = b.given(
        np.clip(b.fill((x.shape[0], 3, 4, 2), "float32") * np.float32(0.55), -1.2, 1.2).astype(np.float32)
    )
    linear = "linear" if b.opset >= 20 else "bilinear"
    b.emit(
        op,
        [x, grid],
        mode=linear,
        padding_mode=b.rng.choice(("zeros", "border", "reflection")),
        align_corners=int(b.chance(0.5)),
    )


@template("LSTM GRU RNN", 0.6)
def recurrent(b: Builder, op: str) -> None:
    dtype = b.draw_dtype(op, ("float32",))
    steps, batch, size, hidden = (
        b.rng.randint(1, 4),
        b.rng.randint(1, 3),
        b.rng.randint(1, 5),
        b.rng.randint(1, 5),
    )
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    direction = b.rng.choice(("forward", "reverse", "bidirectional"))
    both = 2 if direction == "bidirectional" else 1
    x = b.need(dtype, shape=(steps, batch, size))
    w = b.given(b.fill((both, gates * hidden, size), dtype), constant=True)
    r = b.given(b.fill((both, gates * hidden, hidden), dtype), constant=True)
    bias = b.given(b.fill((both, 2 * gates * hidden), dtype), constant=True) if b.chance(0.6) else None
    lengths = (
        b.given(np.array([b.rng.randint(1, steps) for _ in range(batch)], np.int32))
        if b.chance(0.2)
        else None
    )
    start = b.given(b.fill((both, batch, hidden), dtype)) if b.chance(0.4) else None
    attrs: dict[str, Any] = {"direction": direction, "hidden_size": hidden}
    if op == "GRU" and b.chance(0.5):
        attrs["linear_before_reset"] = 1
    b.emit(op, [x, w, r, bias, lengths, start], 3 if op == "LSTM" else 2, **attrs)


@template("MatMulInteger", 0.5)
def matmul_integer(b: Builder, op: str) -> None:
    a = b.need(b.draw_dtype(op, ("uint8", "int8")), (2, 3), when=lambda v: v.array.size > 0)
    w = b.given(b.fill((a.shape[-1], b.size()), b.rng.choice(("uint8", "int8"))))
    b.emit(op, [a, w, b.constant(2, a.dtype) if b.chance(0.5) else None], exact=True)


@template("Attention", 0.4)
def attention(b: Builder, op: str) -> None:
    dtype = b.draw_dtype(op, ("float32", "float64"))
    batch, heads, queries, keys, width = (b.rng.choice((1, 2, 3)) for _ in range(5))
    shapes = [(batch, heads, n, 4 * width) for n in (queries, keys, keys)]
    attrs: dict[str, Any] = {"is_causal": 1} if b.chance(0.3) else {}
    q, k, v = (b.need(dtype, shape=shape, fresh=0.7) for shape in shapes)
    mask = b.given(b.fill((queries, keys), dtype)) if b.chance(0.3) and not attrs else None
    b.emit(op, [q, k, v, mask], 1, **attrs)


@template("RotaryEmbedding", 0.3)
def rotary(b: Builder, op: str) -> None:
    dtype = b.draw_dtype(op, ("float32",))
    batch, heads, length, half = (b.rng.choice((1, 2, 3)) for _ in range(4))
    x = b.need(dtype, shape=(batch, heads, length, 2 * half), fresh=0.5)
    cos, sin = (b.given(b.fill((batch, length, half), dtype)) for _ in range(2))
    b.emit(op, [x, cos, sin], interleaved=int(b.chance(0.5)))
