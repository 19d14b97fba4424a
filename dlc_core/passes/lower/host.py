"""Ops that cannot be native run on the host: the entry becomes a program of host ops and calls of native
segments.

Ops without a lowering, ops with dims that their inputs do not determine, and control flow around such ops (on
targets without branches, all control flow) stay in the entry.  The attribute `host` marks it, and they run by
their references.  Everything else moves into as few functions with the attribute `segment` as dependences
allow; the entry, and the bodies of its control flow, call them by `call_prim`.

Graph functions that calls name (recursive ones, see `graph/resolve_calls.py`) are segments if they can be
native, else host programs of their own, which the entry's attribute `functions` has.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar

from dlc_core.graph.data_dims import data_dims
from dlc_core.graph.dims import CONDITIONS, dims_bound_by, dims_required_by, dims_solved_from
from dlc_core.graph.extract import REGION, extract, is_region, reads_of
from dlc_core.graph.node import (
    CALL,
    CALL_PRIM,
    CONST,
    GET,
    PARAM,
    STRUCTURAL,
    TUPLE,
    Function,
    Node,
    Op,
    functions_of,
    involves_texts,
    node,
    post_order,
    rewrite,
    users_of,
)
from dlc_core.ir.dtype import STRING
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType
from dlc_core.op.declare import OpDecl, fresh_dims
from dlc_core.op.std.bounded_loops import GROWING_LOOP
from dlc_core.op.std.control import IF, LOOP, body_dims
from dlc_core.op.std.creation import FULL
from dlc_core.op.std.data_dims import DIM_OF, WITH_DIMS
from dlc_core.passes.base import Pass, PassContext
from dlc_core.passes.graph.resolve_calls import kept_functions
from dlc_core.passes.lower.control import is_control
from dlc_core.passes.lower.views import is_view
from dlc_core.runtime.host_program.nodes import FUNCTIONS
from dlc_core.support.record import record

DATA_DIMS = "the number of its results is data-dependent"
RESHAPED: dict[Op, str] = {
    IF: "the shapes of its results are data-dependent",
    LOOP: "its state changes its shape between iterations",
}
"""Why control flow with `sizes` cannot be native."""


def is_host(function: Function) -> bool:
    """Whether a function runs on the host and calls native segments."""
    return bool(function.attrs.get("host"))


def native_entries(module: IRModule) -> dict[str, Function]:
    """Return the graph functions that become native entry points: the segments, and the module's entry if it
    is native.
    """
    entry = module.functions.get(module.entry)
    native = {module.entry: entry} if isinstance(entry, Function) and not is_host(entry) else {}
    return native | {n: f for n, f in module.of_kind(Function).items() if f.attrs.get("segment")}


@record(frozen=True)
class HostSegments(Pass):
    """Split an entry with nodes that cannot be native. The module's attribute `host` lists these with
    reasons.
    """

    name: ClassVar[str] = "host_segments"
    stage: ClassVar[str] = "lower"

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        entry = module.functions.get(module.entry)
        if not isinstance(entry, Function):
            return module
        target = context.target
        control = target is not None and target.describe().control
        return _with_host_program(module, entry, control)


@record(frozen=True)
class HostRegions(Pass):
    """For a graph that runs directly: an entry that calls regions of other targets becomes a host program."""

    name: ClassVar[str] = "host_regions"
    stage: ClassVar[str] = "interface"

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        entry = module.functions.get(module.entry)
        if not isinstance(entry, Function) or not _calls_regions(entry):
            return module
        return _with_host_program(module, entry, control=False, native=False)


def _calls_regions(function: Function) -> bool:
    work = [function]
    for each in work:
        for n in post_order(each.body):
            inner = functions_of(n)
            if n.op is CALL and is_region(inner[0]):
                return True
            work += inner
    return False


def _with_host_program(module: IRModule, entry: Function, control: bool, native: bool = True) -> IRModule:
    """Make the entry a host program if it cannot be native. Without `native`, all nodes run on the host."""
    segments: dict[str, Function] = dict(module.functions)
    report = _Report()
    named = kept_functions(module)
    texts = any(p.dtype is STRING for p in entry.params)
    host_dims = data_dims(entry)
    if native and not texts and host_dims:
        plain = entry.with_body(_without_host_dims(entry.body, set(host_dims)))
        if not _Partition(plain, {}, _Report(), control, known=host_dims).reasons:
            return module.with_function(module.entry, plain)
    partition = _Partition(entry, segments, report, control, native, named=named)
    if not partition.reasons and not texts:
        return module
    host = [_partitioned(module[name], segments, report, control, native, named) for name in sorted(named)]
    attrs: dict[str, Any] = {**entry.attrs, "host": True}
    if any(host):
        attrs[FUNCTIONS] = tuple(f for f in host if f is not None)
    marked = replace(partition.build(), attrs=MappingProxyType(attrs))
    return replace(module, functions={**segments, module.entry: marked}).with_attrs(
        host=tuple(report.host), native=tuple(report.native)
    )


def _partitioned(
    function: Function,
    segments: dict[str, Function],
    report: _Report,
    control: bool,
    native: bool,
    named: frozenset[str],
) -> Function | None:
    """Divide a function that calls name. Return its host program; None if it becomes a segment."""
    partition = _Partition(function, segments, report, control, native, named=named)
    if not partition.reasons:
        segments[function.name] = function.with_attrs(segment=True)
        return None
    made = segments[function.name] = partition.build().with_attrs(host=True)
    return made


def _without_host_dims(body: Node, host_dims: Container[Var]) -> Node:
    """Remove the nodes that compute host-computed dims, because the caller passes these dims."""

    def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
        if old.op is DIM_OF and old.attrs["size"] in host_dims:
            return FULL.build(shape=old.tensor_type.shape, value=0, dtype=old.dtype)
        if old.op is WITH_DIMS and all(arg.op is FULL for arg in args[:-1]):
            return args[-1]
        return None

    return rewrite(body, visit)


def why_host(n: Node, control: bool = False, named: Container[str] = ()) -> str:
    """Return why a node cannot be native in any context; empty if it can be.

    `control` says whether native entries may branch and loop. `named` are the graph functions that calls
    name.
    """
    if n.op is CALL_PRIM and n.attrs["symbol"] in named:
        return f"it calls the function {n.attrs['symbol']}"
    if n.op is CALL:
        if is_region(n.attrs["function"]):
            return f"it is compiled for {n.attrs['function'].attrs[REGION]}"
        return next(filter(None, map(why_host, post_order(n.attrs["function"].body))), "")
    if n.op is GROWING_LOOP:
        return DATA_DIMS
    if functions_of(n):
        if n.attrs.get("sizes"):
            return RESHAPED[n.op]
        why = _why_control(n, named) if control else ""
        return why if control and is_control(n) else why or "control flow"
    if isinstance(n.op, OpDecl) and involves_texts(n):
        return "strings are supported on the host only"
    if isinstance(n.op, OpDecl) and n.op.lower is None and n.op.compose is None:
        return DATA_DIMS if n.op.fresh else "the op has no lowering"
    return ""


def _why_control(n: Node, named: Container[str]) -> str:
    """Return why control flow cannot be native because of its bodies; empty if it can be."""
    for function in functions_of(n):
        if function.attrs.get(CONDITIONS):
            return "a branch that may not be taken is valid for some sizes only"
        known = body_dims(n, function)
        for inner in post_order(function.body):
            why = why_host(inner, True, named)
            if why:
                return f"control flow around {inner.op.name}: {why}"
            if any(v not in known for v in dims_required_by(inner)):
                return "control flow around dims that are known only when it runs"
    return ""


@dataclass
class _Report:
    """The report as plain data: ops on the host with the reason, and the contents of each segment."""

    host: list[dict[str, Any]] = field(default_factory=list)
    native: list[dict[str, Any]] = field(default_factory=list)


def _sources(order: Sequence[Node]) -> dict[Var, Node]:
    """Map each data-dependent dim to the node that defines it."""
    found: dict[Var, Node] = {}
    for n in order:
        for var in fresh_dims(n):
            found.setdefault(var, n)
    return found


def _op_names(nodes: Iterable[Node]) -> list[str]:
    """The names of the ops of nodes, also of those in fused groups."""
    names = []
    for n in nodes:
        inner = post_order(n.attrs["function"].body) if n.op is CALL else (n,)
        names += [each.op.name for each in inner if each.op.name not in STRUCTURAL]
    return names


class _Partition:
    """The partition of one function into host nodes and native segments."""

    def __init__(
        self,
        function: Function,
        segments: dict[str, Function],
        report: _Report,
        control: bool,
        native: bool = True,
        known: Iterable[Var] = (),
        inner: bool = False,
        named: frozenset[str] = frozenset(),
    ) -> None:
        """`known` are dims that the caller passes. `named` are the graph functions that calls name.

        An `inner` function is a body of control flow. The shapes of its params may have dims that no argument
        determines.
        """
        self.inner = inner
        self.named = named
        self.control = control
        self.known = frozenset(known)
        self.native = native
        self.function = function
        self._dims_memo: dict[Node, set[Var]] = {}
        """The dims that the shape of a value determines."""
        self.segments = segments
        self.report = report
        self.order = list(post_order(function.body))
        self.users = users_of(function.body)
        self.sources = _sources(self.order)
        self.reasons = {n: why for n in self.order if (why := why_host(n, control, named))}
        if not native:  # tensor programs are segments: a host evaluates nodes, and calls code
            programs = {n for n in self.order if n.op is CALL_PRIM and n.attrs["symbol"] not in named}
            plain = (n for n in self.order if n.op not in (PARAM, CONST) and n not in programs)
            self.reasons = dict.fromkeys(plain, "") | self.reasons
        self._assign()
        while unknown := self._without_dims():
            self.reasons.update(dict.fromkeys(unknown, "its dims are known only when it has run"))
            self._assign()

    def _assign(self) -> None:
        """Assign each node to the host or to a segment.

        The depth of a node is the number of changes from host to native before it. Native nodes of equal
        depth form a segment.
        """
        self.host: set[Node] = set()
        self.depth: dict[Node, int] = {}
        for n in self.order:
            structural = n.op in (TUPLE, WITH_DIMS) or (n.op is GET and n.args[0] in self.host)
            if n in self.reasons or structural:
                self.host.add(n)
            step = 0 if n in self.host else 1
            before = n.args
            if self.sources:
                # A node runs after the node that defines a dim it uses, even if it does not read that node.
                definitions = dict.fromkeys(self.sources[v] for v in dims_required_by(n) if v in self.sources)
                before = (*before, *(source for source in definitions if source is not n))
            self.depth[n] = max((self.depth[a] + step * (a in self.host) for a in before), default=0)
        levels: dict[int, list[Node]] = {}
        for n in self.order:
            if n not in self.host and n.op not in (PARAM, CONST):
                levels.setdefault(self.depth[n], []).append(n)
        for depth, members in list(levels.items()):
            if all(is_view(n) for n in members):
                self.host.update(members)
                del levels[depth]
        self.levels = levels

    def _inputs(self, depth: int) -> list[Node]:
        """Return the inputs of a segment: values that it reads, or whose shapes determine its dims."""
        reads = dict.fromkeys(reads_of(dict.fromkeys(self.levels[depth])))
        known = {v for a in reads for v in self._dims_of(a)}
        for var in self._dims_used(depth):
            if var not in known:
                source = next((a for a in self._available(depth) if var in self._dims_of(a)), None)
                if source is not None:
                    reads[source] = None
                    known.update(self._dims_of(source))
        return list(reads)

    def _available(self, depth: int) -> Iterable[Node]:
        for n in (*self.function.params, *self.order):
            computed_before = n.op is PARAM or self.depth[n] < depth
            if (
                computed_before
                and n.op is not CONST
                and isinstance(n.type, TensorType)
                and n.dtype is not STRING
            ):
                yield n

    def _dims_of(self, n: Node) -> set[Var]:
        found = self._dims_memo.get(n)
        if found is None:
            found = self._dims_memo[n] = (dims_solved_from if self.inner else dims_bound_by)(n)
        return found

    def _dims_used(self, depth: int) -> list[Var]:
        return list(dict.fromkeys(v for n in self.levels[depth] for v in dims_required_by(n)))

    def _without_dims(self) -> list[Node]:
        """Return the native nodes that use a dim which no segment input determines."""
        found = []
        for depth, members in self.levels.items():
            known = self.known.union(v for a in self._inputs(depth) for v in self._dims_of(a))
            found += [n for n in members if any(v not in known for v in dims_required_by(n))]
        return found

    # The new function

    def build(self) -> Function:
        """Return the host program. Add its segments to the dictionary, and the reasons to the report."""
        new: dict[Node, Node] = {n: n for n in self.order if n.op is CONST}
        new.update((n, n) for n in self.function.params)
        for depth in range(max(self.depth.values(), default=0) + 1):
            if depth in self.levels:
                self._segment(depth, new)
            for n in self.order:
                if n in self.host and self.depth[n] == depth:
                    new[n] = self._on_host(n, new)
        return self.function.with_body(new[self.function.body])

    def _on_host(self, n: Node, new: dict[Node, Node]) -> Node:
        if n.op is CALL and is_region(n.attrs["function"]):
            function = n.attrs["function"]
            self.segments[function.name] = function
            return node(CALL_PRIM, [new[a] for a in n.args], {"symbol": function.name}, n.type)
        if self.reasons.get(n) and n.op is not WITH_DIMS:
            nodes = [s.name or str(s) for s in n.spans]
            self.report.host.append({"op": n.op.name, "nodes": nodes, "why": self.reasons[n]})
        attrs = dict(n.attrs)
        if n.op is not CALL:
            for name, value in n.attrs.items():
                if isinstance(value, Function):
                    attrs[name] = _Partition(
                        value,
                        self.segments,
                        self.report,
                        self.control,
                        self.native,
                        inner=True,
                        named=self.named,
                    ).build()
        made = node(n.op, [new[a] for a in n.args], attrs, n.type)
        made.add_spans(n.spans)
        return made

    def _segment(self, depth: int, new: dict[Node, Node]) -> None:
        members = self.levels[depth]
        inside = set(members)
        name = self._fresh_name()
        made = extract(
            name, members, self._inputs(depth), lambda n: self._escapes(n, inside), {"segment": True}
        )
        self.segments[name] = made.function
        spans = dict.fromkeys(s.name or str(s) for n in members for s in n.spans)
        self.report.native.append({"name": name, "ops": _op_names(members), "nodes": list(spans)})
        call = node(CALL_PRIM, [new[a] for a in made.inputs], {"symbol": name}, made.function.body.type)
        new.update(made.results(call))

    def _escapes(self, n: Node, inside: set[Node]) -> bool:
        return n is self.function.body or any(user not in inside for user in self.users[n])

    def _fresh_name(self) -> str:
        number = 0
        while f"segment_{number}" in self.segments:
            number += 1
        return f"segment_{number}"


__all__ = ["HostRegions", "HostSegments", "is_host", "native_entries", "why_host"]
