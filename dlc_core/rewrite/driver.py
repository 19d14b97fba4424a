"""Rewriting to a fixpoint: after it, no rule fires anywhere in the graph.

Every distinct node is brought to normal form once, arguments first. The replacement that a rule makes is
normalised in turn. The order of the rules and of the graph determines the result. Two conditions end an
infinite rewriting: a replacement that contains the node itself, and a limit on the number of rewrites.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dlc_core.cancel import checkpoint
from dlc_core.diag import PassError
from dlc_core.graph.node import CONST, Function, Node, Op, node, spanned
from dlc_core.rewrite.pattern import may_match
from dlc_core.rewrite.rule import Rule, by_root
from dlc_core.support.record import record

MOST_ARGUMENTS = 4
"""Rules are not chosen by the ops of arguments for nodes of more arguments."""


@record(frozen=True)
class Rewritten:
    """A normal form, and how many times each rule fired."""

    body: Node
    counts: Counter[str]


class Rewriter:
    """Applies rules. Results are kept between calls of `normal`."""

    def __init__(self, rules: Sequence[Rule], limit: int | None = None) -> None:
        """`limit` is the largest number of rewrites; by default 20 for each node and 1000 more."""
        self.table: dict[Op, list[Rule]] = by_root(rules)
        self.counts: Counter[str] = Counter()
        self.limit = limit
        self.memo: dict[Node, Node] = {}
        self._fitting: dict[tuple[Op, tuple[Op, ...]], Sequence[Rule]] = {}
        self._active: dict[Node, Rule] = {}
        self._seen = 0
        self._fired = 0

    def normal(self, root: Node) -> Node:
        """The normal form of a node.  Raises PassError if the rewriting does not terminate."""
        memo = self.memo
        # (node, whether its arguments are done, the rebuilt node, the replacement by a rule)
        stack: list[tuple[Node, bool, Node | None, Node | None]] = [(root, False, None, None)]
        while stack:
            current, visited, rebuilt, made = stack.pop()
            if made is not None:
                assert rebuilt is not None
                self._active.pop(rebuilt, None)
                memo[current] = memo[rebuilt] = memo[made]
            elif visited:
                self._finish(current, stack)
            elif current not in memo:
                checkpoint()
                if current in self._active:
                    raise self._endless(
                        current, f"{self._active[current].name!r} produces the node that it rewrote"
                    )
                self._seen += 1
                stack.append((current, True, None, None))
                stack.extend((arg, False, None, None) for arg in reversed(current.args) if arg not in memo)
        return memo[root]

    def _finish(self, current: Node, stack: list[tuple[Node, bool, Node | None, Node | None]]) -> None:
        memo = self.memo
        if current in memo:
            return
        args = tuple([memo[arg] for arg in current.args])
        rebuilt = current
        if args != current.args:
            with spanned(current.spans):
                rebuilt = node(current.op, args, current.attrs, current.type)
            if rebuilt in memo:
                memo[current] = memo[rebuilt]
                memo[current].add_spans(current.spans)
                return
        made = self._fire(rebuilt)
        if made is None:
            memo[current] = memo[rebuilt] = rebuilt
            return
        stack.append((current, True, rebuilt, made))
        stack.append((made, False, None, None))

    def _fire(self, current: Node) -> Node | None:
        for rule in self._candidates(current):
            found = rule.find(current)
            if found is None:
                continue
            with spanned(current.spans):
                new = rule.replace(found)
            if new is None:
                continue
            for matched in found.nodes:
                if matched.op is not CONST:
                    new.add_spans(matched.spans)
            self.counts[rule.name] += 1
            self._fired += 1
            limit = 1000 + 20 * self._seen if self.limit is None else self.limit
            if self._fired > limit:
                raise self._endless(current, f"the limit of {limit} rewrites is reached")
            self._active[current] = rule
            return new
        return None

    def _candidates(self, current: Node) -> Sequence[Rule]:
        """The rules whose patterns fit the op of a node and those of its arguments."""
        rules = self.table.get(current.op)
        if not rules:
            return ()
        if len(current.args) > MOST_ARGUMENTS:
            return rules
        ops = tuple([arg.op for arg in current.args])
        key = (current.op, ops)
        fitting = self._fitting.get(key)
        if fitting is None:
            fitting = self._fitting[key] = tuple(rule for rule in rules if may_match(rule.pattern, ops))
        return fitting

    def _endless(self, current: Node, why: str) -> PassError:
        busiest = ", ".join(f"{name} {count}" for name, count in self.counts.most_common(5))
        return PassError(
            f"the rewriting of {current.op.name} does not terminate",
            spans=current.spans,
            why=why,
            details=[f"rules that fired most: {busiest}"],
        )


def rewrite_body(body: Node, rules: Sequence[Rule], limit: int | None = None) -> Rewritten:
    """The normal form of a graph."""
    rewriter = Rewriter(rules, limit)
    return Rewritten(rewriter.normal(body), rewriter.counts)


def rewrite_function(function: Function, rules: Sequence[Rule]) -> tuple[Function, Counter[str]]:
    """The function with its body in normal form, and how many times each rule fired."""
    result = rewrite_body(function.body, rules)
    same = result.body is function.body
    return (function if same else function.with_body(result.body)), result.counts
