"""Vector math: measured errors against the table, special values, all lane counts, all targets."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pytest
from dlc_backend_llvm.emulator.qemu import version
from dlc_backend_llvm.engine import compile_ir
from dlc_backend_llvm.host import describe
from dlc_backend_llvm.objects import read_object
from dlc_backend_llvm.vmath import INLINE, OPS, ULP, Machine, VMath, machine_of

from dlc_core.diag import CodegenError

Array = np.ndarray[Any, Any]
PLAIN = Machine(vector_bits=128, fma=False, rounding=False, float16=False)
LONG = np.longdouble
INF, NAN = math.inf, math.nan

_NUMPY_NAMES = {
    "acos": "arccos",
    "asin": "arcsin",
    "atan": "arctan",
    "acosh": "arccosh",
    "asinh": "arcsinh",
    "atanh": "arctanh",
    "atan2": "arctan2",
    "pow": "power",
    "round": "rint",
}


def _erf(x: Array) -> Array:
    """The function by a series of positive terms, in extended precision."""
    a = np.minimum(np.abs(x), LONG(7))
    term = 2 / np.sqrt(LONG(2) * np.arccos(LONG(0))) * a * np.exp(-a * a)
    total = term.copy()
    for n in range(1, 260):
        term = term * (2 * a * a) / (2 * n + 1)
        total = total + term
    result: Array = np.where(np.isnan(x), x, np.copysign(np.where(a < 6.9, total, 1), x))
    return result


def _reference(op: str, arrays: list[Array]) -> Array:
    wide = [array.astype(LONG) for array in arrays]
    x = wide[0]
    if op == "sigmoid":
        e = np.exp(-np.abs(x))
        sigmoid: Array = np.where(x < 0, e, 1) / (1 + e)
        return sigmoid
    if op == "erf":
        return _erf(x)
    if op == "rsqrt":
        return 1 / np.sqrt(x)
    result: Array = getattr(np, _NUMPY_NAMES.get(op, op))(*wide)
    return result


def _samples(dtype: str, count: int, seed: int) -> Array:
    """Random bit patterns, normal variates of many scales, a grid, the neighbourhood of one, and the
    extremes.
    """
    rng = np.random.default_rng(seed)
    unsigned = np.uint32 if dtype == "float32" else np.uint64
    bits = rng.integers(0, np.iinfo(unsigned).max, count, dtype=unsigned, endpoint=True).view(dtype)
    parts = [bits]
    parts += [rng.standard_normal(count // 4) * scale for scale in (1e-6, 1e-3, 0.1, 1, 5, 30, 100, 800)]
    parts += [np.linspace(-2, 2, count // 4), 1 + rng.standard_normal(count // 4) * 1e-3]
    info = np.finfo(dtype)
    edge = [0.0, INF, NAN, info.tiny, info.smallest_subnormal, info.max, 1.0, 0.5]
    parts += [np.array(edge), -np.array(edge)]
    with np.errstate(all="ignore"):
        joined: Array = np.concatenate([part.astype(dtype) for part in parts])
    return joined


def _worst_ulp(got: Array, expected: Array, dtype: str) -> float:
    rounded = expected.astype(dtype)
    finite = np.isfinite(rounded)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    assert same[~finite].all(), (got[~finite][~same[~finite]][:3], rounded[~finite][~same[~finite]][:3])
    zero = (rounded == 0) & (expected == 0)
    assert (np.signbit(got[zero]) == np.signbit(rounded[zero])).all(), "sign of zero"
    unit = np.spacing(np.abs(rounded[finite])).astype(LONG)
    return float((np.abs(got[finite].astype(LONG) - expected[finite]) / unit).max())


@pytest.mark.parametrize("machine", [None, PLAIN], ids=["host", "plain"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", sorted(OPS))
def test_accuracy(op: str, dtype: str, machine: Machine | None, kernel: Callable[..., Any]) -> None:
    assert _measured(kernel(op, dtype, 8, machine), op, dtype, 20_000) <= ULP[op][dtype]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", sorted(OPS))
def test_accuracy_densely(op: str, dtype: str, kernel: Callable[..., Any]) -> None:
    for machine in (None, PLAIN):
        assert _measured(kernel(op, dtype, 8, machine), op, dtype, 200_000) <= ULP[op][dtype]


MACHINES = {
    "sse2": "-mcpu=x86-64",
    "sse4": "-mcpu=nehalem",
    "neon": "-mtriple=aarch64-linux-gnu -mcpu=cortex-a72",
    "riscv": "-mtriple=riscv64-linux-gnu",
    "rvv": "-mtriple=riscv64-linux-gnu -mattr=+v",
}


@pytest.fixture
def math_on(foreign_math: Callable[[str], Any]) -> Callable[[str], Any]:
    def build(machine: str) -> Any:
        if machine == "rvv" and version("riscv64") < (8,):
            pytest.skip("QEMU before 8 fails an assertion of its own at vector conversions to integers")
        return foreign_math(MACHINES[machine])

    return build


@pytest.mark.parametrize("count", [400, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("machine", MACHINES)
def test_accuracy_on_other_machines(machine: str, count: int, math_on: Callable[[str], Any]) -> None:
    math = math_on(machine)
    found = {
        (op, dtype): _measured(partial(math, op, dtype), op, dtype, count)
        for op in OPS
        for dtype in ("float32", "float64")
    }
    assert not {key: ulp for key, ulp in found.items() if ulp > ULP[key[0]][key[1]]}


@pytest.mark.parametrize("machine", MACHINES)
def test_sixteen_bit_floats_on_other_machines(machine: str, math_on: Callable[[str], Any]) -> None:
    """All values: operations are computed in float32 and rounded once."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    math = math_on(machine)
    for short in (np.float16, ml_dtypes.bfloat16):
        values = np.arange(65536, dtype=np.uint16).view(short)
        name = np.dtype(short).name
        for op in ("exp", "rsqrt", "tanh", "floor"):
            with np.errstate(all="ignore"):
                expected = math(op, "float32", values.astype(np.float32)).astype(short)
            np.testing.assert_array_equal(
                math(op, name, values).astype(np.float32), expected.astype(np.float32)
            )


def _measured(run: Callable[..., Array], op: str, dtype: str, count: int) -> float:
    if dtype == "float64" and np.finfo(LONG).nmant < 63:
        pytest.skip("no extended precision to compare with")
    arrays, expected = _expected(op, dtype, count)
    with np.errstate(all="ignore"):
        return _worst_ulp(run(*arrays), expected, dtype)


@lru_cache(maxsize=128)
def _expected(op: str, dtype: str, count: int) -> tuple[list[Array], Array]:
    """Samples, and results in extended precision."""
    arrays = [_samples(dtype, count, seed) for seed in range(OPS[op])]
    if OPS[op] == 2:
        arrays[1] = np.random.default_rng(7).permutation(arrays[1])
    with np.errstate(all="ignore"):
        return arrays, _reference(op, arrays)


SPECIAL: dict[str, list[tuple[tuple[float, ...], float]]] = {
    "exp": [((0.0,), 1), ((-0.0,), 1), ((INF,), INF), ((-INF,), 0), ((NAN,), NAN), ((1000.0,), INF)],
    "log": [((0.0,), -INF), ((-0.0,), -INF), ((-1.0,), NAN), ((INF,), INF), ((1.0,), 0.0), ((NAN,), NAN)],
    "log10": [((0.0,), -INF), ((-1.0,), NAN), ((INF,), INF), ((1.0,), 0.0), ((NAN,), NAN)],
    "log1p": [((-1.0,), -INF), ((-2.0,), NAN), ((-0.0,), -0.0), ((INF,), INF)],
    "expm1": [((-INF,), -1), ((-0.0,), -0.0), ((INF,), INF), ((NAN,), NAN)],
    "tanh": [((INF,), 1), ((-INF,), -1), ((-0.0,), -0.0), ((NAN,), NAN)],
    "erf": [((INF,), 1), ((-INF,), -1), ((-0.0,), -0.0), ((NAN,), NAN)],
    "sigmoid": [((INF,), 1), ((-INF,), 0), ((0.0,), 0.5), ((NAN,), NAN)],
    "sqrt": [((-1.0,), NAN), ((-0.0,), -0.0), ((INF,), INF)],
    "sin": [((INF,), NAN), ((-0.0,), -0.0), ((NAN,), NAN)],
    "cos": [((-INF,), NAN), ((0.0,), 1)],
    "asin": [((1.5,), NAN), ((-0.0,), -0.0)],
    "acosh": [((0.5,), NAN), ((1.0,), 0.0), ((INF,), INF)],
    "atanh": [((1.0,), INF), ((-1.0,), -INF), ((2.0,), NAN), ((-0.0,), -0.0)],
    "round": [((0.5,), 0.0), ((1.5,), 2), ((2.5,), 2), ((-0.5,), -0.0), ((-INF,), -INF)],
    "floor": [((-0.5,), -1), ((-0.0,), -0.0), ((0.5,), 0.0)],
    "ceil": [((-0.5,), -0.0), ((0.5,), 1)],
    "fmod": [
        ((5.5, 2.0), 1.5),
        ((-5.5, 2.0), -1.5),
        ((-4.0, 2.0), -0.0),
        ((1.0, 0.0), NAN),
        ((INF, 1.0), NAN),
        ((3.0, INF), 3.0),
    ],
    "pow": [
        *[((x, 0.0), 1.0) for x in (0.0, -0.0, INF, -INF, NAN, -2.0)],
        *[((1.0, y), 1.0) for y in (NAN, INF, -INF, -3.0)],
        ((-1.0, INF), 1.0),
        ((-1.0, -INF), 1.0),
        ((0.0, -3.0), INF),
        ((-0.0, -3.0), -INF),
        ((-0.0, -2.0), INF),
        ((-0.0, 3.0), -0.0),
        ((-0.0, 2.5), 0.0),
        ((0.5, INF), 0.0),
        ((0.5, -INF), INF),
        ((-2.0, INF), INF),
        ((-2.0, 3.0), -8.0),
        ((-2.0, -3.0), -0.125),
        ((-2.0, 0.5), NAN),
        ((-INF, 3.0), -INF),
        ((-INF, 2.0), INF),
        ((-INF, 0.5), INF),
        ((-INF, -3.0), -0.0),
        ((INF, -1.0), 0.0),
        ((NAN, 2.0), NAN),
        ((2.0, NAN), NAN),
    ],
    "atan2": [
        *[((y, x), NAN) for y, x in ((INF, NAN), (-INF, NAN), (NAN, INF), (NAN, 0.0))],
        ((0.0, 1.0), 0.0),
        ((-0.0, 1.0), -0.0),
        ((0.0, -1.0), math.pi),
        ((-0.0, -1.0), -math.pi),
        ((0.0, -0.0), math.pi),
        ((-0.0, 0.0), -0.0),
        ((1.0, 0.0), math.pi / 2),
        ((-1.0, -0.0), -math.pi / 2),
        ((INF, INF), math.pi / 4),
        ((INF, -INF), 3 * math.pi / 4),
        ((-INF, -INF), -3 * math.pi / 4),
        ((1.0, -INF), math.pi),
        ((-1.0, INF), -0.0),
        ((INF, 5.0), math.pi / 2),
        ((NAN, 1.0), NAN),
        ((1.0, NAN), NAN),
    ],
}


@pytest.mark.parametrize("machine", [None, PLAIN], ids=["host", "plain"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", sorted(SPECIAL))
def test_special_values(op: str, dtype: str, machine: Machine | None, kernel: Callable[..., Any]) -> None:
    run = kernel(op, dtype, 4, machine)
    cases = SPECIAL[op]
    arrays = [np.array([case[0][index] for case in cases], dtype) for index in range(OPS[op])]
    got = run(*arrays)
    expected = np.array([case[1] for case in cases], dtype)
    np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(dtype).eps, atol=0)
    number = ~np.isnan(expected)
    assert (np.signbit(got) == np.signbit(expected))[number].all()


@pytest.mark.parametrize("op", ["exp", "log", "sin", "pow", "fmod", "floor", "atan2"])
def test_every_lane_count_gives_the_same_bits(op: str, kernel: Callable[..., Any]) -> None:
    arrays = [np.random.default_rng(seed).standard_normal(320) * 30 for seed in range(OPS[op])]
    first = kernel(op, "float32", 1)(*arrays)
    for lanes in (2, 4, 16, 64):
        np.testing.assert_array_equal(kernel(op, "float32", lanes)(*arrays), first)
    np.testing.assert_array_equal(kernel(op, "float64", 32)(*arrays), kernel(op, "float64", 1)(*arrays))


def test_the_hardest_argument_of_a_sine(kernel: Callable[..., Any]) -> None:
    """6381956970095103 * 2^797 is the double that is closest to a multiple of pi/2."""
    x = np.array([6381956970095103.0 * 2.0**797, -6381956970095103.0 * 2.0**797, 1e22, 2.0**20])
    np.testing.assert_allclose(kernel("cos", "float64")(x)[:2], [-4.6871659242546276e-19] * 2, rtol=1e-15)
    np.testing.assert_allclose(kernel("sin", "float64")(x)[2], -0.8522008497671888, rtol=1e-15)


@pytest.mark.parametrize("machine", [None, PLAIN], ids=["host", "plain"])
def test_float16_conversions_are_exact_and_round_to_even(
    machine: Machine | None, kernel: Callable[..., Any]
) -> None:
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    np.testing.assert_array_equal(
        kernel("convert", "float16", 8, machine, to="float32")(halves), halves.astype(np.float32)
    )
    with np.errstate(all="ignore"):
        singles = np.concatenate(
            [
                _samples("float32", 20000, 3),
                np.nextafter(halves.astype(np.float32), np.float32(1e9)),
                (halves.astype(np.float64) * 1.00048828125).astype(np.float32),
                np.array([65519.996, 65520.0, 2.0**-25, 2.0**-24 * 1.5, 6.1e-5], np.float32),
            ]
        )
        doubles = np.concatenate([singles.astype(np.float64) * (1 + 2.0**-40), singles.astype(np.float64)])
        got = kernel("convert", "float32", 8, machine, to="float16")(singles)
        np.testing.assert_array_equal(got, singles.astype(np.float16))
        got = kernel("convert", "float64", 8, machine, to="float16")(doubles)
        np.testing.assert_array_equal(got, doubles.astype(np.float16))


def test_bfloat16_conversions_round_to_even(kernel: Callable[..., Any]) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    brains = np.arange(65536, dtype=np.uint16).view(ml_dtypes.bfloat16)
    wide = kernel("convert", "bfloat16", 8, to="float32")(brains)
    np.testing.assert_array_equal(wide, brains.astype(np.float32))
    with np.errstate(all="ignore"):
        singles = np.concatenate([_samples("float32", 20000, 4), wide * np.float32(1.00390625)])
        expected = singles.astype(ml_dtypes.bfloat16).astype(np.float32)
        got = kernel("convert", "float32", 8, to="bfloat16")(singles).astype(np.float32)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["exp", "tanh", "sin"])
def test_sixteen_bit_floats_compute_in_float32(op: str, dtype: str, kernel: Callable[..., Any]) -> None:
    values = np.linspace(-9, 9, 1024)
    single = kernel("convert", dtype, 8, to="float32")
    short = kernel("convert", "float32", 8, to=dtype)
    given = short(values)
    np.testing.assert_array_equal(
        single(kernel(op, dtype)(given)), single(short(kernel(op, "float32")(single(given))))
    )


@pytest.mark.parametrize(
    ("triple", "features"),
    [
        ("x86_64-unknown-linux-gnu", ""),
        ("x86_64-unknown-linux-gnu", "+avx2,+fma"),
        ("x86_64-unknown-linux-gnu", "+avx512f,+avx512vl,+avx512dq,+avx512bw"),
        ("aarch64-linux-gnu", ""),
        ("riscv64-linux-gnu", ""),
        ("riscv64-linux-gnu", "+v"),
    ],
)
def test_no_target_needs_libm(triple: str, features: str) -> None:
    """All functions compile for all descriptions, and call only helpers of their own, such as the long
    division.
    """
    cpu = describe(triple, features=features)
    vm = VMath(machine_of(cpu))
    exported = []
    for op in OPS:
        for dtype in ("float32", "float64", "float16", "bfloat16"):
            name, _ = vm.function(op, dtype, 8)
            exported.append(name)
    text = vm.functions().replace("define internal", "define")
    info = read_object(compile_ir(text, triple, cpu.cpu, cpu.features, opt=1))
    assert set(exported) <= set(info.defined)
    assert set(info.undefined) <= {"fmod", "fmodf", "memcpy", "memset"}


def test_functions_are_defined_once_and_called() -> None:
    vm = VMath(PLAIN)
    names = iter(f"%{number}" for number in range(9))
    lines, result = vm.emit("tan", ["%x"], "float32", 4, lambda: next(names))
    assert lines == [f"{result} = call <4 x float> @dlc_tan_v4f32(<4 x float> %x)"]
    vm.emit("tan", ["%y"], "float32", 4, lambda: next(names))
    assert vm.functions().count("@dlc_tan_v4f32(") == 1
    assert "exp" in INLINE


@pytest.mark.parametrize(
    ("op", "dtype", "lanes"), [("exq", "float32", 4), ("exp", "int32", 4), ("exp", "float32", 3)]
)
def test_unsupported_operations_are_errors(op: str, dtype: str, lanes: int) -> None:
    with pytest.raises(CodegenError, match="vector math"):
        VMath(PLAIN).emit(op, ["%x"], dtype, lanes, lambda: "%1")
