"""Random programs are valid. Every mode of the interpreter gives the same results, which equal NumPy's."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dlc_core.ir.dtype import dtype
from dlc_core.ir.expr import Var, binary, const
from dlc_core.testing.programs import DTYPES, random_prim_func
from dlc_core.tir.functor import copy_func, free_buffers, free_vars_stmt, specialize
from dlc_core.tir.interpreter import evaluate, run
from dlc_core.tir.intrinsics import INTRINSICS, evaluate_intrinsic, intrinsic
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.verify import verify_func


def data(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 3, (8, 8)).astype(dtype(name).numpy) for name in DTYPES]


def result(func: PrimFunc, seed: int, *scalars: float, check: bool = False) -> list[np.ndarray]:
    arrays = data(seed)
    run(func, *arrays, *scalars, check=check)
    return arrays


@pytest.mark.parametrize("seed", range(100, 125))
def test_random_programs_are_valid_and_keep_results_in_every_form(seed: int) -> None:
    func = random_prim_func(seed)
    verify_func(func, level=2)
    assert set(free_buffers(func.body)) <= set(func.buffers)
    assert set(free_vars_stmt(func.body)) <= set(func.scalars)
    expected = result(func, seed, 1.5, 3)
    n = func.scalars[-1]
    for other, scalars, check in (
        (copy_func(func), (1.5, 3), False),
        (func, (1.5, 3), True),
        (specialize(func, {n: 3}), (1.5,), False),
    ):
        for a, b in zip(expected, result(other, seed, *scalars, check=check), strict=True):
            np.testing.assert_array_equal(a, b)


SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.5,
    -2.5,
    0.1,
    3.7,
    -88.0,
    90.0,
    1e30,
    1e-40,
    math.inf,
    -math.inf,
    math.nan,
]


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    "op", sorted(n for n, e in INTRINSICS.items() if e.arity in (1, 2, 3) and e.reference)
)
def test_every_intrinsic_equals_its_reference_on_special_values(op: str, name: str) -> None:
    entry = INTRINSICS[op]
    if "float" not in entry.kinds or op.startswith("vector_") or op == "if_then_else":
        return
    kind = dtype(name)
    variables = [Var(f"x{k}", kind) for k in range(entry.arity)]
    expr = intrinsic(op, *variables)
    others = SPECIAL if entry.arity == 1 else [0.0, -1.0, 2.0, math.inf, math.nan, 0.5]
    for x in SPECIAL:
        for y in others if entry.arity > 1 else [0.0]:
            args = [const(v, kind).value for v in (x, y, -0.5)[: entry.arity]]
            mine = evaluate(expr, dict(zip(variables, args, strict=True)))
            arrays = [np.array([a]).astype(kind.numpy) for a in args]
            reference = evaluate_intrinsic(op, arrays).astype(np.float64)[0]
            if kind.bits == 64:
                assert mine == pytest.approx(reference, rel=1e-14, abs=1e-320, nan_ok=True)
            else:
                # Both sides round a float64 that may differ in its last bits.
                rtol = (
                    0 if op in ("sqrt", "floor", "ceil", "round", "trunc", "abs", "sign", "fma") else 2.0**-7
                )
                np.testing.assert_allclose(mine, reference, rtol=rtol if kind.bits == 16 else rtol / 2**13)
            if mine == 0 and reference == 0 and op != "sign":
                assert math.copysign(1, mine) == math.copysign(1, reference)


@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "int64"])
def test_integer_operations_equal_numpy(name: str) -> None:
    kind = dtype(name)
    low, high = kind.int_range()
    values = sorted({low, low + 1, 0, 1, 2, 3, 7, high // 2, high - 1, high})
    a, b = Var("a", kind), Var("b", kind)
    functions = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
        "bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor,
        "floordiv": np.floor_divide, "floormod": np.mod, "truncmod": np.fmod,
    }  # fmt: skip
    for op, function in functions.items():
        for x in values:
            for y in values:
                if y == 0 and op in ("floordiv", "floormod", "truncmod"):
                    continue
                with np.errstate(over="ignore"):
                    expected = int(function(kind.numpy.type(x), kind.numpy.type(y)))
                assert evaluate(binary(op, a, b), {a: x, b: y}) == expected, (op, x, y)
                # Constant folding at construction has the same result as the interpreter.
                folded = binary(op, const(x, kind), const(y, kind))
                assert evaluate(folded) == expected, (op, x, y)
