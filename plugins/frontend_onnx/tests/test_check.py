"""Rules for whole graphs: names, order, domains, functions, depth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_frontend_onnx.reader import AttrRef, Model, read_model
from dlc_frontend_onnx.testing.build import graph_of, model_of, node, tensor, value
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, helper

from dlc_core.diag import ModelError


def refused(model: ModelProto, match: str) -> str:
    """The message about `model`, the same whether it comes as an object or as bytes."""
    with pytest.raises(ModelError, match=match) as caught:
        read_model(model)
    with pytest.raises(ModelError, match=match):
        read_model(model.SerializeToString())
    return str(caught.value)


def names(model: Model) -> list[str]:
    return [item.name for item in model.graph.nodes]


# --- names and order ---


def test_initializers_and_required_inputs() -> None:
    weights = tensor("w", np.ones(4, np.float32))
    graph = read_model(model_of(node("Add", ["x", "w"], ["y"]), inputs="x w", initializer=[weights])).graph
    assert [item.name for item in graph.inputs] == ["x", "w"]
    assert [item.name for item in graph.required_inputs] == ["x"]


def test_sparse_initializers() -> None:
    model = model_of(node("Add", ["x", "s"], ["y"]))
    sparse = helper.make_sparse_tensor(
        tensor("s", np.ones(1, np.float32)), tensor("", np.ones(1, np.int64)), [4]
    )
    model.graph.sparse_initializer.append(sparse)
    assert read_model(model).graph.sparse_initializers["s"].to_numpy().tolist() == [0, 1, 0, 0]
    model.graph.initializer.append(tensor("s", np.ones(4, np.float32)))
    refused(model, "the name 's' is defined twice")


def test_sorting_is_stable() -> None:
    nodes = [
        node("D", ["c", "x"], ["y"], name="last"),
        node("A", ["x"], ["a"], name="a"),
        node("C", ["a", "b"], ["c"], name="c"),
        node("B", ["x"], ["b"], name="b"),
        node("E", ["x"], ["e"], name="alone"),
    ]
    model = read_model(model_of(*nodes))
    assert names(model) == ["a", "b", "c", "last", "alone"]
    assert [item.index for item in model.graph.nodes] == [1, 3, 2, 0, 4]
    ordered = [nodes[index] for index in (1, 3, 4, 2, 0)]
    assert names(read_model(model_of(*ordered))) == ["a", "b", "alone", "c", "last"]


def test_captures_order_nodes_too() -> None:
    body = graph_of(node("Neg", ["late"], ["n"]), inputs="", outputs="n", name="body")
    nodes = [node("If", ["x"], ["y"], name="if", then_branch=body), node("Abs", ["x"], ["late"], name="abs")]
    model = read_model(model_of(*nodes))
    assert names(model) == ["abs", "if"]
    assert model.graph.nodes[1].captures == ("late",)
    assert model.graph.nodes[1].subgraphs()[0][1].captures == ("late",)
    assert model.graph.captures == ()


@pytest.mark.parametrize("length", [1, 2, 3, 100])
def test_cycles(length: int) -> None:
    ring = [node("Neg", [f"t{k}"], [f"t{(k + 1) % length}"], name=f"n{k}") for k in range(length)]
    nodes = [node("Relu", ["x"], ["a"], name="before"), *ring, node("Add", ["t0", "a"], ["y"], name="after")]
    text = refused(model_of(*nodes), "the nodes form a cycle")
    assert "'n0' (Neg)" in text
    assert "'before' (Relu)" not in text
    assert "'after' (Add)" not in text
    assert len(text) < 1000


def test_cycle_through_a_subgraph() -> None:
    body = graph_of(node("Neg", ["y"], ["n"]), inputs="", outputs="n", name="body")
    refused(model_of(node("If", ["x"], ["y"], name="if", then_branch=body)), "form a cycle: node 0 'if'")


def test_undefined_input() -> None:
    text = refused(model_of(node("Add", ["x", "w"], ["y"], name="add")), "tensor 'w' is used but not defined")
    assert "node 0 'add', operator 'Add' of domain 'ai.onnx', of graph 'main'" in text


def test_undefined_input_in_a_subgraph() -> None:
    inner = graph_of(node("Neg", ["w"], ["n"], name="neg"), inputs="", outputs="n", name="inner")
    outer = graph_of(node("If", ["x"], ["m"], then_branch=inner), inputs="", outputs="m", name="outer")
    text = refused(
        model_of(node("If", ["x"], ["y"], else_branch=outer)), "tensor 'w' is used but not defined"
    )
    assert "'neg'" in text
    assert (
        "attribute 'then_branch' of node 0 ('If') of attribute 'else_branch' of node 0 ('If') of graph 'main'"
        in text
    )


def test_undefined_outputs() -> None:
    refused(model_of(node("Relu", ["x"], ["z"])), "output 'y' is not defined")
    body = graph_of(inputs="", outputs="n", name="body")
    refused(model_of(node("If", ["x"], ["y"], then_branch=body)), "output 'n' is not defined")


def test_outer_names_and_shadows() -> None:
    """A branch may return an outer value, and an inner definition hides an outer one of the same name."""
    passing = graph_of(inputs="", outputs="x", name="passing")
    hiding = graph_of(node("Neg", ["x"], ["a"]), inputs="", outputs="a", name="hiding")
    nodes = [node("Abs", ["x"], ["a"]), node("If", ["a"], ["y"], then_branch=passing, else_branch=hiding)]
    graph = read_model(model_of(*nodes)).graph
    assert graph.nodes[1].captures == ("x",)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda g: g.node.append(node("Neg", ["x"], ["y"], name="again")), "the name 'y' is defined twice"),
        (
            lambda g: g.node.append(node("Neg", ["x"], ["x"])),
            "first definition is by an input or an initializer",
        ),
        (lambda g: g.node.append(node("Two", ["x"], ["t", "t"])), "the name 't' is defined twice"),
        (lambda g: g.input.append(value("x")), "the name 'x' is defined twice"),
        (lambda g: g.initializer.extend([tensor("w", np.ones(1))] * 2), "the name 'w' is defined twice"),
        (lambda g: g.initializer.append(tensor("", np.ones(1))), "initializer 0 has no name"),
        (lambda g: g.initializer.append(tensor("y", np.ones(1))), "the name 'y' is defined twice"),
        (lambda g: g.input.append(value("")), "input 1 has no name"),
        (lambda g: g.output.append(value("")), "output 1 has no name"),
        (lambda g: g.node.append(NodeProto(op_type="Neg")), "neither inputs nor outputs"),
        (lambda g: g.node.append(NodeProto(input=["x"], output=["z"])), "names no operator"),
    ],
)
def test_definitions(change: Callable[[GraphProto], None], match: str) -> None:
    model = model_of(node("Relu", ["x"], ["y"], name="relu"))
    change(model.graph)
    refused(model, match)


def test_omitted_inputs_and_outputs() -> None:
    nodes = [node("Odd", ["x", "", "x"], ["", "y", ""]), node("Odd", [""], ["", ""])]
    graph = read_model(model_of(*nodes)).graph
    assert graph.nodes[0].inputs == ("x", "", "x")
    assert graph.nodes[0].outputs == ("", "y", "")


def test_names_that_are_not_utf8() -> None:
    data = model_of(node("Relu", ["x"], ["y"], name="NAME", domain="local"), name="GRAPH").SerializeToString()
    for text in (b"NAME", b"GRAPH", b"Relu", b"local", b"\x01y"):
        broken = data.replace(text, b"\xff" * (len(text) - 1) + b"z" if len(text) > 2 else b"\x01\xff")
        assert broken != data
        with pytest.raises(ModelError, match="not valid UTF-8"):
            read_model(broken)


def test_hostile_names_cannot_forge_lines() -> None:
    evil = "a\n  at trusted.onnx\x1b[31m" + "b" * 10_000
    text = refused(model_of(node("Op\nX", [evil], ["y"], name=evil)), "is used but not defined")
    assert all(line.isprintable() for line in text.split("\n"))
    assert "  at trusted.onnx" not in text.split("\n")
    assert len(text) < 2000


# --- versions and domains ---


def test_default_domain_has_one_name() -> None:
    model = model_of(node("Relu", ["x"], ["y"], domain="ai.onnx"))
    model.opset_import[0].domain = "ai.onnx"
    read = read_model(model)
    assert read.opsets == {"": 20, "local": 1}
    assert read.graph.nodes[0].domain == ""


def test_operator_sets() -> None:
    model = model_of(node("Fused", ["x"], ["y"], name="f", domain="com.acme"))
    text = refused(model, "operator 'Fused' is of domain 'com.acme', whose operator set is not imported")
    assert "'ai.onnx', 'local'" in text
    model.opset_import.add(domain="com.acme", version=3)
    model.opset_import.add(domain="com.acme", version=2)
    assert read_model(model).opsets["com.acme"] == 3
    model.opset_import.add(domain="other", version=0)
    refused(model, "operator set 'other' has no valid version")


def test_operator_sets_of_subgraphs() -> None:
    body = graph_of(node("Fused", ["x"], ["n"], domain="com.acme"), inputs="", outputs="n")
    refused(model_of(node("If", ["x"], ["y"], then_branch=body)), "domain 'com.acme'")


def test_versions_of_the_format() -> None:
    model = model_of(node("Relu", ["x"], ["y"]))
    for version in (3, 14, 99, 1 << 40):
        model.ir_version = version
        assert read_model(model).ir_version == version
    model.ir_version = 0
    refused(model, "is not an ONNX model")
    model.ir_version = 2
    del model.opset_import[:]
    assert read_model(model).opsets == {"": 1}
    model.ir_version = 8
    refused(model, "imported are: none")


# --- functions ---


def function(name: str, *nodes: NodeProto, attributes: tuple[str, ...] = (), **more: Any) -> FunctionProto:
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["p"], ["q"], nodes, opsets, attributes, **more)


def call(name: str, source: str = "p", target: str = "q") -> NodeProto:
    return node(name, [source], [target], domain="local")


def test_functions() -> None:
    elu = node("Elu", ["p"], ["q"])
    elu.attribute.add(name="alpha", ref_attr_name="a", type=AttributeProto.FLOAT)
    default = helper.make_attribute("b", 2.5)
    made = function("F", elu, attributes=("a",), attribute_protos=[default], value_info=[value("q")])
    model = read_model(model_of(call("F", "x", "y"), functions=(made,)))
    found = model.functions["local", "F", ""]
    assert (found.inputs, found.outputs, found.attributes) == (("p",), ("q",), ("a",))
    assert (found.attribute_defaults, found.opsets) == ({"b": 2.5}, {"": 20, "local": 1})
    assert found.nodes[0].attrs == {"alpha": AttrRef("a", "FLOAT")}
    assert list(found.value_infos) == ["q"]


def test_calls_need_no_import() -> None:
    made = helper.make_function(
        "private", "F", ["p"], ["q"], [node("Neg", ["p"], ["q"])], [helper.make_opsetid("", 20)]
    )
    model = model_of(node("F", ["x"], ["y"], domain="private"), functions=(made,))
    assert list(read_model(model).functions) == [("private", "F", "")]
    model.functions[0].overload = "other"
    refused(model, "domain 'private'")


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (function("F", node("Neg", ["x"], ["q"])), "tensor 'x' is used but not defined"),
        (function("F", node("Neg", ["p"], ["r"])), "output 'q' of function 'F' is not defined"),
        (function("F", node("Neg", ["p"], ["p"])), "the name 'p' is defined twice"),
        (function("F", node("Neg", ["q"], ["q"])), "form a cycle"),
        (function("", node("Neg", ["p"], ["q"])), "has no name"),
        (function("F", node("Neg", ["p"], ["q"]), attributes=("a", "a")), "declares an attribute twice"),
        (function("F", node("Neg", ["p"], ["q"], domain="com.acme")), "whose operator set is not imported"),
    ],
)
def test_bad_functions(made: FunctionProto, match: str) -> None:
    assert "function" in refused(model_of(node("Relu", ["x"], ["y"]), functions=(made,)), match)


def test_function_defined_twice() -> None:
    made = function("F", node("Neg", ["p"], ["q"]))
    refused(model_of(call("F", "x", "y"), functions=(made, made)), "function 'F' is defined twice")


def test_undeclared_attribute_reference() -> None:
    elu = node("Elu", ["p"], ["q"])
    elu.attribute.add(name="alpha", ref_attr_name="missing", type=AttributeProto.FLOAT)
    refused(
        model_of(call("F", "x", "y"), functions=(function("F", elu),)), "the function does not declare it"
    )


@pytest.mark.parametrize("length", [1, 2, 5, 200])
def test_recursive_functions(length: int) -> None:
    ring = tuple(function(f"F{k}", call(f"F{(k + 1) % length}")) for k in range(length))
    text = refused(model_of(call("F0", "x", "y"), functions=ring), "functions call each other in a circle")
    assert "'F0'" in text


def test_recursion_through_a_subgraph() -> None:
    body = graph_of(call("F", "p", "n"), inputs="", outputs="n")
    made = function("F", node("If", ["p"], ["q"], then_branch=body))
    refused(model_of(call("F", "x", "y"), functions=(made,)), "call each other in a circle: 'F' -> 'F'")


def test_deep_calls() -> None:
    chain = [function(f"F{k}", call(f"F{k + 1}")) for k in range(63)]
    fine = (*chain, function("F63", node("Neg", ["p"], ["q"])))
    assert len(read_model(model_of(call("F0", "x", "y"), functions=fine)).functions) == 64
    deep = (function("G", call("F0")), *fine)
    refused(model_of(call("G", "x", "y"), functions=deep), "deeper than 64 levels")


def test_functions_that_unfold_to_too_many_nodes() -> None:
    twice = [function(f"F{k}", call(f"F{k + 1}", "p", "m"), call(f"F{k + 1}", "m", "q")) for k in range(40)]
    last = function("F40", node("Neg", ["p"], ["q"]))
    refused(model_of(call("F0", "x", "y"), functions=(*twice, last)), "unfold to more than 10000000 nodes")
    assert read_model(model_of(call("F20", "x", "y"), functions=(*twice[20:], last))).functions
    assert read_model(model_of(node("Neg", ["x"], ["y"]), functions=(*twice, last))).functions


# --- size and depth ---


def nested(depth: int) -> ModelProto:
    model = model_of(node("Relu", ["x"], ["y"]))
    graph = model.graph
    for level in range(depth):
        holder = graph.node.add(op_type="If", name=f"if{level}", input=["x"], output=[f"o{level}"])
        graph = holder.attribute.add(name="then_branch", type=AttributeProto.GRAPH).g
        graph.name = f"g{level}"
        graph.output.add(name="x")
    return model


def test_deep_graphs() -> None:
    assert read_model(nested(64)).graph.nodes
    assert read_model(nested(20).SerializeToString()).graph.nodes
    for depth in (65, 1000):
        with pytest.raises(ModelError, match="nested deeper than 64 levels"):
            read_model(nested(depth))
    with pytest.raises(ModelError, match="cannot be parsed"):
        read_model(nested(200).SerializeToString())


def test_long_chains_take_linear_time_and_no_recursion() -> None:
    count = 10_000
    chain = [NodeProto(op_type="Neg", input=[f"t{k}"], output=[f"t{k + 1}"]) for k in range(count)]
    model = model_of(*reversed(chain), inputs="t0", outputs=f"t{count}")
    read = read_model(model.SerializeToString())
    assert [item.index for item in read.graph.nodes] == list(range(count - 1, -1, -1))
    chain[0].input[0] = f"t{count}"
    refused(model_of(*chain, inputs="x", outputs="t1"), "the nodes form a cycle")


def test_error_has_location_and_span(tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(model_of(node("Add", ["x", "w"], ["y"], name="add")).SerializeToString())
    with pytest.raises(ModelError) as caught:
        read_model(path)
    (span,) = caught.value.spans
    assert (span.source[:20], span.name, span.op) == (str(path)[:20], "add", "Add")
    error = read_model(model_of(node("Neg", ["x"], ["y"], name="n"))).graph.nodes[0].loc.error("what")
    assert "node 0 'n', operator 'Neg'" in str(error)
