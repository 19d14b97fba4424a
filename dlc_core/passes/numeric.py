"""Inputs and comparisons for checking that a pass keeps what a function computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlc_core.diag import DlcError, UsageError
from dlc_core.graph.node import Function
from dlc_core.ir.convert import convert
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, Var, free_vars
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType
from dlc_core.op.declare import NDArray
from dlc_core.op.kernels import KernelRunner
from dlc_core.op.reference import evaluate, evaluate_dim

Feeds = Mapping[str, NDArray]

TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 8e-2}
"""Relative tolerance by dtype, and absolute for values of the size of the largest result."""

BOUNDARY = (0.0, -0.0, 1.0, -1.0, 1e-30, -1e-30, 0.5, 100.0, -100.0)


def sample_feeds(function: Function, seeds: int = 2) -> list[Feeds]:
    """Make input sets for a function: `seeds` of random values, and one of boundary values.

    Integers are 0 and 1, which are valid as most indices. Symbolic dims are 2, 3, … in the order of first
    use.
    """
    sizes: dict[Var, int] = {}
    for own in function.params:
        for dim in _tensor(own.type).shape:
            for symbol in free_vars(dim) if isinstance(dim, Expr) else ():
                sizes.setdefault(symbol, 2 + len(sizes))
    sets: list[Feeds] = []
    for seed in range(seeds + 1):
        rng = np.random.default_rng(seed)
        feeds: dict[str, NDArray] = {}
        for own in function.params:
            type_ = _tensor(own.type)
            shape = tuple(evaluate_dim(d, sizes) for d in type_.shape)
            feeds[str(own.attrs["name"])] = _values(type_.dtype, shape, rng, boundary=seed == seeds)
        sets.append(feeds)
    return sets


def _tensor(type_: Any) -> TensorType:
    if not isinstance(type_, TensorType):
        raise UsageError(f"no test inputs for a parameter of type {type_}")
    return type_


def _values(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator, *, boundary: bool) -> NDArray:
    if not dtype.is_float:
        return convert(rng.integers(0, 2, shape), dtype)
    if boundary:
        return convert(rng.choice(np.array(BOUNDARY), shape), dtype)
    return convert(rng.standard_normal(shape), dtype)


def results_of(function: Function, feeds: Feeds, module: IRModule | None = None) -> Any:
    """Evaluate a function and return its results as a tuple of arrays, or the DlcError that it raises.

    `module` has the PrimFuncs that it calls.
    """
    try:
        value = evaluate(function, feeds, call_prim=None if module is None else KernelRunner(module))
    except DlcError as error:
        return error
    return value if isinstance(value, tuple) else (value,)


def compare_results(old: Any, new: Any, *, exact: bool, scale: float = 1.0) -> str:
    """Describe the difference of two results of `results_of`; empty if they agree.

    With `exact`, every bit must agree; all NaNs count as equal. Otherwise results must be within `scale`
    times the tolerance of the dtype.
    """
    if isinstance(old, DlcError) or isinstance(new, DlcError):
        return "" if type(old) is type(new) else f"{_first_line(old)} became {_first_line(new)}"
    if len(old) != len(new):
        return f"{len(old)} results became {len(new)}"
    for index, (a, b) in enumerate(zip(old, new, strict=True)):
        if isinstance(a, tuple):
            problem = compare_results(a, b, exact=exact, scale=scale)
        else:
            problem = _compare(np.asarray(a), np.asarray(b), exact, scale)
        if problem:
            return f"result {index}: {problem}"
    return ""


def _first_line(value: Any) -> str:
    return f"the error {value.what!r}" if isinstance(value, DlcError) else "a value"


def _compare(a: NDArray, b: NDArray, exact: bool, scale: float) -> str:
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{list(a.shape)} became {b.dtype}{list(b.shape)}"
    if not DType.of(a.dtype).is_float:
        fine = a == b
    else:
        one, two = a.astype(np.float64), b.astype(np.float64)
        fine = (np.isnan(one) & np.isnan(two)) | ((one == two) & (np.signbit(one) == np.signbit(two)))
        if not exact:
            tolerance = scale * TOLERANCE.get(str(DType.of(a.dtype)), 0.25)
            finite = np.abs(one[np.isfinite(one)])
            largest = float(finite.max()) if finite.size else 0.0
            fine = fine | np.isclose(one, two, rtol=tolerance, atol=tolerance * max(largest, 1e-30))
    if fine.all():
        return ""
    index = tuple(int(i) for i in np.argwhere(~fine)[0])
    return f"{int((~fine).sum())} of {fine.size} elements, first at {index}: {a[index]} became {b[index]}"
