"""Functions of `dlc_core.topi`: names, defaults, numbers, symbolic dims, plugins, refusals."""

from __future__ import annotations

import inspect
import pydoc

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import te, topi
from dlc_core.diag import DlcError, TypeInferenceError, UnsupportedError
from dlc_core.hooks import hookimpl
from dlc_core.ir.expr import maximum
from dlc_core.op import std
from dlc_core.op.declare import op
from dlc_core.op.infer import same_type
from dlc_core.op.lower import elementwise
from dlc_core.plugin.registry import fresh_registry
from dlc_core.script import parse, to_script
from tests.topi.evaluation import floats, value


def test_inputs_and_attributes_are_parameters():
    assert str(inspect.signature(topi.softmax)) == "(x, axis=-1)"
    assert str(inspect.signature(topi.concat)) == "(*xs, axis)"
    assert str(inspect.signature(topi.arange)) == "(start=0, *, stop, step=1, dtype='int64')"
    assert list(inspect.signature(topi.conv).parameters)[:4] == ["x", "w", "bias", "strides"]
    assert topi.relu is topi.relu


def test_help_has_the_declaration():
    text = pydoc.render_doc(topi.conv, renderer=pydoc.plaintext)
    assert "bias (optional)" in text
    assert "groups: int = 1: number of independent blocks" in text
    assert "one of 'NCX', 'NXC'" in text
    assert "float32" in text
    assert "The op is 'reduce_sum'." in topi.sum.__doc__
    whole = pydoc.render_doc(topi, renderer=pydoc.plaintext)
    assert "leaky_relu(x, alpha=0.01)" in whole
    assert "conv2d" in pydoc.render_doc(topi.nn, renderer=pydoc.plaintext)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda a, b: topi.subtract(a, b), lambda a, b: a - b),
        (lambda a, b: topi.power(topi.abs(a), 2.0), lambda a, b: np.abs(a) ** 2),
        (lambda a, b: topi.sum(a, axis=1, keepdims=True), lambda a, b: a.sum(1, keepdims=True)),
        (lambda a, b: topi.reduce.max(a, (0, 1)), lambda a, b: a.max((0, 1))),
        (lambda a, b: topi.argmax(a, axis=1), lambda a, b: a.argmax(1)),
        (lambda a, b: topi.expand_dims(a, axis=0), lambda a, b: a[None]),
        (lambda a, b: topi.concatenate([a, b], axis=0), lambda a, b: np.concatenate([a, b])),
        (lambda a, b: topi.concatenate((a, b), axis=-1), lambda a, b: np.concatenate([a, b], -1)),
        (lambda a, b: topi.stack([a, b], axis=1), lambda a, b: np.stack([a, b], 1)),
        (lambda a, b: topi.strided_slice(a, (1, 0), (3, 2)), lambda a, b: a[1:3, 0:2]),
        (lambda a, b: topi.reshape(a, (2, -1)), lambda a, b: a.reshape(2, -1)),
        (lambda a, b: topi.transpose(a, (1, 0)), lambda a, b: a.T),
        (lambda a, b: topi.where(topi.greater(a, b), a, 0.0), lambda a, b: np.where(a > b, a, 0)),
        (lambda a, b: topi.clip(a, -0.5, 0.5), lambda a, b: a.clip(-0.5, 0.5)),
        (lambda a, b: topi.cast(a, "int32"), lambda a, b: a.astype("int32")),
        (lambda a, b: topi.add(1, topi.mul(a, 2)), lambda a, b: 1 + a * 2),
        (lambda a, b: topi.full((2, 3), 4.0, "float32"), lambda a, b: np.full((2, 3), 4.0)),
        (lambda a, b: topi.identity(a), lambda a, b: a),
        (lambda a, b: topi.split(a, (1, 3))[1], lambda a, b: a[1:]),
    ],
)
def test_usual_names_and_calls(function, expected):
    a, b = floats(4, 3), floats(4, 3)
    inputs = [te.placeholder(a.shape, name="a"), te.placeholder(b.shape, name="b")]
    exe = dlc.build([inputs, [function(*inputs)]])
    np.testing.assert_allclose(exe(a, b), expected(a, b), rtol=1e-5)


def test_numbers_take_the_dtype_of_the_tensors():
    x = te.placeholder((2,), "int8")
    assert topi.add(x, 1).dtype.name == "int8"
    flag = te.placeholder((2,), "bool")
    assert topi.where(flag, 1.0, 0.0).dtype.name == "float32"
    assert topi.where(flag, te.placeholder((2,), "float64"), 0).dtype.name == "float64"


def test_results_are_new_tensors():
    x = te.placeholder((2, 3))
    same = topi.identity(x)
    assert same.op is not None
    assert same.buffer is not x.buffer
    assert value(lambda x: topi.identity(x), floats(2, 3)).shape == (2, 3)


def test_results_can_be_scheduled():
    a, b = te.placeholder((16, 32), name="a"), te.placeholder((32, 8), name="b")
    c = topi.matmul(a, b)
    d = topi.nn.relu(c)
    s = dlc.create_schedule(d)
    rows, _ = s[d].split(d.op.axis[0], factor=4)
    s[c].compute_at(s[d], rows)
    s[d].parallel(rows)
    x, y = floats(16, 32), floats(32, 8)
    np.testing.assert_allclose(dlc.build(s, [a, b, d])(x, y), np.maximum(x @ y, 0), rtol=1e-4, atol=1e-5)


def test_calls_check_what_inference_assumes():
    n = te.var("n")
    x, y = te.placeholder((n, 2), name="x"), te.placeholder((4, 2), name="y")
    total = topi.exp(topi.add(x, y))
    func = te.create_prim_func([x, y, total])
    assert parse(*to_script(func)) is not None
    assert func.attrs["conditions"]
    ones = np.ones((4, 2), "float32")
    for exe in (dlc.build([x, y, total]), dlc.build(dlc.create_schedule(total), [x, y, total])):
        np.testing.assert_allclose(exe(ones[:1], ones), np.exp(2 * ones), rtol=1e-6)
        with pytest.raises(DlcError, match="1 or 4 is needed"):
            exe(ones[:3], ones)


def test_symbolic_dims():
    n, m = te.var("n"), te.var("m")
    x, w = te.placeholder((n, m), name="x"), te.placeholder((5, m), name="w")
    exe = dlc.build([x, w, topi.nn.softmax(topi.nn.dense(x, w))])
    for rows, inner in ((1, 3), (4, 7)):
        a, b = floats(rows, inner), floats(5, inner)
        scores = np.exp(a @ b.T)
        np.testing.assert_allclose(exe(a, b), scores / scores.sum(1, keepdims=True), rtol=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: topi.relu([1.0]), "relu: argument 'x' is a list"),
        (lambda x: topi.add(x, np.ones(3)), "add: argument 'b' is a ndarray.*\n.*te.placeholder"),
        (lambda x: topi.add(x, std.relu), "argument 'b' is a _Build"),
        (lambda x: topi.add(x), "add: missing a required argument: 'b'"),
        (lambda x: topi.softmax(x, axes=1), "softmax: unknown argument 'axes'(.|\n)*did you mean 'axis'"),
        (lambda x: topi.softmax(x, axis=5), "softmax: axis 5 is out of range"),
        (lambda x: topi.softmax(x, axis="a"), "softmax: attribute 'axis' must be int"),
        (lambda x: topi.add(x, te.placeholder((4,))), "add: shapes .* do not broadcast"),
        (lambda x: topi.add(x, te.placeholder((3,), "int32")), "add: inputs have dtypes"),
        (lambda x: topi.matmul(x, x), "matmul: "),
        (lambda x: topi.nn.conv2d(x, x), "conv2d: data is of 2 dims"),
        (lambda x: topi.nn.pool1d(te.placeholder((1, 2, 8)), 2, pool_type="sum"), "pool_type 'sum'"),
        (lambda x: topi.nn.pool1d(te.placeholder((1, 2, 8)), (2, 2)), "pool1d: kernel has 2 numbers for 1"),
        (
            lambda x: topi.nn.conv1d(te.placeholder((1, 2, 8)), te.placeholder((1, 2, 3)), padding="FULL"),
            "FULL",
        ),
        (
            lambda x: topi.nn.conv1d(te.placeholder((1, 2, 8)), te.placeholder((1, 2, 3)), data_layout="CNW"),
            "NCW",
        ),
        (lambda x: topi.nn.bias_add(x, x), "bias_add|2 dims along axis"),
    ],
)
def test_refusals_name_the_function_and_the_argument(call, message):
    with pytest.raises(TypeInferenceError, match=message):
        call(te.placeholder((2, 3), name="x"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: topi.sofmax, "similar: softmax"),
        (lambda: topi.nn.dropout, "dir\\(topi.nn\\)"),
        (lambda: topi.reduce.median, "it has all, any"),
        (lambda: topi.nonzero, "its size depends on data"),
        (lambda: topi.random, "runs on the host"),
    ],
)
def test_missing_functions_say_why(call, message):
    with pytest.raises(AttributeError, match=message):
        call()


def squared_relu():
    return op(
        "squared_relu",
        "max(x, 0) squared",
        ["x"],
        kind="elementwise",
        infer=same_type(("float32",)),
        dtypes=("float32",),
        reference=lambda x: np.maximum(x, 0) ** 2,
        lower=elementwise("squared_relu", lambda x: maximum(x, 0.0) * maximum(x, 0.0)),
    )


def test_ops_of_plugins_have_functions():
    class Plugin:
        @hookimpl
        def dlc_ops(self):
            twice = op(
                "twice", "relu of relu", ["x"], kind="elementwise", compose=lambda x: std.relu(std.relu(x))
            )
            host = op(
                "on_host",
                "random",
                ["x"],
                kind="opaque",
                compose=lambda x: std.texts(values=("a",), shape=(1,)),
            )
            return [squared_relu(), twice, host]

    x = floats(3, 4)
    with fresh_registry({"mine": Plugin()}):
        assert {"squared_relu", "twice"} <= set(dir(topi))
        np.testing.assert_allclose(value(lambda a: topi.squared_relu(a), x), np.maximum(x, 0) ** 2, rtol=1e-6)
        np.testing.assert_allclose(value(lambda a: topi.twice(a), x), np.maximum(x, 0), rtol=1e-6)
        with pytest.raises(UnsupportedError, match=r"on_host.*\n.*op texts"):
            topi.on_host(te.placeholder((2,)))
    assert not hasattr(topi, "squared_relu")
