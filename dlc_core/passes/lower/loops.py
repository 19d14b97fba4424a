"""grow_loops: loops with a data-dependent number of iterations become native, part by part.

Law: the entry computes the same values.  A `loop` that stacks results cannot be one native call, because the
size of its results is unknown.  A `bounded_loop` runs its iterations as long as the results have capacity.  A
`growing_loop` on the host calls it with increasing capacity.  So the memory of a call follows its iterations,
with at most twice as many rows in addition to the joined result, and the host runs a part for each power of
two.

    loop(s, iterations=n, cond=c, body=f)
        =>      growing_loop(s, iterations=n, first_capacity=4096, part=p)
                p(s, room) = bounded_loop(s, capacity=len(room), cond=c, body=f)

Loops that contain host ops, or whose state changes its shape, are unchanged.
"""

from __future__ import annotations

from typing import ClassVar

from dlc_core.graph.node import Function, Node, get_item, make_tuple, node, param, rewrite
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType, static_bytes
from dlc_core.op.std.bounded_loops import BOOL, BOUNDED_LOOP, GROWING_LOOP
from dlc_core.op.std.control import LOOP
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.heuristics import MEMORY
from dlc_core.passes.lower.control import invariant_state
from dlc_core.passes.lower.host import why_host
from dlc_core.passes.lower.views import result_types
from dlc_core.support.record import record


@record(frozen=True)
class GrowLoops(GraphPass):
    """Make loops native on targets that branch and loop.

    The first part of a loop has a capacity of `first_bytes`, or of `first_iterations` rows if their size is
    symbolic.  None takes the heuristics `memory.loop_bytes` and `memory.loop_rows`.
    """

    name: ClassVar[str] = "grow_loops"
    stage: ClassVar[str] = "lower"
    first_bytes: int | None = None
    first_iterations: int | None = None

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        target = context.target
        return super().run(module, context) if target is not None and target.describe().control else module

    def run_function(self, function: Function, context: PassContext) -> Function:
        body = rewrite(function.body, self._visit)
        return function if body is function.body else function.with_body(body)

    def _visit(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        if old.op is not LOOP or old.attrs["sizes"]:
            return None
        cond, body = old.attrs["cond"], old.attrs["body"]
        state = [param(p.attrs["name"], arg.type) for p, arg in zip(body.params, args, strict=True)]
        capacity = param("room", TensorType((Var("room"),), BOOL))
        made = BOUNDED_LOOP.build(*state, capacity=capacity.shape[0], cond=cond, body=body)
        if why_host(made, control=True):
            return None
        invariant = invariant_state(body, len(state))
        results = [get_item(made, i) for i in range(len(result_types(made)))]
        kept = [p if is_invariant else result for p, is_invariant, result in zip(state, invariant, results)]
        part = Function("part", (*state, capacity), make_tuple([*kept, *results[len(state) :]]))
        attrs = {name: old.attrs[name] for name in ("iterations", "max_iterations")}
        attrs |= {"first_capacity": self._first(old), "part": part}
        return node(GROWING_LOOP, args, attrs, old.type)

    def _first(self, value: Node) -> int:
        """Return the number of iterations that the first part has capacity for."""
        rows = [TensorType(t.shape[1:], t.dtype) for t in result_types(value)[len(value.args) :]]
        sizes = [static_bytes(row) for row in rows]
        static = [size for size in sizes if size is not None]
        if len(static) < len(sizes):
            return MEMORY.loop_rows if self.first_iterations is None else self.first_iterations
        most = MEMORY.loop_bytes if self.first_bytes is None else self.first_bytes
        return max(most // max(sum(static), 1), 1)
