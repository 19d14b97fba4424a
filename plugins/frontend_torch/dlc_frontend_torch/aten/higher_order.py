"""Control flow of torch: `cond`, `while_loop`, `scan` and `map`.

Their bodies are graph modules whose operands are explicit. Each becomes a closed function. Constants among
the operands are constants of the bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dlc_core.graph.node import CONST, Function, Node, get_item, make_tuple, param
from dlc_core.ir.types import TensorType
from dlc_core.op import std
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import converter


class _Body:
    """A graph module as a function. `operands` are the values that it gets, in its order. `moved` are the
    tensors among them, which are arguments of the function; `types` are the types of its params.
    """

    def __init__(self, c: Call, operands: Sequence[Any]) -> None:
        self._call, self._operands = c, operands
        self.moved = [each for each in operands if isinstance(each, Node) and each.op is not CONST]

    def function(
        self,
        name: str,
        module: Any,
        types: Sequence[TensorType],
        results: Callable[[list[Node], list[Node]], Sequence[Node]] = lambda made, params: made,
        always_tuple: bool = True,
    ) -> Function:
        """The function. `results` gives its results from those of the module and from its params."""
        params = [param(f"{name}{index}", type_) for index, type_ in enumerate(types)]
        given = iter(params)
        inputs = [next(given) if each in self.moved else each for each in self._operands]
        made = self._call.scope.inline(module, inputs)
        tensors = [self._tensor(each) for each in (made if isinstance(made, tuple) else (made,))]
        found = list(results(tensors, params))
        return Function(name, tuple(params), found[0] if not always_tuple else make_tuple(found))

    def _tensor(self, value: Any) -> Node:
        if not isinstance(value, Node):
            raise self._call.unsupported("a body whose result is no tensor")
        return value


def _types(values: Sequence[Node]) -> list[TensorType]:
    return [each.tensor_type for each in values]


def _fields(made: Node, count: int) -> list[Node]:
    return [get_item(made, index) for index in range(count)]


@converter("higher_order.cond")
def cond(c: Call, predicate: Any, chosen: Any, other: Any, operands: Sequence[Any] = ()) -> Any:
    if isinstance(predicate, bool):
        return c.scope.inline(chosen if predicate else other, operands)
    body = _Body(c, operands)
    types = _types(body.moved)
    functions = [body.function(name, module, types) for name, module in (("then", chosen), ("else", other))]
    made = std.if_(
        c.tensor(predicate, "bool"), *body.moved, then_branch=functions[0], else_branch=functions[1]
    )
    return tuple(_fields(made, len(functions[0].results)))


@converter("higher_order.while_loop")
def while_loop(
    c: Call, condition: Any, step: Any, carried: Sequence[Any], additional: Sequence[Any] = ()
) -> Any:
    if not all(isinstance(each, Node) for each in carried):
        raise c.unsupported("a loop that carries a Python number", hint="carry a tensor: torch.tensor(n)")
    # The state of the first iteration may be a constant, that of the next ones is not.
    state = [std.identity(each) if each.op is CONST else each for each in carried]
    body = _Body(c, (*state, *additional))
    types = _types(body.moved)
    count = len(state)
    test = body.function("condition", condition, types, always_tuple=False)
    advance = body.function("step", step, types, lambda made, params: [*made, *params[count:]])
    made = std.while_(*body.moved, cond=test, body=advance)
    return tuple(_fields(made, count))


def _scanned(
    c: Call, module: Any, init: Sequence[Node], xs: Sequence[Node], additional: Sequence[Any], name: str
) -> tuple[list[Node], list[Node]]:
    """The last state, and the stacked results. The module gets state, slices and additional values."""
    state = [std.identity(each) if each.op is CONST else each for each in init]
    slices = [std.identity(each) if each.op is CONST else each for each in xs]
    body = _Body(c, (*state, *slices, *additional))
    kept = body.moved[len(state) + len(slices) :]
    count, width = len(state), len(slices)
    rows = [TensorType(each.shape[1:], each.dtype) for each in slices]
    # Values that do not change are state, which `scan` has first.
    order = [
        *range(count),
        *range(count + len(kept), count + len(kept) + width),
        *range(count, count + len(kept)),
    ]
    types = [*_types(state), *_types(kept), *rows]
    inner = body.function(
        name,
        module,
        [types[i] for i in order],
        lambda made, params: [*made[:count], *params[count + width :], *made[count:]],
    )
    params = [inner.params[order.index(position)] for position in range(len(types))]
    function = Function(name, tuple(params), inner.body)
    made = std.scan(*state, *kept, *slices, num_state=count + len(kept), body=function)
    fields = _fields(made, len(function.results))
    return fields[:count], fields[count + len(kept) :]


@converter("higher_order.scan")
def scan(c: Call, combine: Any, init: Sequence[Node], xs: Sequence[Node], *options: Any) -> Any:
    # torch 2.6 gives the dim and the direction too. Newer versions transpose and flip around the operator.
    *order, additional = options or ((),)
    if order not in ([], [0, False]):
        raise c.unsupported("a scan in reverse or along another dim than the first", hint="use torch 2.7")
    state, stacked = _scanned(c, combine, init, xs, additional, "combine")
    return (*state, *stacked)


@converter("higher_order.map_impl")
def map_(c: Call, function: Any, xs: Sequence[Node], additional: Sequence[Any] = ()) -> Any:
    return tuple(_scanned(c, function, (), xs, additional, "each")[1])
