"""From an ONNX model to an `IRModule`: `load`.

The module's entry is the graph function "main"; its params have the names of the model's inputs, and
`attrs["inputs"]`, `attrs["outputs"]` hold the public names.  Initializers are constants by reference (also
those of old models that list them among the inputs).  Named symbolic dims are one `Var` each, unnamed ones a
fresh `Var`; shape arithmetic of the model is done on them while importing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlc_core.graph.node import Function, Node, make_tuple, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_frontend_onnx.model import Model
from dlc_frontend_onnx.place import quoted
from dlc_frontend_onnx.reader import Source, read_model
from dlc_frontend_onnx.scope import MAX_CONVERTED, Missing, ModelTooLarge, Scope, Session
from dlc_frontend_onnx.support import check_support, combined, live_nodes
from dlc_frontend_onnx.symbols import Symbols


def load(model: Source | Model, context: Mapping[str, Any] | None = None) -> IRModule:
    """The model at a path, in bytes, in a `ModelProto` or read already, as a module.

    `context["shapes"]` pins dims: input name to shape (None leaves a dim as it is), or dim name to int.
    ModelError for models that contradict themselves or the standard, UnsupportedError, which names every such
    node, for what cannot be expressed, UsageError for pins that do not fit.
    """
    read = model if isinstance(model, Model) else read_model(model)
    pins = dict((context or {}).get("shapes") or {})
    nodes = live_nodes(read.graph)
    check_support(read, nodes)
    symbols = Symbols(read.graph, pins)
    count = len(read.graph.nodes) + sum(len(function.nodes) for function in read.functions.values())
    session = Session(read, budget=MAX_CONVERTED + 4 * count)
    scope = Scope(session, read.opsets)
    scope.add_constants(read.graph)
    params = []
    for info in read.graph.required_inputs:
        own = param(info.name, symbols.type_of(info, read))
        scope.values[info.name] = own
        params.append(own)
        for size in own.shape:
            if isinstance(size, Var):
                session.holders.setdefault(size, own)
    try:
        scope.run(nodes)
    except ModelTooLarge:
        raise read.place.unsupported(
            f"the loops and functions of the model unfold to more than {MAX_CONVERTED} nodes"
        ) from None
    except RecursionError:
        raise read.place.unsupported(
            "the graphs and functions of the model are nested too deep for the stack that is left"
        ) from None
    results = _results(read, scope, symbols)
    body = results[0] if len(results) == 1 else make_tuple(results)
    attrs = {
        "inputs": tuple(own.attrs["name"] for own in params),
        "outputs": tuple(info.name for info in read.graph.outputs),
    }
    main = Function("main", tuple(params), body).with_attrs(**attrs)
    return IRModule({"main": main}, {"source": read.source, "name": read.name})


def _results(model: Model, scope: Scope, symbols: Symbols) -> list[Node]:
    found = []
    place = model.graph.place
    for info in model.graph.outputs:
        value = scope.find(info.name)
        if isinstance(value, Missing):
            continue
        if not isinstance(value, Node):
            scope.session.problems.append(
                place.unsupported(f"output {quoted(info.name)} is a sequence or an optional, not a tensor")
            )
            continue
        symbols.check_output(info, value, model)
        found.append(value)
    if scope.session.problems:
        raise combined(model, scope.session.problems)
    if not found:
        raise place.error("the graph has no outputs")
    return found


__all__ = ["load"]
