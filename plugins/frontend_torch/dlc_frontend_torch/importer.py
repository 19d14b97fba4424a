"""From an FX graph of ATen operators to graph nodes: `Importer`.

The graph must be functional: torch.export and AOT autograd make it so. `meta["val"]` of each node describes
its result. Nodes that cannot be converted are collected, so that one error names them all.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from dlc_core.cancel import checkpoint
from dlc_core.diag import DlcError, UnsupportedError
from dlc_core.graph.node import Node, constant, spanned
from dlc_core.ir.conditions import Condition, holding
from dlc_core.ir.expr import Expr, Var
from dlc_core.ir.types import Dim, TensorType
from dlc_core.op import std
from dlc_frontend_torch import aten as _converters  # registers them
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.complex_value import PARTS, Complex, border_type, stand_in, unpacked
from dlc_frontend_torch.decompositions import for_autograd
from dlc_frontend_torch.dtypes import name_of, of_torch
from dlc_frontend_torch.locating import op_name, span_of
from dlc_frontend_torch.random_ops import DRAWN
from dlc_frontend_torch.registry import COMPLEX, CONVERTERS, Converter
from dlc_frontend_torch.symbols import Symbols
from dlc_frontend_torch.weights import as_operand

assert _converters

SYMBOLIC = (torch.SymInt, torch.SymBool, torch.SymFloat)


class Importer:
    """Converts the nodes of one graph. `values` maps each FX node to its value: a `Node`, a dim, a Python
    value, or a tuple of these. `draw` gives the node for the numbers of a random operator of a type.
    """

    def __init__(
        self,
        module: GraphModule,
        symbols: Symbols,
        custom: Mapping[str, Converter] | None = None,
        draw: Callable[[Any, TensorType], Node] | None = None,
    ) -> None:
        self.module = module
        self.symbols = symbols
        self.values: dict[Any, Any] = {}
        self.problems: list[tuple[Any, DlcError]] = []
        """Nodes that could not be converted, and why."""
        self.writes: list[tuple[Any, Any]] = []
        """Inputs that the graph writes to at its end, with the nodes of their new values."""
        self.conditions: list[tuple[Any, Condition]] = []
        """Nodes that assert something about sizes, with the conditions."""
        self.numbers: list[Node] = []
        """Numbers of data that are dims: nodes which must run, though only types read them."""
        self._checks: list[tuple[Node, str]] = []
        self._current: Any = None
        self._custom = custom or {}
        self._draw = draw

    def run(self, inputs: Sequence[Any]) -> Any:
        """Convert the graph on values of its placeholders, in order. Returns the value of its output.

        Raises UnsupportedError that names all nodes that cannot be converted.
        """
        result = self.converted(inputs)
        if self.problems:
            raise self.combined()
        return self.checked(result)

    def converted(self, inputs: Sequence[Any]) -> Any:
        """As `run`, but problems are only collected."""
        given = iter(inputs)
        result = None
        for node in self.module.graph.nodes:
            checkpoint()
            if node.op == "placeholder":
                self.values[node] = next(given)
            elif node.op == "get_attr":
                self.values[node] = self._attribute(node)
            elif node.op == "output":
                result = self.resolve(node.args[0])
            else:
                self._convert(node)
        return result

    def checked(self, result: Any) -> Any:
        """The value of the output, with the numbers and checks that no result depends on."""
        if not self._checks and not self.numbers:
            return result
        results = list(result) if isinstance(result, tuple) else [result]
        places = [i for i, each in enumerate(results) if isinstance(each, Node)]
        filled = [i for i in places if 0 not in results[i].shape]
        if not filled:
            raise UnsupportedError("a program that asserts something about data and returns no tensor")
        at = filled[0]
        for ok, text in self._checks:
            results[at] = std.check(results[at], ok, what=text)
        if self.numbers:
            results[at] = std.with_dims(*self.numbers, results[at])
        return tuple(results) if isinstance(result, tuple) else results[0]

    def check_results(self) -> list[Node]:
        """A value of each check of data, for callers that do not use `checked`."""
        zero = constant(np.zeros((), np.int8))
        return [std.check(zero, ok, what=text) for ok, text in self._checks]

    def draw(self, call: Call, type_: TensorType) -> Node:
        """The numbers of a random operator. Raises UnsupportedError where torch does not draw them."""
        if self._draw is None:
            raise call.unsupported("random numbers outside of torch.compile")
        return self._draw(call.node, type_)

    def require_dims(self, call: Call, cond: Expr, text: str) -> None:
        """Refuse calls whose sizes do not satisfy a condition over dims."""
        self.conditions.append((call.node, holding(cond, text, str(span_of(call.node)))))

    def require_data(self, ok: Node, text: str) -> None:
        """Let calls fail with this text if a scalar of bool is false."""
        self._checks.append((ok, text))

    def number(self, call: Call, x: Node) -> Dim:
        """An integer of data as a dim. A call fails if it is negative."""
        if self._draw is not None:
            raise call.unsupported("a Python number that depends on data")
        found = self.symbols.dim(call.value)
        if not isinstance(found, Var):
            return found
        self.numbers.append(std.dim_of(x, size=found, what=f"{span_of(call.node)}: the number is negative"))
        return found

    def inline(self, module: GraphModule, inputs: Sequence[Any]) -> Any:
        """Convert a subgraph on values of its placeholders. Its problems, each one once, become those of the
        node that it belongs to.
        """
        inner = Importer(module, self.symbols, self._custom, self._draw)
        result = inner.converted(inputs)
        found = {error.what: error for _, error in inner.problems}
        self.problems += [(self._current, error) for error in found.values()]
        self.conditions += inner.conditions
        return inner.checked(result)

    def trace(self, function: Callable[..., Any], examples: Sequence[torch.Tensor]) -> GraphModule:
        """The graph of a function of tensors, of operators that have converters."""
        made = make_fx(function, for_autograd())(*examples)
        made.graph.eliminate_dead_code()
        return made

    def resolve(self, argument: Any) -> Any:
        """An argument of an FX node with nodes replaced by their values."""
        if isinstance(argument, torch.fx.Node):
            return self.values[argument]
        if isinstance(argument, (list, tuple)):
            return tuple(self.resolve(each) for each in argument)
        if isinstance(argument, dict):
            return {key: self.resolve(each) for key, each in argument.items()}
        if isinstance(argument, slice):
            return slice(*(self.resolve(each) for each in (argument.start, argument.stop, argument.step)))
        if isinstance(argument, SYMBOLIC):
            return self.symbols.dim(argument)
        return argument

    def combined(self) -> DlcError:
        """One error for all nodes that could not be converted."""
        errors = [error for _, error in self.problems]
        if len(errors) == 1:
            return errors[0]
        lines = [f"{error.what}{f': {error.why}' if error.why else ''}" for error in errors]
        spans = [span for error in errors for span in error.spans]
        known = list(dict.fromkeys(lines))
        ops = len({op_name(node) for node, _ in self.problems})
        return UnsupportedError(
            f"{len(errors)} nodes of {ops} operators cannot be imported",
            spans=list(dict.fromkeys(spans)),
            details=known,
            hint="give a converter: importers=[...], see the hook dlc_importers",
        )

    def _convert(self, node: Any) -> None:
        value = node.meta.get("val")
        if isinstance(value, SYMBOLIC):
            self.values[node] = self._symbolic(node, value)
            return
        if node.target is operator.getitem:
            self.values[node] = self.resolve(node.args[0])[node.args[1]]
            return
        if node.target is torch.ops.aten.copy_.default:
            self.writes.append((node.args[0], node.args[1]))
            self.values[node] = self.resolve(node.args[1])
            return
        call = Call(node, self, _has_complex(node))
        self._current = node
        try:
            with spanned([span_of(node)]):
                self.values[node] = self._made(call)
        except DlcError as error:
            located = error if error.spans else error.at([span_of(node)])
            self.problems.append((node, located))
            self.values[node] = _stand_in(call)

    def _made(self, call: Call) -> Any:
        if call.op in DRAWN:
            type_ = border_type(call.value.dtype, call.shape)
            if type_ is None:
                raise call.unsupported(f"the dtype {name_of(call.value.dtype)}")
            drawn = self.draw(call, type_)
            return unpacked(drawn) if call.is_complex else drawn
        find = self._custom.get(call.op) or (COMPLEX if call.is_complex else CONVERTERS).get(call.op)
        _check_dtypes(call, find)
        if find is None:
            raise UnsupportedError(f"{call.op} has no converter", spans=[span_of(call.node)])
        args = [self.resolve(each) for each in call.node.args]
        made = find(call, *args, **{key: self.resolve(each) for key, each in call.node.kwargs.items()})
        if isinstance(call.value, torch.Tensor):
            return call.check(made, call.value)
        if isinstance(call.value, (tuple, list)) and isinstance(made, (tuple, list)):
            pairs = zip(made, call.value, strict=True)
            return tuple(
                call.check(one, want)
                if isinstance(one, (Node, Complex)) and isinstance(want, torch.Tensor)
                else one
                for one, want in pairs
            )
        return made

    def _symbolic(self, node: Any, value: Any) -> Any:
        find = CONVERTERS.get(op_name(node))
        try:
            if find is not None:  # an operator that makes a number of data
                return find(Call(node, self), *(self.resolve(each) for each in node.args))
            return self.symbols.dim(value)
        except DlcError as error:
            self.problems.append((node, error.at([span_of(node)])))
            return 1

    def _attribute(self, node: Any) -> Any:
        value: Any = self.module
        for part in node.target.split("."):
            value = getattr(value, part)
        return as_operand(value) if isinstance(value, torch.Tensor) else value


def _tensors(node: Any) -> list[torch.Tensor]:
    """The fake tensors of the operands and the results of a node."""
    expected = node.meta.get("val")
    values = [each.meta.get("val") for each in node.all_input_nodes]
    values += expected if isinstance(expected, (tuple, list)) else [expected]
    return [each for each in values if isinstance(each, torch.Tensor)]


def _has_complex(node: Any) -> bool:
    return any(each.dtype in PARTS for each in _tensors(node))


def _check_dtypes(call: Call, find: Converter | None) -> None:
    """Raise UnsupportedError for operands and results of dtypes that dlc lacks, and for complex numbers that
    the operator has no converter for.
    """
    for value in _tensors(call.node):
        if of_torch(value.dtype) is None and (find is None or value.dtype not in PARTS):
            raise call.unsupported(f"the dtype {name_of(value.dtype)}")
        if value.layout is not torch.strided:
            raise call.unsupported(f"a tensor with the layout {value.layout}")


def _stand_in(call: Call) -> Any:
    """A value of the expected type, so that the nodes after a problem are looked at too."""

    def of(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return stand_in(value.dtype, call.symbols.shape(value.shape))
        return value

    if isinstance(call.value, (tuple, list)):
        return tuple(of(each) for each in call.value)
    return of(call.value)


__all__ = ["Importer"]
