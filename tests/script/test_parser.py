from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlc_core.diag import ScriptError
from dlc_core.graph.node import Function, Node, Op, node
from dlc_core.ir.module import IRModule
from dlc_core.ir.structural import first_difference
from dlc_core.script import G, T, ir_module, parse, script
from dlc_core.tir.functor import block_list
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.verify import verify_func

SIZE = 16


@T.prim_func
def scale(a: T.Buffer((n, SIZE), "float32"), b: T.Buffer((n, SIZE)), n: T.int64):  # noqa: F821
    """Twice a, but -a below zero; numbers of the file around are used by name."""
    for i in T.parallel(n):
        for j in range(SIZE):
            with T.block("scale"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(a[vi, vj])
                T.writes(b[vi, vj])
                if a[vi, vj] < 0 and vj >= 0:
                    b[vi, vj] = -a[vi, vj]
                else:
                    b[vi, vj] = a[vi, vj] * 2.0
                b[vi, vj] += 1


@ir_module
class Program:
    entry = "other"

    @T.prim_func
    def other(a: T.Buffer((4,), "int32")):  # noqa: N805
        for i in range(1, 4):
            a[i] = a[i - 1] + T.min(a[i], 3)

    @G.function
    def graph(x: G.Tensor((2, "h"), "float32")):  # noqa: N805
        y: G.Tensor((2, "h"), "float32") = G.relu(x)
        return y, x


def test_a_program_in_a_python_file() -> None:
    assert isinstance(scale, PrimFunc)
    verify_func(scale, level=2)
    x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 16)
    out = np.zeros_like(x)
    run(scale, x, out)
    np.testing.assert_allclose(out, np.where(x < 0, -x, x * 2) + 1)
    assert [b.name for b in block_list(scale.body)] == ["scale"]
    assert first_difference(scale, parse(script(scale))) is None


def test_a_module_in_a_python_file() -> None:
    assert isinstance(Program, IRModule)
    assert Program.entry == "other"
    assert list(Program) == ["other", "graph"]
    memory = np.array([1, 2, 9, 1], np.int32)
    run(Program["other"], memory)
    assert memory.tolist() == [1, 3, 6, 7]
    assert first_difference(Program, parse(script(Program))) is None


def test_words_outside_a_script_say_what_is_wrong() -> None:
    with pytest.raises(ScriptError, match=r"T\.Buffer is used outside a script"):
        T.Buffer((4,), "float32")


def test_types_may_be_left_out_where_inference_is_given() -> None:
    def make(op: Op, args: tuple[Node, ...], attrs: Any) -> Node:
        return node(op, args, attrs, args[0].type)

    text = """
@G.function
def main(x: G.Tensor((2,), "float32")):
    y = G.relu(x)
    z = G.add(y, G.const([1.0, 2.0], "float32"), axis=1)
    return z
"""
    function = parse(text, make=make)
    assert isinstance(function, Function)
    assert function.body.op.name == "add"
    assert function.body.attrs["axis"] == 1
    with pytest.raises(ScriptError, match="type of this value is not written down"):
        parse(text)
    with pytest.raises(ScriptError, match="there is no op 'relu'"):
        parse(text, ops={}, make=make)


def body(*lines: str) -> str:
    indented = "".join(f"    {line}\n" for line in lines)
    return f'@T.prim_func\ndef main(A: T.Buffer((4, n), "float32"), n: T.int64):\n{indented}'


BAD = [
    ("", "one class or one function", 1),
    ("x = 1", "a class decorated", 1),
    ("def f(:\n  pass", "invalid syntax", 1),
    ("def f(): pass", "not decorated", 1),
    ("@T.prim_func\ndef f(x): pass", "parameter x is no", 2),
    ('@T.prim_func\ndef f(A: T.Buffer((4,), "float33")): pass', "unknown dtype 'float33'", 2),
    ('@T.prim_func\ndef f(A: T.Buffer((4,), "int8", color=3)): pass', "has no color", 2),
    ("@T.prim_func\ndef f(*A): pass", "positional parameters only", 2),
    (body("A[0, 0] = m"), "the name 'm' is not defined", 3),
    (body("A[0] = 1.0"), "2 dims but is written with 1", 3),
    (body("A[0, 0] = n"), "int64 stored to buffer A", 3),
    (body("n[0] = 1.0"), "n is not a buffer", 3),
    (body("A[0, 0] = A"), "A is not an expression", 3),
    (body("pass", "A[0, 0] = T.nothing(n)"), "T has no nothing", 4),
    (body("A[0, 0] = foo(n)"), "foo is not in T", 3),
    (body("A[0, 0] = T.exp(n)"), "exp does not take int64", 3),
    (body("A[0, 0] = T.float32(1, 2)"), "takes one value", 3),
    (body('A[0, 0] = T.cast(n, "x")'), "unknown dtype 'x'", 3),
    (body("A[0, 0] = T.select(n)"), "takes 3 arguments", 3),
    (body("A[0, T.ramp(0, 1, 10**9)] = 1.0"), "is an integer", 3),
    (body("A[0, T.ramp(0, 1, 1000000000)] = 1.0"), "a vector of 1000000000 lanes", 3),
    (body("if 0 < n < 4:", "    pass"), "a comparison has two sides", 3),
    (body("for i in n:", "    pass"), "a loop runs over", 3),
    (body("for i, j in range(3):", "    pass"), "1 loops need 1 names", 3),
    (body("for i in T.sideways(3):", "    pass"), "no loop over one variable", 3),
    (body("x = 3"), "x cannot be assigned to", 3),
    (body("import os"), "not a statement", 3),
    (body("lambda: 0"), "not a statement", 3),
    (body("__import__('os').system('true')"), "is not in T", 3),
    (body("with open('x'):", "    pass"), "open is not in T", 3),
    (body('with T.block("b"):', '    v = T.axis.remap("S", [n])', "    pass"), "n is not a loop", 4),
    (body('with T.block("b"):', "    v = T.axis.spatial(3)", "    pass"), "binds no axis", 4),
    (body('with T.block("b"):', "    T.reads(n)", "    pass"), "n is not a region", 4),
    (body('T.func_attr({"a": metadata["x"]})'), "the metadata has no 'x'", 3),
    ('@G.function\ndef f(x: G.Tensor((2,), "float32")):\n    pass', "ends with `return`", 3),
    ("@G.function\ndef f(x):\n    return x", "parameter x has no type", 2),
    ("@G.function\ndef f(x: int):\n    return x", "int is not a type", 2),
    ('@G.function\ndef f(x: G.Tensor(("1+",), "int8")):\n    return x', "is not an expression", 2),
    ('@G.function\ndef f(x: G.Tensor((2,), "int8")):\n    return y', "y is no value", 3),
    ('@G.function\ndef f(x: G.Tensor((2,), "int8")):\n    return x[0]', "there is no field 0", 3),
    ('@G.function\ndef f():\n    return G.const([[1], [2, 3]], "int8")', "make no array", 3),
    ('@G.function\ndef f():\n    return G.const(["x"], "int8")', "element is a number", 3),
    ("@ir_module\nclass M:\n    x = 3", "no part of a module", 3),
    ("@ir_module\nclass M:\n    entry = 3", "the entry is a string", 3),
    ("\0", "null bytes", 1),
    ("(" * 500, "", 1),
]


@pytest.mark.parametrize(("text", "message", "line"), BAD, ids=[b[1][:30] for b in BAD])
def test_mistakes_are_explained_with_their_place(text: str, message: str, line: int) -> None:
    with pytest.raises(ScriptError) as caught:
        parse(text, file="prog.py")
    assert message in caught.value.what
    assert caught.value.spans[0].source == "prog.py"
    assert caught.value.spans[0].line == line


def test_nothing_is_run() -> None:
    with pytest.raises(ScriptError):
        parse("@T.prim_func\ndef f(A: exit()):\n    exit()")
