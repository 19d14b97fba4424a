"""A functional graph of supported operators, compiled: `Part`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import sympy
import torch
from torch.fx import GraphModule
from torch.utils._sympy.symbol import SymT, symbol_is_type

from dlc_core import driver
from dlc_core.diag import DlcError, UnsupportedError
from dlc_core.graph.dims import CONDITIONS
from dlc_core.graph.node import CONST, Function, GraphContext, Node, make_tuple, param, using_context
from dlc_core.graph.updates import UPDATES
from dlc_core.ir.conditions import Condition
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType
from dlc_core.op import std
from dlc_core.runtime.executable import Executable
from dlc_frontend_torch.complex_value import Complex, border_type, unpacked
from dlc_frontend_torch.custom import importers_for
from dlc_frontend_torch.dynamo.drawing import Draw
from dlc_frontend_torch.dynamo.options import Options
from dlc_frontend_torch.dynamo.sizes import Sizes
from dlc_frontend_torch.dynamo.views import Views, base_of, permutation, shared_bases
from dlc_frontend_torch.guards import unknown_conditions
from dlc_frontend_torch.importer import Importer
from dlc_frontend_torch.symbols import Symbols
from dlc_frontend_torch.weights import as_array, as_operand, as_tensor


class Unsupported(Exception):
    """Nodes that dlc cannot run: `problems` has each with its error, `combined` is one error for all."""

    def __init__(self, problems: Sequence[tuple[Any, DlcError]], combined: DlcError) -> None:
        super().__init__(str(combined))
        self.problems, self.combined = problems, combined


class Part:
    """Compiles a graph and calls it on tensors. `static` are values of placeholders that become constants.

    `known` are symbols whose values the caller can give as further arguments. `outer` are those of them that
    the graph needs: symbols that no shape of its own inputs has.

    `arguments` are those of the first call: inputs are read in the order in which they lie in memory there.
    Outputs from number `saved` on are only read by another graph of dlc; images among them are channels last.

    Raises Unsupported if some of its nodes cannot be imported.
    """

    def __init__(
        self,
        module: GraphModule,
        static: Mapping[int, torch.Tensor],
        options: Options,
        known: Collection[sympy.Symbol] = (),
        *,
        arguments: Sequence[Any] | None = None,
        saved: int | None = None,
    ) -> None:
        self._arguments, self._saved = arguments, _images(module, saved)
        places = [node for node in module.graph.nodes if node.op == "placeholder"]
        examples = [node.meta.get("val") for node in places]
        own = Sizes(examples)
        self.outer = [s for s in sorted(_symbols_of(module), key=str) if s in known and not own.knows(s)]
        self._sizes = Sizes(examples, self.outer)
        with using_context(GraphContext()):
            self._import(module, places, static)
        found = next(node for node in reversed(module.graph.nodes) if node.op == "output").args[0]
        self.returns_tuple = isinstance(found, (list, tuple))
        self._exe: Executable | None = None
        self._fixed_threads = bool(options.num_threads)
        self._by_threads: dict[int, Executable] = {}
        if self._nodes:
            names = {"inputs": tuple(p.attrs["name"] for p in self._params)}
            names["outputs"] = tuple(f"output_{i}" for i in range(len(self._nodes)))
            body = self._nodes[0] if len(self._nodes) == 1 else make_tuple(self._nodes)
            rows = tuple(condition.row for _, condition in self._conditions)
            attrs = {**names, CONDITIONS: rows, **self._updates()}
            main = Function("main", tuple(self._params), body).with_attrs(**attrs)
            _check_known(main, self._conditions)
            threads = options.num_threads or torch.get_num_threads()
            self._exe = driver.compile(
                IRModule({"main": main}, {"source": "torch.compile", "name": "graph"}),
                options.target,
                num_threads=threads,
                precision=options.precision,
                opt_level=options.opt_level,
                config=options.config,
            )
            self._kinds = [value.type.dtype for value in self._exe.signature.outputs]
        elif self._conditions:
            node = self._conditions[0][0]
            error = UnsupportedError("an assertion in a graph that computes nothing")
            raise Unsupported([(node, error)], error)

    def _import(self, module: GraphModule, places: Sequence[Any], static: Mapping[int, Any]) -> None:
        symbols = Symbols(_ranges(places))
        importer = Importer(module, symbols, importers_for(), self._drawn)
        self._draws: list[Draw] = []
        self._params: list[Node] = []
        self._inputs: list[int] = []
        """The argument of each param; random numbers are further arguments after those of the graph."""
        self._count = len(places) + len(self.outer)
        self._orders: dict[int, tuple[int, ...]] = {}
        """Arguments that lie in memory with their dims in another order: they are read in that order."""
        self._carried: list[sympy.Symbol] = []
        """Symbols that are no dim of an input; further inputs have them, in this order."""
        values: list[Any] = []
        for index, place in enumerate(places):
            value = place.meta.get("val")
            if index in static:
                values.append(as_operand(static[index]))
            elif isinstance(value, torch.Tensor):
                order = permutation(value if self._arguments is None else self._arguments[index])
                ordered = value.shape if order is None else [value.shape[i] for i in order]
                type_ = border_type(value.dtype, symbols.shape(ordered))
                if type_ is None:
                    values.append(None)  # its users say that they do not take it
                    continue
                own = param(place.name, type_)
                self._params.append(own)
                self._inputs.append(index)
                made = unpacked(own) if value.is_complex() else own
                if order is not None:
                    self._orders[index] = order
                    made = _transposed(made, tuple(map(order.index, range(len(order)))))
                values.append(made)
            else:
                values.append(symbols.dim(value) if isinstance(value, torch.SymInt) else value)
        bare = {d for own in self._params for d in own.shape if isinstance(d, Var)}
        for symbol in sorted(_symbols_of(module), key=str):
            dim = symbols.symbol(symbol)
            if self._sizes.knows(symbol) and isinstance(dim, Var) and dim not in bare:
                # No shape has the dim itself: an array without elements does.
                self._params.append(param(f"size_{symbol}", TensorType((dim, 0), DType("bool"))))
                self._inputs.append(-1)
                self._carried.append(symbol)
        results = importer.converted(values)
        self._conditions = importer.conditions
        if importer.problems:
            raise Unsupported(importer.problems, importer.combined())
        self._nodes = importer.check_results()
        output = next(node for node in reversed(module.graph.nodes) if node.op == "output")
        sources = output.args[0] if isinstance(output.args[0], (list, tuple)) else [output.args[0]]
        given = {node: index for index, node in enumerate(places)}
        converted = results if isinstance(results, tuple) else (results,)
        self._shared = shared_bases(sources, places)
        self._makers: dict[Node | Complex, Any] = {}
        """The node of torch's graph that has the memory of a result."""
        self._outputs = [
            self._output(source, value, given, importer)
            for source, value in zip(sources, converted, strict=True)
        ]
        self._writes: list[tuple[int, int, Callable[[Sequence[torch.Tensor]], torch.Tensor]]] = []
        """Arguments that the graph writes to, with the result that is the new value, and how it is found. No
        output is this result: it may be in the argument's memory.
        """
        for target, value in importer.writes:
            made_new, position = importer.resolve(value), len(self._nodes)
            self._nodes.append(made_new.packed() if isinstance(made_new, Complex) else made_new)
            self._writes.append((given[target], position, self._taken(made_new, position)))

    def _updates(self) -> dict[str, Any]:
        """The attribute for inputs that the graph changes: they are updated in place."""
        places = {index: place for place, index in enumerate(self._inputs) if index not in self._orders}
        pairs = tuple(
            (places[index], position)
            for index, position, _ in self._writes
            if index in places and self._nodes[position].type == self._params[places[index]].type
        )
        return {UPDATES: pairs} if pairs else {}

    def _drawn(self, node: Any, type_: TensorType) -> Node:
        """The param for the numbers of a random operator."""
        own = param(node.name, type_)
        self._params.append(own)
        self._inputs.append(self._count + len(self._draws))
        self._draws.append(Draw(node, self._sizes))
        return own

    def _computed(self, value: Node | Complex) -> Callable[[Sequence[torch.Tensor]], torch.Tensor]:
        """Make a value a result of the compiled code. Returns how it is found among the results."""
        node = value.packed() if isinstance(value, Complex) else value
        if node not in self._nodes:
            self._nodes.append(node)
        return self._taken(value, self._nodes.index(node))

    @staticmethod
    def _taken(value: Node | Complex, position: int) -> Callable[[Sequence[torch.Tensor]], torch.Tensor]:
        """How a value is found among the results, of which it is the one at a position."""
        if isinstance(value, Complex):
            return lambda results: torch.view_as_complex(results[position])
        return lambda results: results[position]

    def _output(
        self, source: Any, value: Any, given: Mapping[Any, int], importer: Importer
    ) -> Callable[..., Any]:
        """How an output is found from the arguments and the results of a call."""
        base, steps = base_of(source, self._shared)
        if steps:
            try:
                view = Views(steps, self._sizes)
            except KeyError as unknown:
                error = UnsupportedError(f"a view whose size {unknown} depends on data is a result")
                raise Unsupported([(source, error)], error) from None
            of = self._output(base, importer.values[base], given, importer)
            return lambda arguments, results: view(of(arguments, results), arguments)
        if source in given and isinstance(source, torch.fx.Node):
            index = given[source]
            return lambda arguments, results: arguments[index]
        if isinstance(value, (Node, Complex)):
            if isinstance(value, Node) and value.op is CONST:
                kept = as_tensor(value.attrs["value"].data, value.dtype).clone()
                return lambda arguments, results: kept.clone()
            if source in self._saved and isinstance(value, Node):
                last = self._computed(std.transpose(value, axes=(0, *range(2, len(value.shape)), 1)))
                return lambda arguments, results: last(results).movedim(-1, 1)
            take = self._computed(value)
            if isinstance(source, torch.fx.Node) and not isinstance(source.meta.get("val"), torch.Tensor):
                return lambda arguments, results: take(results).item()
            if self._makers.setdefault(value, source) is not source:
                # dlc computes equal values once. In torch they have memory of their own.
                return lambda arguments, results: take(results).clone()
            return lambda arguments, results: take(results)
        size = source.meta.get("val") if isinstance(source, torch.fx.Node) else source
        if isinstance(size, torch.SymInt):
            if all(self._sizes.knows(symbol) for symbol in size.node.expr.free_symbols):
                return lambda arguments, results: self._sizes.value(size, arguments)
            take = self._computed(std.dims_tensor(dims=(importer.symbols.dim(size),)))  # data decide it
            return lambda arguments, results: int(take(results))
        return lambda arguments, results: size

    def _in_order(self, index: int, argument: torch.Tensor) -> torch.Tensor:
        order = self._orders.get(index)
        return argument if order is None else argument.permute(order)

    def _with_threads(self, exe: Executable) -> Executable:
        """The executable with the threads that torch has now, unless the options give their number."""
        count = 0 if self._fixed_threads else torch.get_num_threads()
        if count in (0, exe.num_threads):
            return exe
        found = self._by_threads.get(count)
        if found is None:
            found = self._by_threads[count] = exe.with_threads(count)
        return found

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        """The outputs for tensors and ints."""
        results: list[torch.Tensor] = []
        if self._draws:
            arguments += tuple(draw(arguments) for draw in self._draws)
        if self._exe is not None:
            carried = iter(self._carried)
            arrays = [
                as_array(self._in_order(index, arguments[index]))
                if index >= 0
                else np.empty((self._sizes.symbol(next(carried), arguments), 0), np.bool_)
                for index in self._inputs
            ]
            made = self._with_threads(self._exe)(*arrays)
            found = made if isinstance(made, tuple) else (made,)
            results = [as_tensor(array, kind) for array, kind in zip(found, self._kinds, strict=True)]
        outputs = tuple(find(arguments, results) for find in self._outputs)
        for index, _, take in self._writes:
            if not _is_same(arguments[index], take(results)):
                arguments[index].copy_(take(results))
        return outputs


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same elements in memory."""
    return bool(one.data_ptr() == other.data_ptr() and one.stride() == other.stride())


def _transposed(x: Node | Complex, axes: tuple[int, ...]) -> Node | Complex:
    return x.map(partial(std.transpose, axes=axes)) if isinstance(x, Complex) else std.transpose(x, axes=axes)


def _check_known(main: Function, conditions: Sequence[tuple[Any, Condition]]) -> None:
    """Raise Unsupported for assertions on sizes that neither the inputs nor the data of a function give."""
    unknown = unknown_conditions(main, conditions)
    if unknown:
        raise Unsupported(unknown, unknown[0][1])


def _images(module: GraphModule, saved: int | None) -> set[Any]:
    """The outputs from number `saved` on that are images: results of convolutions, and of operators that keep
    their dims and channels. Other outputs are none, so that nothing is computed twice.
    """
    if saved is None:
        return set()
    found: set[Any] = set()
    for node in module.graph.nodes:
        shape: tuple[Any, ...] = tuple(getattr(node.meta.get("val"), "shape", ()))
        if node.op == "call_function" and len(shape) > 3:
            same = any(
                _channels(each) == (len(shape), shape[1]) for each in node.all_input_nodes if each in found
            )
            if same or node.target is torch.ops.aten.convolution.default:
                found.add(node)
        elif isinstance(node.meta.get("val"), (tuple, list)) and found.intersection(node.all_input_nodes):
            found.add(node)
    output = next(node for node in reversed(module.graph.nodes) if node.op == "output").args[0]
    return found.intersection(output[saved:]).difference(output[:saved])


def _channels(node: Any) -> tuple[Any, Any]:
    """The rank and the number of channels of an image, or of the first of several results."""
    value = node.meta["val"]
    shape = (value[0] if isinstance(value, (tuple, list)) else value).shape
    return len(shape), shape[1]


def _symbols_of(module: GraphModule) -> set[sympy.Symbol]:
    """The symbols in the sizes of a graph's values."""
    found: set[sympy.Symbol] = set()
    for node in module.graph.nodes:
        value = node.meta.get("val")
        sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
        for size in sizes:
            if isinstance(size, torch.SymInt):
                found |= size.node.expr.free_symbols
    return found


def _ranges(places: Sequence[Any]) -> Mapping[Any, Any]:
    """The ranges of the symbols of a graph that sizes of inputs have, which torch guards. Those of symbols
    that depend on data are only what was traced.
    """
    for place in places:
        value = place.meta.get("val")
        sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
        for size in sizes:
            if isinstance(size, torch.SymInt):
                known = size.node.shape_env.var_to_range
                return {s: r for s, r in known.items() if not symbol_is_type(s, SymT.UNBACKED_INT)}
    return {}


__all__ = ["Part", "Unsupported"]
