"""Host-computed dims: ops, signatures, calls, files."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import ArtifactError, UsageError
from dlc_core.graph.bind import bind_params
from dlc_core.graph.data_dims import DATA_DIMS, ELEMENTS
from dlc_core.graph.node import Function, Node, make_tuple, param
from dlc_core.ir.expr import Var, cast_to, const, logical_and, select
from dlc_core.ir.module import IRModule
from dlc_core.ir.structural import structural_equal
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes.base import PassContext
from dlc_core.passes.graph.dead_code import DeadCode
from dlc_core.runtime.interface.dim_program import data_symbols, dim_program, given_symbols
from dlc_core.runtime.interface.encode import decode_signature, encode_signature
from dlc_core.runtime.interface.signature import Signature, Value
from dlc_core.script import parse
from dlc_core.tir.interpreter import run


def filled(host_computed: bool = True) -> IRModule:
    """`k` copies of the row of x, and k - 1 rows of ones."""
    n, rows, fewer, element = Var("n"), Var("rows"), Var("fewer"), Var("k_0")
    x, k = param("x", tensor_type((1, n))), param("k", tensor_type((1,), "int64"))
    number = std.reshape(k, shape=())
    one = std.dim_of(number, size=rows, what="the rows are negative")
    less = std.dim_of(std.sub(number, dlc.graph.constant(np.int64(1))), size=fewer, what="there is no row")
    result = std.with_dims(one, less, std.broadcast_to(x, shape=(rows, n)))
    attrs = {"inputs": ("x", "k"), "outputs": ("y", "z")}
    if host_computed:
        attrs[ELEMENTS] = ((element, "k", 0),)
        attrs[DATA_DIMS] = ((rows, element, "the rows are negative"), (fewer, rows - 1, "there is no row"))
    body = make_tuple([result, std.full(shape=(fewer, 2), value=1.0)])
    return IRModule({"main": Function("main", (x, k), body, attrs)})


X = np.float32([[1, 2, 3]])


@pytest.mark.parametrize("target", ["llvm", "reference"])
@pytest.mark.parametrize("host_computed", [True, False])
def test_host_computed_and_data_dependent_dims_agree(target, host_computed):
    exe = dlc.compile(filled(host_computed), target)
    assert bool(exe.about.get("host")) == (target == "llvm" and not host_computed)
    for rows in (1, 4, 2):
        y, z = exe(X, np.array([rows]))
        np.testing.assert_array_equal(y, np.repeat(X, rows, 0))
        np.testing.assert_array_equal(z, np.ones((rows - 1, 2), np.float32))
    with pytest.raises(UsageError, match="do not fit the model") as caught:
        exe(X, np.array([0]))
    assert "there is no row" in str(caught.value)


def test_scripts_and_files_keep_host_computed_dims(tmp_path):
    module = filled()
    assert structural_equal(parse(module.script()), module)
    exe = dlc.compile(module)
    assert decode_signature(encode_signature(exe.signature)).data_dims[1][2] == "there is no row"
    exe.save(tmp_path / "m.dlc")
    opened = dlc.open(tmp_path / "m.dlc")
    assert opened(X, np.array([3]))[0].shape == (3, 3)
    with pytest.raises(UsageError, match="there is no row"):
        opened(X, np.array([0]))


def test_binding_an_input_removes_its_elements():
    module = bind_params(filled(), {"k": np.array([3])})
    entry = module["main"]
    assert entry.attrs[ELEMENTS] == ()
    assert entry.attrs[DATA_DIMS][0][1] is const(3)
    y, z = dlc.compile(module)(X)
    assert y.shape == (3, 3)
    assert z.shape == (2, 2)


def test_plans_depend_on_elements():
    exe = dlc.compile(filled())
    sizes = exe.signature.call_sizes([X, np.array([5])])
    assert sizes == ((1, 3), (1,), (5,))
    assert exe.signature.plan(sizes).outputs == ((5, 3), (4, 2))
    call = exe.bind([X, np.array([2])])
    assert call()[0].shape == (2, 3)


def test_dim_programs_compute_the_same_dims():
    signature = dlc.compile(filled()).signature
    program = dim_program("dims", signature)
    assert [v.name for v in given_symbols(signature)] == ["n"]
    assert {v.name for v in data_symbols(signature)} == {"rows", "fewer"}
    for rows, status in ((3, 0), (0, -2), (-4, -1)):
        results = np.zeros(3, np.int64)
        run(program, np.array([rows]), results, 3, check=True)
        assert results[0] == status
        dims = {symbol.name: int(results[1 + i]) for i, symbol in enumerate(data_symbols(signature))}
        assert dims == {"rows": rows, "fewer": rows - 1}


def scaled() -> IRModule:
    """As many ones as x has elements, times a scale from 0 to 1e6, truncated."""
    n, rows, scale = Var("n"), Var("rows"), Var("s_0", "float32")
    x, s = param("x", tensor_type((n,))), param("s", tensor_type((1,)))
    size = cast_to("int64", cast_to("float32", n) * scale)
    expr = select(logical_and(scale > 0.0, scale < 1e6), size, -1)
    many = std.cast(std.squeeze(std.dims_tensor(dims=(n,)), axes=(0,)), to="float32")
    number = std.cast(std.mul(many, std.reshape(s, shape=())), to="int64")
    size_of_y = std.dim_of(number, size=rows, what="the scale is wrong")
    attrs = {"inputs": ("x", "s"), "outputs": ("y",), ELEMENTS: ((scale, "s", 0),)}
    attrs[DATA_DIMS] = ((rows, expr, "the scale is wrong"),)
    body = std.with_dims(size_of_y, std.full(shape=(rows,), value=1.0))
    return IRModule({"main": Function("main", (x, s), body, attrs)})


def test_dims_from_floats_match_float32_arithmetic(tmp_path):
    module = scaled()
    assert structural_equal(parse(module.script()), module)
    exe = dlc.compile(module)
    assert not exe.about.get("host")
    exe.save(tmp_path / "m.dlc")
    opened = dlc.open(tmp_path / "m.dlc")
    program = dim_program("dims", exe.signature)
    for scale in (0.7, 2.5, 0.05, 1 / 3):
        expected = int(np.float32(10) * np.float32(scale))
        results = np.zeros(2, np.int64)
        run(program, np.float32([scale]), results, 10, check=True)
        assert results.tolist() == [0, expected]
        for one in (exe, opened):
            assert one(np.zeros(10, np.float32), np.float32([scale])).shape == (expected,)
    for scale in (0, -1, np.nan, np.inf):
        with pytest.raises(UsageError, match="the scale is wrong"):
            opened(np.zeros(10, np.float32), np.float32([scale]))


def test_binding_a_float_removes_its_element():
    module = bind_params(scaled(), {"s": np.float32([2.5])})
    assert module["main"].attrs[ELEMENTS] == ()
    assert dlc.compile(module)(np.zeros(10, np.float32)).shape == (25,)


@pytest.mark.parametrize("row", [["float", "int8", 1.0], ["float", "float32", 1], ["cast", "bfloat16", 0]])
def test_refuses_malformed_floats(row):
    data = encode_signature(dlc.compile(scaled()).signature)
    data["exprs"].append(row)
    with pytest.raises(ArtifactError):
        decode_signature(data)


def changed(change):
    k = Var("k_0")
    data = encode_signature(
        Signature((Value("k", tensor_type((2,), "int64")),), (), (rows := Var("rows"),), const(0), 0,
                  elements=((k, 0, 1),), data_dims=((rows, k + 1, "wrong"),))
    )  # fmt: skip
    change(data)
    return data


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["elements"][0].__setitem__(2, 2),
        lambda data: data["elements"][0].__setitem__(1, 1),
        lambda data: data["elements"].clear(),
        lambda data: data["data_dims"].append(data["data_dims"][0]),
        lambda data: data["data_dims"][0].__setitem__(0, data["data_dims"][0][1]),
        lambda data: data["data_dims"][0].__setitem__(2, 5),
        lambda data: data["inputs"][0].update(dtype="string"),
    ],
)
def test_refuses_malformed_signatures(change):
    assert decode_signature(changed(lambda data: None)).data_dims
    with pytest.raises(ArtifactError):
        decode_signature(changed(change))


def test_branches_keep_arguments_whose_shapes_have_a_dim():
    n = Var("n")
    c, k = param("c", tensor_type((), "bool")), param("k", tensor_type((), "int64"))

    def branch(name: str, value: float) -> Function:
        own = param("own", tensor_type((n, 0), "int64"))
        unused = param("unused", tensor_type((3,)))
        return Function(name, (own, unused), std.full(shape=(n,), value=value))

    count: Node = std.dim_of(k, size=n)
    spare = std.full(shape=(3,), value=0.0)
    body = std.if_(c, count, spare, then_branch=branch("a", 1.0), else_branch=branch("b", 2.0))
    module = DeadCode().run(IRModule({"main": Function("main", (c, k), body)}), PassContext())
    assert len(module["main"].body.args) == 2
    exe = dlc.compile(module)
    assert exe(np.array(True), np.int64(2)).tolist() == [1, 1]
    assert exe(np.array(False), np.int64(3)).tolist() == [2, 2, 2]
