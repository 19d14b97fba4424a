"""Errors of scripts name line and column, and show the line with a mark."""

from __future__ import annotations

import math
import random
import runpy
import traceback
from pathlib import Path

import pytest

from dlc_core.config import config
from dlc_core.diag import ScriptError
from dlc_core.graph.node import Op
from dlc_core.script import G, T, ir_module, parse, script
from dlc_core.testing.programs import random_prim_func

SIZE = 16
CONFIG = {"tile": 4}


def body(*lines: str, head: str = 'A: T.Buffer((4, n), "float32"), n: T.int64') -> str:
    return f"@T.prim_func\ndef main({head}):\n" + "".join(f"    {line}\n" for line in lines)


def block(*lines: str) -> str:
    return body("for i, j in T.grid(4, n):", '    with T.block("b"):', *(f"        {line}" for line in lines))


def graph(*lines: str) -> str:
    return '@G.function\ndef main(x: G.Tensor((2, "h"), "float32")):\n' + "".join(f"    {s}\n" for s in lines)


# The text with «the position» marked; a part of the message; a part of the hint.
MISTAKES: list[tuple[str, str, str]] = [
    # the text as Python
    ("def f(«:»\n  pass", "", ""),
    ("@T.prim_func\ndef f(A: T.Buffer((4,), 'int8')):\n    A[0] = «=» 1", "invalid syntax", ""),
    ("@T.prim_func\ndef f():\n    A[«(»0 = 1\n", "", ""),
    ('@T.prim_func\ndef f():\n    x = «"»abc\n', "unterminated string", ""),
    ("@T.prim_func\ndef f():\n«pass»\n", "expected an indented block", ""),
    # the frame
    ("«x = 1»", "a class decorated", ""),
    ("@T.prim_func\ndef f():\n    pass\n«def g():\n    pass»", "one class or one function", ""),
    ("«def f(): pass»", "f is not decorated with @T.prim_func", ""),
    ("@«T.primfunc»\ndef f(): pass", "not decorated with @T.prim_func", "did you mean T.prim_func?"),
    ("@T.prim_func(nmae=«'x'»)\ndef f(): pass", "has no nmae", "did you mean name?"),
    ("@T.prim_func(name=«3»)\ndef f(): pass", "name is a string", ""),
    ("@ir_module\nclass M:\n    «x = 3»", "no part of a module", "`entry`, `attrs`"),
    ("@ir_module\nclass M:\n    entry = «3»", "the entry is a string", ""),
    ("@«ir_modul»\nclass M:\n    pass", "not decorated with @ir_module", "did you mean ir_module?"),
    (
        "@ir_module\nclass M:\n    @T.prim_func\n    def f(): pass\n    @T.prim_func\n    «def f(): pass»",
        "the module defines 'f' twice",
        "",
    ),
    # parameters
    ("@T.prim_func\ndef f(«x»): pass", "parameter x is no T.Buffer", "T.Buffer((128,)"),
    ("@T.prim_func\ndef f(x: «int»): pass", "parameter x is no T.Buffer", ""),
    ("@T.prim_func\ndef f(x: «T.int65»): pass", "T has no int65", "int64"),
    ("@T.prim_func\ndef f(x: «T.Bufer((4,))»): pass", "parameter x is no T.Buffer", "did you mean T.Buffer?"),
    ("@T.prim_func\ndef f(x: T.int64, «x: T.int64»): pass", "two parameters x", ""),
    ("@T.prim_func\ndef f(x: T.int64 = «3»): pass", "no default", ""),
    ("@T.prim_func\n«def f(*A): pass»", "positional parameters only", ""),
    ("@T.prim_func\ndef f(A: T.Buffer((4,), «'float33'»)): pass", "unknown dtype 'float33'", "float32"),
    ("@T.prim_func\ndef f(A: T.Buffer((4,), «float32»)): pass", "'float32' is not defined", ""),
    (
        "@T.prim_func\ndef f(A: T.Buffer((4,), 'int8', stride=«3»)): pass",
        "has no stride",
        "did you mean strides?",
    ),
    (
        "@T.prim_func\ndef f(A: T.Buffer((4,), 'int8', strides=«(4, 1)»)): pass",
        "1 dims have as many strides",
        "",
    ),
    ("@T.prim_func\ndef f(A: T.Buffer((4, «m»), 'int8'), n: T.int64): pass", "'m' is not defined", ""),
    ("@T.prim_func\ndef f(A: T.Buffer((4, «2.5»), 'int8')): pass", "a dim is an integer, not float32", ""),
    ("@T.prim_func\ndef f(A: «T.Buffer()»): pass", "a shape and a dtype", ""),
    # names
    (body("A[0, 0] = «m»"), "the name 'm' is not defined", "there are: n, A"),
    (body("A[0, 0] = T.cast(«nn», 'float32')"), "the name 'nn' is not defined", "did you mean n?"),
    (body("for i in range(4):", "    pass", "A[«i», 0] = 1.0"), "'i' of line 12 is not defined here", ""),
    (
        body("for i in range(4):", "    for «i» in range(4):", "        pass"),
        "'i' is already used in line 12",
        "",
    ),
    (body("for «n» in range(4):", "    pass"), "'n' is already used in line 11", "choose another name"),
    (body("for «i», i in T.grid(2, 2):", "    pass"), "two loops of one nest are called i", ""),
    (body("«A» = T.alloc_buffer((4,), 'float32')"), "'A' is already used", ""),
    (body("for «T» in range(4):", "    pass"), "a meaning of its own", ""),
    (
        body("x = n * 2", "for i in range(2):", "    «x» = x + 1"),
        "cannot be changed in an inner suite",
        "buffer",
    ),
    (body("x = n * 2", "«x += 1»"), "x cannot be changed", "keep what changes in a buffer"),
    # accesses
    (body("«A[0]» = 1.0"), "2 dims but is written with 1", "its shape is (4, n)"),
    (body("A[0, 0] = «A[0, 1, 2]»"), "2 dims but is read with 3", ""),
    (body("A[0, 0] = «n»"), "int64 stored to buffer A of float32", 'T.cast(…, "float32")'),
    (body("H[0] = «1.5»", head="H: T.Buffer((4,), 'int32')"), "the number 1.5 is no int32", ""),
    (body("H[0] = «300»", head="H: T.Buffer((4,), 'int8')"), "300 does not fit int8", ""),
    (body("«n»[0] = 1.0"), "n is not a buffer", "buffers: A"),
    (body("A[0, 0] = «A»"), "the buffer A is not an expression", "read an element"),
    (body("A[0, 0] = «n»[0]"), "n is of int64, not a buffer", ""),
    (body("A[0, «0.5»] = 1.0"), "an index is an integer, not float32", ""),
    (body("A[0, «n < 3»] = 1.0"), "an index is an integer, not bool", ""),
    (body("A[0, 0] = A[0, «0:4»]"), "a slice is no index", "T.ramp"),
    (body("A[0, 0] = «A[0, T.ramp(0, 1, 4)]»"), "4 lanes stored to one element", ""),
    # expressions
    (body("A[0, 0] = «T.nothing»(n)"), "T has no nothing", ""),
    (body("A[0, 0] = «T.sqr»(A[0, 0])"), "T has no sqr", "did you mean sqrt"),
    (body("A[0, 0] = «foo»(n)"), "foo is not in T", ""),
    (body("A[0, 0] = «exp»(A[0, 0])"), "exp is not in T", "exp"),
    (body("A[0, 0] = «T.exp(n)»"), "exp does not take int64", ""),
    (body("A[0, 0] = «T.exp(A[0, 0], A[0, 1])»"), "T.exp takes 1 argument, not 2", ""),
    (body("A[0, 0] = T.exp(A[0, 0], fast=«True»)"), "T.exp takes no argument fast", ""),
    (body("A[0, 0] = «T.max(A[0, 0])»"), "T.max takes 2 arguments, not 1", ""),
    (body("A[0, 0] = «A[0, 0] + n»"), "add of float32 and int64", "cast one side"),
    (body("H[0] = «H[0] * 0.5»", head="H: T.Buffer((4,), 'int32')"), "mul of int32 and the number 0.5", ""),
    (body("H[0] = «H[0] + 1000»", head="H: T.Buffer((4,), 'int8')"), "1000 does not fit int8", ""),
    (body("A[0, 0] = «A[0, 0] & A[0, 1]»"), "bitand takes integers, not float32", ""),
    (body("A[0, 0] = «A[0, 0] @ A[0, 1]»"), "no operator @", ""),
    (body("A[0, 0] = «T.float32(1, 2)»"), "takes one value", ""),
    (body("H[0] = T.int8(«200»)", head="H: T.Buffer((4,), 'int8')"), "200 does not fit int8", ""),
    (body("A[0, 0] = T.cast(n, «'x'»)"), "unknown dtype 'x'", "dtypes: bool"),
    (body("A[0, 0] = «T.cast(n)»"), "T.cast takes 2 arguments, not 1", ""),
    (body("A[0, 0] = «T.select(n)»"), "takes 3 arguments, not 1", ""),
    (body("A[0, 0] = T.select(«n», 1.0, 2.0)"), "a condition is a bool, not int64", "n != 0"),
    (body("A[0, T.ramp(0, 1, «1000000000»)] = 1.0"), "a vector of 1000000000 lanes", ""),
    (body("A[0, 0] = T.vector_shuffle(T.broadcast(1.0, 4), «7»)"), "no lane 7 of 4", ""),
    (body("A[0, 0] = «n.shape»"), "n has no shape", "there are: dtype"),
    (body("A[0, 0] = «A.shap»[0]"), "A has no shap", "did you mean shape?"),
    (body("A[0, 0] = «[x for x in A]»"), "not an expression of the script", ""),
    (body("A[0, 0] = «lambda: 0»"), "not an expression of the script", ""),
    (body("A[0, 0] = «'text'»"), "'text' is not an expression", ""),
    (body("A[0, 0] = «None»"), "None is not an expression", ""),
    (body("A[0, 0] = T.call_extern('f', «A», dtype='int8')"), "the buffer A is not an expression", ""),
    (body("A[0, 0] = «T.call_extern('f', n)»"), "the dtype of the result is missing", 'dtype="float32"'),
    (body("A[0, 0] = «1 / 0»"), "cannot be computed: division by zero", ""),
    (body("A[0, 0] = «2 ** 100000»"), "too large to be computed", ""),
    # conditions
    (body("if «n»:", "    pass"), "a condition is a bool, not int64", "write n != 0"),
    (body("while «1»:", "    pass"), "a condition is a bool, not int", ""),
    (body("if «n and n < 3»:", "    pass"), "`and` takes bools, not int64", ""),
    (body("if not «n»:", "    pass"), "is a bool, not int64", ""),
    (body("if «n in A»:", "    pass"), "`in` is no comparison", ""),
    # statements
    (body("«return n»"), "`return` is not a statement", "writes to its buffers"),
    (body("for i in range(4):", "    «break»"), "`break` is not a statement", "while"),
    (body("«import os»"), "`import` is not a statement", ""),
    (body("«assert n > 3»"), "`assert` is not a statement", "T.check"),
    (body("«n»"), "its value is not used", ""),
    (body("«n < 3»"), "its value is not used", ""),
    (body("«n.x» = 3"), "n.x cannot be assigned to", ""),
    (body("x: T.int32 = «n»"), "x of int32 is given a value of int64", ""),
    (body("«T.alloc_buffer((4,), 'float32')»"), "needs a name", "write x = T.alloc_buffer"),
    (body("x, y = «n»"), "n is no 2 values", ""),
    (body("x, y = «1, 2, 3»"), "is no 2 values", ""),
    (body("«x, A[0, 0]» = 1, 2"), "cannot be assigned to", ""),
    (body("«vi, vj = T.axis.remap('SS', [n, n])»"), "head of a block, before its statements", ""),
    (body("«A[0, 0] = A[0, 1] = 1.0»"), "one thing is assigned at a time", ""),
    (body("x = «__import__»('os')"), "is not in T", "a script is read, not run"),
    (body("with «open»('x'):", "    pass"), "open is not in T", ""),
    (body("with «T.blok('x')»:", "    pass"), "T.blok is no context", "did you mean block?"),
    # loops
    (body("for i in «n»:", "    pass"), "a loop runs over", ""),
    (body("for i in «grid(3)»:", "    pass"), "a loop runs over", "T.grid"),
    (body("for «i, j» in range(3):", "    pass"), "1 loops need 1 names, not 2", ""),
    (body("for i in range(0, n, «2»):", "    pass"), "a loop has no step", "i * step"),
    (body("for i in range(«1.5»):", "    pass"), "an end of a loop is an integer", ""),
    (body("for i in «T.paralel»(3):", "    pass"), "no loop over one variable", "did you mean parallel?"),
    (body("for i in «T.thread_binding(3)»:", "    pass"), "needs thread", ""),
    (body("for i in T.serial(3, kind=«'x'»):", "    pass"), "has no kind", ""),
    (body("for i in range(3):", "    pass", "else:", "    «pass»"), "no `else`", ""),
    # blocks
    (block("v = T.axis.remap('S', [«n»])", "pass"), "n is not a loop", "T.axis.spatial"),
    (block("«vi, vj = T.axis.remap('SSR', [i, j])»", "pass"), "one letter, S or R", "3 letters and 2 loops"),
    (block("«v = T.axis.spatial(3)»", "pass"), "binds no axis", "T.axis.spatial(extent, value)"),
    (block("v = «T.axis.spacial»(3, i)", "pass"), "T.axis has no spacial", "did you mean spatial?"),
    (block("vi = T.axis.S(4, i)", "«vi» = T.axis.S(4, i)", "pass"), "'vi' is already used", ""),
    (block("T.reads(«n»)", "pass"), "n is not a region", "write A[i, 0:8]"),
    (block("T.reads(«A[i]»)", "pass"), "2 dims but is given here with 1", ""),
    (block("T.where(i < 3)", "«T.where(j < 3)»", "pass"), "twice in the head", ""),
    (block("A[0, 0] = 1.0", "«T.where(i < 3)»"), "head of a block, before its statements", ""),
    (block("A[0, 0] = 1.0", "with «T.init()»:", "    pass"), "head of a block, before its statements", ""),
    (block("T.where(«i»)", "pass"), "the predicate of a block is a bool", ""),
    (block("T.block_attr(«3»)", "pass"), "attributes are written as {name: value}", ""),
    (block("T.block_attr({'a': 1, «'a'»: 2})", "pass"), "given twice", ""),
    # attributes and handles
    (body("T.func_attr({'a': «metadata['x']»})"), "the metadata has no 'x'", "to_script"),
    (body("pass", "«T.func_attr({'a': 1})»"), "in the first line of the function", ""),
    (body("B = T.match_buffer(«n», (4,), 'float32')"), "n is int64, not a handle", ""),
    (
        body("B = T.match_buffer(a, (4,))", "C = T.match_buffer(«a», (4,))", head="a: T.handle"),
        "a is matched twice",
        "T.view",
    ),
    # graphs
    ("@G.function\ndef f(«x»):\n    return x", "parameter x has no type", "G.Tensor"),
    ("@G.function\ndef f(x: «int»):\n    return x", "int is not a type", ""),
    (
        "@G.function\ndef f(x: «G.Tensr((2,), 'int8')»):\n    return x",
        "is not a type",
        "did you mean G.Tensor?",
    ),
    (
        "@G.function\ndef f(x: G.Tensor((«'1+'»,), 'int8')):\n    return x",
        "the dim '1+' is not an expression",
        "",
    ),
    ("@G.function\ndef f(x: G.Tensor((«-1»,), 'int8')):\n    return x", "a dim of -1", ""),
    (graph("«pass»"), "ends with `return`", ""),
    (graph("return «y»"), "y is no value", "values: x"),
    (graph("return «x[0]»"), "there is no field 0", ""),
    (graph("«x + x»", "return x"), "no line of a graph", ""),
    (graph("y: G.Tensor((2,), 'int8') = «relu»(x)", "return y"), "relu is no function defined here", ""),
    (graph("y: G.Tensor((2,), 'int8') = «G.rellu(x)»", "return y"), "no op 'rellu'", "did you mean relu?"),
    (graph("y = «G.relu(x)»", "return y"), "the type of a result of 'relu' is not written down", ""),
    (graph("return «G.const([[1], [2, 3]], 'int8')»"), "make no array", ""),
    (graph("return G.const([«'x'»], 'int8')"), "element is a number", ""),
    (graph("y: G.Tensor((2,), 'int8') = G.relu(x, a=1, a=«2»)", "return y"), "a is given twice", ""),
]


@pytest.mark.parametrize(
    ("marked", "message", "hint"), MISTAKES, ids=[f"{i}-{m[1][:30]}" for i, m in enumerate(MISTAKES)]
)
def test_each_mistake_is_explained_at_its_position(marked: str, message: str, hint: str) -> None:
    begin = marked.index("«")
    text = marked.replace("«", "").replace("»", "")
    line, column = text.count("\n", 0, begin) + 1, begin - (text.rfind("\n", 0, begin) + 1) + 1
    with pytest.raises(ScriptError) as caught:
        parse(text, file="prog.py", first_line=10, ops={"relu": Op("relu")})
    error = caught.value
    assert message in error.what
    assert hint in error.hint
    assert (error.spans[0].source, error.spans[0].line, error.spans[0].column) == (
        "prog.py",
        line + 9,
        column,
    )
    shown, carets = error.details[:2]
    assert shown == f"{line + 9} | {text.splitlines()[line - 1]}"
    assert carets.index("^") == len(f"{line + 9} | ") + column - 1
    underlined = marked[begin + 1 : marked.index("»")].split("\n")[0]
    assert carets.count("^") == len(underlined)


def test_the_text_of_an_error() -> None:
    with pytest.raises(ScriptError) as caught:
        parse(body("A[0, 0] = mm + 1.0"), file="prog.py")
    assert str(caught.value).splitlines() == [
        "the name 'mm' is not defined here",
        "  at prog.py:3:15",
        "  3 |     A[0, 0] = mm + 1.0",
        "    |               ^^",
        "  hint: there are: n, A",
    ]


@pytest.mark.parametrize("text", ["", "\0", "(" * 500, "x = " + "-" * 5000 + "1", "  ", "\\"])
def test_syntax_errors_of_python(text: str) -> None:
    with pytest.raises(ScriptError) as caught:
        parse(text)
    assert caught.value.spans[0].line == 1


def test_expressions_nested_too_deep() -> None:
    with pytest.raises(ScriptError, match="nested too deep") as caught:
        parse(
            body(
                "pass", "A[0, 0] = " + "T.exp(" * 90 + "A[0, 0]" + ")" * 90, "x = " + "not " * 900 + "(n < 3)"
            )
        )
    assert caught.value.spans[0].line == 5


def test_columns_count_characters_and_the_indentation_of_the_file() -> None:
    text = '@T.prim_func\ndef f(größe: T.Buffer((4,), "int8")):\n    größe[wohin] = T.int8(1)\n'
    with pytest.raises(ScriptError) as caught:
        parse(text, file="prog.py", indent=4)
    assert caught.value.spans[0].column == 4 + text.splitlines()[2].index("wohin") + 1
    assert caught.value.details[1].index("^") == len("3 | ") + text.splitlines()[2].index("wohin")


def test_decorated_functions_are_found_in_their_file() -> None:
    with pytest.raises(ScriptError) as caught:

        @T.prim_func
        def wrong(a: T.Buffer((4,), "float32")):
            a[0] = unknown  # noqa: F821

    span = caught.value.spans[0]
    line = Path(__file__).read_text(encoding="utf-8").splitlines()[span.line - 1]
    assert span.source == __file__
    assert line[span.column - 1 :].startswith("unknown")


def test_decorators_verify_tensor_programs() -> None:
    with pytest.raises(ScriptError, match="uses the loop variable i from outside the block") as caught:

        @T.prim_func
        def wrong(a: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("b"):
                    a[i] = 1.0

    assert 'with T.block("b"):' in caught.value.details[0]

    @T.prim_func(check_well_formed=False)
    def unchecked(a: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("b"):
                a[i] = 1.0

    assert parse(script(unchecked)).name == "unchecked"  # type: ignore[union-attr]


def test_a_module_of_the_wrong_kind() -> None:
    with pytest.raises(ScriptError, match=r"not decorated with @T\.prim_func"):

        @T.prim_func
        @G.function
        def graph(x: G.Tensor((2,), "float32")):
            return x

    with pytest.raises(ScriptError, match="no part of a module"):

        @ir_module
        class Module:
            x = 3


def _mutated(rng: random.Random, text: str) -> str:
    """A text with a few characters, words or lines changed, dropped, doubled or swapped."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind = rng.randrange(7)
        if kind < 3 and text:
            at, end = sorted((rng.randrange(len(text)), rng.randrange(len(text))))
            end = min(end, at + rng.choice((1, 1, 3, 10)))
            filling = ("", text[at:end] * 2, rng.choice(_JUNK))[kind]
            text = text[:at] + filling + text[end:]
            continue
        lines = text.splitlines(keepends=True)
        at = rng.randrange(len(lines))
        if kind == 3:
            del lines[at]
        elif kind == 4:
            lines.insert(rng.randrange(len(lines)), lines[at])
        elif kind == 5:
            lines[at] = "    " + lines[at]
        else:
            words = lines[at].split(" ")
            words[rng.randrange(len(words))] = rng.choice(_JUNK)
            lines[at] = " ".join(words)
        text = "".join(lines)
        if not text.strip():
            return "x"
    return text


_JUNK = (
    "T.", "G.", "0", "-1", "1.5", "nan", "1e999", "None", "True", '"x"', "()", "[]", "{}", "(", ")", "[",
    "]", ":", "=", "==", ",", "*", "**", "//", "@", ".", "T.inf", "T.float32", "T.block", "T.axis.remap",
    "T.Buffer", "T.let", "T.view", "T.int8(999)", "A[0]", "A[:]", "lambda: 0", "i if i else j", "x := 1",
    "f'{x}'", "await x", "yield", "return", "pass", "9" * 400, "1j", "...", "\\", "\t", "\n", "#",
    "metadata", 'metadata["const_0"]', "T.match_buffer(a, (4,))", "del A", "T.ramp(0, 1, 4)",
    "T.broadcast(1, 2)", "T.reads()", "with T.init():\n", "for i in T.grid():\n", "2 ** 9999",
    "1 << 999", "A.shape[9]", "T.vector_shuffle(A, 1)", "T.reinterpret(1, 'int8')", "T.exp2()",
    "T.max_value('bool')", "é", "\x0c",
)  # fmt: skip


SEEDS = """
@ir_module
class Module:
    attrs = {"a": (1, "x", None), "b": G.dtype("int8")}

    @T.prim_func
    def kernel(a: T.handle, B: T.Buffer((n, 16), "float32", strides=(16, 1), scope="global"), n: T.int64):
        T.func_attr({"k": 1})
        A = T.match_buffer(a, (n, 16), "float32")
        S = T.alloc_buffer((16,), "float32", scope="local")
        for i, j in T.grid(n, 16):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(vi < n and vj >= 0)
                T.reads(A[vi, 0:vj + 1])
                T.writes(B[vi, vj])
                T.block_attr({"x": [1, 2.5]})
                with T.init():
                    B[vi, vj] = T.float32(-T.inf)
                x = T.let(A[vi, vj] * 2.0)
                B[vi, vj] = T.max(B[vi, vj], T.if_then_else(vj < 3, T.exp(x), T.cast(vi, "float32")))
        for k in T.vectorized(4):
            S[k] += 1.0
        V = T.view(S, (4,), "int32", offset=4)
        V[T.ramp(0, 1, 4)] = T.broadcast(T.int32(3), 4)
        while S[0] < 1.0:
            T.evaluate(T.call_extern("f", T.address_of(S), dtype="int32"))

    @G.function
    def main(x: G.Tensor((2, "h"), "float32"), y: G.Tuple(G.Tensor((2,), "int8"))):
        G.func_attr({"outputs": ("y",)})
        @G.function
        def inner(p: G.Tensor((2, "h"), "float32")):
            return p
        v0: G.Tensor((2, "h * 2"), "float32") = G.relu(x, axis=1, **{"else": G.array([1, 2], "int8")})
        v1: G.Tensor((2, "h"), "float32") = inner(v0)
        return v1, y[0], G.const([1.5, G.nan], "float32")
"""


def _hunt(count: int, seed: int) -> None:
    rng = random.Random(seed)
    texts = [SEEDS, *(script(random_prim_func(i)) for i in range(12))]
    refused: list[ScriptError] = []
    for _ in range(count):
        text = _mutated(rng, rng.choice(texts))
        try:
            parse(text, verify=rng.random() < 0.5)
        except ScriptError as error:
            refused.append(error)
    assert len(refused) > count // 2
    assert all(error.spans and error.what for error in refused)
    assert not [str(error) for error in refused if "cannot be read" in error.what]


def test_damaged_texts_raise_only_script_errors() -> None:
    _hunt(2000, 1)


@pytest.mark.slow
def test_many_damaged_texts_raise_only_script_errors() -> None:
    _hunt(20_000, 2)


def test_tracebacks_of_decorators_end_at_the_script(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    lines = [
        "from __future__ import annotations",
        "from dlc_core.script import T",
        "@T.prim_func",
        'def f(A: T.Buffer((4,), "float32")):',
        "    A[0] = b",
    ]
    file.write_text("\n".join(lines))
    for level, wanted in ((0, False), (1, True)):
        with config.override(debug=level), pytest.raises(ScriptError, match=r"wrong\.py:5:12") as caught:
            runpy.run_path(str(file))
        frames = traceback.extract_tb(caught.value.__traceback__)
        assert any("_parser" in frame.filename for frame in frames) == wanted


class Config:
    __slots__ = ("size",)

    @property
    def made(self) -> int:
        raise RuntimeError("a script runs nothing")


OUTSIDE: list[tuple[str, str, str]] = [
    ("A[0, 0] = «math»", "math is a module", "numbers, strings, tuples"),
    ("A[0, 0] = «helper»", "helper is a function, of which a script cannot use the value", "may be used"),
    ("A[0, 0] = «helper»(1)", "helper is not in T", "cannot call Python functions"),
    ("A[0, 0] = «math.sqrt»", "math.sqrt is no number, string or tuple", "SIZE = config.size"),
    ("A[0, 0] = «math.sqrt»(2.0)", "math.sqrt is not in T", ""),
    ("A[0, 0] = «config.made»", "config.made is no number, string or tuple", ""),
    ("A[0, 0] = «config.size»", "config.size is no number, string or tuple", ""),
    ("A[0, 0] = «ROWS[7]»", "there is no 7 in ROWS", ""),
    ("A[0, 0] = «TABLE['x']»", "there is no 'x' in TABLE", ""),
    ("A[0, 0] = «ROWS»", "ROWS is not an expression", ""),
    ("A[0, 0] = len(«n»)", "n has no length", ""),
    ("A[0, 0] = «ROWS + 1»", "cannot be computed", ""),
    ("A[0, 0] = «ROWS * 100000»", "cannot be computed", ""),
    ("A[0, 0] = «'%999999999d' % 1»", "cannot be computed", ""),
]


@pytest.mark.parametrize(("marked", "message", "hint"), OUTSIDE, ids=[o[0] for o in OUTSIDE])
def test_refuses_unusable_values_of_the_surrounding_python(marked: str, message: str, hint: str) -> None:
    captured = {
        "math": math,
        "helper": body,
        "config": Config(),
        "ROWS": (1, 2),
        "TABLE": {"a": 1},
    }
    text = body(marked.replace("«", "").replace("»", ""))
    with pytest.raises(ScriptError) as caught:
        parse(text, captured=captured)
    assert message in caught.value.what
    assert hint in caught.value.hint
    assert caught.value.spans[0].column == 5 + marked.index("«")
