"""partition: assign parts of the graph to other targets.

Law: the function computes the same values. Each part for another target is one `call` of a closed function
with the attribute `region`, the target's text. No call depends on its own result.

    y = relu(conv(x, w)); softmax(y)      =>      softmax(call(x){region_0})

A partitioner may also replace a match by a node of its choice, which stays in the graph:

    matmul(x, w)      =>      call_dps(x, w){function=vendor.gemm}

The context's `placement` determines which target takes which nodes; without it the pass does nothing. The
module's attribute `placed` lists for each region its target, nodes and bytes, and for each node why an
earlier target did not take it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import count
from typing import Any, ClassVar

from dlc_core.diag import TargetError
from dlc_core.graph.dims import dims_bound_by, dims_required_by
from dlc_core.graph.extract import REGION, Extracted, extract, reads_of
from dlc_core.graph.node import (
    CALL,
    CONST,
    PARAM,
    STRUCTURAL,
    Function,
    Node,
    call_function,
    functions_of,
    node,
    only_spans,
    post_order,
    rewrite,
    users_of,
)
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import static_bytes
from dlc_core.passes.base import Pass, PassContext
from dlc_core.passes.graph.place_by_cost import CostModel, CostPlacement
from dlc_core.passes.graph.regions import Candidate, Cover, Graph, RegionPart, merged
from dlc_core.rewrite.pattern import match
from dlc_core.support.record import record
from dlc_core.target.partitioner import Part, Region, RegionPattern
from dlc_core.target.target import Target

PARTITIONER, PARTS = "partitioner", "parts"
"""Attributes of regions: the partitioner; the pattern of each part and its root's index in post order."""
NO_MATCH = "no pattern matches"


@record(frozen=True)
class Placement:
    """The targets of a compile.

    `candidates` are in order of preference, both for the targets `automatic` and for those that take only
    what is placed on them. `host` takes the rest. `place` pairs names (of ops, of patterns as
    `partitioner.pattern`, of model nodes with wildcards) with targets. If several match a node, the last one
    counts.
    """

    host: Target
    candidates: tuple[Candidate, ...]
    automatic: frozenset[str]
    place: tuple[tuple[str, str], ...] = ()
    unscheduled: Callable[[Function, Target, PassContext], Mapping[Node, str]] = lambda *_: {}
    """The nodes of a region that no schedule rule of a target's kind schedules, with the reasons."""
    not_asked: tuple[str, ...] = ()
    """Plugins whose partitioners are not known, because their hook failed, each with the reason."""
    costs: CostModel | None = None
    """The costs that decide which target takes a node that several could; None for the order of targets."""

    def patterns(self) -> Mapping[str, RegionPattern]:
        """Return the patterns of all candidates by the names that `place` may use."""
        return {f"{t.partitioner.name}.{p.name}": p for t in self.candidates for p in t.partitioner.patterns}

    def pins(self, order: Sequence[Node]) -> dict[Node, str]:
        """Return the nodes that `place` assigns, with their targets."""
        found: dict[Node, str] = {}
        patterns = self.patterns()
        for name, target in self.place:
            for n in order:
                if n.op.name in STRUCTURAL:
                    continue
                if n.op.name == name or any(fnmatchcase(s.name, name) for s in n.spans if s.name):
                    found[n] = target
                elif name in patterns and (made := match(patterns[name].pattern, n)) is not None:
                    found.update((m, target) for m in made.nodes if m.op is not CONST)
        return found


@record(frozen=True)
class Partition(Pass):
    """Assign parts of the graph to other targets, by the context's placement."""

    name: ClassVar[str] = "partition"
    checks_model: ClassVar[bool] = True

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        entry = module.functions.get(module.entry)
        if context.placement is None or not isinstance(entry, Function):
            return module
        partitioner = _Partitioner(context.placement, context)
        made = partitioner.function(entry)
        return module.with_function(module.entry, made).with_attrs(placed=partitioner.record())


@dataclass
class _Partitioner:
    """Splits functions into regions, which are numbered over all functions."""

    placement: Placement
    context: PassContext
    numbers: Iterator[int] = field(default_factory=count)
    regions: list[dict[str, Any]] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)
    costs: list[dict[str, Any]] = field(default_factory=list)
    """The predicted times of each function, that of the model first."""

    def record(self) -> dict[str, Any]:
        """Return the report of the partition as plain data."""
        return {
            "host": str(self.placement.host),
            "regions": self.regions,
            "replaced": self.replaced,
            "why_not": self.refused,
            **({"costs": self.costs} if self.costs else {}),
            **({"not_asked": self.placement.not_asked} if self.placement.not_asked else {}),
        }

    def function(self, function: Function) -> Function:
        """Replace the regions of a function by calls, also in bodies of control flow outside of regions."""
        order = list(post_order(function.body))
        graph = Graph(order, users_of(function.body), function.body)
        cover, regions = self._regions(graph)
        self._record_refusals(graph, cover)
        return function.with_body(self._rebuilt(graph, regions))

    def _regions(self, graph: Graph) -> tuple[Cover, list[_FoundRegion]]:
        pins = self.placement.pins(graph.order)
        declined: dict[tuple[Node, Candidate], str] = {}

        def offer(candidate: Candidate) -> Callable[[Node], bool]:
            own = str(candidate.target)
            is_automatic = own in self.placement.automatic

            def offered(n: Node) -> bool:
                pin = pins.get(n)
                return (is_automatic if pin is None else pin == own) and (n, candidate) not in declined

            return offered

        while True:
            cover, costs = self._cover(graph, pins, offer)
            found = [_FoundRegion.of(graph, parts) for parts in merged(graph, cover.parts)]
            refusals = [(n, each, why) for each in found if (why := each.why_not()) for n in each.members]
            if not refusals:
                refusals = [(n, each, why) for each in found for n, why in self._unscheduled(each).items()]
            if not refusals:
                break
            declined.update(((n, each.candidate), why) for n, each, why in refusals)
        for (n, candidate), why in declined.items():
            cover.refuse(n, candidate, why)
        self.costs += costs
        return cover, found

    def _cover(
        self, graph: Graph, pins: Mapping[Node, str], offer: Callable[[Candidate], Callable[[Node], bool]]
    ) -> tuple[Cover, list[dict[str, Any]]]:
        """The matches that targets get, and the report of their costs if these decide."""
        cover, placement = Cover(graph), self.placement
        if placement.costs is None:
            for candidate in placement.candidates:
                cover.add(candidate, offer(candidate))
            return cover, []
        covers: dict[Target, Cover] = {}
        own = [each for each in placement.candidates if each.target == placement.host]
        for candidate in placement.candidates:
            if candidate not in own:
                covers.setdefault(candidate.target, Cover(graph)).add(candidate, offer(candidate))
        choice = CostPlacement(graph, placement.host, covers, pins, placement.costs)
        for each in covers.values():
            cover.add_refusals(each)
        for part in choice.chosen():
            cover.take(part)
        for part, why in choice.refusals():
            for n in part.members:
                cover.refuse(n, part.candidate, why)
        for candidate in own:
            cover.add(candidate, offer(candidate))
        return cover, [choice.report()]

    def _unscheduled(self, region: _FoundRegion) -> dict[Node, str]:
        """The members of a region that no schedule rule of its target's kind schedules, with the reasons."""
        partitioner, target = region.candidate.partitioner, region.candidate.target
        if target.kind.rules is None or partitioner.compile or partitioner.replacement:
            return {}
        found = self.placement.unscheduled(region.extracted.function, target, self.context)
        return {n: found[copy] for n in region.members if (copy := region.extracted.copies[n]) in found}

    def _record_refusals(self, graph: Graph, cover: Cover) -> None:
        """Record why nodes are not on a preferred target."""
        target_of = {n: str(part.candidate.target) for part in cover.parts for n in part.members}
        targets = list(dict.fromkeys(str(t.target) for t in self.placement.candidates))
        pins = self.placement.pins(graph.order)
        # What no pattern matches stays on the target itself.
        replacing = {str(t.target) for t in self.placement.candidates if t.partitioner.replacement}
        for n in graph.order:
            if n.op.name in STRUCTURAL:
                continue
            own = target_of.get(n)
            before = targets[: targets.index(own)] if own is not None else targets
            for target in before:
                reasons = cover.refused.get(n, {}).get(target, [])
                if n in pins and pins[n] != target:
                    reasons = [f"it is placed on {pins[n]}"]
                elif (
                    not reasons
                    and n not in pins
                    and (target not in self.placement.automatic or target in replacing)
                ):
                    continue
                names = [s.name or str(s) for s in n.spans]
                refusal = {"op": n.op.name, "nodes": names, "target": target}
                self.refused.append({**refusal, "reasons": reasons or [NO_MATCH]})

    def _rebuilt(self, graph: Graph, regions: Sequence[_FoundRegion]) -> Node:
        """Rebuild the body with calls of the regions."""
        region_of = {n: region for region in regions for n in region.members}
        new: dict[Node, Node] = {n: n for n in graph.order if n.op in (PARAM, CONST)}
        work = [graph.body]
        while work:
            n = work[-1]
            region = region_of.get(n)
            missing = [a for a in (n.args if region is None else region.inputs) if a not in new]
            if n in new or missing:
                work += missing[::-1]
                if n in new:
                    work.pop()
                continue
            if region is None:
                new[n] = self._kept(n, new)
            else:
                new.update(self._called(region, new))
        return new[graph.body]

    def _kept(self, n: Node, new: Mapping[Node, Node]) -> Node:
        attrs = dict(n.attrs)
        if n.op is not CALL and functions_of(n):
            for name, value in n.attrs.items():
                if isinstance(value, Function):
                    attrs[name] = self.function(value)
        args = tuple(new[a] for a in n.args)
        if args == n.args and attrs == dict(n.attrs):
            return n
        with only_spans(n.spans):
            return node(n.op, args, attrs, n.type)

    def _called(self, region: _FoundRegion, new: Mapping[Node, Node]) -> dict[Node, Node]:
        args = [new[a] for a in region.inputs]
        with only_spans(tuple(dict.fromkeys(s for n in region.members for s in n.spans))):
            if region.candidate.partitioner.replacement is not None:
                self.replaced.append(region.title())
                return region.extracted.results(_replaced(region, args))
            function = replace(region.extracted.function, name=f"region_{next(self.numbers)}")
            self.regions.append(region.record(function.name))
            return region.extracted.results(call_function(function, args))


@record(frozen=True, eq=False)
class _FoundRegion:
    """A region: its parts, and its nodes as a function."""

    candidate: Candidate
    parts: tuple[RegionPart, ...]
    members: tuple[Node, ...]
    extracted: Extracted

    @staticmethod
    def of(graph: Graph, parts: Sequence[RegionPart]) -> _FoundRegion:
        candidate = parts[0].candidate
        inside = dict.fromkeys(n for part in parts for n in part.members)
        members = tuple(sorted(inside, key=graph.position.__getitem__))
        attrs = {REGION: str(candidate.target), PARTITIONER: candidate.partitioner.name}
        made = extract("region", members, reads_of(inside), lambda n: graph.escapes(n, inside), attrs)
        positions = {n: i for i, n in enumerate(post_order(made.function.body))}
        patterns = tuple((part.pattern.name, positions[made.copies[part.root]]) for part in parts)
        function = made.function.with_attrs(**{PARTS: patterns})
        return _FoundRegion(candidate, tuple(parts), members, replace(made, function=function))

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.extracted.inputs

    def why_not(self) -> str:
        """Return why it cannot be a region, or why its partitioner refuses it; empty if it is accepted."""
        known = {v for a in self.inputs for v in dims_bound_by(a)}
        missing = dict.fromkeys(v.name for n in self.members for v in dims_required_by(n) if v not in known)
        if missing:
            return f"its inputs do not determine the dims {', '.join(missing)}"
        region, candidate = region_of(self.extracted.function, self.candidate), self.candidate
        spans = (s for n in self.members for s in n.spans)
        return candidate.refusal(
            "worth", lambda: candidate.partitioner.worth(region, candidate.target), spans
        )

    def title(self) -> str:
        """Return its ops, partitioner and pattern as text."""
        ops = " ".join(n.op.name for n in self.members if n.op.name not in STRUCTURAL)
        return f"{ops}: {self.candidate.partitioner.name}: {self.parts[0].pattern.name}"

    def record(self, name: str) -> dict[str, Any]:
        """Return the report of a region as plain data."""
        spans = dict.fromkeys(s.name or str(s) for n in self.members for s in n.spans)
        patterns = dict.fromkeys(part.pattern.name for part in self.parts)
        return {
            "name": name,
            "target": str(self.candidate.target),
            "partitioner": self.candidate.partitioner.name,
            "patterns": list(patterns),
            "ops": [n.op.name for n in self.members if n.op.name not in STRUCTURAL],
            "nodes": list(spans),
            "bytes_in": static_bytes(*(n.type for n in self.inputs)),
            "bytes_out": static_bytes(*(n.type for n in self.extracted.escaping)),
        }


def _replaced(region: _FoundRegion, args: Sequence[Node]) -> Node:
    """The node that a partitioner returns in place of a match, over the arguments of its region. Raises
    TargetError if the partitioner fails, or if the node has another type.
    """
    function, partitioner = region.extracted.function, region.candidate.partitioner
    assert partitioner.replacement is not None
    (part,) = region_of(function, region.candidate).parts
    root = part.match.root
    what = f"partitioner {partitioner.name!r} cannot replace {part.pattern}"
    where = [region.candidate.where()]
    try:
        made: object = partitioner.replacement(part.match, region.candidate.target)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise TargetError(what, why=why, spans=root.spans, details=where) from error
    if not isinstance(made, Node):
        why = f"it returned a {type(made).__name__}, not a node"
        raise TargetError(what, why=why, spans=root.spans, details=where)
    if made.type != root.type:
        why = f"its node is {made.type}, not {root.type}"
        raise TargetError(what, why=why, spans=root.spans, details=where)
    given = dict(zip(function.params, args, strict=True))
    return rewrite(made, lambda old, _: given.get(old))


def region_of(function: Function, candidate: Candidate) -> Region:
    """Return the input of a region's compiler."""
    patterns = {p.name: p for p in candidate.partitioner.patterns}
    order = list(post_order(function.body))
    parts = []
    for name, index in function.attrs[PARTS]:
        found = match(patterns[name].pattern, order[index])
        assert found is not None
        parts.append(Part(name, found))
    return Region(function.name, function, tuple(parts))


__all__ = ["PARTITIONER", "PARTS", "Partition", "Placement", "region_of"]
