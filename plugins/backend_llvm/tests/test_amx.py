"""Products in tile registers. Their code runs with functions that emulate the instructions."""

from __future__ import annotations

import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from dlc_backend_llvm import engine
from dlc_backend_llvm.amx import units_of
from dlc_backend_llvm.device import CpuDevice
from dlc_backend_llvm.engine import assemble
from dlc_backend_llvm.host import describe, host_cpu
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import dlc_core as dlc
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op.std import BY_NAME as OPS

FEATURES = "+avx512bf16,+avx512vnni,+amx-tile,+amx-bf16,+amx-int8"
TARGET = f"llvm -mcpu=x86-64-v4 -mattr={FEATURES}"
KINDS = [("bfloat16", "bfloat16"), ("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8")]
few_examples = settings(
    max_examples=12,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


# Tiles are vectors of words in row-major order, and functions emulate the instructions.

_COPY = """
define internal {result} @tile.{name}(i16 %rows, i16 %size, ptr %memory, i64 %stride{given}) {{
entry:
  %tile = alloca <256 x i32>, align 64
  store <256 x i32> {first}, ptr %tile, align 64
  %r = zext i16 %rows to i64
  %s = zext i16 %size to i64
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %n, %row ]
  %own = mul i64 %i, %s
  %other = mul i64 %i, %stride
  %here = getelementptr i8, ptr %tile, i64 %own
  %there = getelementptr i8, ptr %memory, i64 %other
  call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 %s, i1 false)
  %n = add i64 %i, 1
  %more = icmp ult i64 %n, %r
  br i1 %more, label %row, label %done
done:
  {end}
}}
"""

_PRODUCT = """
define internal <256 x i32> @tile.{name}(
  i16 %rows, i16 %size, i16 %deep, <256 x i32> %c, <256 x i32> %a, <256 x i32> %b) {{
entry:
  %sums = alloca <256 x i32>, align 64
  %left = alloca <256 x i32>, align 64
  %right = alloca <256 x i32>, align 64
  store <256 x i32> %c, ptr %sums, align 64
  store <256 x i32> %a, ptr %left, align 64
  store <256 x i32> %b, ptr %right, align 64
  %m = zext i16 %rows to i64
  %wide = zext i16 %size to i64
  %n = lshr i64 %wide, 2
  %long = zext i16 %deep to i64
  %k = lshr i64 %long, 2
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %i.next, %body ]
  %j = phi i64 [ 0, %entry ], [ %j.next, %body ]
  %q = phi i64 [ 0, %entry ], [ %q.next, %body ]
  %ik = mul i64 %i, %k
  %iq = add i64 %ik, %q
  %qn = mul i64 %q, %n
  %qj = add i64 %qn, %j
  %in = mul i64 %i, %n
  %ij = add i64 %in, %j
  %pa = getelementptr i32, ptr %left, i64 %iq
  %pb = getelementptr i32, ptr %right, i64 %qj
  %pc = getelementptr i32, ptr %sums, i64 %ij
  %x = load i32, ptr %pa, align 4
  %y = load i32, ptr %pb, align 4
  %z = load i32, ptr %pc, align 4
{word}
  store i32 %w, ptr %pc, align 4
  %q1 = add i64 %q, 1
  %q.end = icmp eq i64 %q1, %k
  %q.next = select i1 %q.end, i64 0, i64 %q1
  %carry = zext i1 %q.end to i64
  %j1 = add i64 %j, %carry
  %j.end = icmp eq i64 %j1, %n
  %j.next = select i1 %j.end, i64 0, i64 %j1
  %over = zext i1 %j.end to i64
  %i.next = add i64 %i, %over
  %more = icmp ult i64 %i.next, %m
  br i1 %more, label %body, label %done
done:
  %made = load <256 x i32>, ptr %sums, align 64
  ret <256 x i32> %made
}}
"""

_BFLOAT = """
  %x0 = shl i32 %x, 16
  %y0 = shl i32 %y, 16
  %x1 = and i32 %x, -65536
  %y1 = and i32 %y, -65536
  %fx0 = bitcast i32 %x0 to float
  %fy0 = bitcast i32 %y0 to float
  %fx1 = bitcast i32 %x1 to float
  %fy1 = bitcast i32 %y1 to float
  %p0 = fmul float %fx0, %fy0
  %p1 = fmul float %fx1, %fy1
  %fz = bitcast i32 %z to float
  %t0 = fadd float %fz, %p0
  %t1 = fadd float %t0, %p1
  %w = bitcast float %t1 to i32
"""


def _bytes(a: str, b: str) -> str:
    """The function for products of bytes with these signs."""
    lines, total = [], "%z"
    for side, sign in (("x", a), ("y", b)):
        lines.append(f"  %{side}v = bitcast i32 %{side} to <4 x i8>")
        extend = "sext" if sign == "s" else "zext"
        lines.append(f"  %{side}w = {extend} <4 x i8> %{side}v to <4 x i32>")
    lines.append("  %p = mul <4 x i32> %xw, %yw")
    for lane in range(4):
        lines.append(f"  %p{lane} = extractelement <4 x i32> %p, i32 {lane}")
        made = "%w" if lane == 3 else f"%t{lane}"
        lines.append(f"  {made} = add i32 {total}, %p{lane}")
        total = made
    return "\n".join(lines)


_FUNCTIONS = {
    "tileloadd64.internal": _COPY.format(
        result="<256 x i32>", name="tileloadd64.internal", given="", first="zeroinitializer", to="%here",
        source="%there", end="%made = load <256 x i32>, ptr %tile, align 64\n  ret <256 x i32> %made",
    ),
    "tilestored64.internal": _COPY.format(
        result="void", name="tilestored64.internal", given=", <256 x i32> %value", first="%value",
        to="%there", source="%here", end="ret void",
    ),
    "tdpbf16ps.internal": _PRODUCT.format(name="tdpbf16ps.internal", word=_BFLOAT),
    **{
        f"tdpb{a}{b}d.internal": _PRODUCT.format(name=f"tdpb{a}{b}d.internal", word=_bytes(a, b))
        for a in "su" for b in "su"
    },
}  # fmt: skip


def without_tiles(text: str) -> str:
    """A module with vectors in place of tiles."""
    lines = [line for line in text.splitlines() if not (line.startswith("declare") and "x86_amx" in line)]
    body = "\n".join(lines)
    used = [name for name in _FUNCTIONS if f"@llvm.x86.{name}(" in body]
    casts = {int(count) for count in re.findall(r"@llvm\.x86\.cast\.\w+\.to\.\w+\.v(\d+)i32", body)}
    body = re.sub(r"@llvm\.x86\.((?:tile|tdp|cast\.)[\w.]+)", r"@tile.\1", body)
    body = body.replace("x86_amx", "<256 x i32>")
    copy = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
    return "\n".join([copy, body, *(_FUNCTIONS[name] for name in used), *map(_casts, sorted(casts))])


def _casts(count: int) -> str:
    """Functions that convert vectors of fewer words to tiles and back."""
    places = ", ".join(f"i32 {i}" if i < count else "i32 poison" for i in range(256))
    first = ", ".join(f"i32 {i}" for i in range(count))
    return f"""
define internal <256 x i32> @tile.cast.vector.to.tile.v{count}i32(<{count} x i32> %v) {{
  %w = shufflevector <{count} x i32> %v, <{count} x i32> poison, <256 x i32> <{places}>
  ret <256 x i32> %w
}}
define internal <{count} x i32> @tile.cast.tile.to.vector.v{count}i32(<256 x i32> %v) {{
  %w = shufflevector <256 x i32> %v, <256 x i32> poison, <{count} x i32> <{first}>
  ret <{count} x i32> %w
}}
"""


@pytest.fixture
def texts(monkeypatch):
    """Make compiles run on any machine, with vectors in place of tiles. Returns the list of the original
    texts.
    """
    if host_cpu().vector_bits < 512:
        pytest.skip("this machine has no vectors of 512 bits")
    parse, seen = engine._parse, []

    def parsed(text, context):
        if "x86_amx" not in text:
            return parse(text, context)
        seen.append(text)
        return parse(without_tiles(text), context)

    monkeypatch.setattr(engine, "_parse", parsed)
    monkeypatch.setattr(CpuDevice, "check_machine", lambda device, metadata: None)
    return seen


def _values(rng, name, shape):
    if name == "bfloat16":
        return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
    return rng.integers(np.iinfo(name).min, np.iinfo(name).max + 1, shape).astype(name)


def _compiled(x, w, build):
    value = param("x", tensor_type(x.shape, x.dtype.name))
    module = IRModule({"main": Function("main", (value,), build(value, constant(w)))})
    return dlc.compile(module, TARGET, cache=False)


def _product(a, b, m, k, n):
    rng = np.random.default_rng(0)
    x, w = _values(rng, a, (m, k)), _values(rng, b, (k, n))
    out = "float32" if a == "bfloat16" else "int32"
    exe = _compiled(x, w, lambda x, w: OPS["matmul"].build(x, w, out_dtype=out))
    if a == "bfloat16":
        expected = x.astype(np.float64) @ w.astype(np.float64)
        np.testing.assert_allclose(exe(x), expected, rtol=1e-5, atol=1e-5 * k)
    else:
        np.testing.assert_array_equal(exe(x), x.astype(np.int64) @ w.astype(np.int64))


@pytest.mark.parametrize("sizes", [(32, 64, 32), (37, 100, 45), (8, 256, 200)], ids=str)
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_products(texts, kinds, sizes):
    _product(*kinds, *sizes)
    assert any(f"tdpb{'f16ps' if kinds[0] == 'bfloat16' else ''}" in text for text in texts)


@given(st.sampled_from(KINDS), st.integers(4, 70), st.integers(1, 40), st.integers(1, 70))
@few_examples
def test_products_of_any_size(texts, kinds, m, groups, n):
    _product(*kinds, m, groups * 4, n)


@pytest.mark.parametrize(
    ("shape", "window", "attrs"),
    [
        ((1, 14, 14, 64), (1, 1, 64, 48), {}),
        ((2, 9, 11, 16), (3, 3, 16, 40), {"padding": (1, 1, 1, 1)}),
        ((1, 20, 20, 32), (3, 3, 32, 32), {"strides": (2, 2), "padding": (1, 1, 1, 1)}),
    ],
    ids=["a point", "a window", "steps"],
)
def test_convolutions(texts, shape, window, attrs):
    rng = np.random.default_rng(0)
    x, w = _values(rng, "uint8", shape), _values(rng, "int8", window)
    attrs = {"layout": "NXC", "kernel_layout": "XIO", "out_dtype": "int32", **attrs}
    exe = _compiled(x, w, lambda x, w: OPS["conv"].build(x, w, **attrs))
    value = param("x", tensor_type(x.shape, "uint8"))
    other = IRModule({"main": Function("main", (value,), OPS["conv"].build(value, constant(w), **attrs))})
    assert texts
    np.testing.assert_array_equal(exe(x), dlc.compile(other, "llvm -mcpu=x86-64", cache=False)(x))


def test_sums_stay_in_tile_registers(texts, monkeypatch):
    """A product of whole tiles has 4 products and 4 loads per step, and stores only after the loop."""
    _product("bfloat16", "bfloat16", 64, 256, 96)
    monkeypatch.undo()
    code = assemble(texts[-1], "x86_64-unknown-linux-gnu", "sapphirerapids", passes="O2")
    count = {word: len(re.findall(rf"\b{word}\b", code)) for word in ("tdpbf16ps", "tileloadd", "tilestored")}
    assert count["tdpbf16ps"] >= 4
    assert count["tileloadd"] == count["tdpbf16ps"] + 4
    assert count["tilestored"] == 4


MANY = """
import numpy as np, ml_dtypes
import dlc_core as dlc
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std

for m, n, k in ((11, 24, 8), (5, 24, 36), (37, 45, 100), (21, 17, 36), (70, 130, 200), (4, 16, 4)):
    for a, b, acc in (("bfloat16", "bfloat16", "float32"), ("uint8", "int8", "int32")):
        x, w = param("x", tensor_type((m, k), a)), constant(np.zeros((k, n), b))
        module = IRModule({"main": Function("main", (x,), std.matmul(x, w, out_dtype=acc))})
        dlc.compile(module, "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids", cache=False)
"""


def test_products_of_any_size_need_no_spills():
    """LLVM ends the process if it cannot allocate registers, so the test runs in a separate process."""
    done = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_tile_products_of_processors():
    triple = "x86_64-unknown-linux-gnu"
    named = describe(triple, "sapphirerapids")
    assert {unit.name for unit in units_of(named)} >= {
        "bfloat16_bfloat16_float32_16x16x32",
        "uint8_int8_int32_16x16x64",
    }
    assert not list(units_of(describe(triple, "sapphirerapids", "-amx-bf16,-amx-int8")))
    assert not list(units_of(describe(triple, "x86-64-v4")))
    assert [unit.a for unit in units_of(describe(triple, "x86-64-v4", "+amx-tile,+amx-bf16"))] == ["bfloat16"]
