from __future__ import annotations

import importlib
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
    """2 a, or -a below zero. Constants of the surrounding file are used by name."""
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


def test_words_used_outside_a_script_raise_an_error() -> None:
    with pytest.raises(ScriptError, match=r"T\.grid is used outside a script"):
        T.grid(4, 4)
    with pytest.raises(ScriptError, match=r"G\.relu is used outside a script"):
        G.relu(1)


def test_annotations_may_be_evaluated() -> None:
    """Without the future import, Python evaluates annotations."""
    for annotation in (
        T.Buffer((4,), "float32"),
        T.Buffer[(4,), "int8"],
        T.int64,
        T.handle,
        G.Tensor((2,), "int8"),
    ):
        assert annotation is not None


def test_local_names_that_only_annotations_mention() -> None:
    shape, kind = (4, 2), "int16"

    @T.prim_func
    def fill(a: T.Buffer(shape, kind)):
        for i, j in T.grid(4, 2):
            a[i, j] = 1

    @ir_module
    class Module:
        @T.prim_func
        def main(a: T.Buffer(shape, kind)):  # noqa: N805
            a[0, 0] = 1

    assert str(fill.buffers[0]) == str(Module["main"].buffers[0]) == "a: int16[4, 2]"


def test_omitted_types_are_inferred() -> None:
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
    with pytest.raises(ScriptError, match="add: unknown attribute 'axis'"):
        parse(text)
    undeclared = text.replace("G.add", "G.undeclared")
    with pytest.raises(ScriptError, match="the type of a result of 'undeclared' is not written down"):
        parse(undeclared)
    with pytest.raises(ScriptError, match="there is no op 'relu'"):
        parse(text, ops={}, make=make)


def test_scripts_are_not_executed() -> None:
    with pytest.raises(ScriptError):
        parse("@T.prim_func\ndef f(A: exit()):\n    exit()")


def test_quoted_dims_in_files_without_the_future_import(tmp_path, monkeypatch):
    (tmp_path / "quoted_dims.py").write_text(
        "from dlc_core.script import T\n"
        "@T.prim_func\n"
        'def f(A: T.Buffer(("n", "2 * m"), "float32", strides=("s", 1), offset="o"),\n'
        "      n: T.int64, m: T.int64, s: T.int64, o: T.int64):\n"
        "    for i, j in T.grid(n, m):\n"
        "        A[i, j] = 1.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    func = importlib.import_module("quoted_dims").f
    text = script(func)
    assert '((n, 2 * m), "float32", strides=(s, 1), offset=o)' in text
    assert parse(text).buffers[0].strides is not None


@pytest.mark.parametrize("dim", ["n +", "", "for"])
def test_quoted_dims_are_expressions(dim):
    with pytest.raises(ScriptError, match="is not an expression"):
        parse(f'@T.prim_func\ndef f(A: T.Buffer(("{dim}",), "float32"), n: T.int64):\n    A[0] = 1.0\n')
