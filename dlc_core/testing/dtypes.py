"""Tests of declared dtypes: their conversions against each other, and their ops on a target.

check_dtype(POSIT8)                  the declaration alone, without a target
dtype_cases(POSIT8)                  conformance cases: conversions, data movement, arithmetic
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dlc_core import te
from dlc_core.graph.node import Node, param
from dlc_core.ir.convert import convert
from dlc_core.ir.dtype import DType
from dlc_core.ir.dtype_decl import DTypeDecl
from dlc_core.ir.expr import Expr
from dlc_core.ir.types import tensor_type
from dlc_core.op.declare import NDArray
from dlc_core.op.lower_dtype import lowered_decode, lowered_encode
from dlc_core.op.reference import evaluate
from dlc_core.plugin.registry import registry
from dlc_core.testing.cases import Case, Trial, module_of, outputs_of
from dlc_core.tir.interpreter import run

RANDOM_VALUES = 512


def all_codes(decl: DTypeDecl) -> NDArray:
    """All codes, in unsigned integers."""
    return np.arange(1 << decl.bits, dtype=np.int64).astype(decl.codes)


def hard_values(decl: DTypeDecl, seed: int = 0) -> NDArray:
    """Values of the computing dtype that are hard to round: all values of the dtype, the middles between
    neighbours, the numbers next to both, `special` ones, and random ones of all magnitudes.
    """
    own = np.unique(decl.values_of(all_codes(decl)))
    rng = np.random.default_rng(seed)
    if decl.kind != "float":
        bits = rng.integers(0, 31, RANDOM_VALUES)
        drawn = rng.integers(-(1 << 31), 1 << 31, RANDOM_VALUES) >> bits
        given = np.array([value for value in decl.special if float(value).is_integer()], np.int64)
        next_to = np.concatenate([own.astype(np.int64) + step for step in (-1, 0, 1)])
        return np.unique(np.concatenate([next_to, drawn, given])).astype(np.int32)
    finite = own[np.isfinite(own)].astype(np.float64)
    middles, infinity = (finite[1:] + finite[:-1]) / 2, np.float32(np.inf)
    normal = rng.standard_normal(RANDOM_VALUES) * 10.0 ** rng.uniform(-12, 12, RANDOM_VALUES)
    special = [*decl.special, 0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40]
    with np.errstate(all="ignore"):
        exact = np.concatenate([finite, middles, 2 * finite]).astype(np.float32)
        near = [np.nextafter(exact, infinity), np.nextafter(exact, -infinity)]
        return np.concatenate([exact, *near, normal, special, own], dtype=np.float32, casting="unsafe")


def check_dtype(decl: DTypeDecl) -> None:
    """Check the conversions of a declaration. Raises AssertionError that names the first wrong code or value.

    Each code decodes to a value that is encoded to a code of the same value. The integers in the range of an
    integer dtype are values. Encoding keeps the order of values. The lowered conversions, run by the
    interpreter, give the codes and values of the NumPy functions, and ignore spare bits.
    """
    codes = all_codes(decl)
    values = decl.values_of(codes)
    again = decl.values_of(decl.array_of(values))
    _same(
        values,
        again,
        lambda i: f"{decl.name}: code {codes[i]} is {values[i]}, which is rounded to {again[i]}",
    )
    if decl.kind != "float":
        low, high = DType._of_declaration(decl, 1).int_range()
        whole = np.arange(low, high + 1)
        kept = decl.values_of(decl.array_of(whole))
        _same(whole, kept, lambda i: f"{decl.name}: {whole[i]} in its range is rounded to {kept[i]}")
    hard = hard_values(decl)
    ordered = np.sort(hard[np.isfinite(hard)])
    rounded = decl.values_of(decl.array_of(ordered))
    if decl.kind == "float":
        falls = np.flatnonzero(rounded[1:] < rounded[:-1])
        assert not falls.size, (
            f"{decl.name}: {ordered[falls[0]]} is rounded to more than {ordered[falls[0] + 1]}"
        )
    assert decl.finite_range == (np.min(values[np.isfinite(values)]), np.max(values[np.isfinite(values)]))
    if decl.lower_decode is None:
        return
    stored = np.arange(1 << decl.storage, dtype=np.int64).astype(decl.codes)
    want = decl.values_of(stored)
    found = _computed(stored, decl.codes.name, lambda e: lowered_decode(e, decl), decl.computed)
    _same(
        want, found, lambda i: f"lower_decode of {decl.name}: code {stored[i]} is {found[i]}, not {want[i]}"
    )
    want_codes = decl.array_of(hard).view(decl.codes)
    found_codes = _computed(hard, decl.computed, lambda e: lowered_encode(e, decl), decl.codes.name)
    _same(
        want_codes,
        found_codes,
        lambda i: f"lower_encode of {decl.name}: {hard[i]} is code {found_codes[i]}, not {want_codes[i]}",
    )


def _computed(given: NDArray, dtype: str, body: Callable[[Expr], Expr], result: str) -> NDArray:
    """The results of an expression for each element of an array, by the interpreter."""
    source = te.placeholder(given.shape, dtype, name="given")
    program = te.create_prim_func(
        [source], [te.compute(given.shape, lambda i: body(source[i]))], "conversion"
    )
    found = np.zeros(given.shape, result)
    run(program, given, found)
    return found


def _same(want: NDArray, found: NDArray, message: Callable[[int], str]) -> None:
    with np.errstate(invalid="ignore"):
        differ = ~((want == found) | ((want != want) & (found != found)))
    at = np.flatnonzero(differ)
    if at.size:
        raise AssertionError(message(int(at[0])))


def dtype_cases(decl: DTypeDecl, arithmetic: bool | None = None) -> Iterator[Case]:
    """Cases of a declared dtype that is in the registry. `arithmetic`, by default whether it is emulated,
    adds cases of arithmetic. Case names are `dtypes/<dtype>/<what>`.
    """
    name, ops = decl.name, registry().ops
    codes = all_codes(decl).view(decl.array_type)
    wide = hard_values(decl)
    yield _case(f"{name}/decode", [codes], lambda x: ops["cast"].build(x, to=decl.computed))
    yield _case(f"{name}/encode", [wide], lambda x: ops["cast"].build(x, to=name))
    rows = np.resize(codes, (6, 40))
    yield _case(
        f"{name}/move",
        [rows],
        lambda x: ops["concat"].build(
            ops["transpose"].build(x, axes=(1, 0)),
            ops["full"].build(shape=(40, 2), value=1.0, dtype=name),
            axis=1,
        ),
    )
    scaled = [np.linspace(-9, 9, 120, dtype=np.float32), np.array(0.25, np.float32)]
    yield _case(f"{name}/quantize", scaled, lambda x, s: ops["quantize"].build(x, s, to=name))
    yield _case(f"{name}/dequantize", [codes, scaled[1]], lambda x, s: ops["dequantize"].build(x, s))
    if not (decl.emulated if arithmetic is None else arithmetic):
        return
    rng = np.random.default_rng(1)
    # Small integers have sums that float32 has exactly, in any order.
    a, b = (convert(rng.integers(0, 3, shape), name) for shape in ((5, 16), (16, 9)))
    yield _case(f"{name}/matmul", [a, b], lambda x, y: ops["matmul"].build(x, y))
    given = [rng.permutation(np.resize(codes, 600)) for _ in range(2)]
    for op in ("add", "sub", "mul", "maximum"):
        yield _case(f"{name}/{op}", given, lambda x, y, op=op: ops[op].build(x, y))
    yield _case(f"{name}/less", given, lambda x, y: ops["less"].build(x, y))
    yield _case(
        f"{name}/chain",
        given,
        lambda x, y: ops["mul"].build(ops["add"].build(x, y), ops["minimum"].build(x, y)),
    )


def _case(name: str, arrays: list[NDArray], build: Callable[..., Node]) -> Case:
    params = [param(f"x{i}", tensor_type(a.shape, a.dtype)) for i, a in enumerate(arrays)]
    node = build(*params)
    feeds: dict[Any, Any] = dict(zip(params, arrays, strict=True))
    return Case(f"dtypes/{name}", module_of(node, params), [Trial(arrays, outputs_of(evaluate(node, feeds)))])


__all__ = ["all_codes", "check_dtype", "dtype_cases", "hard_values"]
