"""Dot products of narrow elements, with and without the instructions, compared with the interpreter."""

from __future__ import annotations

import re
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from dlc_backend_llvm.dots import DOTS, dots_of
from dlc_backend_llvm.host import describe
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import dlc_core as dlc
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, const, load, ramp
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.target.description import Dot
from dlc_core.tir.interpreter import run
from dlc_core.tir.intrinsics import vector_dot
from dlc_core.tir.stmt import PrimFunc, Store

CPUS = ("", " -mcpu=haswell", " -mcpu=x86-64")
BYTES = [(dot.a, dot.b) for dot in DOTS if dot.acc == "int32"]
few_examples = settings(max_examples=10, deadline=None, phases=(Phase.explicit, Phase.generate))


def _values(rng: np.random.Generator, name: str, shape: int | tuple[int, ...]) -> np.ndarray:
    """Random numbers of a dtype. Half of the integers are the minimum or maximum of the dtype."""
    if name == "bfloat16":
        return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
    low, high = np.iinfo(name).min, np.iinfo(name).max
    extremes, others = rng.choice([low, high], shape), rng.integers(low, high + 1, shape)
    return np.where(rng.random(shape) < 0.5, extremes, others).astype(name)


def _program(dot: Dot, lanes: int, shared: bool) -> PrimFunc:
    a = Buffer("A", (dot.group * (1 if shared else lanes),), dot.a)
    b, c, d = (
        Buffer(n, (lanes * g,), t)
        for n, g, t in (("B", dot.group, dot.b), ("C", 1, dot.acc), ("D", 1, dot.acc))
    )

    def index(buffer: Buffer) -> tuple[Expr]:
        return (ramp(const(0), const(1), buffer.static_shape()[0]),)

    value = vector_dot(*(load(x, index(x)) for x in (c, a, b)))
    return PrimFunc("main", (a, b, c, d), Store(d, index(d), value))


@pytest.mark.parametrize("cpu", CPUS)
@given(st.sampled_from(DOTS), st.integers(1, 16), st.booleans(), st.integers(0, 999))
@few_examples
def test_code_matches_the_interpreter(cpu: str, dot: Dot, lanes: int, shared: bool, seed: int) -> None:
    func = _program(dot, lanes, shared)
    rng = np.random.default_rng(seed)
    given = [_values(rng, x.dtype.name, x.static_shape()) for x in func.buffers[:2]]
    given.append(_values(rng, "int32", lanes) if dot.acc == "int32" else np.ones(lanes, np.float32))
    expected = np.zeros(lanes, dot.acc)
    run(func, *given, expected)
    found = dlc.build(func, "llvm" + cpu)(*given)
    if dot.acc == "int32":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def _compiled(x: tuple, w: np.ndarray, build: Callable, target: str) -> dlc.runtime.executable.Executable:
    value = param("x", tensor_type(*x))
    return dlc.compile(
        IRModule({"main": Function("main", (value,), build(value, constant(w)))}),
        "llvm" + target,
        cache=False,
    )


def _product(a: str, b: str, m: int, k: int, n: int, target: str, seed: int = 0):
    rng = np.random.default_rng(seed)
    w = _values(rng, b, (k, n))
    build = lambda x, w: OPS["matmul"].build(x, w, out_dtype="float32" if a == "bfloat16" else "int32")  # noqa: E731
    return _compiled(((m, k), a), w, build, target), _values(rng, a, (m, k)), w


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(("a", "b"), BYTES)
def test_products_of_bytes_are_exact_at_the_extremes(a: str, b: str, cpu: str) -> None:
    exe, _, w = _product(a, b, 3, 64, 40, cpu)
    for value in (np.iinfo(a).min, np.iinfo(a).max):
        x = np.full((3, 64), value, a)
        np.testing.assert_array_equal(exe(x), x.astype(np.int64) @ w.astype(np.int64))


@given(
    st.sampled_from([("bfloat16", "bfloat16"), *BYTES]),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 70),
    st.sampled_from(CPUS),
)
@few_examples
def test_products_of_any_size(pair: tuple[str, str], m: int, k: int, n: int, cpu: str) -> None:
    exe, x, w = _product(*pair, m, k, n, cpu)
    if pair[0] == "bfloat16":
        expected = x.astype(np.float32) @ w.astype(np.float32)
        np.testing.assert_allclose(exe(x), expected, rtol=1e-5, atol=1e-5 * k)
    else:
        np.testing.assert_array_equal(exe(x), x.astype(np.int64) @ w.astype(np.int64))


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("padding", [0, 1])
def test_convolutions_of_bytes_are_exact(cpu: str, padding: int) -> None:
    rng = np.random.default_rng(1)
    w = _values(rng, "int8", (3, 3, 8, 20))
    attrs = {"layout": "NXC", "kernel_layout": "XIO", "padding": (padding,) * 4, "strides": (2, 1)}
    x = _values(rng, "uint8", (1, 9, 7, 8))
    wide = OPS["conv"].reference(x.astype(np.int64), w.astype(np.int64), **_all(attrs))
    exe = _compiled((x.shape, "uint8"), w, lambda x, w: OPS["conv"].build(x, w, **attrs), cpu)
    np.testing.assert_array_equal(exe(x), wide)


def _all(attrs: dict) -> dict:
    return {"groups": 1, "dilation": None, "out_dtype": None, **attrs}


@given(st.data())
@few_examples
def test_convolutions_of_any_shape(data: st.DataObject) -> None:
    draw = data.draw
    a, b = draw(st.sampled_from([("bfloat16", "bfloat16"), *BYTES]))
    groups = draw(st.sampled_from([1, 1, 2, 6]))
    inner = draw(st.sampled_from([1, 2, 3, 4, 8]))
    outer = draw(st.sampled_from([1, 2, 5, 16]))
    size, kernel = draw(st.integers(3, 9)), draw(st.integers(1, 3))
    stride, dilation = (
        draw(st.integers(1, 2)),
        draw(st.sampled_from([1, 1, 2]) if kernel <= size // 2 else st.just(1)),
    )
    attrs = {
        "layout": "NXC",
        "kernel_layout": "XIO",
        "padding": draw(st.sampled_from([(0, 0, 0, 0), (1, 0, 0, 1)])),
        "strides": (stride, 1),
        "dilation": (1, dilation),
        "groups": groups,
        "out_dtype": "float32" if a == "bfloat16" else "int32",
    }
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = _values(rng, a, (1, size, size, groups * inner))
    w = _values(rng, b, (kernel, kernel, inner, groups * outer))
    cpu = draw(st.sampled_from(CPUS))
    found = _compiled((x.shape, a), w, lambda x, w: OPS["conv"].build(x, w, **attrs), cpu)(x)
    wide = "float64" if a == "bfloat16" else "int64"
    expected = OPS["conv"].reference(x.astype(wide), w.astype(wide), **{**attrs, "out_dtype": None})
    if a == "bfloat16":
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_array_equal(found, expected)


def test_the_instruction_is_in_the_inner_loop() -> None:
    for a, b, word in (("bfloat16", "bfloat16", "vdpbf16ps"), ("uint8", "int8", "vpdpbusd")):
        exe, _, _ = _product(a, b, 28, 64, 32, " -mtriple=x86_64-linux-gnu -mcpu=cooperlake")
        text = exe.source("asm")
        assert len(re.findall(rf"\b{word}\b", text)) >= 28
        assert "cpu.contraction" in exe.source("tir")


def test_no_instruction_saturates() -> None:
    for cpu in CPUS:
        exe, _, _ = _product("uint8", "int8", 4, 64, 32, cpu)
        assert not re.search(r"maddubs|dpbusds", exe.source("asm"))


@pytest.mark.parametrize(
    ("triple", "cpu", "pairs"),
    [
        ("x86_64-linux-gnu", "sapphirerapids", 5),
        ("x86_64-linux-gnu", "znver4", 5),
        ("x86_64-linux-gnu", "cascadelake", 4),
        ("x86_64-linux-gnu", "alderlake", 4),
        ("x86_64-linux-gnu", "haswell", 4),
        ("x86_64-linux-gnu", "x86-64", 4),
        ("aarch64-linux-gnu", "", 0),
        ("aarch64-linux-gnu", "neoverse-n1", 4),
        ("aarch64-linux-gnu", "neoverse-n2", 5),
        ("riscv64-linux-gnu", "", 0),
    ],
)
def test_dot_products_of_processors(triple: str, cpu: str, pairs: int) -> None:
    assert len(list(dots_of(describe(triple, cpu)))) == pairs


@pytest.mark.parametrize("cpu", ["neoverse-n1", "neoverse-n2"])
def test_code_for_other_processors_compiles(cpu: str) -> None:
    for a, b in BYTES:
        exe, _, _ = _product(a, b, 4, 64, 32, f" -mtriple=aarch64-linux-gnu -mcpu={cpu}")
        assert re.search(r"\b(us|s|u)dot\b", exe.source("asm"))
