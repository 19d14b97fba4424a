"""The base class of rewrites that store values in another form, such as a narrower dtype.

`reads_form` selects the operations that read the stored form. Operations of FOLLOW work on it too. All other
readers convert the value back. Results of the function keep their form.
"""

from __future__ import annotations

from dlc_core.graph.node import CONST, PARAM, Function, Node, node, post_order, spanned
from dlc_core.op.declare import OpDecl
from dlc_core.op.std import BY_NAME as OPS

FOLLOW = tuple(
    OPS[name]
    for name in (
        "reshape", "squeeze", "unsqueeze", "flatten", "transpose", "slice", "concat", "broadcast_to", "flip",
        "roll", "tile", "repeat", "max_pool",
    )
)  # fmt: skip
"""Operations that only move elements, or choose the largest. A form must keep the order of values."""


class StoredForm:
    """A rewrite of one function. Subclasses define the stored form and the operations that read it."""

    def __init__(self, function: Function) -> None:
        self.body = function.body
        self.order = tuple(post_order(function.body))
        self.results = {function.body, *function.results}
        self.stored = self._stored()
        self.own: dict[Node, Node] = {}
        self.forms: dict[Node, Node] = {}

    def reads_form(self, value: Node) -> bool:
        """Whether a node takes its first argument in the stored form."""
        raise NotImplementedError(f"{type(self).__name__}.reads_form")

    def rebuilt_reader(self, old: Node) -> Node:
        """Rebuild a node that takes the stored form over its new arguments."""
        raise NotImplementedError(f"{type(self).__name__}.rebuilt_reader")

    def to_form(self, value: Node) -> Node:
        """Convert a value to the stored form."""
        raise NotImplementedError(f"{type(self).__name__}.to_form")

    def from_form(self, value: Node) -> Node:
        """Convert a stored value back."""
        raise NotImplementedError(f"{type(self).__name__}.from_form")

    def run(self) -> Node:
        """Return the new body."""
        for old in self.order:
            with spanned(old.spans):
                self.own[old] = self._rebuilt(old)
        return self.own[self.body]

    def read(self, old: Node) -> Node:
        """Return a value in its original form, converted from the stored form if necessary."""
        if old not in self.stored or old.op is PARAM or old in self.results:
            return self.own[old]
        return self.from_form(self.form(old))

    def form(self, old: Node) -> Node:
        """Return a value in the stored form, converted once."""
        found = self.forms.get(old)
        if found is None:
            with spanned(old.spans):
                found = self.forms[old] = self._form(old)
        return found

    def _stored(self) -> frozenset[Node]:
        found: set[Node] = set()
        for value in reversed(self.order):
            if self.reads_form(value):
                found.add(value.args[0])
            elif value in found and value.op in FOLLOW:
                found.update(arg for arg in value.args if arg.op is not CONST)
        return frozenset(found)

    def _rebuilt(self, old: Node) -> Node:
        if self.reads_form(old):
            return self.rebuilt_reader(old)
        if old in self.stored and old.op in FOLLOW and old not in self.results:
            return self.from_form(self.form(old))
        args = tuple(map(self.read, old.args))
        return old if args == old.args else node(old.op, args, old.attrs, old.type)

    def _form(self, old: Node) -> Node:
        if old.op in FOLLOW and old in self.stored:
            decl = old.op
            assert isinstance(decl, OpDecl)
            return decl.build(*map(self.form, old.args), **old.attrs)
        return self.to_form(self.own[old])


__all__ = ["FOLLOW", "StoredForm"]
