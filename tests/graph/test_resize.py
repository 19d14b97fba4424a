"""Changing the sizes of modules."""

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import UsageError
from dlc_core.graph.data_dims import DATA_DIMS, ELEMENTS
from dlc_core.graph.node import Function, param
from dlc_core.graph.resize import replace_dims, with_shapes
from dlc_core.ir.bounds import Bounds
from dlc_core.ir.expr import Var, const, free_vars, minimum
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std

TEXT = """@ir_module
class Joined:
    @G.function
    def main(x: G.Tensor(("n", 4), "float32"), y: G.Tensor(("m", 4), "float32")):
        n = G.dim(1, 8)
        v0: G.Tensor(("n + m", 4), "float32") = G.concat(x, y, axis=0)
        return v0
"""


@pytest.fixture(scope="module")
def joined():
    return dlc.script.parse(TEXT, ops=dlc.ops())


@pytest.mark.parametrize(
    ("shapes", "result", "dims"),
    [
        ({"m": (2, 5)}, "float32[m + n, 4]", {"n": Bounds(1, 8), "m": Bounds(2, 5)}),
        ({"n": (2, 50)}, "float32[m + n, 4]", {"n": Bounds(2, 8), "m": None}),
        ({"n": 3, "m": 4}, "float32[7, 4]", {}),
        ({"n": 3}, "float32[m + 3, 4]", {"m": None}),
        ({"x": ("k", 4), "y": ("k", 4)}, "float32[k * 2, 4]", {"k": Bounds(1, 8)}),
        ({"x": ("m", 4), "m": (3, 20)}, "float32[m * 2, 4]", {"m": Bounds(3, 8)}),
        ({}, "float32[n + m, 4]", {"n": Bounds(1, 8), "m": None}),
    ],
)
def test_shapes_resize_the_dims_of_a_module(joined, shapes, result, dims):
    made = with_shapes(joined, shapes)
    entry = made["main"]
    assert str(entry.body.type) == result
    found = [v for p in entry.params for v in p.type.symbols()]
    assert {v.name: v.bounds for v in found} == dims
    assert len(set(found)) == len(dims)
    exe = dlc.compile(joined, shapes=shapes, verify="structure")
    one = np.ones((3, 4), np.float32)
    fits = not shapes or "m" not in shapes or shapes["m"] != 4
    assert exe(one, one if fits else np.ones((4, 4), np.float32)).shape == (6 if fits else 7, 4)


@pytest.mark.parametrize(
    ("shapes", "match"),
    [
        ({"n": (20, 50)}, r"in 20\.\.50 and in 1\.\.8"),
        ({"n": 9}, r"in 1\.\.8, and it is 9"),
        ({"z": ("m", 4)}, "pins no input and no dim"),
        ({"x": (4,)}, "it has 2 dims, not 1"),
    ],
)
def test_refuses_shapes_that_contradict_the_module(joined, shapes, match):
    with pytest.raises(UsageError, match=match):
        dlc.compile(joined, shapes=shapes)


def test_bound_params_and_bounds(joined):
    exe = dlc.compile(joined, params={"x": np.ones((3, 4), np.float32)}, shapes={"n": 3, "m": (1, 9)})
    assert str(exe.signature) == "(y: float32[m, 4]) -> (output0: float32[m + 3, 4]), m in 1..9"


def test_elements_of_params_may_be_negative():
    """Expressions of host-computed dims are not simplified as if elements were at least 1."""
    n, size, element = Var("n"), Var("rows"), Var("e")
    rows = minimum(n, minimum(element + n, n))
    x = param("x", tensor_type((n,), "float32"))
    s = param("s", tensor_type((1,), "int64"))
    attrs = {"inputs": ("x", "s"), ELEMENTS: ((element, "s", 0),), DATA_DIMS: ((size, rows, "rows"),)}
    function = Function("main", (x, s), std.relu(x)).with_attrs(**attrs)
    made = replace_dims(function, {n: Var("n", bounds=Bounds(1, 9))})
    ((var, expr, what),) = made.attrs[DATA_DIMS]
    assert (var, what) == (size, "rows")
    assert element in free_vars(expr)
    fixed = replace_dims(function, {n: const(5)})
    assert str(fixed.attrs[DATA_DIMS][0][1]) != "5"


def test_refuses_shapes_of_a_prim_func():
    func = dlc.script.parse(
        "@T.prim_func\ndef main(A: T.Buffer((n,), 'int8'), n: T.int64):\n    A[0] = T.int8(1)\n"
    )
    with pytest.raises(UsageError, match="shapes are of graphs"):
        with_shapes(IRModule({"main": func}), {"n": 3})
