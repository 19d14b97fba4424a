"""The first difference of two values, with the lines of both around it; `script()` and `show()` of values."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from dlc_core import te
from dlc_core.diag import UsageError
from dlc_core.graph.node import Function, Op, constant, node, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.structural import structural_equal
from dlc_core.ir.types import tensor_type
from dlc_core.script import difference, parse, script
from dlc_core.tir.stmt import PrimFunc

TEXT = """
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
    for i, j in T.grid(4, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi, vj])
            T.writes(B[vi, vj])
            B[vi, vj] = A[vi, vj] * T.float32(2.0)
    for k in range(4):
        A[k, 0] = T.float32(0.0)
"""

CHANGES = [
    ("T.float32(2.0)", "T.float32(3.0)", "> "),
    ("A[vi, vj] * ", "A[vi, vj] + ", "B[vi, vj] = A[vi, vj]"),
    ("T.reads(A[vi, vj])", "T.reads(A[vi, 0:8])", "T.reads("),
    ('"SS"', '"SR"', "T.axis.remap"),
    ("range(4)", "range(3)", "for k in range("),
    ('(4, 8), "float32"), B', '(4, 9), "float32"), B', "def main("),
    ('T.block("B")', 'T.block("C")', "with T.block("),
    ("A[k, 0]", "A[k, 1]", "A[k, "),
]


@pytest.mark.parametrize(("old", "new", "line"), CHANGES, ids=[c[1] for c in CHANGES])
def test_both_lines_are_shown(old: str, new: str, line: str) -> None:
    other = TEXT.replace(old, new)
    text = difference(parse(TEXT), parse(other))
    assert text is not None
    path, *rows = text.splitlines()
    assert path.startswith("main.")
    assert " vs " in path
    left, right = (row for row in rows if row.startswith(">"))
    assert line in left
    assert line in right
    assert left != right
    for row, source in ((left, TEXT), (right, other)):
        assert row.split(" | ", 1)[1] in source
    assert rows.index("left:") < rows.index(left) < rows.index("right:") < rows.index(right)


def test_the_whole_text() -> None:
    text = difference(parse(TEXT), parse(TEXT.replace("2.0", "3.0")))
    assert text is not None
    assert text.splitlines() == [
        "main.body[0].body.body.body.value.b: float32(2.0) vs float32(3.0)",
        "left:",
        "     7 |             T.writes(B[vi, vj])",
        ">    8 |             B[vi, vj] = A[vi, vj] * T.float32(2.0)",
        "     9 |     for k in range(4):",
        "right:",
        "     7 |             T.writes(B[vi, vj])",
        ">    8 |             B[vi, vj] = A[vi, vj] * T.float32(3.0)",
        "     9 |     for k in range(4):",
    ]
    assert difference(parse(TEXT), parse(TEXT)) is None


def graph(factor: float = 1.0, op: str = "relu") -> Function:
    x = param("x", tensor_type((2, 3)))
    y = node(Op(op), (x,), {}, x.type)
    z = node(Op("mul"), (y, constant(np.full((2, 3), factor, np.float32))), {}, x.type)
    return Function("graph", (x,), node(Op("add"), (z, x), {}, x.type))


def test_graphs_and_modules() -> None:
    text = difference(IRModule.of(graph()), IRModule.of(graph(op="tanh")))
    assert text is not None
    assert text.splitlines()[0].startswith("IRModule.functions['graph'].body.args[0].args[0]")
    assert '"float32") = G.relu(x)' in text
    assert '"float32") = G.tanh(x)' in text
    constants = difference(graph(), graph(2.0))
    assert constants is not None
    assert "G.const([[1.0, 1.0, 1.0]" in constants
    assert "G.const([[2.0, 2.0, 2.0]" in constants


def double(name: str = "double") -> PrimFunc:
    a = te.placeholder((4,), name="A")
    return te.create_prim_func([a], [te.compute((4,), lambda i: a[i] * 2.0, name="B")], name)


def test_values_print_themselves() -> None:
    module = IRModule.of(double(), graph())
    for value in (double(), graph(), module):
        assert value.script() == script(value)
        assert structural_equal(parse(value.script()), value)
        plain, coloured = io.StringIO(), io.StringIO()
        value.show(Console(file=plain, width=200))
        assert [s.rstrip() for s in plain.getvalue().splitlines()] == value.script().splitlines()
        value.show(Console(file=coloured, width=200, force_terminal=True, color_system="truecolor"))
        assert "\x1b[" in coloured.getvalue()
        assert "\x1b[" not in plain.getvalue()


def test_show_writes_to_the_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    double().show()
    assert "def double(" in capsys.readouterr().out


def test_modules_of_functions() -> None:
    module = IRModule.of(double(), double("main"))
    assert list(module) == ["double", "main"]
    assert module.entry == "main"
    assert IRModule.of(double()).entry == "double"
    assert IRModule.of().entry == "main"
    with pytest.raises(UsageError, match="two functions are called 'double'"):
        IRModule.of(double(), double())
