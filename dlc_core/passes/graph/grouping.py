"""The grouping of nodes into kernels, which `fuse` turns into functions.

A group has one result, its *root*; every other member is used by members only.  So a group reads nothing that
depends on it, and the groups in the order of their roots are a valid order of execution.

1. *Anchors* (contractions, then reductions, in graph order) take the elementwise operations that follow, as
   long as values keep the anchor's shape: conv + add + relu. A diamond (x * sigmoid(x)) is taken as a whole.
2. All other nodes, from the results backwards, join the group of their users if that is one group. Otherwise
   they start a new group. Reductions take the producers of their input; contractions only producers of
   epilogue operands.

A node that widens narrow numbers (`node_kinds.DUPLICATED`) may be a member of several groups, each of which
computes it. A member that is read at several indices per result element is computed as many times. This
number is counted (`_Grouper.contexts_of`) and bounded. A reshape is free between groups, so it is never at a
group's edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlc_core.decisions import Decision
from dlc_core.diag import Span
from dlc_core.graph.node import Function, Node, post_order
from dlc_core.passes.graph.node_kinds import (
    ANCHORS,
    COSTLY,
    DATA_MOVEMENT,
    JOINING,
    POINTWISE,
    fuses_data_movement,
    interpolates,
    is_duplicated,
    is_smaller,
    is_windowed,
    keeps_innermost,
    kind_of,
)
from dlc_core.passes.heuristics import FUSION
from dlc_core.support.record import record

EPILOGUE = Decision(
    "fuse.epilogue",
    "Whether an elementwise operation after a contraction or reduction is computed in its kernel.",
    ("fused", "separate"),
)
PRODUCER = Decision(
    "fuse.producer",
    "Whether a value that one kernel reads is computed in that kernel, or in a separate one.",
    ("fused", "separate"),
)


@record(frozen=True)
class NotFused:
    """Why a producer is not in its consumer's kernel."""

    producer: Node
    consumer: Node
    reason: str

    @property
    def spans(self) -> tuple[Span, ...]:
        return (*self.producer.spans, *(s for s in self.consumer.spans if s not in self.producer.spans))

    def __str__(self) -> str:
        return f"{_label(self.producer)} -> {_label(self.consumer)}: {self.reason}"


def _label(value: Node) -> str:
    names = [span.name for span in value.spans if span.name]
    return f"{value.op.name} {names[-1]!r}" if names else value.op.name


@dataclass(eq=False)
class Group:
    """Nodes of one kernel; `members` in no order, `anchor` the contraction or reduction in it."""

    root: Node
    members: list[Node] = field(default_factory=list)
    anchor: Node | None = None


@record(frozen=True)
class Grouping:
    """The kernels of a function."""

    order: tuple[Node, ...]
    """All nodes, arguments first."""
    groups: Mapping[Node, Group]
    """The group of each member."""


class _Grouper:
    def __init__(self, function: Function, max_ops: int, data_movement: bool = False) -> None:
        self.max_ops = max_ops
        self.data_movement = data_movement
        self.order = tuple(post_order(function.body))
        self.index = {n: i for i, n in enumerate(self.order)}
        self.users: dict[Node, list[Node]] = {n: [] for n in self.order}
        for current in self.order:
            for arg in dict.fromkeys(current.args):
                self.users[arg].append(current)
        self.results = frozenset(function.results) | {function.body}
        self.kinds = {n: kind_of(n) for n in self.order}
        self.groups: dict[Node, Group] = {}
        self.contexts: dict[Node, frozenset[object]] = {}
        self.obstacles: dict[Node, str] = {}

    def run(self) -> Grouping:
        for kind in ANCHORS:
            for current in self.order:
                if self.kinds[current] == kind:
                    self.grow(current)
        for current in reversed(self.order):
            if self.kinds[current] in JOINING or self.kinds[current] == "view":
                self.assign(current)
            elif self.kinds[current] == "opaque":
                self.new_group(current)
        self.peel_views()
        return Grouping(self.order, self.groups)

    def new_group(self, root: Node, anchor: Node | None = None) -> Group:
        group = Group(root, [root], anchor)
        self.groups[root] = group
        self.contexts[root] = frozenset([None])
        return group

    # Phase 1: epilogues of anchors.

    def grow(self, anchor: Node) -> None:
        """Create the anchor's group, and extend it to the last node that postdominates all its values."""
        group = self.new_group(anchor, anchor)
        region: dict[Node, None] = {anchor: None}
        still_read = [anchor]
        obstacle = ""
        while not obstacle:
            if self.results.intersection(still_read):
                obstacle = "the producer is a result of the function"
                break
            nearest = min(
                (u for n in still_read for u in self.users[n] if u not in region), key=self.index.__getitem__
            )
            obstacle = self.epilogue_obstacle(nearest, anchor, len(region))
            if len(region) - len(group.members) >= FUSION.lookahead:
                obstacle = "the values of the kernel do not converge in one node soon"
            if not obstacle:
                region[nearest] = None
                still_read = [n for n in (*still_read, nearest) if self._is_read_outside(n, region)]
                if still_read == [nearest] and not self.is_left_to_users(nearest):
                    group.root, group.members = nearest, list(region)
        self.obstacles[group.root] = obstacle
        for member in group.members:
            self.groups[member] = group
            self.contexts[member] = frozenset([None])

    def is_left_to_users(self, value: Node) -> bool:
        """Whether a node should be computed in its consumers' kernels instead of its producer's epilogue."""
        kinds = {self.kinds[user] for user in self.users[value]}
        return is_duplicated(value) and value not in self.results and kinds <= {*JOINING, "reduction"}

    def _is_read_outside(self, value: Node, region: Mapping[Node, None]) -> bool:
        return value in self.results or any(u not in region for u in self.users[value])

    def epilogue_obstacle(self, consumer: Node, anchor: Node, size: int) -> str:
        """Return why a node cannot be in the epilogue of an anchor; empty if it can."""
        kind = self.kinds[consumer]
        if consumer in self.groups:
            return "the consumer belongs to another kernel"
        if kind in ("structural", "host", "view"):
            return f"the consumer {consumer.op.name} is not in a kernel"
        if (
            consumer.op.name == "transpose"
            and fuses_data_movement(anchor)
            and self.users[anchor] == [consumer]
        ):
            return ""
        if kind not in POINTWISE:
            return f"{_article(kind)} operation does not follow {_article(self.kinds[anchor])} in one kernel"
        if consumer.shape != anchor.shape:
            return "the consumer has another shape than the result of the kernel"
        if size >= self.max_ops:
            return f"the kernel has max_ops={self.max_ops} operations"
        chosen = EPILOGUE.choose(
            "fused",
            where=self.index[consumer],
            refused=lambda other: (
                f"{consumer.op.name} would read the results of {anchor.op.name} from memory"
            ),
            spans=consumer.spans,
        )
        return "" if chosen == "fused" else "the decision fuse.epilogue is forced"

    # Phase 2: all other nodes, from the results backwards.

    def assign(self, current: Node) -> None:
        if current in self.groups:
            return
        obstacle = self.joining_obstacle(current)
        if obstacle and self.duplicate(current):
            return
        if obstacle:
            self.obstacles[current] = obstacle
            if self.kinds[current] != "view":
                self.new_group(current)
            return
        group = self.groups[self.users[current][0]]
        group.members.append(current)
        self.groups[current] = group
        self.contexts[current] = self.contexts_of(current)

    def duplicate(self, current: Node) -> bool:
        """Add a cheap node to the group of each of its users. Return whether this is possible."""
        users = self.users[current]
        if not is_duplicated(current) or current in self.results or any(u not in self.groups for u in users):
            return False
        groups = {id(self.groups[u]): self.groups[u] for u in users}
        for user in users:
            group = self.groups[user]
            if self.pair_obstacle(current, user, group) or len(group.members) >= self.max_ops:
                return False
        for group in groups.values():
            group.members.append(current)
        self.contexts[current] = self.contexts_of(current)
        return True

    def joining_obstacle(self, current: Node) -> str:
        """Return why a node cannot join the group of its users; empty if it can."""
        users = self.users[current]
        if current in self.results:
            return "the producer is a result of the function"
        groups = {id(self.groups[u]) if u in self.groups else id(u) for u in users}
        if len(groups) != 1:
            return "the producer is used by several kernels"
        group = self.groups.get(users[0])
        if group is None:
            return f"the consumer {users[0].op.name} is not in a kernel"
        for user in users:
            obstacle = self.pair_obstacle(current, user, group)
            if obstacle:
                return obstacle
        if len(group.members) >= self.max_ops:
            return f"the kernel has max_ops={self.max_ops} operations"
        if self.kinds[current] == "view" and not keeps_innermost(current):
            return "the reshape changes the innermost dimension"
        times = len(self.contexts_of(current))
        if times > (1 if current.op.name in COSTLY else FUSION.contexts):
            return f"the producer would be computed {times} times for each element"
        chosen = PRODUCER.choose(
            "fused",
            where=self.index[current],
            refused=lambda other: (
                f"{users[0].op.name} would read the results of {current.op.name} from memory"
            ),
            spans=current.spans,
        )
        return "" if chosen == "fused" else "the decision fuse.producer is forced"

    def pair_obstacle(self, current: Node, user: Node, group: Group) -> str:
        kind, used_by = self.kinds[current], self.kinds[user]
        if kind not in (*JOINING, "view"):
            return f"{_article(kind)} operation is not computed inside its consumer"
        if used_by == "opaque":
            return "the consumer is opaque"
        anchored = group.anchor is not None and self.kinds[group.anchor] == "contraction"
        if anchored and used_by not in POINTWISE:
            # The user is the contraction, or data movement before it.
            moves = kind == "view" or current.op.name in DATA_MOVEMENT
            through = self.data_movement or (group.anchor is not None and fuses_data_movement(group.anchor))
            return "" if through and moves else "a contraction reads its operands many times"
        if anchored and (kind not in POINTWISE or current.shape != group.root.shape):
            return "only elementwise operations on its own shape enter a contraction's epilogue"
        if used_by == "reduction" and is_windowed(user):
            return "a reduction over windows reads each element many times"
        if interpolates(current) and interpolates(user):
            return "an interpolation reads each element many times"
        if user.op.name == "concat" and current.op.name not in DATA_MOVEMENT and kind != "view":
            return "a concatenation reads each input in a part of its range only"
        if current.op.name in COSTLY and is_smaller(current.shape, user.shape) and used_by in JOINING:
            return "the costly producer has fewer elements than its consumer"
        return ""

    def contexts_of(self, current: Node) -> frozenset[object]:
        """Return the access contexts of a member. It is computed once per context for each root element."""
        found: set[object] = set()
        for user in self.users[current]:
            same = self.kinds[user] in POINTWISE and user.shape == current.shape
            for position in (k for k, arg in enumerate(user.args) if arg is current):
                for context in self.contexts[user]:
                    found.add(context if same else (user, position, context))
        return frozenset(found)

    def peel_views(self) -> None:
        """Remove reshapes at the edge of a group from it, because a reshape between groups is a view."""
        for current in self.order:
            if self.kinds[current] != "view" or current not in self.groups:
                continue
            group = self.groups[current]
            if all(self.groups.get(arg) is not group for arg in current.args):
                group.members.remove(current)
                del self.groups[current]

    def why_not(self) -> list[NotFused]:
        found = []
        for consumer in self.order:
            if self.kinds[consumer] in ("structural", "host"):
                continue
            for producer in dict.fromkeys(consumer.args):
                if self.kinds[producer] == "structural":
                    continue
                group = self.groups.get(producer)
                if group is None or group is not self.groups.get(consumer):
                    found.append(NotFused(producer, consumer, self.reason(producer, consumer)))
        return found

    def reason(self, producer: Node, consumer: Node) -> str:
        if self.kinds[producer] == "host":
            return f"{producer.op.name} has no lowering and runs by its reference on the host"
        if self.kinds[producer] == "opaque" or self.kinds[consumer] == "opaque":
            return "an opaque operation is a kernel of its own"
        if "view" in (self.kinds[producer], self.kinds[consumer]):
            return self.obstacles.get(producer) or "a reshape at the edge of a kernel costs nothing"
        return self.obstacles[producer]


def _article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def _limit(max_ops: int | None) -> int:
    return FUSION.max_ops if max_ops is None else max_ops


def group_nodes(function: Function, max_ops: int | None = None, data_movement: bool = False) -> Grouping:
    """Group the nodes of a function into kernels of at most `max_ops` operations.

    `max_ops=None` takes the heuristic `fusion.max_ops`. With `data_movement`, transposes, slices and other
    data movement before a contraction are in its kernel.
    """
    return _Grouper(function, _limit(max_ops), data_movement).run()


def why_not(
    function: Function, max_ops: int | None = None, data_movement: bool = False
) -> tuple[NotFused, ...]:
    """Return the reason for each pair of producer and consumer in different kernels."""
    grouper = _Grouper(function, _limit(max_ops), data_movement)
    grouper.run()
    return tuple(grouper.why_not())
