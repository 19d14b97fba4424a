"""Import of an ONNX model as an `IRModule`: `load`.

The module's entry is the graph function "main". Its params have the names of the model's inputs;
`attrs["inputs"]` and `attrs["outputs"]` hold the public names. Initializers are constants by reference, also
in old models that list them among the inputs. Each named symbolic dim is one `Var`, each unnamed one a fresh
`Var`. Shape arithmetic of the model is evaluated symbolically during the import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlc_core.graph.limits import MODEL_NODES
from dlc_core.graph.node import Function, Node, make_tuple, param
from dlc_core.graph.resize import replace_dims
from dlc_core.ir.module import IRModule
from dlc_core.limits import check_nodes
from dlc_core.passes.graph.dim_conditions import CONDITIONS
from dlc_frontend_onnx.custom import importers_for
from dlc_frontend_onnx.flattening import (
    Layout,
    as_map,
    as_params,
    as_results,
    check_kind,
    has_parts,
    names_in,
)
from dlc_frontend_onnx.model import Model
from dlc_frontend_onnx.reader import Source, read_model
from dlc_frontend_onnx.scope import ModelTooLarge, Scope
from dlc_frontend_onnx.sizes import Holders
from dlc_frontend_onnx.state import MAX_CONVERTED, Session
from dlc_frontend_onnx.support import check_support, combined, live_nodes
from dlc_frontend_onnx.symbols import Symbols
from dlc_frontend_onnx.taps import needs, taps_of
from dlc_frontend_onnx.values import Missing, SequenceValue


def load(model: Source | Model, context: Mapping[str, Any] | None = None) -> IRModule:
    """Import a model from a path, bytes, a `ModelProto` or a `Model`.

    `context["shapes"]` pins and bounds dims by names of inputs and of dims (see `dlc_core.graph.shapes`).
    `context["taps"]` are names of nodes or values that become additional outputs (see `taps`).
    `context["importers"]` are custom operators (see `custom`), in addition to those of plugins.

    A map "m" as an input becomes the inputs "m[0]" (its keys, ascending) and "m[1]" (its values). An output
    "y" that is a sequence or a map becomes the tensors "y[0]", "y[1]", ...; that of ZipMap the labels and a
    matrix with a row per map. A sequence of data-dependent length becomes "y[data]", the concatenation of its
    flattened elements, and "y[shapes]", with a row per element.

    Raises ModelError if the model contradicts itself or the standard, UnsupportedError, which names all
    unsupported nodes, and UsageError if pins do not match the model.
    """
    given = context or {}
    read = model if isinstance(model, Model) else read_model(model)
    read.importers = importers_for(given.get("importers", ()))
    return import_parts(read, given.get("shapes"), None, given.get("taps", ()))[0]


def import_parts(
    read: Model,
    shapes: Mapping[str, Any] | None,
    examples: Mapping[str, Any] | None,
    taps: Sequence[str] = (),
) -> tuple[IRModule, tuple[Layout, ...]]:
    """As `load`, and the layouts of the outputs.

    `examples` are values of the inputs that are sequences or optionals, by name. The module is for their
    lengths and shapes. Without `examples` the model must not have such inputs. `taps` are names of nodes or
    values that become additional outputs, after the others.
    """
    wanted = taps_of(read, taps)
    nodes = live_nodes(read.graph, needs(read.graph, wanted))
    check_support(read, nodes)
    symbols = Symbols(read.graph, shapes or {})
    count = len(read.graph.nodes) + sum(len(function.nodes) for function in read.functions.values())
    check_nodes(count)
    session = Session(read, budget=MAX_CONVERTED + 4 * count, taps=wanted, holders=Holders(symbols.take))
    scope = Scope(session, read.opsets)
    scope.add_constants(read.graph)
    params: list[Node] = []
    for info in read.graph.required_inputs:
        if examples is not None and info.name in examples and info.type is not None:
            scope.values[info.name] = as_params(info.type, examples[info.name], info.name, params)
            continue
        if info.type is not None and info.kind == "map" and has_parts(info.type):
            scope.values[info.name] = as_map(info.type, info.name, params)
            continue
        own = param(info.name, symbols.type_of(info, read))
        scope.values[info.name] = own
        params.append(own)
        session.holders.record(own)
    try:
        scope.run(nodes)
    except ModelTooLarge:
        raise read.loc.unsupported(
            f"the loops and functions of the model unfold to more than {MAX_CONVERTED} nodes"
        ) from None
    except RecursionError:
        raise read.loc.unsupported(
            "the graphs and functions of the model are nested too deep for the stack that is left"
        ) from None
    results, layouts = _results(read, scope, symbols)
    if not results and examples is None:
        raise read.graph.loc.unsupported("no output of the graph holds a tensor")
    sizes = symbols.of_outputs(read.graph.outputs, scope.values)
    symbols.check_used(session.holders.names)
    names = [name for layout in layouts for name in names_in(layout)]
    if not results:  # all sequences and optionals are empty, but a program has a result
        names, results = ["nothing"], [scope.constant(0, "int64")]
    tapped = wanted.results(params, names)
    results += [value for _, value in tapped]
    holders = session.holders
    conditions = holders.remaining_conditions(results, holders.frames[-1])
    results = holders.attached(results, params, entry=True, conditions=conditions)
    body = results[0] if len(results) == 1 else make_tuple(results)
    attrs = {
        "inputs": tuple(own.attrs["name"] for own in params),
        "outputs": (*names, *(name for name, _ in tapped)),
        **holders.attributes(params, body),
        **({CONDITIONS: tuple(conditions)} if conditions else {}),
    }
    main = replace_dims(Function("main", tuple(params), body).with_attrs(**attrs), sizes)
    about = {"source": read.source, "name": read.name, MODEL_NODES: count}
    return IRModule({"main": main}, about), layouts


def _results(model: Model, scope: Scope, symbols: Symbols) -> tuple[list[Node], tuple[Layout, ...]]:
    """The output tensors, and the layout of each output."""
    found: list[Node] = []
    layouts: list[Layout] = []
    loc = model.graph.loc
    for info in model.graph.outputs:
        value = scope.find(info.name)
        if isinstance(value, Missing):
            continue
        if isinstance(value, SequenceValue):
            check_kind(info.type, value, info.name, loc)
        elif isinstance(value, Node):
            symbols.check_output(info, value, model)
        else:
            raise AssertionError(f"output {info.name!r} is left out")
        layouts.append(as_results(value, info.name, found))
    if scope.session.problems:
        raise combined(model, scope.session.problems)
    if not layouts:
        raise loc.error("the graph has no outputs")
    return found, tuple(layouts)


__all__ = ["import_parts", "load"]
