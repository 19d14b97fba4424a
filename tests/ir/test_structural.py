from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import Span, UsageError
from dlc_core.graph.node import Function, Node, Op, call_function, constant, node, param
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, const, load
from dlc_core.ir.module import IRModule
from dlc_core.ir.structural import first_difference, structural_equal, structural_hash
from dlc_core.ir.types import tensor_type
from dlc_core.tir.functor import copy_func, transform_stmt
from dlc_core.tir.stmt import PrimFunc, Range, loop, seq, store

ADD, MUL = Op("add"), Op("mul")
T = tensor_type((2, 3))


def matmul(name: str = "main", letter: str = "i", rows: int = 16) -> PrimFunc:
    n = Var("n")
    a = te.placeholder((n, rows), name="A")
    b = te.placeholder((rows, 8), name=letter.upper())
    k = te.reduce_axis(rows, "k")
    c = te.compute((n, 8), lambda *x: te.sum(a[x[0], k] * b[k, x[1]], axis=k), name="C")
    return te.create_prim_func([a, b], [c], name)


def assert_same(a: object, b: object, *, names: bool = True) -> None:
    assert first_difference(a, b, names=names) is None
    assert structural_equal(b, a, names=names)
    assert structural_hash(a, names=names) == structural_hash(b, names=names)


def assert_differ(a: object, b: object, *, names: bool = True) -> str:
    difference = first_difference(a, b, names=names)
    assert difference is not None
    assert not structural_equal(b, a, names=names)
    assert structural_hash(a, names=names) != structural_hash(b, names=names)
    return difference


def test_names_of_bound_variables_and_buffers_are_not_compared() -> None:
    assert_same(matmul(), matmul(letter="z"))
    assert_same(matmul(), copy_func(matmul()))


def test_function_names_are_compared_unless_disabled() -> None:
    assert "str 'main' vs str 'other'" in assert_differ(matmul(), matmul("other"))
    assert_same(matmul(), matmul("other"), names=False)


def test_free_variables_correspond_one_to_one() -> None:
    x, y, z = Var("x"), Var("y"), Var("z")
    assert_same(x * 2 + y, z * 2 + x)
    assert_differ(x * 2 + y, x * 2 + x)
    assert_differ(x + x, x + y)
    assert_same((x + 1, x), (z + 1, z))
    assert_differ((x + 1, x), (x + 1, y))
    assert_differ(x + 1, Var("x", "int32") + 1)


def test_literals_and_attributes_differ_by_type_and_bits() -> None:
    values = [
        0,
        False,
        0.0,
        -0.0,
        "0",
        b"0",
        None,
        (),
        (0,),
        const(0),
        const(0, "int32"),
        const(0.0, "float32"),
    ]
    values += [const(-0.0, "float32"), const(False, "bool"), const(0.0, "float64")]
    hashes = {structural_hash(v) for v in values}
    assert len(hashes) == len(values)
    for i, a in enumerate(values):
        for b in values[i + 1 :]:
            assert_differ(a, b)
    assert_same(float("nan"), float("nan"))


def test_the_first_difference_is_a_path_with_both_sides() -> None:
    a = matmul()
    text = first_difference(a, replace(a, body=transform_stmt(a.body, expr_fn=_mul_to_add)))
    assert text is not None
    assert text.splitlines()[0] == "main.body.body.body.body.body.value.b: mul of float32 vs add of float32"
    assert "\n  left:  A[" in text
    buffer = Buffer("A", (4,))
    first = PrimFunc("f", (buffer,), seq(store(buffer, (0,), 1.0), store(buffer, (1,), 1.0)))
    second = PrimFunc("f", (buffer,), seq(store(buffer, (0,), 1.0), store(buffer, (2,), 1.0)))
    difference = assert_differ(first, second)
    assert difference.startswith("f.body[1].indices[0]: int64(1) vs int64(2)")


def _mul_to_add(e: Expr) -> Expr | None:
    return e.a + e.b if getattr(e, "op", "") == "mul" and e.dtype.is_float else None  # type: ignore[attr-defined]


def test_buffers_differ_by_description() -> None:
    plain = Buffer("A", (4, 4))
    for other in (
        Buffer("A", (4, 5)),
        Buffer("A", (4, 4), "int32"),
        Buffer("A", (4, 4), scope="local"),
        Buffer("A", (4, 4), strides=(4, 1)),
        Buffer("A", (4, 4), offset=1),
        Buffer("A", (4, 4), align=8),
        Buffer("A", (16,)),
    ):
        assert_differ(plain, other)
    assert_same(plain, Buffer("B", (4, 4)))
    i = Var("i")
    two = Buffer("B", (4, 4))
    assert_differ(load(plain, (i, i)) + load(plain, (i, 0)), load(plain, (i, i)) + load(two, (i, 0)))


def test_loop_kinds_and_annotations_are_compared() -> None:
    i, a = Var("i"), Buffer("A", (4,))
    body = store(a, (i,), 0.0)
    serial = PrimFunc("f", (a,), loop(i, 4, body))
    assert "str 'serial' vs str 'parallel'" in assert_differ(
        serial, PrimFunc("f", (a,), loop(i, 4, body, "parallel"))
    )
    assert_differ(serial, PrimFunc("f", (a,), loop(i, 4, body, annotations={"x": 1})))
    assert_same(Range(const(0), i), Range(const(0), Var("j")))


def graph(op: Op = ADD, value: float = 1.0, name: str = "x") -> Function:
    x, y = param(name, T), param("inner", T)
    group = Function("g", (y,), node(op, (y, constant(np.full((2, 3), value, np.float32))), {"k": (1, 2)}, T))
    return Function("main", (x,), node(ADD, (call_function(group, (x,)), x), {}, T))


def test_graphs() -> None:
    assert_same(graph(), graph(name="z"))
    assert "add vs mul" in assert_differ(graph(), graph(MUL))
    assert "array float32[2, 3]" in assert_differ(graph(), graph(value=2.0))
    x, y = param("x", T), param("y", T)
    both = Function("f", (x, y), node(ADD, (x, y), {}, T))
    swapped = Function("f", (x, y), node(ADD, (y, x), {}, T))
    assert "another one than before" in assert_differ(both, swapped)


def test_spans_are_not_compared() -> None:
    x = param("x", T)
    plain, marked = graph(), graph()
    marked.body.add_spans([Span("m.onnx", "conv")])
    assert_same(plain, marked)
    func = matmul()
    assert_same(func, replace(func, spans=(Span("m.onnx", "conv"),)))
    assert_same(x, param("y", T))


def test_large_arrays_are_compared_by_cached_digests() -> None:
    data = np.arange(10_000, dtype=np.float32)
    a, b = constant(data), constant(data.copy())
    assert a is not b
    assert_same(a, b)
    other = data.copy()
    other[77] = -1
    assert_differ(a, constant(other))
    assert_differ(np.arange(3), np.arange(3).astype(np.int32))
    assert_same(np.arange(6).reshape(2, 3).T, np.arange(6).reshape(2, 3).T.copy())


def test_modules_and_mappings_do_not_depend_on_order() -> None:
    f, g = matmul("f"), graph()
    assert_same(IRModule({"f": f, "main": g}), IRModule({"main": graph(), "f": matmul("f")}))
    assert "['f']" in assert_differ(IRModule({"f": f}), IRModule({"f": matmul("f", rows=4)}))
    assert_same(MappingProxyType({"a": 1, "b": 2}), {"b": 2, "a": 1})


def test_deep_graphs_do_not_recurse(counted) -> None:
    def deep(count: int) -> Node:
        x = param("x", T)
        body = x
        for _ in range(count):
            body = node(ADD, (body, x), {}, T)
        return body

    _, half = counted(lambda: assert_same(deep(2500), deep(2500)))
    _, whole = counted(lambda: assert_same(deep(5000), deep(5000)))
    assert whole < 2.1 * half


def test_hashes_are_the_same_in_every_process() -> None:
    text = (
        "from dlc_core.ir.expr import Var; from dlc_core.ir.buffer import Buffer;"
        "from dlc_core.ir.structural import structural_hash;"
        "n = Var('n'); print(structural_hash({'b': Buffer('A', (n, 4))[n, 1], 'a': (1, 2.5, 'x')}))"
    )
    n = Var("n")
    mine = structural_hash({"b": Buffer("A", (n, 4))[n, 1], "a": (1, 2.5, "x")})
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", text],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        )
        assert done.stdout.strip() == mine


def test_refuses_values_that_are_not_ir() -> None:
    with pytest.raises(UsageError, match="object has no structure"):
        structural_hash((1, object()))
