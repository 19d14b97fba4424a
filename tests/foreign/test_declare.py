"""Declarations of foreign functions, their signatures, and the registry."""

from __future__ import annotations

from typing import Any

import pytest

from dlc_core.diag import PluginError, UsageError
from dlc_core.foreign import CSymbol, ForeignFunction, PythonCallable, Source, find_foreign, get_foreign
from dlc_core.foreign.prototype import Prototype, bind_sizes, shape_of
from dlc_core.hooks import hookimpl
from dlc_core.plugin.registry import fresh_registry

HYPOT = CSymbol("libm.so.6", "hypot")


def nothing(*args: Any) -> None:
    """A callable for declarations that are not called."""


@pytest.mark.parametrize(
    "text",
    [
        "()",
        "() -> int32",
        "(float64 x, float64 y) -> float64",
        "(in float32 x[m, 4], inout float16 y[*n], out bool z[], int32 m, int64 n=m)",
        "(float32 alpha=0.5, int32 order=101, uint64 mask=255)",
    ],
)
def test_signatures_print_as_they_are_read(text: str) -> None:
    assert str(Prototype.parse(text)) == text
    assert str(Prototype.parse(text.replace(" ", "  ").replace("(  ", "( "))) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("float32 x", "no signature"),
        ("(float32)", "no parameter"),
        ("(float32 x,)", "no parameter"),
        ("(float99 x)", "unknown dtype 'float99'"),
        ("(int8 x)", "a value of int8 cannot be passed"),
        ("(in string x[n])", "a pointer to string cannot be passed"),
        ("(in float32 x)", "neither a value nor a pointer"),
        ("(float32 x[n])", "neither a value nor a pointer"),
        ("(in float32 x[n]=3)", "a pointer has no default"),
        ("(in float32 x[*m, *n])", "is no size"),
        ("(in float32 x[n+1])", "is no size"),
        ("(float32 x, int32 x)", "two parameters have the name 'x'"),
        ("(int32 n=1.5)", "the default '1.5' is no int32"),
        ("(int32 n=m)", "'m' is not a size of an array"),
        ("(in float32 x[n], float32 n)", "the size n is a float32"),
        ("(int32 n) -> bool", "does not return bool"),
    ],
)
def test_wrong_signatures_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        Prototype.parse(text)


def test_sizes_of_arrays() -> None:
    x, y = Prototype.parse("(in float32 x[m, *n], out float32 y[*n, 3])").params
    known: dict[str, tuple[int, ...]] = {}
    assert bind_sizes(x, (2, 5, 7), known) == []
    assert known == {"m": (2,), "n": (5, 7)}
    assert bind_sizes(y, (5, 6, 4), known) == [(7, 6), (3, 4)]
    with pytest.raises(UsageError, match="stands for 2 dims and for 1"):
        bind_sizes(y, (5, 3), known)
    with pytest.raises(UsageError, match="an array of 0 dims does not fit"):
        bind_sizes(x, (), known)
    assert shape_of(x, {"m": 2, "n": 35}) == (2, 35)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("1st", "()", [HYPOT]), "no name of a foreign function"),
        (("f", "()", []), "has no implementation"),
        (("f", "()", [nothing]), "is no implementation"),
        (("f", "(float64 x)", [HYPOT], True), "cannot be pure"),
        (("f", "(in float64 x[n]) -> float64", [HYPOT], True), "cannot be pure"),
        (("f", "(in float32 x[n])", [PythonCallable(nothing)]), "needs the value n"),
        (("f", "(in float32 x[], int64 n)", [PythonCallable(nothing)]), "needs the sizes of x"),
    ],
)
def test_contradictions_are_refused(fields: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ForeignFunction(*fields)


def test_symbols_are_names_and_texts_define_them() -> None:
    with pytest.raises(UsageError, match="is no symbol"):
        CSymbol(None, "a b")
    with pytest.raises(UsageError, match="does not define 'g'"):
        Source("c", "static int f(void) { return 1; }", "g")


def test_loops_around_python_and_unsafe_functions_are_serial() -> None:
    python, text = PythonCallable(nothing), Source("c", "int f(void);", "f")
    assert ForeignFunction("f", "()", [python, HYPOT]).serial
    assert ForeignFunction("f", "()", [text, python]).serial
    assert ForeignFunction("f", "()", [HYPOT], thread_safe=False).serial
    assert ForeignFunction("f", "()", [HYPOT, python]).serial
    assert not ForeignFunction("f", "()", [HYPOT]).serial
    assert not ForeignFunction("f", "()", [text]).serial


def test_functions_of_the_process(register: Any) -> None:
    made = register(ForeignFunction("test.hypot", "(float64 x, float64 y) -> float64", [HYPOT], pure=True))
    assert get_foreign("test.hypot") is made
    assert register(ForeignFunction("test.hypot", made.signature, [HYPOT], pure=True)) == made
    with pytest.raises(UsageError, match=r"there already is a foreign function 'test\.hypot'"):
        register(ForeignFunction("test.hypot", "()", [HYPOT]))
    with pytest.raises(UsageError, match=r"'test\.hypo', which program main calls") as caught:
        get_foreign("test.hypo", "program main")
    assert "did you mean 'test.hypot'?" in str(caught.value)
    with pytest.raises(UsageError, match="is no foreign function"):
        register(nothing)


class Package:
    """A plugin with one foreign function."""

    @hookimpl
    def dlc_foreign_functions(self) -> list[ForeignFunction]:
        return [ForeignFunction("pkg.hypot", "(float64 x, float64 y) -> float64", [HYPOT], pure=True)]


def test_functions_of_packages(register: Any) -> None:
    with fresh_registry({"pkg": Package()}) as known:
        assert known.plugins[1].provides == {"foreign_functions": ("pkg.hypot",)}
        assert get_foreign("pkg.hypot").pure
        with pytest.raises(UsageError, match="there already is"):
            register(ForeignFunction("pkg.hypot", "()", [HYPOT]))
    assert find_foreign("pkg.hypot") is None
    twice = fresh_registry({"one": Package(), "two": Package()})
    with twice, pytest.raises(PluginError, match=r"2 plugins provide a foreign function 'pkg\.hypot'"):
        get_foreign("pkg.hypot")
