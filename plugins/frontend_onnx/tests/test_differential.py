"""Attributes and shapes beyond ONNX's own suite, compared with the evaluator of the onnx package."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from dlc_frontend_onnx.testing.compare import model_of, run
from onnx.reference import ReferenceEvaluator

import dlc_core as dlc

FLOATS, INTS = ("float32", "float16", "float64"), ("int8", "int32", "int64", "uint8")
SHAPES = ((2, 3, 4), (1, 1), (4,), (), (2, 0, 3))
TOLERANCE = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-5}

Case = tuple[str, list[Any], dict[str, Any]]


def drawn(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(zlib.crc32(f"{shape}{dtype}".encode()))
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if "int" in dtype:
        return rng.integers(0 if dtype.startswith("u") else -9, 9, shape).astype(dtype)
    return np.asarray(rng.normal(size=shape) * 2).astype(dtype)


def words(text: str) -> list[str]:
    return text.split()


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


def unary() -> Iterator[Case]:
    for op in words(
        "Abs Neg Floor Ceil Round Sin Cos Tanh Erf Sigmoid Softplus Relu Elu Selu LeakyRelu"
        " ThresholdedRelu HardSigmoid HardSwish Mish Gelu Exp Sign"
    ):
        for dtype, shape in itertools.product(FLOATS, SHAPES):
            yield op, [drawn(shape, dtype)], {}
    for op, name, value in (
        ("Elu", "alpha", 0.3),
        ("LeakyRelu", "alpha", -0.3),
        ("Gelu", "approximate", "tanh"),
    ):
        yield op, [drawn((2, 3, 4), "float32")], {name: value}
    for op, dtype in itertools.product(("Abs", "Neg", "Sign"), ("int8", "int32", "int64")):
        yield op, [drawn((2, 3, 4), dtype)], {}


def binary() -> Iterator[Case]:
    pairs = (((2, 3, 4), (3, 1)), ((1,), (4,)), ((), (2, 2)), ((2, 0), (1,)), ((3, 1, 2), (1, 4, 1)))
    for op, dtype in itertools.product(
        words("Add Sub Mul Max Min Equal Less GreaterOrEqual"), (*FLOATS, *INTS)
    ):
        for a, b in pairs:
            yield op, [drawn(a, dtype), drawn(b, dtype)], {}


def reductions() -> Iterator[Case]:
    for op in words(
        "ReduceSum ReduceMean ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceLogSumExp ReduceSumSquare"
    ):
        for axes, keepdims, nothing in itertools.product((None, [], [-1], [0, -1], [1]), (0, 1), (0, 1)):
            given = [drawn((2, 3, 4), "float32"), *([] if axes is None else [ints(*axes)])]
            yield op, given, {"keepdims": keepdims, "noop_with_empty_axes": nothing}
    for op, axis, keepdims, last in itertools.product(("ArgMax", "ArgMin"), (0, -1, 1), (0, 1), (0, 1)):
        yield op, [drawn((2, 3, 4), "int32")], {"axis": axis, "keepdims": keepdims, "select_last_index": last}
    for op, axis, dtype in itertools.product(("Softmax", "LogSoftmax", "Hardmax"), (0, 1, -1, -3), FLOATS):
        yield op, [drawn((2, 3, 4), dtype)], {"axis": axis}
    for exclusive, reverse, axis in itertools.product((0, 1), (0, 1), (0, -1, 1)):
        yield (
            "CumSum",
            [drawn((2, 3, 4), "int64"), np.array(axis)],
            {"exclusive": exclusive, "reverse": reverse},
        )


def movements() -> Iterator[Case]:
    for dtype in ("float32", "int64", "bool", "float16", "uint8"):
        x = drawn((2, 3, 4), dtype)
        for axis in (0, 1, -1):
            yield "Concat", [x, x], {"axis": axis}
            yield "Gather", [x, np.array([[0, -1], [1, 0]])], {"axis": axis}
            yield "Flatten", [x], {"axis": axis}
        for perm in itertools.permutations(range(3)):
            yield "Transpose", [x], {"perm": list(perm)}
        for begin, end, axes, step in (
            ([0], [9], [0], [1]),
            ([-1], [-99], [-1], [-1]),
            ([3], [0], [2], [-2]),
            ([1, 0], [99, 2], [2, -2], [2, 1]),
            ([-100], [100], [1], [3]),
            ([2], [1], [2], [1]),
            ([0], [-(2**63)], [0], [-1]),
        ):
            yield "Slice", [x, ints(*begin), ints(*end), ints(*axes), ints(*step)], {}
        for mode, pads in itertools.product(
            ("constant", "reflect", "edge", "wrap"), ([0, 1, 0, 1, 0, 2], [1, 2, 3, 0, 1, 1], [0] * 6)
        ):
            if mode != "reflect" or pads[0] == 0:
                yield "Pad", [x, ints(*pads)], {"mode": mode}
        yield "Tile", [x, ints(1, 0, 2)], {}
        yield "Tile", [x, ints(2, 1, 2)], {}
        yield "Expand", [x[:, :1], ints(5, 1, 3, 1)], {}
        yield "Where", [drawn((3, 1), "bool"), x, drawn((1,), dtype)], {}
        yield "NonZero", [x], {}
        yield "Unsqueeze", [x, ints(-1, 0)], {}
        for k, upper in itertools.product((-2, 0, 1, 9), (0, 1)):
            yield "Trilu", [x, np.array(k)], {"upper": upper}


def products() -> Iterator[Case]:
    for equation, shapes in (
        ("ii->i", [(3, 3)]),
        ("...ij->...ji", [(2, 3, 4)]),
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("ij,ij->", [(2, 3), (2, 3)]),
        ("iji->j", [(3, 2, 3)]),
        ("...a,...a->...", [(2, 3), (1, 3)]),
    ):
        yield "Einsum", [drawn(shape, "float32") for shape in shapes], {"equation": equation}
    for a, b in (
        ((2, 3), (3, 4)),
        ((3,), (3,)),
        ((3,), (2, 3, 4)),
        ((2, 3), (3,)),
        ((2, 0), (0, 3)),
        ((0, 3), (3, 2)),
    ):
        for dtype in ("float32", "float64", "int32"):
            yield "MatMul", [drawn(a, dtype), drawn(b, dtype)], {}
    for flip_a, flip_b, bias in itertools.product((0, 1), (0, 1), ((), (4,), (2, 1))):
        given = [
            drawn((3, 2) if flip_a else (2, 3), "float32"),
            drawn((4, 3) if flip_b else (3, 4), "float32"),
        ]
        attributes = {"transA": flip_a, "transB": flip_b, "alpha": 2.0, "beta": 3.0}
        yield "Gemm", [*given, drawn(bias, "float32")], attributes
    for stride, dilation, pads in itertools.product((1, 2, 3), (1, 2), ([0, 0], [1, 2])):
        window = {"strides": [stride], "dilations": [dilation], "pads": pads}
        yield "Conv", [drawn((2, 4, 7), "float32"), drawn((6, 2, 3), "float32")], {**window, "group": 2}
    for axis in (-1, 1, 0):
        x = drawn((2, 3, 4), "float32")
        yield (
            "LayerNormalization",
            [x, drawn(x.shape[axis:], "float32"), drawn(x.shape[axis:], "float32")],
            {"axis": axis},
        )


GROUPS = {group.__name__: group for group in (unary, binary, reductions, movements, products)}


def check(case: Case, target: str | None) -> None:
    op, inputs, attributes = case
    fed = [0] if op not in ("Add", "MatMul", "Einsum", "Concat") else list(range(len(inputs)))
    model, feeds = model_of(op, inputs, domain="", imported=21, version=21, fed=fed, **attributes)
    with np.errstate(all="ignore"):
        expected = np.asarray(ReferenceEvaluator(model).run(None, feeds)[0])
    if target is None:
        (found,) = run(model, feeds)
    else:
        exe = dlc.compile(model, target, opt_level=2, cache=False)
        found = np.asarray(next(iter(exe.run(feeds).values())))
    about = f"{op} of {[f'{x.dtype}{x.shape}' for x in inputs]} with {attributes}"
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), about
    if expected.dtype.kind == "f":
        bound = TOLERANCE[str(expected.dtype)]
        np.testing.assert_allclose(found, expected, rtol=bound, atol=bound, err_msg=about)
    else:
        np.testing.assert_array_equal(found, expected, err_msg=about)


@pytest.mark.parametrize("group", GROUPS)
def test_the_reference(group: str) -> None:
    for case in GROUPS[group]():
        check(case, None)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_native_code(group: str) -> None:
    for case in GROUPS[group]():
        check(case, "llvm")
