"""Foreign functions in the interpreter: Python callables, C symbols, and their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlc_core.diag import RuntimeFailure, UnsupportedError
from dlc_core.foreign import CSymbol, ForeignFunction, PythonCallable, Source
from dlc_core.foreign.resolve import Externs, address_of
from dlc_core.script import parse
from dlc_core.tir.interpreter import run

TWICE = "(in float32 x[m, n], out float32 y[m, n], int64 m, int64 n)"
PROGRAM = parse("""
@T.prim_func
def main(A: T.Buffer((2, 3), "float32"), B: T.Buffer((2, 3), "float32"), C: T.Buffer((2,), "float64")):
    T.evaluate(T.call_extern("test.twice", T.address_of(A), T.address_of(B), 2, 3, dtype="int32"))
    for i in range(2):
        C[i] = T.call_pure_extern("test.hypot", T.float64(3.0), T.float64(4.0), dtype="float64")
""")


def twice(x: Any, y: Any, m: int, n: int) -> None:
    assert (x.shape, y.shape) == ((m, n), (m, n))
    assert y.flags.writeable
    assert not x.flags.writeable
    y[:] = x * 2


def call() -> tuple[Any, Any, Any]:
    a, b, c = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((2, 3), np.float32), np.zeros(2)
    run(PROGRAM, a, b, c, externs=Externs(), check=True)
    return a, b, c


@pytest.fixture
def hypot(register: Any) -> Any:
    symbol = CSymbol("libm.so.6", "hypot")
    return register(ForeignFunction("test.hypot", "(float64 x, float64 y) -> float64", [symbol], pure=True))


@pytest.mark.usefixtures("hypot")
def test_callables_and_symbols(register: Any) -> None:
    register(ForeignFunction("test.twice", TWICE, [PythonCallable(twice)]))
    a, b, c = call()
    np.testing.assert_array_equal(b, a * 2)
    np.testing.assert_array_equal(c, [5, 5])


@pytest.mark.usefixtures("hypot")
def test_callables_through_c(register: Any) -> None:
    missing = CSymbol("libm.so.6", "no_such_symbol")
    register(ForeignFunction("test.twice", TWICE, [missing, PythonCallable(twice)]))
    a, b, _ = call()
    np.testing.assert_array_equal(b, a * 2)


@pytest.mark.usefixtures("hypot")
def test_exceptions_name_the_function(register: Any) -> None:
    def failing(x: Any, y: Any, m: int, n: int) -> None:
        raise ValueError("no twice today")

    register(ForeignFunction("test.twice", TWICE, [PythonCallable(failing)]))
    with pytest.raises(RuntimeFailure, match=r"foreign function 'test\.twice' failed") as caught:
        call()
    assert caught.value.why == "ValueError: no twice today"
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("implementation", "reason"),
    [
        (CSymbol("libm.so.6", "no_such_symbol"), "the library libm.so.6 has no symbol 'no_such_symbol'"),
        (CSymbol(None, "no_such_symbol"), "this process has no symbol 'no_such_symbol'"),
        (CSymbol("libnowhere.so.9", "f"), "the library libnowhere.so.9 cannot be loaded"),
        (CSymbol(lambda: "libnowhere.so.9", "f"), "the library libnowhere.so.9 cannot be loaded"),
        (Source("klingon", "f", "f"), "klingon text is not compiled for calls from Python"),
    ],
)
def test_what_cannot_be_called_is_explained(implementation: Any, reason: str) -> None:
    with pytest.raises(UnsupportedError, match="foreign function 'f' cannot be called") as caught:
        address_of(ForeignFunction("f", "()", [implementation]))
    assert any(reason in line for line in caught.value.details)
