"""Results that no kernel writes for itself (inputs, constants, one value twice) become copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from dlc_core.graph.node import (
    CALL_PRIM,
    PARAM,
    Function,
    Node,
    get_item,
    make_tuple,
    node,
    param,
    post_order,
    rewrite,
)
from dlc_core.graph.updates import updates_of
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TupleType, Type
from dlc_core.op.std.bands import JOIN_BANDS
from dlc_core.passes.base import Pass, PassContext
from dlc_core.passes.lower.control import invariant_state, is_control, is_step, with_bodies
from dlc_core.passes.lower.group import lower_group
from dlc_core.passes.lower.hazards import memory_of
from dlc_core.passes.lower.host import native_entries
from dlc_core.passes.lower.joins import is_join
from dlc_core.passes.lower.names import unique_name
from dlc_core.passes.lower.updates import updated_tensor
from dlc_core.passes.lower.views import origin, result_types
from dlc_core.support.record import record
from dlc_core.tir.stmt import PrimFunc


def results_of(function: Function) -> list[Node]:
    """Return the result tensors of a function, in order."""
    return [
        get_item(result, index) if isinstance(result.type, TupleType) else result
        for result in function.results
        for index in range(len(result_types(result)))
    ]


@record(frozen=True)
class CopyResults(Pass):
    """Make every result of a native entry a separate output of a kernel, by inserting copies."""

    name: ClassVar[str] = "copy_results"
    stage: ClassVar[str] = "lower"

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        kernels: dict[str, PrimFunc] = {}
        by_type: dict[Type, PrimFunc] = {}

        def copy_of(value: Node) -> Node:
            func = by_type.get(value.type)
            if func is None:
                source = param("source", value.type)
                name = unique_name("copy", {**module.functions, **kernels})
                func = by_type[value.type] = lower_group(Function(name, (source,), source), name)
                kernels[name] = func
            return node(CALL_PRIM, (value,), {"symbol": func.name, "dims": func.scalars}, value.type)

        entries = {
            n: _with_separate_results(_with_new_values(f, module, copy_of), copy_of)
            for n, f in native_entries(module).items()
        }
        return module.with_functions(entries).with_functions(kernels) if kernels else module


def _with_new_values(entry: Function, module: IRModule, copy_of: Callable[[Node], Node]) -> Function:
    """Copy the new values of updated inputs, unless kernels write them into the memory of the inputs."""
    pairs = updates_of(entry)
    if not pairs:
        return entry
    results = list(entry.results)
    for source, output in pairs:
        tensor = origin(results[output])
        if updated_tensor(tensor, module) == (entry.params[source], 0) and tensor[0].op is not PARAM:
            continue
        # An input may be overwritten before another input gets its value.
        copied = copy_of(results[output]) if memory_of(results[output])[0].op is PARAM else results[output]
        results[output] = copy_of(copied)
    return entry.with_body(results[0] if len(results) == 1 else make_tuple(results))


def _with_separate_results(entry: Function, copy_of: Callable[[Node], Node], state: int = 0) -> Function:
    """Copy results that need their own output.

    The first `state` results, the state of a loop's body, may be its params: unchanged state is not copied.
    """

    def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
        if not is_control(old):
            return None
        return with_bodies(old, args, lambda body, count: _with_separate_results(body, copy_of, count))

    entry = entry.with_body(rewrite(entry.body, visit))
    # A part inside of another value cannot be an output.
    joins = (n for n in post_order(entry.body) if n.op is JOIN_BANDS)
    taken: set[tuple[Node, int]] = {(arg, 0) for join in joins for arg in join.args}
    results = []
    invariant = invariant_state(entry, state)
    for index, result in enumerate(results_of(entry)):
        if index < state and invariant[index]:
            results.append(result)
            continue
        # Equal calls are one node. The second copy of a value is therefore a copy of the first copy.
        while not is_written(origin(result)[0]) or origin(result) in taken:
            result = copy_of(result)
        taken.add(origin(result))
        results.append(result)
    return entry.with_body(results[0] if len(results) == 1 else make_tuple(results))


def is_written(value: Node) -> bool:
    """Whether kernels write a value, or its parts in place."""
    return is_step(value) or is_join(value)


__all__ = ["CopyResults", "is_written", "results_of"]
