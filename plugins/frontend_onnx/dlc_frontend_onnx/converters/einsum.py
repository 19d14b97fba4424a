"""Einsum as diagonals, sums, transposes and matrix products."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dlc_core.graph.node import Node
from dlc_core.ir.types import Dim
from dlc_core.op import std
from dlc_core.op.infer import product
from dlc_frontend_onnx.converters.base import Call, converter


@dataclass(frozen=True)
class Term:
    """A tensor with a distinct label for each axis."""

    value: Node
    labels: tuple[str, ...]

    def size(self, label: str) -> Dim:
        found: Dim = self.value.shape[self.labels.index(label)]
        return found


@converter("Einsum", 12)
def einsum(c: Call, *xs: Node) -> Node:
    terms, output = _parse(c, c.text("equation"), xs)
    simple = [_diagonal(c, value, labels) for value, labels in terms]
    result = simple[0]
    for index, term in enumerate(simple[1:], 1):
        later = {label for other in simple[index + 1 :] for label in other.labels}
        result = _contract(c, result, term, {*output, *later}, output[-1:])
    result = _summed(result, set(output))
    axes = tuple(result.labels.index(label) for label in output)
    return result.value if axes == tuple(range(len(axes))) else std.transpose(result.value, axes=axes)


def _parse(
    c: Call, equation: str, xs: Sequence[Node]
) -> tuple[list[tuple[Node, tuple[str, ...]]], tuple[str, ...]]:
    """Each input with its labels, and the labels of the result; an ellipsis becomes the labels .0, .1, …"""
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if len(texts) != len(xs):
        raise c.error(f"the equation {equation!r} has {len(texts)} terms for {len(xs)} inputs")
    terms = []
    widest = 0
    for text, x in zip(texts, xs):
        named = len(text.replace("...", ""))
        hidden = len(x.shape) - named
        if text.count("...") > 1 or hidden < 0 or (hidden and "..." not in text):
            raise c.error(f"the term {text!r} of the equation does not fit {x.type}")
        widest = max(widest, hidden)
        terms.append((x, text, hidden))
    made = [(x, _labels(c, text, range(widest - hidden, widest))) for x, text, hidden in terms]
    if arrow:
        output = _labels(c, right, range(widest) if "..." in right else ())
    else:
        counts = Counter(label for _, labels in made for label in labels if label[0] != ".")
        once = sorted(label for label, count in counts.items() if count == 1)
        output = (*(f".{index}" for index in range(widest)), *once)
    known = {label for _, labels in made for label in labels}
    if len(set(output)) != len(output) or not set(output) <= known:
        raise c.error(f"the result of the equation {equation!r} is not made of its terms")
    return made, output


def _labels(c: Call, text: str, hidden: Sequence[int]) -> tuple[str, ...]:
    before, dots, after = text.partition("...")
    if not (before + after).isalpha() and before + after:
        raise c.error(f"the term {text!r} of the equation is not made of letters")
    middle = [f".{index}" for index in hidden] if dots else []
    return (*before, *middle, *after)


def _diagonal(c: Call, value: Node, labels: tuple[str, ...]) -> Term:
    """Axes with equal labels are replaced by their diagonal."""
    while len(set(labels)) < len(labels):
        label = next(name for name in labels if labels.count(name) > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        size, other = value.shape[first], value.shape[second]
        if not isinstance(size, int) or not isinstance(other, int):
            raise c.unsupported("a diagonal of symbolic dims", hint="pin the dims with shapes={...}")
        if size != other:
            raise c.error(f"the label {label!r} has the sizes {size} and {other}")
        rest = [axis for axis in range(len(labels)) if axis not in (first, second)]
        moved = std.transpose(value, axes=(*rest, first, second))
        kept = moved.shape[:-2]
        flat = std.reshape(moved, shape=(*kept, size * size))
        value = std.slice(flat, begins=(0,), ends=(size * size,), strides=(size + 1,), axes=(len(kept),))
        labels = (*(labels[axis] for axis in rest), label)
    return Term(value, labels)


def _summed(term: Term, wanted: set[str]) -> Term:
    """The term summed over labels that are not wanted."""
    axes = tuple(axis for axis, label in enumerate(term.labels) if label not in wanted)
    if not axes:
        return term
    return Term(
        std.reduce_sum(term.value, axes=axes), tuple(label for label in term.labels if label in wanted)
    )


def _contract(c: Call, a: Term, b: Term, wanted: set[str], innermost: Sequence[str]) -> Term:
    """The product of two terms, summed over unwanted labels that both have. `innermost` is the last label of
    the equation's result, if it has one.
    """
    a, b = _summed(a, wanted | set(b.labels)), _summed(b, wanted | set(a.labels))
    shared = [label for label in a.labels if label in b.labels]
    inner = [label for label in shared if label not in wanted]
    if any(_differs(a.size(label), b.size(label)) for label in shared):
        inner = []
    batch = [label for label in shared if label not in inner]
    if not inner:
        return _summed(_outer(a, b), wanted)
    rows = [label for label in a.labels if label not in shared]
    columns = [label for label in b.labels if label not in shared]
    known = [
        isinstance(product([x.size(label) for label in own]), int) for x, own in ((a, rows), (b, columns))
    ]
    if known == [True, False] and not {b.labels[-1], *innermost} & {*columns}:
        # Vectors and packed weights need a known number of columns, and memory order has no say here.
        a, b, rows, columns = b, a, columns, rows
    left = _matrix(a, batch, rows, inner)
    right = _matrix(b, batch, inner, columns)
    # The product of narrow integers has a wider dtype than its operands.
    made = c.cast(std.matmul(left, right), left.dtype)
    shape = (
        *made.shape[: len(batch)],
        *(a.size(label) for label in rows),
        *(b.size(label) for label in columns),
    )
    return Term(std.reshape(made, shape=shape), (*batch, *rows, *columns))


def _differs(a: Dim, b: Dim) -> bool:
    """Whether one of two dims is broadcast to the other."""
    return a != b and 1 in (a, b)


def _matrix(term: Term, batch: Sequence[str], rows: Sequence[str], columns: Sequence[str]) -> Node:
    """[batch…, product of rows, product of columns]."""
    order = tuple(term.labels.index(label) for label in (*batch, *rows, *columns))
    moved = std.transpose(term.value, axes=order)
    shape = (
        *(term.size(label) for label in batch),
        product([term.size(label) for label in rows]),
        product([term.size(label) for label in columns]),
    )
    return std.reshape(moved, shape=shape)


def _outer(a: Term, b: Term) -> Term:
    """The elementwise product, broadcast over labels that are not shared."""
    labels = (*a.labels, *(label for label in b.labels if label not in a.labels))
    return Term(std.mul(_spread(a, labels), _spread(b, labels)), labels)


def _spread(term: Term, labels: Sequence[str]) -> Node:
    order = tuple(term.labels.index(label) for label in labels if label in term.labels)
    moved = std.transpose(term.value, axes=order)
    new = tuple(axis for axis, label in enumerate(labels) if label not in term.labels)
    return std.unsqueeze(moved, axes=new) if new else moved
