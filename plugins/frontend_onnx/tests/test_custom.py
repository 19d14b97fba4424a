"""Custom operators, passed to one compile or provided by a plugin."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx import InferenceSession, Result, host_function, operator
from dlc_frontend_onnx import plugin as own_plugin
from dlc_frontend_onnx.testing.compare import parse
from onnx import numpy_helper

import dlc_core as dlc
from dlc_core.config import config
from dlc_core.diag import DlcError, RuntimeFailure, UnsupportedError, UsageError
from dlc_core.hooks import hookimpl
from dlc_core.op import std
from dlc_core.plugin.registry import fresh_registry

DOMAIN = ', "com.acme" : 2'
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


@operator("com.acme::Swish")
def swish(c, x):
    return std.mul(x, std.sigmoid(std.mul(x, c.const(c.real("beta", 1.0), x.dtype))))


@operator("com.acme::MinMax")
def min_max(c, x, bias=None):
    low, high = std.reduce_min(x, axes=(-1,)), std.reduce_max(x, axes=(-1,))
    return [low, high if bias is None else std.add(high, bias)]


@host_function("com.acme::Median", results=lambda x, axis=-1: Result(x.shape[:-1], x.dtype))
def median(x, axis=-1):
    return np.median(x, axis).astype(x.dtype)


def swished(x, beta=1.0):
    return x / (1 + np.exp(-beta * x))


def model_of(text, inputs="float[n, 4] x", outputs="float[a, b] y"):
    return parse(f"g ({inputs}) => ({outputs}) {{ {text} }}", 20, DOMAIN)


def run(model, *importers, x=X, **options):
    return dlc.compile(model, "reference", importers=importers, **options)(x)


def test_an_operator_is_imported_as_core_ops():
    model = model_of("t = com.acme.Swish <beta = 2.0> (x) y = Relu(t)")
    np.testing.assert_allclose(run(model, swish), np.maximum(swished(X, 2), 0), rtol=1e-5)
    with pytest.raises(UnsupportedError, match=r"'Swish' of domain 'com\.acme' is not known"):
        dlc.load(model)


def test_several_outputs_and_omitted_inputs():
    model = model_of("a, b = com.acme.MinMax(x) y = Concat <axis = 0> (a, b)", outputs="float[m] y")
    np.testing.assert_array_equal(run(model, min_max), np.concatenate([X.min(-1), X.max(-1)]))
    model = model_of(
        "one = Constant <value_float = 1.0> () a, y = com.acme.MinMax(x, one)", outputs="float[n] y"
    )
    np.testing.assert_array_equal(run(model, min_max), X.max(-1) + 1)


def test_a_host_function_runs_between_native_parts():
    model = model_of("t = Mul(x, x) m = com.acme.Median(t) y = Neg(m)", outputs="float[n] y")
    exe = dlc.compile(model, importers=[median])
    for rows in (X, X[:2]):
        np.testing.assert_allclose(exe(rows), -np.median(rows * rows, -1), rtol=1e-6)
    assert [entry["op"] for entry in exe.about["host"]] == ["onnx_host"]


def test_a_host_function_takes_attributes_of_every_kind():
    seen = {}

    @host_function("com.acme::Keep")
    def keep(x, y=None, **attrs):
        seen.update(attrs, second=y)
        return x

    model = model_of('y = com.acme.Keep <i = 3, f = 0.5, s = "text", l = [1, 2], u = ["a", "b"]> (x)')
    table = numpy_helper.from_array(np.arange(3, dtype=np.int64))
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("t", table))
    np.testing.assert_array_equal(run(model, keep), X)
    np.testing.assert_array_equal(seen.pop("t"), np.arange(3))
    assert seen == {"i": 3, "f": 0.5, "s": "text", "l": [1, 2], "u": ["a", "b"], "second": None}


def test_a_host_function_has_several_outputs():
    @host_function(
        "com.acme::Sizes", results=lambda x: [Result((), "int64"), Result((x.shape[0], 1), x.dtype)]
    )
    def sizes(x):
        return np.int64(x.size), x.max(-1, keepdims=True)

    model = model_of("count, m = com.acme.Sizes(x) y = Mul(m, m)", outputs="int64 count, float[k, 1] y")
    exe = dlc.compile(model, importers=[sizes])
    for x in (X, X[1:2]):
        count, found = exe(x)
        assert count == x.size
        np.testing.assert_allclose(found, x.max(-1, keepdims=True) ** 2, rtol=1e-6)


def test_versions_choose_among_importers():
    @operator("com.acme::Shift@1")
    def one(c, x):
        return std.add(x, c.const(1, x.dtype))

    @operator("com.acme::Shift@2")
    def two(c, x):
        return std.add(x, c.const(2, x.dtype))

    @operator("com.acme::Shift@3")
    def three(c, x):
        return std.add(x, c.const(3, x.dtype))

    model = model_of("y = com.acme.Shift(x)")
    np.testing.assert_array_equal(run(model, three, one, two), X + 2)
    with pytest.raises(UnsupportedError, match="supports versions from 3 on, not 2"):
        run(model, three)


def test_importers_take_precedence_over_converters():
    @operator("Relu")
    def leaky(c, x):
        return std.neg(x)

    np.testing.assert_array_equal(run(model_of("y = Relu(x)"), leaky), -X)


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [
        ("y = com.acme.Swish <gamma = 1> (x)", swish, "'gamma'"),
        ("y = com.acme.Swish <beta = [1]> (x)", swish, "'beta' must be a number"),
        ("y = com.acme.Swish (x, x)", swish, "takes 1 inputs, not 2"),
        ("y = com.acme.Median <wrong = 1> (x)", median, "unexpected keyword argument 'wrong'"),
        ("y = com.acme.MinMax (x, x, x)", min_max, "takes 1 to 2 inputs"),
    ],
)
def test_errors_name_the_node(text, given, message):
    model = model_of(text)
    model.graph.node[0].name = "mine"
    with pytest.raises(DlcError, match=message) as caught:
        run(model, given)
    assert any(span.name == "mine" for span in caught.value.spans)


def test_a_failing_host_function_names_the_node():
    @host_function("com.acme::Fail")
    def fail(x):
        raise ValueError("no luck")

    model = model_of("y = com.acme.Fail(x)")
    model.graph.node[0].name = "mine"
    with pytest.raises(RuntimeFailure, match=r"com\.acme::Fail failed") as caught:
        run(model, fail)
    assert "no luck" in str(caught.value)
    assert "'mine'" in str(caught.value)


def test_results_of_another_type_than_declared_are_errors():
    @host_function("com.acme::Odd")
    def odd(x):
        return x[:, :1]

    with pytest.raises(DlcError, match=r"shape \(3, 1\)"):
        run(model_of("y = com.acme.Odd(x)"), odd)


def test_invalid_names():
    with pytest.raises(UsageError, match="does not name an operator"):
        operator("com.acme::")(lambda c: None)
    with pytest.raises(UsageError, match="does not name an operator"):
        operator("com.acme::A@new")(lambda c: None)
    with pytest.raises(UsageError, match="two importers"):
        dlc.load(model_of("y = com.acme.Swish(x)"), importers=[swish, swish])
    with pytest.raises(UsageError, match="is no importer"):
        dlc.load(model_of("y = com.acme.Swish(x)"), importers=[print])


class Acme:
    """A plugin with importers."""

    DLC_API = "0.1"

    @hookimpl
    def dlc_importers(self):
        return [swish, median]


def test_a_plugin_provides_importers(tmp_path):
    import dlc_backend_llvm.plugin as llvm

    model = model_of("t = com.acme.Swish(x) m = com.acme.Median(t) y = Neg(m)", outputs="float[n] y")
    expected = -np.median(swished(X), -1)
    with fresh_registry({"onnx": own_plugin, "llvm": llvm, "acme": Acme()}):
        exe = dlc.compile(model)
        np.testing.assert_allclose(exe(X), expected, rtol=1e-5)
        exe.save(tmp_path / "m.dlc")
        np.testing.assert_allclose(dlc.open(tmp_path / "m.dlc")(X), expected, rtol=1e-5)
        session = InferenceSession(model.SerializeToString())
        np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, rtol=1e-5)
    gone = pytest.raises(UnsupportedError, match=r"no host function 'com\.acme::Median'")
    with fresh_registry({"onnx": own_plugin, "llvm": llvm}), gone:
        dlc.open(tmp_path / "m.dlc")(X)


def test_sessions_accept_importers():
    session = InferenceSession(model_of("y = com.acme.Swish(x)").SerializeToString(), importers=[swish])
    np.testing.assert_allclose(session.run(None, {"x": X})[0], swished(X), rtol=1e-5)


def test_models_with_importers_are_not_cached(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of("y = com.acme.Swish(x)").SerializeToString())
    with config.override(cache=True, cache_dir=tmp_path / "cache"):
        assert dlc.compile(path, "reference", importers=[swish]).report["cache"] == "off"
        with pytest.raises(UnsupportedError):
            dlc.compile(path, "reference")


def test_other_frontends_refuse_importers():
    plain = SimpleNamespace(name="plain", suffixes=(".plain",), load=lambda model, context: None)
    given = SimpleNamespace(DLC_API="0.1", dlc_frontends=hookimpl(lambda: [plain]))
    with fresh_registry({"plain": given}), pytest.raises(UsageError, match="takes no 'importers'"):
        dlc.load("x.plain", importers=[swish])


def test_listing_ops_does_not_import_onnx():
    import subprocess

    code = "import sys, dlc_core as d; d.ops(); sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
