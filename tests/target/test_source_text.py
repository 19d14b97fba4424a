"""The readability of generated C: line width, pointers to neighbours, no dead names."""

from __future__ import annotations

import pytest

from dlc_core.script import parse
from dlc_core.target.source import C99, FunctionWriter, Unit
from dlc_core.target.source.tokens import WIDTH, folded


def written(text: str) -> str:
    return FunctionWriter(Unit(C99)).function(parse(text), "void main")


@pytest.mark.parametrize(
    "line",
    [
        "    x = " + " + ".join(f"a{i}[{i}]" for i in range(60)) + ";",
        "        y = " + "f(" * 40 + "x, 1" + ")" * 40 + ";",
        "    for (int i = 0; i < " + "n * " * 40 + "n; ++i) {",
    ],
)
def test_long_lines_are_folded(line: str) -> None:
    parts = list(folded(line))
    assert len(parts) > 1 or "* n" in line
    assert "".join("".join(parts).split()) == "".join(line.split())
    indent = len(line) - len(line.lstrip())
    assert all(part.startswith(" " * (indent + 8)) for part in parts[1:])
    assert all(len(part) <= WIDTH for part in parts) or "* n" in line


def test_short_lines_and_pragmas_are_not_folded() -> None:
    for line in ("    x = 1;", "#pragma omp " + "x " * 100):
        assert list(folded(line)) == [line]


def test_neighbouring_elements_share_a_pointer() -> None:
    text = written("""@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((2,), "float32")):
    for i, j in T.grid(2, 4):
        B[i] = A[i * 16 + j * 4 + 1] * A[i * 16 + 3 + j * 4] - A[i * 16 + j * 4 + 9]
""")
    assert "const float *const A_at = A + (i * 16 + j * 4 + 1);" in text, "it stands where it is read"
    assert "B[i] = A_at[0] * A_at[2] - A_at[8];" in text


def test_conditional_accesses_share_no_pointer() -> None:
    """It could point outside of its array."""
    text = written("""@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        B[i] = T.if_then_else(i > 3, A[i - 4, 1] + A[i - 4, 2], T.float32(0))
""")
    assert "A_at" not in text


def test_unused_views_are_omitted() -> None:
    text = written("""@T.prim_func
def main(A: T.Buffer((64,), "uint8")):
    B = T.view(A, (4,), "float32", offset=8)
    C = T.view(A, (4,), "float32", offset=4)
    for i in range(4):
        B[i] = T.float32(1)
""")
    assert "*B = (float *)(void *)(A + 32);" in text
    assert "B[i] = 1.0f;" in text
    assert "*C" not in text
