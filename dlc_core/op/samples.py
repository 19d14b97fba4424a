"""Sample data: `make_inputs` turns a declaration's samples into arrays; builders for common shapes;
tolerances.

Value tags of `declare.Tensor`: "normal", "positive", "unit", "bool", "distinct", "special", "index:N" (ints
in [0, N)), "wrap:N" (ints in [-N, N)), "uniform:LOW:HIGH", or an array.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.ir.convert import convert
from dlc_core.ir.dtype import DType
from dlc_core.op.declare import ErrorSample, NDArray, OpDecl, Sample, Tensor

TOLERANCES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "float64": (1e-12, 1e-13),
        "float32": (1e-5, 1e-5),
        "float16": (2e-3, 1e-3),
        "bfloat16": (1.6e-2, 8e-3),
    }
)
"""(rtol, atol) of a result against the reference: 2 units in the last place for the 16-bit floats, which are
computed in float32 and rounded once.  For float32 and float64 they allow another order of summation and
another exp.  Integers and bools are exact."""


def tolerance(decl: OpDecl, type_: DType) -> tuple[float, float]:
    """(rtol, atol) for results of a dtype. A declaration's own rtol replaces the table's."""
    if type_.decl is not None:
        return type_.decl.tolerance, type_.decl.tolerance
    rtol, atol = TOLERANCES.get(type_.name, (0.0, 0.0))
    return decl.tolerance.get(type_.name, rtol), atol


def sample_dtypes(decl: OpDecl, sample: Sample) -> tuple[str, ...]:
    """The dtypes with which a sample runs."""
    return sample.dtypes or decl.dtypes


def make_inputs(sample: Sample | ErrorSample, dtype: str, seed: int = 0) -> list[NDArray]:
    """The arrays of a sample. Inputs without a dtype get `dtype`. Equal seeds give equal arrays."""
    return [
        make_array(t, DType(t.dtype or dtype), seed * 1009 + index) for index, t in enumerate(sample.inputs)
    ]


def make_array(tensor: Tensor, type_: DType, seed: int) -> NDArray:
    """An array with the tensor's shape and kind of values."""
    if not isinstance(tensor.values, str):
        return convert(tensor.values, type_).reshape(tensor.shape)
    tag, *numbers = tensor.values.split(":")
    rng = np.random.default_rng((seed, zlib.crc32(tensor.values.encode())))
    count = int(np.prod(tensor.shape, dtype=np.int64))
    makers: dict[str, Callable[..., NDArray]] = {
        "normal": _normal,
        "positive": _positive,
        "unit": _unit,
        "uniform": _uniform,
        "bool": _bool,
        "distinct": _distinct,
        "special": _special,
        "index": _index,
        "wrap": _wrap,
    }
    if tag not in makers:
        raise UsageError(f"unknown sample values {tensor.values!r}", hint=f"one of {', '.join(makers)}")
    values = makers[tag](rng, count, type_, *map(float, numbers))
    return convert(values, type_).reshape(tensor.shape)


def _normal(rng: np.random.Generator, count: int, type_: DType) -> NDArray:
    if type_.is_bool:
        return _bool(rng, count, type_)
    if type_.is_int:
        low, high = type_.int_range()
        return rng.integers(max(low, -10), min(high, 10), count, endpoint=True)
    return rng.standard_normal(count)


def _positive(rng: np.random.Generator, count: int, type_: DType) -> NDArray:
    if type_.is_int:
        return rng.integers(1, min(10, type_.int_range()[1]), count, endpoint=True)
    return rng.uniform(0.1, 3.0, count)


def _unit(rng: np.random.Generator, count: int, type_: DType) -> NDArray:
    return _uniform(rng, count, type_, -1.0, 1.0)


def _uniform(rng: np.random.Generator, count: int, type_: DType, low: float, high: float) -> NDArray:
    if type_.is_int:
        return rng.integers(int(low), int(high), count, endpoint=True)
    return rng.uniform(low, high, count)


def _bool(rng: np.random.Generator, count: int, type_: DType) -> NDArray:
    return rng.integers(0, 2, count)


def _distinct(rng: np.random.Generator, count: int, type_: DType) -> NDArray:
    values = rng.permutation(count)
    if type_.is_float:
        return (values - count // 2) * 0.25
    low, high = type_.int_range()
    if high - low + 1 < count:
        raise UsageError(f"{type_} has no {count} distinct values")
    return values + max(low, -(count // 2))


def _special(rng: np.random.Generator, count: int, type_: DType) -> NDArray:
    values = _normal(rng, count, type_)
    if type_.is_bool:
        return values
    if type_.decl is not None:
        special: Sequence[Any] = type_.decl.special
    elif type_.is_int:
        low, high = type_.int_range()
        special = (0, 1, low, high, low + 1, high - 1)
        values = values.astype(np.int64 if high < 2**63 else np.uint64)
    else:
        tiny = float(np.nextafter(type_.numpy.type(0), type_.numpy.type(1)))
        special = (0.0, -0.0, np.inf, -np.inf, np.nan, tiny, -tiny, 1.0, -1.0, 0.5, -0.5)
    values[: len(special)] = np.array(special[:count], values.dtype)
    return values


def _index(rng: np.random.Generator, count: int, type_: DType, size: float) -> NDArray:
    return rng.integers(0, int(size), count)


def _wrap(rng: np.random.Generator, count: int, type_: DType, size: float) -> NDArray:
    return rng.integers(-int(size), int(size), count)


def unary_samples(
    values: str = "normal", *, special: bool = True, attrs: Mapping[str, Any] | None = None
) -> tuple[Sample, ...]:
    """Rank 3, rank 0, empty, and special values."""
    given = attrs or {}
    made = [
        Sample((Tensor((2, 3, 5), values),), given),
        Sample((Tensor((), values),), given, note="rank 0"),
        Sample((Tensor((0, 3), values),), given, note="empty"),
    ]
    if special:
        made.append(Sample((Tensor((24,), "special"),), given, note="special values"))
    return tuple(made)


def binary_samples(
    left: str = "normal", right: str = "normal", *, special: bool = True
) -> tuple[Sample, ...]:
    """Equal shapes, both kinds of broadcasting, rank 0, empty, and special values on both sides."""
    shapes = (((2, 3, 5), (2, 3, 5)), ((2, 3, 5), (5,)), ((4, 1), (3, 1, 6)), ((), (3,)), ((0, 3), (1, 3)))
    made = [Sample((Tensor(a, left), Tensor(b, right))) for a, b in shapes]
    if special:
        made.append(Sample((Tensor((16, 1), "special"), Tensor((16,), "special")), note="special values"))
    return tuple(made)


def wrong_dtype(dtype: str, count: int = 1, attrs: Mapping[str, Any] | None = None) -> ErrorSample:
    """Inputs of a dtype that the op does not accept."""
    return ErrorSample((Tensor((2,), "normal"),) * count, attrs or {}, "dtype", dtype)


MISMATCH = ErrorSample((Tensor((2, 3)), Tensor((2, 4))), {}, "do not broadcast")
"""Two inputs whose shapes do not broadcast."""
