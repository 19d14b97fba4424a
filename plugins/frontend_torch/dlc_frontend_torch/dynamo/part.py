"""A functional graph of supported operators, compiled: `Part`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import sympy
import torch
from torch.fx import GraphModule

from dlc_core import driver
from dlc_core.diag import UnsupportedError
from dlc_core.graph.dims import CONDITIONS
from dlc_core.graph.node import Function, GraphContext, Node, make_tuple, param, using_context
from dlc_core.graph.updates import UPDATES
from dlc_core.ir.conditions import Condition
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType
from dlc_core.runtime.executable import Executable
from dlc_core.runtime.memory.host import address
from dlc_frontend_torch.complex_value import border_type, transposed, unpacked
from dlc_frontend_torch.custom import importers_for
from dlc_frontend_torch.dynamo.drawing import Draw
from dlc_frontend_torch.dynamo.images import saved_images
from dlc_frontend_torch.dynamo.options import Options
from dlc_frontend_torch.dynamo.results import Results
from dlc_frontend_torch.dynamo.sizes import Sizes, ranges_of, symbols_of
from dlc_frontend_torch.dynamo.unsupported import Unsupported
from dlc_frontend_torch.dynamo.views import inverse, permutation
from dlc_frontend_torch.guards import unknown_conditions
from dlc_frontend_torch.importer import Importer
from dlc_frontend_torch.symbols import Symbols
from dlc_frontend_torch.weights import as_array, as_operand, as_tensor


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
        self._arguments, self._images = arguments, saved_images(module, saved)
        places = [node for node in module.graph.nodes if node.op == "placeholder"]
        examples = [node.meta.get("val") for node in places]
        own = Sizes(examples)
        self.outer = [s for s in sorted(symbols_of(module), key=str) if s in known and not own.knows(s)]
        self._sizes = Sizes(examples, self.outer)
        with using_context(GraphContext()):
            self._import(module, places, static)
        found = next(node for node in reversed(module.graph.nodes) if node.op == "output").args[0]
        self.returns_tuple = isinstance(found, (list, tuple))
        self._exe: Executable | None = None
        self._kinds: list[DType] = []
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
                cache="kernels",
            )
            self._kinds += [value.type.dtype for value in self._exe.signature.outputs]
        elif self._conditions:
            node = self._conditions[0][0]
            error = UnsupportedError("an assertion in a graph that computes nothing")
            raise Unsupported([(node, error)], error)

    def _import(self, module: GraphModule, places: Sequence[Any], static: Mapping[int, Any]) -> None:
        symbols = Symbols(ranges_of(places))
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
                    made = transposed(made, inverse(order))
                values.append(made)
            else:
                values.append(symbols.dim(value) if isinstance(value, torch.SymInt) else value)
        bare = {d for own in self._params for d in own.shape if isinstance(d, Var)}
        for symbol in sorted(symbols_of(module), key=str):
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
        output = next(node for node in reversed(module.graph.nodes) if node.op == "output")
        sources = output.args[0] if isinstance(output.args[0], (list, tuple)) else [output.args[0]]
        found = Results(importer, self._sizes, places, self._images)
        self._outputs = found.outputs(sources, results if isinstance(results, tuple) else (results,))
        given = {node: index for index, node in enumerate(places)}
        self._writes = [
            (given[target], *found.written(importer.resolve(value))) for target, value in importer.writes
        ]
        """Arguments that the graph writes to, with the result that is the new value, and how it is found."""
        self._nodes = found.nodes

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
        found: Sequence[np.ndarray[Any, Any]] = ()
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
        # New values of arguments come last, and are mostly in the arguments' memory.
        count = len(found) - len(self._writes)
        results = list(map(as_tensor, found[:count], self._kinds))
        outputs = tuple(find(arguments, results) for find in self._outputs)
        for (index, _, take), array in zip(self._writes, found[count:], strict=True):
            if not _is_same(arguments[index], array):
                results += map(as_tensor, found[len(results) :], self._kinds[len(results) :])
                arguments[index].copy_(take(results))
        return outputs


def _is_same(one: torch.Tensor, other: np.ndarray[Any, Any]) -> bool:
    """Whether a tensor and a contiguous array are the same elements in memory."""
    return bool(one.data_ptr() == address(other) and one.is_contiguous())


def _check_known(main: Function, conditions: Sequence[tuple[Any, Condition]]) -> None:
    """Raise Unsupported for assertions on sizes that neither the inputs nor the data of a function give."""
    unknown = unknown_conditions(main, conditions)
    if unknown:
        raise Unsupported(unknown, unknown[0][1])


__all__ = ["Part"]
