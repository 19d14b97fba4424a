"""Bounds of symbolic dims: in texts, JSON, structural comparison, and the analyzer."""

import copy

import pytest

from dlc_core.arith import Analyzer
from dlc_core.diag import ArtifactError, ScriptError, UsageError
from dlc_core.graph.node import Function, param
from dlc_core.ir.bounds import Bounds
from dlc_core.ir.expr import Var, const, free_vars
from dlc_core.ir.module import IRModule
from dlc_core.ir.structural import structural_equal, structural_hash
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.plugin.registry import registry
from dlc_core.runtime.interface.encode import decode_signature, encode_signature
from dlc_core.runtime.interface.signature import Signature, Value
from dlc_core.script import from_json, parse, to_json, to_script
from dlc_core.tir.functor import copy_func


def graph(bounds):
    n, free = Var("n", bounds=bounds), Var("m")
    x = param("x", tensor_type((n, free), "float32"))
    return IRModule({"main": Function("main", (x,), std.add(x, x))})


PROGRAM = """@T.prim_func
def main(A: T.Buffer((n,), "float32"), B: T.Buffer((n + m,), "float32"), n: T.dim(1, 512), m: T.dim(0, None)):
    for i in range(n):
        B[i] = A[i]
"""


@pytest.mark.parametrize("bounds", [Bounds(1, 512), Bounds(7), Bounds(0, 3)])
def test_bounds_of_a_graph_round_trip_as_text_and_json(bounds):
    module = graph(bounds)
    text, metadata = to_script(module)
    assert f"n = G.dim({bounds.low}, {bounds.high})" in text
    assert "m = " not in text
    for again in (parse(text, metadata, ops=registry().ops), from_json(to_json(module), registry().ops)):
        assert structural_equal(again, module)
        assert again["main"].params[0].type.shape[0].bounds == bounds
        assert to_script(again).text == text


def test_bounds_of_a_prim_func_round_trip():
    func = parse(PROGRAM)
    assert [v.bounds for v in func.scalars] == [Bounds(1, 512), Bounds()]
    assert "n: T.dim(1, 512), m: T.dim(0, None)" in func.script()
    for again in (parse(func.script()), copy_func(func), from_json(to_json(func), {})):
        assert structural_equal(again, func)
        assert again.scalars[0] is not func.scalars[0]
    first_lines = """@T.prim_func
def main(a: T.handle):
    n = T.dim(1, 9)
    m = T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    A[0, 0] = 1.0
"""
    assert [v.bounds for v in parse(first_lines).scalars] == [Bounds(1, 9), None]


def test_programs_with_different_bounds_differ():
    one, other, free = graph(Bounds(1, 512)), graph(Bounds(1, 128)), graph(None)
    assert structural_equal(one, graph(Bounds(1, 512)))
    for different in (other, free):
        assert not structural_equal(one, different)
        assert structural_hash(one) != structural_hash(different)


@pytest.mark.parametrize("bounds", ["(2, 1)", "(-1, 4)", "(1,)", "(1.5, 2)", "(None, 4)", "(1, True)"])
def test_an_error_shows_wrong_bounds_of_a_script(bounds):
    with pytest.raises(ScriptError, match=r"bound|argument"):
        parse(PROGRAM.replace("(1, 512)", bounds))
    with pytest.raises(ScriptError, match=r"bound|argument"):
        parse(to_script(graph(Bounds(1, 512))).text.replace("(1, 512)", bounds))


@pytest.mark.parametrize(
    "bounds", [[1, 2, 3], ["a", 2], 7, [True, 3], [3, 1], [None, 2], [0, 1 << 70], "ab", [[1], 2]]
)
def test_refuses_wrong_bounds_in_json(bounds):
    func = parse(PROGRAM)
    data = to_json(func)
    next(record for record in data["records"] if record["k"] == "var" and "bounds" in record)["bounds"] = (
        bounds
    )
    with pytest.raises(ArtifactError):
        from_json(data, {})
    inputs = (Value("x", tensor_type((func.scalars[0],))),)
    saved = encode_signature(Signature(inputs, (), (), const(0), 0))
    assert decode_signature(copy.deepcopy(saved)).dims[0].bounds == Bounds(1, 512)
    saved["exprs"][0][2:] = bounds if isinstance(bounds, list) else [str(bounds), None]
    with pytest.raises(ArtifactError):
        decode_signature(saved)


def test_refuses_bounds_that_are_given_twice():
    text = to_script(graph(Bounds(1, 512))).text
    with pytest.raises(ScriptError, match="given already"):
        parse(text.replace("n = G.dim(1, 512)", "n = G.dim(1, 512)\n        n = G.dim(1, 512)"))


def test_the_analyzer_uses_declared_bounds():
    n, i = Var("n", bounds=Bounds(2, 512)), Var("i")
    for declare in (lambda a: None, lambda a: a.declare_dim(n), lambda a: a.declare_dim(n, 0, 9999)):
        analyzer = Analyzer()
        declare(analyzer)
        assert analyzer.const_bounds(n * 4 + 1) == (9, 2049)
        analyzer.bind(i, 0, n)
        assert analyzer.prove(i < 512)
        assert not analyzer.prove(i < 511)
        assert str(analyzer.simplify((n + 511) // 1024)) == "0"
    analyzer = Analyzer()
    analyzer.declare_dim(n, 100, 200)
    assert analyzer.const_bounds(n) == (100, 200)
    assert Analyzer().const_bounds(Var("n", bounds=Bounds(3)))[0] == 3


def test_intersection_of_bounds():
    assert Bounds(1, 9).intersect(Bounds(4)) == Bounds(4, 9)
    assert Bounds().intersect(Bounds(2, 3)) == Bounds(2, 3)
    with pytest.raises(UsageError):
        Bounds(1, 3).intersect(Bounds(4))
    assert [str(b) for b in (Bounds(1, 512), Bounds(5))] == ["1..512", "5.."]
    assert free_vars(Var("n", bounds=Bounds(1, 2)) + 1)[0].bounds == Bounds(1, 2)
