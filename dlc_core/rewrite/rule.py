"""Rewrite rules as data.

    Rule("double_neg", match_op(NEG, match_op(NEG, x)), x, doc="-(-x) = x")

A rule keeps the type of the replaced node. A rule that does not keep the bits of every result is
`approximate`. `rewrite.check` tests a rule by evaluating both sides on its examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dlc_core.diag import PassError, UsageError
from dlc_core.graph.node import Node, Op, constant
from dlc_core.ir.expr import Expr
from dlc_core.ir.types import TensorType, TupleType, Type
from dlc_core.op.declare import OpDecl
from dlc_core.rewrite.pattern import (
    AttrVar,
    Match,
    NumberPattern,
    OpPattern,
    Pattern,
    VarPattern,
    match,
)
from dlc_core.support.record import record

Replacement = Pattern | Callable[[Match], Node | None]
Example = Callable[[str], Node]
"""Makes, for a dtype, a node that the rule rewrites; its free values are fresh params."""


@record(frozen=True, eq=False)
class Rule:
    """`pattern` is replaced by `replacement` if `condition` holds.

    A replacement is a pattern over the same names, or a function of the match. If the function returns None,
    the node stays as it is.
    """

    name: str
    pattern: OpPattern
    replacement: Replacement
    condition: Callable[[Match], bool] | None = None
    approximate: bool = False
    """Whether bits of results may change (within the op's tolerance)."""
    doc: str = ""
    """The identity, and why it holds."""
    examples: Sequence[Example] = ()
    """Nodes to test it on; without any, they are made from the pattern."""
    dtypes: tuple[str, ...] = ()
    """The dtypes to test it with; by default those of the root op."""
    applied_by: str = "simplify"
    """The pass that applies it. A pass other than `simplify` lists its rules itself."""

    @property
    def roots(self) -> tuple[Op, ...]:
        """The ops whose nodes it may rewrite."""
        return self.pattern.ops

    def find(self, root: Node) -> Match | None:
        """The match at a node; None if there is none, or if the condition does not hold."""
        found = match(self.pattern, root)
        return found if found is None or self.condition is None or self.condition(found) else None

    def replace(self, found: Match) -> Node | None:
        """Return the replacement of a match, or None if the rule does not apply.

        It does not apply if types are equal only under a condition on symbolic dims: [2] and [n] joined along
        another axis.  Raises PassError if the replacement has another type.
        """
        root = found.root
        if isinstance(self.replacement, Pattern):
            new: Node | None = instantiate(self.replacement, found)
        else:
            new = self.replacement(found)
        if new is None or new is root:
            return None
        if new.type != root.type:
            if _may_be_equal(new.type, root.type):
                return None
            raise PassError(
                f"rule {self.name!r} changes the type of {root.op.name} from {root.type} to {new.type}",
                spans=root.spans,
            )
        return new

    def apply(self, root: Node) -> Node | None:
        """Return the replacement of a node; None if the rule does not apply."""
        found = self.find(root)
        return None if found is None else self.replace(found)


def instantiate(pattern: Pattern, found: Match) -> Node:
    """The node that a pattern describes, with the match's values for its names."""
    if isinstance(pattern, VarPattern):
        value: Node = found[pattern.name]
        return value
    if isinstance(pattern, NumberPattern):
        return constant(pattern.value, found.root.dtype)
    assert isinstance(pattern, OpPattern)
    attrs = {k: found[v.name] if isinstance(v, AttrVar) else v for k, v in pattern.attrs.items()}
    made = pattern.ops[0]
    if not isinstance(made, OpDecl) or pattern.args is None:
        raise UsageError(f"a template cannot build this {made.name!r}", hint="use a function")
    return made.build(*(instantiate(arg, found) for arg in pattern.args), **attrs)


def _may_be_equal(a: Type, b: Type) -> bool:
    """Whether two types are equal for some sizes of symbolic dims."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        pairs = zip(a.shape, b.shape)
        open_or_same = all(x == y or isinstance(x, Expr) or isinstance(y, Expr) for x, y in pairs)
        return a.dtype is b.dtype and a.ndim == b.ndim and open_or_same
    if isinstance(a, TupleType) and isinstance(b, TupleType):
        return len(a.fields) == len(b.fields) and all(map(_may_be_equal, a.fields, b.fields))
    return False


def by_root(rules: Iterable[Rule]) -> dict[Op, list[Rule]]:
    """Rules by the ops at which they may fire, in the given order."""
    table: dict[Op, list[Rule]] = {}
    for rule in rules:
        for root in rule.roots:
            table.setdefault(root, []).append(rule)
    return table
