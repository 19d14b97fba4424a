"""The nodes of a region whose kernels no rule of its target schedules.

A target whose kind lists its schedule rules refuses kernels that none of these schedules.  Which kernels a
region has is known only after the passes of the target.  So the region is lowered on trial, as far as its
schedules: each node has a span of its own, and the spans of a kernel name its nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlc_core.diag import DlcError, Span, first_names
from dlc_core.driver.stages import pipelines
from dlc_core.graph.node import (
    CONST,
    PARAM,
    STRUCTURAL,
    Function,
    GraphContext,
    Node,
    functions_of,
    node,
    only_spans,
    param,
    post_order,
    using_context,
)
from dlc_core.ir.module import IRModule
from dlc_core.passes import PassContext, Pipeline
from dlc_core.passes.reproducer import REPRODUCERS
from dlc_core.passes.tir.schedule_kernels import NoRuleError, ScheduleKernels
from dlc_core.target import Target
from dlc_core.tir.stmt import PrimFunc

_MARK = "dlc.node"
"""The source of the spans that number nodes."""
_SHOWN = 3


def unscheduled(function: Function, target: Target, context: PassContext) -> dict[Node, str]:
    """Return the nodes of a region that are in kernels without a schedule, with the reason.

    Of a kernel with a contraction and other nodes these are only the others, so that a rule may schedule the
    contraction alone.  A region that fails to compile for another reason has none: its compile reports that.
    """
    marked, originals = _marked(function)
    inner = context.with_(target=target, placement=None, watchers=(), config={REPRODUCERS: ""})
    module = IRModule({"main": marked})
    found: dict[Node, str] = {}
    try:
        for kernel, rule in _kernels(module, inner):
            try:
                rule.run_function(kernel, inner)
            except NoRuleError as error:
                numbers = [int(s.name) for s in kernel.spans if s.source == _MARK]
                own = [originals[i] for i in numbers]
                nodes = _first_to_move(own) or _all_of(function)
                found.update(dict.fromkeys(nodes, _reason(kernel, own, error)))
    except DlcError:
        return {}
    return found


def _kernels(module: IRModule, context: PassContext) -> Iterable[tuple[PrimFunc, ScheduleKernels]]:
    """The kernels of a module before they are scheduled, with the pass that schedules them."""
    for pipeline in pipelines(context.target, context).values():
        active = pipeline.active(context).passes
        at = next((i for i, one in enumerate(active) if isinstance(one, ScheduleKernels)), None)
        module = Pipeline(active[:at]).run(module, context)
        if at is not None:
            kernels: Iterable[PrimFunc] = module.of_kind(PrimFunc).values()
            rule = active[at]
            assert isinstance(rule, ScheduleKernels)
            return [(kernel, rule) for kernel in kernels]
    return []


def _marked(function: Function) -> tuple[Function, list[Node]]:
    """A copy of a function whose nodes have their number as span, and the nodes by number."""
    originals = list(post_order(function.body))
    copies: dict[Node, Node] = {}
    with using_context(GraphContext()):
        params = [param(p.attrs["name"], p.type) for p in function.params]
        copies.update(zip(function.params, params, strict=True))
        for number, n in enumerate(originals):
            if n.op is CONST:
                copies[n] = n
            elif n.op is not PARAM:
                with only_spans((Span(_MARK, str(number)),)):
                    copies[n] = node(n.op, [copies[a] for a in n.args], n.attrs, n.type)
    return Function("main", tuple(params), copies[function.body]), originals


def _first_to_move(nodes: list[Node]) -> list[Node]:
    """The nodes of a kernel without a schedule that go to another target first."""
    others = [n for n in nodes if getattr(n.op, "kind", "") != "contraction"]
    return others if others and len(others) < len(nodes) else nodes


def _all_of(function: Function) -> list[Node]:
    """The nodes for a kernel that belongs to no single node: those with bodies, else all."""
    nodes = [n for n in post_order(function.body) if n.op.name not in STRUCTURAL]
    return [n for n in nodes if functions_of(n)] or nodes


def _reason(kernel: PrimFunc, nodes: Sequence[Node], error: NoRuleError) -> str:
    is_added = not any(n.op.name in kernel.name for n in nodes)
    added = " (added by a pass)" if is_added else ""
    tried = first_names([detail.partition("\n")[0] for detail in error.details], _SHOWN)
    return f"kernel {kernel.name}{added}: {error.why}{f': {tried}' if tried else ''}"


__all__ = ["unscheduled"]
