"""Import of whole graphs: names, constants, symbolic dims, locations, errors."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx.importer import load
from dlc_frontend_onnx.reader import read_model
from dlc_frontend_onnx.symbols import WrongShapeWarning
from dlc_frontend_onnx.testing.build import model_of, node, tensor, value
from dlc_frontend_onnx.testing.compare import main_of, parse, run
from onnx import TensorProto, helper

import dlc_core
from dlc_core.diag import DlcError, ModelError, UnsupportedError, UsageError
from dlc_core.graph.node import CONST, post_order
from dlc_core.ir.expr import Var


def ops_of(function):
    return [n.op.name for n in post_order(function.body)]


def test_inputs_and_outputs_keep_their_names():
    main = main_of(parse("g (float[2] a, float[2] b) => (float[2] sum, float[2] b) { sum = Add(a, b) }"))
    assert [p.attrs["name"] for p in main.params] == ["a", "b"]
    assert main.attrs["inputs"] == ("a", "b")
    assert main.attrs["outputs"] == ("sum", "b")
    assert main.results[1] is main.params[1]


def test_the_frontend_is_found_by_suffix_bytes_and_message(tmp_path):
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    for source in (path, str(path), model, model.SerializeToString()):
        assert ops_of(dlc_core.load(source)["main"]) == ["param", "relu"]


def test_initializers_are_constants_by_reference():
    weights = np.arange(400, dtype=np.float32)
    model = model_of(node("Add", ["x", "w"], ["y"]), initializer=[tensor("w", weights)])
    model.graph.input[0].CopyFrom(value("x", (400,)))
    model.graph.output[0].CopyFrom(value("y", (400,)))
    read = read_model(model)
    (constant,) = [n for n in post_order(load(read)["main"].body) if n.op is CONST]
    assert constant.attrs["value"].data is read.graph.initializers["w"].to_numpy()


def test_initializers_among_the_inputs_are_not_inputs():
    weights = tensor("w", np.ones(4, "f4"))
    model = model_of(node("Add", ["x", "w"], ["y"]), inputs="x w", initializer=[weights])
    assert main_of(model).attrs["inputs"] == ("x",)


def test_dead_nodes_are_left_out():
    main = main_of(parse("g (float[2] x) => (float[2] y) { z = NoSuchOp(x)  y = Relu(x) }"))
    assert ops_of(main) == ["param", "relu"]


def test_named_dims_are_one_variable_and_unnamed_ones_are_fresh():
    main = main_of(parse("g (float[batch,2] x, float[batch,?] y) => (float[batch,2] z) { z = Relu(x) }"))
    x, y = (p.type.shape for p in main.params)
    assert isinstance(x[0], Var)
    assert x[0] is y[0]
    assert x[0].name == "batch"
    assert isinstance(y[1], Var)
    assert y[1] is not x[0]


def test_dims_are_pinned_by_name_or_by_input():
    model = parse("g (float[batch,seq] x) => (float[batch,seq] y) { y = Relu(x) }")
    assert str(main_of(model, {"batch": 4}).body.type) == "float32[4, seq]"
    assert str(main_of(model, {"x": (None, 3)}).body.type) == "float32[batch, 3]"
    assert str(main_of(model, {"x": (2, 3)}).body.type) == "float32[2, 3]"


def test_a_dim_pinned_by_one_input_is_pinned_in_all():
    model = parse("g (float[n] x, float[n] y) => (float[n] z) { z = Add(x, y) }")
    assert str(main_of(model, {"x": (5,)}).params[1].type) == "float32[5]"


@pytest.mark.parametrize(
    ("pins", "match"),
    [
        ({"nothing": 4}, "pins no input and no dim"),
        ({"x": (2, 3, 4)}, "is pinned to"),
        ({"x": (2, 9)}, "is pinned to"),
        ({"x": (-2, 3)}, "pinned to -2, which is no size"),
        ({"batch": -1}, "pinned to -1"),
        ({"x": (2, 3), "batch": 4}, "pinned to 4 and to 2"),
        ({"x": 4}, "pins no input and no dim"),
    ],
)
def test_pins_that_do_not_fit_are_refused(pins, match):
    model = parse("g (float[batch,3] x) => (float[batch,3] y) { y = Relu(x) }")
    with pytest.raises(UsageError, match=match):
        main_of(model, pins)


def test_an_input_of_unknown_rank_needs_a_pin():
    model = model_of(node("Relu", ["x"], ["y"]))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, None))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    with pytest.raises(UnsupportedError, match="unknown rank"):
        main_of(model)
    assert str(main_of(model, {"x": (2, 3)}).body.type) == "float32[2, 3]"


def test_every_node_has_a_span():
    model = model_of(node("Relu", ["x"], ["h"], name="first"), node("Exp", ["h"], ["y"]))
    nodes = {n.op.name: n for n in post_order(main_of(model).body)}
    assert [(s.name, s.op) for s in nodes["relu"].spans] == [("first", "Relu")]
    assert [(s.name, s.op) for s in nodes["exp"].spans] == [("y", "Exp")]
    assert nodes["param"].spans == ()


def test_all_unsupported_nodes_are_named_at_once():
    text = """g (float[2] x, bool[1] c) => (float[2] y) {
        a = NoSuchOp(x)
        d = acme.Thing(a)
        y = If (c) <then_branch: graph = t () => (float[2] p) { p = Other(d) },
                    else_branch: graph = e () => (float[2] q) { q = Identity(d) }>
    }"""
    with pytest.raises(UnsupportedError) as caught:
        main_of(parse(text, opset=18, domains=', "acme" : 1'))
    message = str(caught.value)
    for word in ("NoSuchOp", "Thing", "'acme'", "Other"):
        assert word in message
    assert len(caught.value.spans) == 3


def test_the_error_for_an_old_version_names_the_first_supported_one():
    with pytest.raises(UnsupportedError, match="of opset 5 is not supported, only from opset 6 on"):
        main_of(parse("g (float[2] x) => (float[2] y) { y = Add(x, x) }", opset=5))


def test_unsupported_data_dependent_sizes_have_a_hint():
    text = "g (float[4] x, int64[n] s) => (float[?,?] y) { y = Reshape(x, s) }"
    with pytest.raises(UnsupportedError, match="the shape depends on the data") as caught:
        main_of(parse(text))
    assert "Reshape" in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("g (float[2] x, float[3] y) => (float[2] z) { z = Add(x, y) }", "do not broadcast"),
        ("g (float[2] x, int32[2] y) => (float[2] z) { z = Add(x, y) }", "differ in type"),
        ("g (bool[2] x) => (bool[2] z) { z = Relu(x) }", r"is a tensor\(bool\)"),
        ("g (float[2] x) => (float[2] z) { z = Relu(x, x) }", "takes 1 inputs, not 2"),
        ("g (float[2] x) => (float[2] z) { z = Relu <alpha: float = 1.0> (x) }", "no attribute 'alpha'"),
        ("g (float[2] x) => (float[2] z) { z = Elu <alpha: int = 1, alpha2: int = 3> (x) }", "no attribute"),
        ("g (float[2] x) => (float[2] z) { z = Elu <alpha: string = \"x\"> (x) }", "must be a number"),
        ("g (float[2] x) => (float[2] z) { z = Add(, x) }", "needs its input 0"),
        ("g (float[2,3] x, float[4,5] y) => (float[2,5] z) { z = MatMul(x, y) }", "inner dims"),
        ("g (float[2] x) => (int32[2] z) { z = Relu(x) }", "declared a tensor of int32"),
        ("g (float[2,3] x) => (float[6] z) { z = Transpose <perm = [0, 0]> (x) }", "has an axis twice"),
        ("g (float[2,3] x) => (float[3] z) { z = Gather <axis = 5> (x, x) }", "is a tensor"),
    ],
)  # fmt: skip
def test_models_that_contradict_themselves_are_refused(text, match):
    with pytest.raises(ModelError, match=match) as caught:
        main_of(parse(text))
    assert caught.value.spans


@pytest.mark.parametrize("shape", ["2,1", "3"])
def test_a_wrong_declared_output_shape_is_a_warning(shape):
    model = parse(f"g (float[2] x) => (float[{shape}] z) {{ z = Relu(x) }}")
    with pytest.warns(WrongShapeWarning, match=r"output 'z' is declared with the shape"):
        assert main_of(model).body.shape == (2,)


def test_the_error_of_an_op_names_the_models_node():
    text = "g (float[2,3] x, float[4,5] y) => (float[2,5] z) { [bad one] z = MatMul(x, y) }"
    with pytest.raises(ModelError) as caught:
        main_of(parse(text.replace("[bad one] ", "")))
    assert any(span.op == "MatMul" and span.name == "z" for span in caught.value.spans)


def test_functions_of_the_model_are_inlined_with_their_attributes():
    text = """
    g (float[3] x) => (float[3] y) { y = local.scaled <factor = 3.0> (x) }
    <domain: "local", opset_import: ["" : 18]>
    scaled <factor: float = 2.0, shift: float = 1.0> (v) => (w) {
        f = Constant <value_float: float = @factor> ()
        s = Constant <value_float: float = @shift> ()
        m = Mul (v, f)
        w = Add (m, s)
    }"""
    (found,) = run(parse(text, domains=', "local" : 1'), {"x": np.array([1, 2, 3], np.float32)})
    np.testing.assert_allclose(found, [4, 7, 10])


def test_optional_inputs_of_functions_may_be_omitted():
    text = """
    g (float[3] x) => (float[3] y) { y = local.limited (x, , hi)  hi = Constant <value_float = 2.0> () }
    <domain: "local", opset_import: ["" : 18]>
    limited (v, low, high) => (w) { w = Clip (v, low, high) }"""
    (found,) = run(parse(text, domains=', "local" : 1'), {"x": np.array([-1, 2, 3], np.float32)})
    np.testing.assert_allclose(found, [-1, 2, 2])


def test_operators_without_converter_use_the_standards_function_body():
    text = "g () => (float[5] y) { n = Constant <value_int = 5> () y = HannWindow <periodic = 0> (n) }"
    main = main_of(parse(text))
    # Nodes are interned across all live models, with the spans of all of them.
    assert all({"HannWindow", "Constant"} & {s.op for s in n.spans} for n in post_order(main.body))
    (found,) = run(parse(text), {})
    np.testing.assert_allclose(found, np.hanning(5), rtol=1e-4, atol=1e-5)


def test_deep_chains_do_not_reach_the_recursion_limit():
    count = 5_000
    nodes = [node("Relu" if i % 2 else "Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    model = model_of(*nodes, inputs="v0", outputs=f"v{count}")
    assert len(ops_of(main_of(model))) == count + 1


def test_deep_shape_arithmetic_does_not_reach_the_recursion_limit():
    count = 5_000
    nodes = [node("Shape", ["x"], ["v0"])]
    nodes += [node("Add", [f"v{i}", "one"], [f"v{i + 1}"]) for i in range(count)]
    model = model_of(
        *nodes, node("ConstantOfShape", [f"v{count}"], ["y"]), initializer=[tensor("one", np.ones(1, "i8"))]
    )
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    assert str(main_of(model).body.type) == f"float32[{4 + count}]"


def test_different_symbols_that_must_be_equal_are_unsupported_not_wrong():
    model = parse("g (float[a] x, float[b] y) => (float[a] z) { z = Add(x, y) }")
    with pytest.raises(UnsupportedError, match="does not fit") as caught:
        main_of(model)
    assert "pin dims" in caught.value.hint
    assert str(main_of(model, {"a": 4}).body.type) == "float32[4]"


def nested_loops(levels, rounds, last):
    """Nested loops; `last` is the operation of the innermost body on x."""
    body = f"k = {last}"
    for level in reversed(range(levels)):
        inner, outer = f"h{level + 1}", f"h{level}"
        body = f"""
            n{level} = Constant <value_int = {rounds}> ()
            r{level} = Loop (n{level}, , {outer}) <
                body: graph = b{level} (int64 i{level}, bool g{level}, float[?] {inner})
                    => (bool m{level}, float[?] k) {{ m{level} = Identity(g{level}) {body} }}>
            {"y" if level == 0 else "k"} = Identity(r{level})"""
    model = parse(f"g (float[2] h0) => (float y) {{ {body.replace('INNER', f'h{levels}')} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def test_loops_that_unfold_to_too_many_nodes_are_refused():
    doubling = "Concat <axis = 0> (INNER, INNER)"
    assert str(main_of(nested_loops(2, 2, doubling)).body.type) == "float32[32]"
    with pytest.raises(ModelError, match="more elements than any memory holds"):
        main_of(nested_loops(6, 1000, doubling))
    growing = "Concat <axis = 0> (INNER, h0)"
    with pytest.raises(UnsupportedError, match="unfold to more than"):
        main_of(nested_loops(20, 2, growing))


def test_huge_constants_are_not_computed_by_the_importer():
    text = """g () => (float[?,?] y) {
        shape = Constant <value_ints = [1000000, 1000000]> ()
        y = ConstantOfShape (shape)
    }"""
    main = main_of(parse(text))
    assert str(main.body.type) == "float32[1000000, 1000000]"
    assert ops_of(main) == ["full"]


def test_output_sequences_become_their_tensors():
    model = parse("g (float[2] x) => (seq(float[2]) s) { y = Neg(x) s = SequenceConstruct(x, y) }")
    main = main_of(model)
    assert main.attrs["outputs"] == ("s[0]", "s[1]")
    assert [value.shape for value in main.results] == [(2,), (2,)]


def test_unknown_sources_are_a_usage_error():
    with pytest.raises(DlcError):
        load(17)  # type: ignore[arg-type]
