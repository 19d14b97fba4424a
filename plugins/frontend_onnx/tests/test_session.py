"""Sessions with the interface of onnxruntime: results, names and types, options, bindings."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from threading import Event

import dlc_frontend_onnx as ours
import numpy as np
import pytest
from dlc_frontend_onnx.reader import read_model
from dlc_frontend_onnx.sessions.naming import type_text
from dlc_frontend_onnx.sessions.options import IgnoredOptionWarning, compile_options
from dlc_frontend_onnx.testing.compare import parse
from onnx import TensorProto, helper, numpy_helper

from dlc_core.diag import ModelError, UnsupportedError, UsageError

needs_peer = pytest.mark.skipif(find_spec("onnxruntime") is None, reason="onnxruntime is not installed")

TEXT = """
g (float[batch, 3] x, int64[batch] k) => (float[batch, 4] scores, int64[batch] next)
<float[3,4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2}>
{
    m = MatMul(x, w)
    scores = Relu(m)
    next = Add(k, k)
}
"""
W = np.array([[1, 2, 3, 4], [5, 6, 7, 8], [9, 0, 1, 2]], np.float32)


@pytest.fixture(scope="module")
def model():
    made = parse(TEXT)
    made.producer_name, made.domain, made.model_version = "tests", "org.example", 7
    made.doc_string, made.graph.doc_string = "a model", "a graph"
    helper.set_model_props(made, {"author": "nobody"})
    return made


@pytest.fixture(scope="module")
def session(model):
    return ours.InferenceSession(model.SerializeToString(), providers=["reference"])


def feeds(batch=2):
    rng = np.random.default_rng(batch)
    return {"x": rng.normal(size=(batch, 3)).astype(np.float32), "k": np.arange(batch)}


def expected(given):
    return [np.maximum(given["x"] @ W, 0), 2 * given["k"]]


@pytest.mark.parametrize("batch", [1, 5])
def test_results_are_those_of_numpy(session, batch):
    given = feeds(batch)
    scores, following = expected(given)
    found = session.run(None, given)
    assert isinstance(found, list)
    np.testing.assert_allclose(found[0], scores, rtol=1e-5)
    np.testing.assert_array_equal(found[1], following)
    (alone,) = session.run(["next"], given)
    np.testing.assert_array_equal(alone, following)
    b, a = session.run(["next", "scores"], given, ours.RunOptions())
    np.testing.assert_array_equal(b, following)
    np.testing.assert_allclose(a, scores, rtol=1e-5)


def test_a_path_is_read_and_the_best_target_is_taken(model, tmp_path, monkeypatch):
    monkeypatch.setenv("DLC_CACHE", "1")
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    for source in (path, str(path)):
        session = ours.InferenceSession(source)
        assert session.get_providers() == ["CPUExecutionProvider"]
        given = feeds()
        np.testing.assert_allclose(session.run(None, given)[0], expected(given)[0], rtol=1e-5)
    assert session.model.whole.report["cache"] == "hit"


def test_inputs_outputs_and_metadata(session):
    x, k = session.get_inputs()
    assert (x.name, x.shape, x.type) == ("x", ["batch", 3], "tensor(float)")
    assert (k.name, k.shape, k.type) == ("k", ["batch"], "tensor(int64)")
    assert [(o.name, o.shape) for o in session.get_outputs()] == [
        ("scores", ["batch", 4]),
        ("next", ["batch"]),
    ]
    meta = session.get_modelmeta()
    assert (meta.producer_name, meta.graph_name, meta.domain, meta.version) == (
        "tests",
        "g",
        "org.example",
        7,
    )
    assert (meta.description, meta.graph_description) == ("a model", "a graph")
    assert meta.custom_metadata_map == {"author": "nobody"}


def test_outputs_without_a_type_have_the_inferred_one():
    made = parse("g (float16[?, 2] x) => (float y) { y = Concat <axis = 1> (x, x) }")
    made.graph.output[0].ClearField("type")
    session = ours.InferenceSession(made, providers=["reference"])
    assert session.get_inputs()[0].shape == [None, 2]
    (y,) = session.get_outputs()
    assert y.type == "tensor(float16)"
    assert y.shape[1:] == [4]


def test_type_names_are_those_of_onnxruntime():
    made = parse(
        "g (double[2] a, bool[2] b, bfloat16[2] c, seq(float[2]) d, optional(int8[2]) e) => (double[2] f)"
        "{ f = Relu(a) }"
    )
    words = [type_text(info.type) for info in read_model(made).graph.inputs]
    assert words == [
        "tensor(double)",
        "tensor(bool)",
        "tensor(bfloat16)",
        "seq(tensor(float))",
        "optional(tensor(int8))",
    ]


def test_invalid_calls_have_hints(session):
    given = feeds()
    with pytest.raises(UsageError, match="unknown output 'y'") as caught:
        session.run(["y"], given)
    assert "scores, next" in str(caught.value)
    with pytest.raises(UsageError, match="'k' is missing"):
        session.run(None, {"x": given["x"]})
    with pytest.raises(UsageError, match="unknown input 'z'"):
        session.run(None, {**given, "z": given["x"]})
    with pytest.raises(UsageError, match="'x' is float64, float32 is needed"):
        session.run(None, {**given, "x": given["x"].astype(float)})
    with pytest.raises(ModelError):
        ours.InferenceSession(b"no model")
    with pytest.raises(UnsupportedError, match="acme"):
        ours.InferenceSession(
            parse("g (float[n] x) => (float[n] y) { y = acme.Gelu(x) }", domains=', "acme" : 1')
        )


def test_an_initializer_among_the_inputs_is_overridable():
    made = parse("g (float[2] x, float[2] w) => (float[2] y) { y = Mul(x, w) }")
    made.graph.initializer.append(numpy_helper.from_array(np.array([2, 3], np.float32), "w"))
    session = ours.InferenceSession(made, providers=["reference"])
    assert [arg.name for arg in session.get_inputs()] == ["x"]
    assert [arg.name for arg in session.get_overridable_initializers()] == ["w"]
    x = np.array([1, 10], np.float32)
    assert session.run(None, {"x": x})[0].tolist() == [2, 30]
    assert session.run(None, {"x": x, "w": x})[0].tolist() == [1, 100]
    made.ir_version = 3
    assert ours.InferenceSession(made, providers=["reference"]).get_overridable_initializers() == []


def test_options_have_an_effect(model):
    options = ours.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ours.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_free_dimension_override_by_name("batch", 2)
    assert compile_options(options) == {"num_threads": 1, "opt_level": 0, "shapes": {"batch": 2}}
    session = ours.InferenceSession(model, options, ["reference"])
    assert session.get_session_options() is options
    assert session.model.whole.num_threads == 1
    assert session.model.whole.inputs[0].shape == (2, 3)
    np.testing.assert_allclose(session.run(None, feeds())[0], expected(feeds())[0], rtol=1e-5)
    for level, number in (("ORT_ENABLE_BASIC", 1), ("ORT_ENABLE_EXTENDED", 2), ("ORT_ENABLE_ALL", 3)):
        options.graph_optimization_level = ours.GraphOptimizationLevel[level]
        assert compile_options(options)["opt_level"] == number


def test_ignored_options_are_named_once(model):
    options = ours.SessionOptions()
    options.enable_mem_pattern = False
    options.logid = "a"
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    with pytest.warns(IgnoredOptionWarning) as caught:
        ours.InferenceSession(model, options, ["reference"])
    assert [str(w.message) for w in caught] == [
        "ignored options of the session: enable_mem_pattern, logid, session.intra_op.allow_spinning"
    ]
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_wrong_options_are_errors():
    options = ours.SessionOptions()
    with pytest.raises(UsageError, match="no option 'intra_op_threads'") as caught:
        options.intra_op_threads = 1
    assert "did you mean 'intra_op_num_threads'" in str(caught.value)
    options.intra_op_num_threads = -1
    with pytest.raises(UsageError, match="intra_op_num_threads is -1"):
        compile_options(options)
    options.intra_op_num_threads = 0
    options.graph_optimization_level = 7
    with pytest.raises(UsageError, match="graph_optimization_level is 7"):
        compile_options(options)


def test_providers(model):
    with pytest.warns(IgnoredOptionWarning, match="cannot be used here: AcmeExecutionProvider"):
        session = ours.InferenceSession(model, providers=["AcmeExecutionProvider", "reference"])
    assert session.get_providers() == ["reference"]
    with pytest.raises(UsageError, match="none of the providers can be used here: Acme"):
        ours.InferenceSession(model, providers=["Acme"])
    with pytest.raises(UsageError, match="providers is a string"):
        ours.InferenceSession(model, providers="reference")
    with pytest.warns(IgnoredOptionWarning, match="options of the provider: arena"):
        ours.InferenceSession(model, providers=[("reference", {"arena": 1})])
    with pytest.raises(UsageError, match="2 provider_options for 1 providers"):
        ours.InferenceSession(model, providers=["reference"], provider_options=[{}, {}])
    assert {"CPUExecutionProvider", "reference"} <= set(ours.get_available_providers())
    assert ours.get_device() == "CPU"


@pytest.mark.parametrize("provider", ["reference", "CPUExecutionProvider"])
def test_a_binding_reads_and_writes_fixed_memory(model, provider):
    session = ours.InferenceSession(model, providers=[provider])
    given = feeds(3)
    scores = np.zeros((3, 4), np.float32)
    binding = session.io_binding()
    x = given["x"]
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_cpu_input("k", given["k"])
    binding.bind_output("next")
    binding.bind_output("scores", "cpu", 0, np.float32, scores.shape, scores.ctypes.data)
    with pytest.raises(UsageError, match="no results"):
        binding.get_outputs()
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(scores, expected(given)[0], rtol=1e-5)
    following, again = binding.get_outputs()
    np.testing.assert_array_equal(following.numpy(), expected(given)[1])
    assert again.data_ptr() == scores.ctypes.data
    x[...] = -x
    given["k"] += 1
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(scores, expected(given)[0], rtol=1e-5)
    np.testing.assert_array_equal(following.numpy(), expected(given)[1])
    copies = binding.copy_outputs_to_cpu()
    assert not np.shares_memory(copies[1], scores)
    np.testing.assert_array_equal(copies[1], scores)


def test_a_binding_follows_new_shapes_and_values(session):
    binding = session.io_binding()
    binding.bind_output("scores")
    for batch in (2, 4):
        given = feeds(batch)
        for name, array in given.items():
            binding.bind_ortvalue_input(name, ours.OrtValue.ortvalue_from_numpy(array))
        session.run_with_iobinding(binding)
        (scores,) = binding.copy_outputs_to_cpu()
        np.testing.assert_allclose(scores, expected(given)[0], rtol=1e-5)
    target = ours.OrtValue.ortvalue_from_shape_and_type([4, 4], np.float32)
    binding.bind_ortvalue_output("scores", target)
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(target.numpy(), expected(given)[0], rtol=1e-5)


def test_a_binding_reads_data_dependent_sizes_at_each_call():
    made = parse("g (float[n] x, int64[k] shape) => (float[a, b] y) { y = Reshape(x, shape) }")
    session = ours.InferenceSession(made, providers=["reference"])
    binding = session.io_binding()
    shape = np.array([2, 3])
    binding.bind_cpu_input("x", np.arange(6, dtype=np.float32))
    binding.bind_cpu_input("shape", shape)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    shape[:] = 3, 2
    session.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0].tolist() == [[0, 1], [2, 3], [4, 5]]


def test_wrong_bindings(session):
    binding = session.io_binding()
    with pytest.raises(UsageError, match="unknown input 'y'"):
        binding.bind_cpu_input("y", np.zeros(1))
    with pytest.raises(UsageError, match="unknown output 'x'"):
        binding.bind_output("x")
    with pytest.raises(UsageError, match="a value on 'cuda'"):
        binding.bind_output("scores", "cuda")
    with pytest.raises(UsageError, match="without element_type and shape"):
        binding.bind_output("scores", buffer_ptr=64)
    binding.bind_cpu_input("x", feeds()["x"])
    with pytest.raises(UsageError, match="no output is bound"):
        session.run_with_iobinding(binding)
    binding.bind_output("scores")
    with pytest.raises(UsageError, match="input 'k' is not bound"):
        session.run_with_iobinding(binding)
    binding.bind_cpu_input("k", np.arange(3))
    with pytest.raises(UsageError, match="'k' has shape"):
        session.run_with_iobinding(binding)


def test_values():
    array = np.array([[1, 2]], np.float32)
    value = ours.OrtValue.ortvalue_from_numpy(array)
    assert (value.shape(), value.data_type(), value.device_name()) == ([1, 2], "tensor(float)", "cpu")
    assert value.element_type() == TensorProto.FLOAT
    assert value.data_ptr() == array.ctypes.data
    assert np.shares_memory(np.asarray(value), array)
    value.update_inplace(2 * array)
    assert array.tolist() == [[2, 4]]
    with pytest.raises(UsageError, match="the value is float64"):
        value.update_inplace(array.astype(float))
    half = ours.OrtValue.ortvalue_from_shape_and_type([2], TensorProto.BFLOAT16)
    assert half.data_type() == "tensor(bfloat16)"
    with pytest.raises(UsageError, match="not an element type"):
        ours.OrtValue.ortvalue_from_shape_and_type([2], "quadruple")


def test_values_are_inputs_and_outputs(session):
    given = feeds()
    values = {name: ours.OrtValue.ortvalue_from_numpy(array) for name, array in given.items()}
    found = session.run_with_ort_values(["next"], values)
    np.testing.assert_array_equal(found[0].numpy(), expected(given)[1])


@needs_peer
def test_the_same_as_onnxruntime(model):
    import onnxruntime

    data = model.SerializeToString()
    theirs = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    session = ours.InferenceSession(data)
    given = feeds(4)
    for a, b in zip(session.run(None, given), theirs.run(None, given), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5)
    for own, other in (
        (session.get_inputs(), theirs.get_inputs()),
        (session.get_outputs(), theirs.get_outputs()),
    ):
        assert [(a.name, a.shape, a.type) for a in own] == [(a.name, a.shape, a.type) for a in other]
    own_meta, their_meta = session.get_modelmeta(), theirs.get_modelmeta()
    for name in ("producer_name", "graph_name", "domain", "description", "graph_description", "version"):
        assert getattr(own_meta, name) == getattr(their_meta, name)
    assert own_meta.custom_metadata_map == their_meta.custom_metadata_map


@needs_peer
def test_options_of_onnxruntime_are_accepted(model):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compile_options(options) == {"num_threads": None, "opt_level": 3, "shapes": {}}
    options.intra_op_num_threads = 2
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    with pytest.warns(IgnoredOptionWarning, match="session: execution_mode$"):
        found = compile_options(options)
    assert found == {"num_threads": 2, "opt_level": 1, "shapes": {}}


def test_run_async(session):
    done, told = Event(), []

    def callback(outputs, data, error):
        told.append((outputs, data, error))
        done.set()

    session.run_async(None, feeds(), callback, "mine")
    assert done.wait(60)
    done.clear()
    session.run_async(None, {}, callback, None)
    assert done.wait(60)
    (outputs, data, error), (nothing, _, problem) = told
    np.testing.assert_allclose(outputs[0], session.run(None, feeds())[0])
    assert (data, error, nothing) == ("mine", "", [])
    assert "is missing" in problem


def test_providers_may_be_set_later(model):
    session = ours.InferenceSession(model.SerializeToString())
    wanted = session.run(None, feeds())[0]
    session.set_providers(["reference"])
    assert session.get_providers() == ["reference"]
    np.testing.assert_allclose(session.run(None, feeds())[0], wanted, rtol=1e-5)


def test_arguments_without_effect_are_accepted_or_warned_about():
    options = ours.SessionOptions()
    options.execution_mode = ours.ExecutionMode.ORT_SEQUENTIAL
    with pytest.raises(UsageError, match="importers"):
        options.register_custom_ops_library("ops.so")
    run_options = ours.RunOptions()
    run_options.terminate = False
    run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    assert run_options.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"
    with pytest.raises(UsageError, match="no entry"):
        run_options.get_run_config_entry("other")


CACHED = """
g (float[1, 2, p, 4] past, float[1, 2, n, 4] new) => (float[1, 2, q, 4] present, float[1, 2, q, 1] y) {
    present = Concat<axis = 2>(past, new)
    y = ReduceMax<keepdims = 1>(present, axes)
}
"""


def cached():
    made = parse(CACHED)
    made.graph.initializer.append(numpy_helper.from_array(np.array([3]), "axes"))
    return made


def test_a_binding_updates_caches_in_place():
    session = ours.InferenceSession(cached(), providers=["llvm"], donate={"past": 8})
    memory, wanted = np.zeros((1, 2, 8, 4), np.float32), np.zeros((1, 2, 0, 4), np.float32)
    past = ours.OrtValue.ortvalue_from_numpy(memory[:, :, :0])
    binding = session.io_binding()
    for step in range(3):
        new = np.random.default_rng(step).standard_normal((1, 2, 2, 4)).astype(np.float32)
        wanted = np.concatenate([wanted, new], 2)
        binding.bind_ortvalue_input("past", past)
        binding.bind_cpu_input("new", new)
        binding.bind_output("present")
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        past, y = binding.get_outputs()
        assert past.data_ptr() == memory.ctypes.data
        np.testing.assert_array_equal(past.numpy(), wanted)
        np.testing.assert_array_equal(y.numpy(), wanted.max(3, keepdims=True))
    np.testing.assert_array_equal(memory[:, :, :6], wanted)
    binding.bind_ortvalue_output("present", ours.OrtValue(np.zeros((1, 2, 8, 4), np.float32)))
    binding.bind_ortvalue_input("past", past)
    with pytest.raises(UsageError, match="must be in the memory of input 'past', which it extends"):
        session.run_with_iobinding(binding)


def test_results_of_a_session_are_donated_caches():
    session = ours.InferenceSession(cached(), providers=["llvm"], donate={"past": 8})
    past = np.ones((1, 2, 1, 4), np.float32)
    new = np.full((1, 2, 1, 4), 2, np.float32)
    first = session.run(["present"], {"past": past, "new": new})[0]
    second = session.run(["present"], {"past": first, "new": new})[0]
    assert np.shares_memory(first, second)
    assert not np.shares_memory(past, first)
    assert second[0, 0, :, 0].tolist() == [1, 2, 2]


@pytest.mark.parametrize("provider", ["reference", "llvm"])
def test_sizes_that_contradict_the_model_are_refused(provider):
    text = TEXT.replace("[batch, 3] x", "[n, columns] x").replace("[batch, 4]", "[n, 4]")
    made = ours.InferenceSession(parse(text).SerializeToString(), providers=[provider])
    k = np.arange(2)
    assert made.run(None, {"x": np.ones((2, 3), np.float32), "k": k})[0].shape == (2, 4)
    for size in (2, 6):
        with pytest.raises(UsageError, match=rf"\(MatMul\): dim 1 \(columns\) of input 'x' is {size}, 3 is"):
            made.run(None, {"x": np.ones((2, size), np.float32), "k": k})
