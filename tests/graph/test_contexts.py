"""Models that share equal nodes keep the names of their own model nodes."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dlc_core as dlc
from dlc_core.diag import DlcError
from dlc_core.graph.node import Function as GraphFunction
from dlc_core.graph.node import GraphContext, Node, constant, node, post_order, using_context
from dlc_core.ir.module import IRModule
from dlc_core.op import std
from dlc_core.passes.base import Pass, PassContext
from dlc_core.passes.watch import spans_of

pytest.importorskip("dlc_frontend_onnx")


class Spans:
    """Collects the names of model nodes in all modules of a compile."""

    name = "names"

    def __init__(self) -> None:
        self.names: set[str] = set()

    def before(self, one: Pass, module: IRModule, context: PassContext) -> None:
        self.after(one, module, context)

    def after(self, one: Pass, module: IRModule, context: PassContext) -> None:
        self.names |= {span.name for span in spans_of(module)}


def model(label: str, *, wrong: bool = False, size: int = 4) -> onnx.ModelProto:
    """A model with constant nodes, which are equal in all such models, and other nodes. If it is `wrong`, a
    constant index is out of range.
    """

    def made(op: str, inputs: Sequence[str], output: str, **attrs: Any) -> onnx.NodeProto:
        return helper.make_node(op, inputs, [output], f"{label}/{output}", **attrs)

    nodes = [
        made("ConstantOfShape", ["shape"], "zeros"),
        made("Range", ["zero", "four", "one"], "range"),
        made("Cast", ["range"], "steps", to=TensorProto.FLOAT),
        made("Add", ["zeros", "steps"], "table"),
        made("Gather", ["table", "far" if wrong else "near"], "row"),
        made("Mul", ["x", "row"], "scaled"),
        made("Gather", ["table", "picks"], "picked"),
        made("Sum", ["scaled", "picked"], "y"),
    ]
    numbers = {"shape": [size], "zero": 0, "four": size, "one": 1, "near": 3, "far": 9}
    weights = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in numbers.items()]
    graph = helper.make_graph(
        nodes, label,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [size]),
         helper.make_tensor_value_info("picks", TensorProto.INT64, [size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [size])], weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def compiled(label: str, target: str = "reference -level=tir") -> tuple[set[str], dlc.Executable]:
    watcher = Spans()
    exe = dlc.compile(model(label), target, cache=False, watchers=[watcher])
    return watcher.names, exe


@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
def test_equal_models_keep_their_names(order: tuple[str, str]) -> None:
    alive = [dlc.load(model(label)) for label in order]
    found = {label: compiled(label) for label in order}
    for label, (names, exe) in found.items():
        assert names
        assert {name.partition("/")[0] for name in names if name} == {label}
        with pytest.raises(DlcError) as caught:
            exe(np.ones(4, np.float32), np.array([0, 1, 2, 9]))
        assert f"{label}/" in str(caught.value)
        assert not any(f"{other}/" in str(caught.value) for other in order if other != label)
    for label, module in zip(order, alive, strict=True):
        assert {span.name.partition("/")[0] for span in spans_of(module) if span.name} == {label}


@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
def test_errors_among_constants_name_their_own_model(order: tuple[str, str]) -> None:
    alive = [dlc.load(model(order[0], wrong=True))]
    with pytest.raises(DlcError) as caught:
        dlc.compile(model(order[1], wrong=True), "reference", cache=False)(
            np.ones(4, np.float32), np.zeros(4, np.int64)
        )
    assert f"{order[1]}/row" in str(caught.value)
    assert f"{order[0]}/" not in str(caught.value)
    assert alive


def test_models_compiled_concurrently_keep_their_names() -> None:
    labels = [f"model{number}" for number in range(4)]
    start = Barrier(len(labels))

    def run(label: str) -> set[str]:
        start.wait(30)
        return compiled(label)[0]

    with ThreadPoolExecutor(len(labels)) as pool:
        for label, names in zip(labels, pool.map(run, labels), strict=True):
            assert {name.partition("/")[0] for name in names if name} == {label}


def test_equal_nodes_are_merged_only_within_a_context() -> None:
    def built() -> tuple[Node, Node]:
        one = constant(np.float32(1))
        return one, std.exp(one)

    graph_context = GraphContext()
    with using_context(graph_context):
        first, again = built(), built()
    with using_context(GraphContext()):
        other = built()
    assert first == again
    assert first[0] is again[0]
    assert first[0] is not other[0]
    assert first[1] is not other[1]
    with using_context(None):
        base = constant(np.float32(1))
        assert base is constant(np.float32(1))
    with using_context(graph_context):
        (exp,) = [n for n in post_order(first[1]) if n.op.name == "exp"]
        assert node(exp.op, exp.args, exp.attrs, exp.type) is exp


def test_passes_make_nodes_in_the_context_of_the_module() -> None:
    """Nodes of passes are merged with equal nodes of the import."""
    module = dlc.load(model("first"))
    main = module["main"]
    assert isinstance(main, GraphFunction)
    contexts = {n.context for n in post_order(main.body)}
    assert len(contexts) == 1
    assert None not in contexts
    compiled_contexts: set[object] = set()

    class Contexts(Spans):
        def after(self, one: Pass, module: IRModule, context: PassContext) -> None:
            for function in module.of_kind(GraphFunction).values():
                compiled_contexts.update(n.context for n in post_order(function.body))

    dlc.compile(module, "reference -level=tir", cache=False, watchers=[Contexts()])
    assert compiled_contexts == contexts
