"""`check`: a call fails with the text of the check, whatever the checked value is."""

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import RuntimeFailure
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.dtype import DType
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType
from dlc_core.op import std

OK = np.ones((), bool)
BAD = np.zeros((), bool)


def checked(target, value=None):
    """A model that checks an input, or a constant, and multiplies it by 2."""
    x, ok = param("x", TensorType((2, 3), DType("float32"))), param("ok", TensorType((), DType("bool")))
    made = std.check(x if value is None else constant(value), ok, what="the number is even")
    body = std.add(made, made)
    params = (x, ok) if value is None else (ok,)
    return dlc.compile(IRModule({"main": Function("main", params, body)}), target)


@pytest.mark.parametrize("target", ["reference", "llvm"])
def test_a_call_fails_with_the_text(target):
    exe, x = checked(target), np.array([[0, -0.0, 1], [np.inf, np.nan, -2]], np.float32)
    np.testing.assert_array_equal(exe(x, OK), x + x)
    with pytest.raises(RuntimeFailure, match="'the number is even' failed"):
        exe(x, BAD)
    np.testing.assert_array_equal(exe(x, OK), x + x)


@pytest.mark.parametrize("value", [0, 1, np.nan, np.inf])
def test_checks_of_constants_remain(value):
    exe = checked("llvm", np.full((2,), value, np.float32))
    np.testing.assert_array_equal(exe(OK), np.full(2, 2 * value, np.float32))
    with pytest.raises(RuntimeFailure, match="even"):
        exe(BAD)
