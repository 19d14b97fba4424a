"""Conversion of the nodes of a graph or function, one by one, with spans and errors.

A `Scope` is one graph or one function call. It finds the values of enclosing graphs through `outer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext

from dlc_core.cancel import checkpoint
from dlc_core.diag import DlcError, ModelError, Span, TypeInferenceError, UnsupportedError
from dlc_core.graph.node import Node, spanned
from dlc_core.ir.types import TupleType, symbols_of
from dlc_frontend_onnx.converters import Call, find_entry
from dlc_frontend_onnx.entries import Entry
from dlc_frontend_onnx.functions import call_attributes, resolved, standard_function
from dlc_frontend_onnx.location import SHOWN, quoted
from dlc_frontend_onnx.model import FunctionDef, Graph, NodeDef
from dlc_frontend_onnx.schema import check_call, default_attributes, function_body
from dlc_frontend_onnx.state import Frame
from dlc_frontend_onnx.tensors import MAX_RANK
from dlc_frontend_onnx.values import ABSENT, MISSING, Absent, Missing, SequenceValue, Value

MAX_ELEMENTS = 1 << 60
"""Larger tensors are refused. Dims of 0 count as 1 here, because later arithmetic multiplies the others."""

MAX_NESTED = 64
"""Limit of the nesting of graphs and function calls."""


class ModelTooLarge(Exception):
    """Loops and functions unfold to too many nodes."""


class NotMade(Exception):
    """An output of a subgraph is missing. The session already has the reason."""


class Scope(Frame):
    """A frame that converts nodes."""

    def run(self, nodes: Iterable[NodeDef]) -> None:
        """Convert nodes in order. Unsupported nodes are recorded in the session, and their outputs are
        missing.
        """
        session = self.session
        if session.depth > MAX_NESTED:
            raise session.model.loc.unsupported(
                f"graphs and functions nested deeper than {MAX_NESTED} levels"
            )
        session.depth += 1
        try:
            self._run(nodes)
        finally:
            session.depth -= 1

    def _run(self, nodes: Iterable[NodeDef]) -> None:
        for node in nodes:
            checkpoint()
            self.session.budget -= 1
            if self.session.budget < 0:
                raise ModelTooLarge
            try:
                with spanned([span_of(node)]) if self.visible else nullcontext():
                    outputs = self._convert(node)
            except NotMade:
                outputs = [MISSING] * len(node.outputs)
            except UnsupportedError as error:
                if self.visible:
                    located(error, node)
                self.session.problems.append(error)
                outputs = [MISSING] * len(node.outputs)
            except DlcError as error:
                if self.visible:
                    located(error, node)
                raise
            for name, value in zip(node.outputs, outputs):
                if name:
                    self.values[name] = value
                if isinstance(value, Node):
                    self.session.holders.record(value)
            if self.session.taps.values:
                self.session.taps.record(node, outputs)

    def run_graph(self, graph: Graph, args: Sequence[Value]) -> list[Value]:
        """The outputs of a subgraph of a node for these input values."""
        scope = Scope(self.session, self.opsets, self, attributes=self.attributes, visible=self.visible)
        scope.add_constants(graph)
        if len(args) != len(graph.inputs):
            raise graph.loc.error(f"the graph takes {len(graph.inputs)} inputs, {len(args)} are given")
        for info, value in zip(graph.inputs, args):
            scope.values[info.name] = value
        scope.run(graph.nodes)
        outputs = [scope.find(info.name) for info in graph.outputs]
        if any(isinstance(value, (Missing, Absent)) for value in outputs):
            raise NotMade
        return [value for value in outputs if not isinstance(value, (Missing, Absent))]

    def try_graph(self, graph: Graph, args: Sequence[Value]) -> list[Value] | None:
        """As `run_graph`, but if it fails, None without recording problems."""
        before, tapped = len(self.session.problems), len(self.session.taps.found)
        try:
            with self.session.holders.frame() as frame:
                results = self.run_graph(graph, args)
            self.session.holders.merge(frame)
            return results
        except (NotMade, DlcError):
            del self.session.problems[before:]
            del self.session.taps.found[tapped:]
            return None

    def _convert(self, node: NodeDef) -> Sequence[Value | Missing]:
        node = resolved(node, self.attributes)
        args = [self.find(name) if name else ABSENT for name in node.inputs]
        needed = [*args, *(self.find(name) for name in node.captures)]
        if any(isinstance(value, Missing) for value in needed):
            return [MISSING] * len(node.outputs)
        values = [None if isinstance(value, Absent) else value for value in args]
        return self._outputs(node, self._apply(node, [v for v in values if not isinstance(v, Missing)]))

    def _apply(self, node: NodeDef, values: list[Value | None]) -> Sequence[Value | Missing | None]:
        own = self.session.model.functions.get((node.domain, node.op, node.overload))
        if own is not None:
            return self._inline(own, node, values, visible=self.visible)
        while values and values[-1] is None:
            values.pop()
        version = self.opsets.get(node.domain, 0)
        check_call(node, version, values)
        entry = find_entry(node.domain, node.op, version, self.session.model.importers)
        if entry is None:
            body = function_body(node, version, values)
            if body is None:
                raise node.loc.unsupported(f"operator {quoted(node.op)} of opset {version} is not supported")
            defaults = default_attributes(node, version)
            function = standard_function(body, self.opsets.get("", version), defaults)
            return self._inline(function, node, values, visible=False)
        try:
            return self._call(entry, node, version, values)
        except TypeInferenceError as error:
            raise _refused(node, values, error) from error
        except ModelError as error:
            if _is_about_symbols(error, values):
                # The model may be valid: these dims are symbolic.
                hint = "pin the dims with shapes={...}"
                raise node.loc.unsupported(error.what, why=error.why, hint=hint) from error
            raise

    def _call(
        self, entry: Entry, node: NodeDef, version: int, values: list[Value | None]
    ) -> Sequence[Value | None]:
        op = quoted(node.op)
        if len(values) < entry.least or (entry.most is not None and len(values) > entry.most):
            wanted = (
                f"{entry.least}" if entry.most == entry.least else f"{entry.least} to {entry.most or 'any'}"
            )
            raise node.loc.error(f"operator {op} takes {wanted} inputs, not {len(values)}")
        missing = next((index for index in sorted(entry.needed) if values[index] is None), None)
        if missing is None and None in values[entry.named :]:
            missing = values.index(None, entry.named)
        if missing is not None:
            raise node.loc.error(f"operator {op} needs input {missing}")
        if not entry.sequences and any(isinstance(value, SequenceValue) for value in values):
            raise node.loc.error(f"operator {op} takes tensors, not sequences or optionals")
        call = Call(node, version, self)
        result = entry.function(call, *values)
        left = call.unread()
        if left:
            raise call.unsupported(f"attribute {quoted(left[0])} of operator {op} is not supported")
        outputs = [result] if isinstance(result, (Node, SequenceValue)) else list(result)
        if any(isinstance(value, Node) and isinstance(value.type, TupleType) for value in outputs):
            raise AssertionError(f"the converter of {node.op} gives a tuple")
        return outputs

    def _inline(
        self, function: FunctionDef, node: NodeDef, values: list[Value | None], *, visible: bool
    ) -> Sequence[Value | Missing | None]:
        if len(values) > len(function.inputs):
            raise node.loc.error(
                f"function {quoted(node.op)} takes {len(function.inputs)} inputs, not {len(values)}"
            )
        attributes = call_attributes(function, node)
        scope = Scope(self.session, function.opsets, attributes=attributes, visible=visible)
        for index, name in enumerate(function.inputs):
            value = values[index] if index < len(values) else None
            scope.values[name] = ABSENT if value is None else value
        scope.run(function.nodes)
        made = [scope.values.get(name, ABSENT) for name in function.outputs]
        return [None if isinstance(value, Absent) else value for value in made]

    def _outputs(self, node: NodeDef, values: Sequence[Value | Missing | None]) -> list[Value | Missing]:
        outputs: list[Value | Missing] = []
        for index, name in enumerate(node.outputs):
            value = values[index] if index < len(values) else None
            if value is None and name:
                raise node.loc.unsupported(f"output {index} of operator {quoted(node.op)} is not supported")
            if isinstance(value, Node):
                _check_size(node, index, value)
            outputs.append(
                MISSING if value is None else self.shapes.settled(value) if isinstance(value, Node) else value
            )
        return outputs


def _check_size(node: NodeDef, index: int, value: Node) -> None:
    rank, size = len(value.shape), 1
    if rank > MAX_RANK:
        name = quoted(node.outputs[index])
        raise node.loc.unsupported(
            f"output {index}, {name}, has {rank} dimensions; at most {MAX_RANK} are supported"
        )
    for extent in value.shape:
        size *= extent if isinstance(extent, int) and extent else 1
        if size > MAX_ELEMENTS:
            raise node.loc.error(f"output {index} would be a tensor of more elements than any memory holds")


def span_of(node: NodeDef) -> Span:
    """The span of a node. A node without a name is identified by its first output."""
    span = node.loc.span
    if span.name:
        return span
    return Span(span.source, next((name for name in node.outputs if name), "")[:SHOWN], span.op)


def located(error: DlcError, node: NodeDef) -> None:
    """Add the node's span to an error, unless the error has it."""
    span = span_of(node)
    error.spans = tuple(span if known == node.loc.span else known for known in error.spans)
    error.at([span])


_NUMBER_NEEDED = "it must be a number"
"""A part of the messages of ops that refuse a symbolic dim."""


def _is_about_symbols(error: ModelError, values: Sequence[Value | None]) -> bool:
    """Whether the error message mentions the type of an input that has symbolic dims."""
    types = (v.type for v in values if isinstance(v, Node) and symbols_of(v.type))
    return any(str(type_) in error.what for type_ in types)


def _refused(
    node: NodeDef, values: Sequence[Value | None], error: TypeInferenceError
) -> ModelError | UnsupportedError:
    """The error for a node whose inputs an op refused.

    Usually the model is wrong. The node is only unsupported if the standard allows the dtype, or if symbolic
    dims had to be equal or static.
    """
    make: Callable[..., ModelError | UnsupportedError] = node.loc.error
    hint = error.hint
    if " has dtype " in error.what:
        make = node.loc.unsupported
    elif any(isinstance(v, Node) and symbols_of(v.type) for v in values):
        if " do not broadcast" in error.what:
            make = node.loc.unsupported
            hint = "pin dims that are equal with shapes={...}, or give them one name"
        elif _NUMBER_NEEDED in f"{error.what} {error.hint}":
            make = node.loc.unsupported
            hint = "pin the dim with shapes={...}"
    made = make(f"operator {quoted(node.op)} does not fit its inputs", why=error.what, hint=hint)
    made.details += tuple(error.details)
    return made


__all__ = ["MAX_ELEMENTS", "MAX_NESTED", "ModelTooLarge", "NotMade", "Scope", "located", "span_of"]
