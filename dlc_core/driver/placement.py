"""The targets that take the nodes of a graph which is compiled for several targets.

A target takes the regions of its partitioners and, if it has a code generator, every op that this supports.
The last target takes the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from dlc_core.diag import UsageError
from dlc_core.driver.parts import device_of
from dlc_core.driver.support import supported
from dlc_core.driver.target_list import Targets
from dlc_core.driver.trial import unscheduled
from dlc_core.graph.node import STRUCTURAL, Function, Node, functions_of, post_order
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType, Type
from dlc_core.passes.graph.node_seconds import NodeSeconds
from dlc_core.passes.graph.partition import Placement
from dlc_core.passes.graph.place_by_cost import CostModel, asked_seconds
from dlc_core.passes.graph.regions import Candidate
from dlc_core.passes.lower.host import why_host
from dlc_core.passes.lower.views import is_view
from dlc_core.plugin.registry import registry
from dlc_core.plugin.used import failed_hooks, provider_text
from dlc_core.rewrite.pattern import Match, any_op
from dlc_core.runtime.device import shares_memory
from dlc_core.target import Target
from dlc_core.target.partitioner import Partitioner, Region, RegionPattern, Verdict


def placement_of(targets: Targets) -> Placement | None:
    """The placement of a compile; None if one target takes everything."""
    candidates = [candidate for one in targets.others for candidate in candidates_of(one)]
    own = candidates_of(targets.host, general=False)
    if not candidates and not own:
        return None
    costs = _cost_model([*candidates, *own], targets) if targets.placement == "cost" else None
    automatic = targets.automatic | {str(targets.host)} if own else targets.automatic
    failed = tuple(failed_hooks("partitioners"))
    return Placement(targets.host, (*candidates, *own), automatic, targets.place, unscheduled, failed, costs)


def _cost_model(candidates: Sequence[Candidate], targets: Targets) -> CostModel:
    """The costs of nodes: those of a target's code generator, else of the cost model."""
    models = {one: NodeSeconds(one) for one in (*(each.target for each in candidates), targets.host)}
    memories = {one: device_of(one) for one in models}

    def seconds(n: Node, target: Target, resident: int) -> float | None:
        codegen = registry().codegens[target.codegen] if target.codegen else None
        cost = getattr(codegen, "cost", None)
        if cost is None:
            return models[target](n, resident)
        what = f"`cost` of code generator {target.codegen!r} failed on {n.op.name}, for {target}"
        details = list(filter(None, [provider_text("codegens", target.codegen)]))
        return asked_seconds(lambda: cost(n, target), what, n, details)

    return CostModel(seconds, lambda target: not shares_memory(memories[target]))


def candidates_of(target: Target, general: bool = True) -> list[Candidate]:
    """The partitioners of a target's kind.

    With `general` they include one that takes every op which the code generator supports.
    """
    kind = target.kind
    found = [p for p in registry().partitioners.values() if p.target == kind.name]
    if general and kind.codegen:
        pattern = RegionPattern("op", any_op(), _is_expressed)
        found.append(Partitioner(kind.name, kind.name, (pattern,), worth=_computes))
    return [Candidate(target, each, provider_text("partitioners", each.name)) for each in found]


def _is_expressed(found: Match, target: Target) -> Verdict:
    """Whether a target's code generator supports a node."""
    n = found.root
    description = target.describe()
    if target.stages[:-1]:  # without, the target runs graphs directly
        verdict: Verdict = why_host(n, description.control) or _dtypes_fit(n, description.dtypes)
        if verdict is not True:
            return verdict
    return supported(n, target)


def _computes(region: Region, target: Target) -> Verdict:
    """Whether a region has more than views, which are free on the target that holds the values."""
    nodes = (n for n in post_order(region.function.body) if n.op.name not in STRUCTURAL)
    return not all(map(is_view, nodes)) or "it has only views"


def _dtypes_fit(root: Node, dtypes: tuple[str, ...]) -> Verdict:
    """Whether all values of a node and of its functions have one of these dtypes; empty means all."""
    if not dtypes:
        return True
    work = [root]
    for n in work:
        types = [n.type, *(arg.type for arg in n.args)]
        for type_ in types:
            for name in _dtypes(type_):
                if name not in dtypes:
                    return f"it does not compute in {name}"
        work += [inner for function in functions_of(n) for inner in post_order(function.body)]
    return True


def _dtypes(type_: Type) -> list[str]:
    fields = [type_] if isinstance(type_, TensorType) else type_.fields
    return [name for f in fields for name in ([f.dtype.name] if isinstance(f, TensorType) else _dtypes(f))]


def check_placement(placement: Placement, module: IRModule) -> None:
    """Raise UsageError for a name of `place` that is no op and no pattern, and matches no model node."""
    wanted = [name for name, _ in placement.place]
    known = {*registry().ops, *placement.patterns()}
    unknown = [name for name in wanted if name not in known]
    if not unknown:
        return
    nodes = _node_names(module)
    for name in unknown:
        if not any(fnmatchcase(one, name) for one in nodes):
            raise UsageError(
                f"`place` names {name!r}, which is no op and no pattern, and matches no node of the model",
                details=[f"patterns: {', '.join(placement.patterns()) or 'none'}"],
                hint="name nodes as in the model; * matches any text",
            )


def _node_names(module: IRModule) -> set[str]:
    names: set[str] = set()
    work: list[Function] = list(module.of_kind(Function).values())
    for function in work:
        for n in post_order(function.body):
            names.update(span.name for span in n.spans if span.name)
            work += functions_of(n)
    return names


__all__ = ["candidates_of", "check_placement", "placement_of"]
