"""bound_results: results whose sizes are data become buffers of their largest size, with their numbers.

Law: the first `total` elements of each new result are the old result.

    y = first_of(x, total)           =>      x, and total as a further result y_count
    f(first_of(x, total))            =>      first_of(f(x), total)

The size of such a result is known only when it has been computed, so a host program slices it. Exported code
has no host program. With the setting `bounded_results` the entry returns the whole buffer and the number of
elements along its axis instead: `NonZero`, `NonMaxSuppression` and `Unique` at the end of a model are then
native, and so are the elementwise ops, transposes, slices and gathers that follow them. Elements after the
number are undefined. Ops that combine such values in other ways stay on the host, and an export names them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from dlc_core.graph.dims import CONDITIONS
from dlc_core.graph.node import GET, TUPLE, Function, Node, get_item, make_tuple, post_order, rewrite
from dlc_core.ir.expr import Expr, free_vars
from dlc_core.ir.module import IRModule
from dlc_core.ir.plan import without_plan
from dlc_core.ir.types import TensorType, symbols_of
from dlc_core.op.declare import OpDecl
from dlc_core.op.std.bounded_results import FIRST_OF
from dlc_core.passes.base import Pass, PassContext
from dlc_core.passes.graph.node_kinds import POINTWISE
from dlc_core.support.record import record

BOUNDED = "bounded_results"
"""The setting."""
COUNT = "_count"
"""The end of the names of results that are numbers of elements."""


@record(frozen=True)
class BoundResults(Pass):
    """Return results whose sizes are data as buffers of their largest size, with their numbers."""

    name: ClassVar[str] = "bound_results"
    setting: ClassVar[str] = BOUNDED

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        entry = module.functions.get(module.entry)
        if not isinstance(entry, Function):
            return module
        body = rewrite(entry.body, _later)
        results = body.args if body.op is TUPLE else (body,)
        if all(result.op is not FIRST_OF for result in results):
            return module
        return module.with_function(module.entry, _bounded(entry, results))


def _bounded(entry: Function, results: tuple[Node, ...]) -> Function:
    """The entry with whole buffers in place of slices, and the numbers as further results."""
    given = entry.attrs.get("outputs") or tuple(f"output{i}" for i in range(len(results)))
    counts: dict[Node, str] = {}
    whole = []
    for name, result in zip(given, results, strict=True):
        if result.op is FIRST_OF:
            counts.setdefault(result.args[1], f"{name}{COUNT}")
        whole.append(result.args[0] if result.op is FIRST_OF else result)
    made = replace(entry, body=make_tuple([*whole, *counts]))
    known = {v for n in post_order(made.body) for v in symbols_of(n.type)}
    conditions = tuple(c for c in entry.attrs.get(CONDITIONS, ()) if known.issuperset(free_vars(c[1], c[2])))
    attrs = {"outputs": (*given, *counts.values())}
    if CONDITIONS in entry.attrs:
        attrs[CONDITIONS] = conditions
    return made.with_attrs(**attrs)


def _later(old: Node, args: tuple[Node, ...]) -> Node | None:
    """The node with the slice of its argument after it, if that gives the same values."""
    if old.op is GET and args[0].op is TUPLE:
        return get_item(args[0], old.attrs["index"])
    sliced = [arg for arg in args if arg.op is FIRST_OF]
    if not sliced or not isinstance(old.op, OpDecl) or old.op is FIRST_OF:
        return None
    first = sliced[0]
    axis = first.attrs["axis"] % first.args[0].tensor_type.ndim
    moved = _axis_after(old, args, first, axis)
    same = all(one.args[1] is first.args[1] and one.args[0].shape == first.args[0].shape for one in sliced)
    if moved is None or not same:
        return None
    whole = [arg.args[0] if arg.op is FIRST_OF else arg for arg in args]
    attrs = dict(without_plan(old.attrs))
    if old.op.name == "reshape":
        capacity = whole[0].shape[axis]
        attrs["shape"] = tuple(capacity if d is first.attrs["count"] else d for d in attrs["shape"])
    made = old.op.build(*whole, **attrs)
    return FIRST_OF.build(made, first.args[1], count=first.attrs["count"], axis=moved)


def _axis_after(old: Node, args: tuple[Node, ...], first: Node, axis: int) -> int | None:
    """The axis of a node's result that a slice of its argument `first` along `axis` becomes. None if the node
    does not compute the elements along that axis separately.
    """
    rank = first.args[0].tensor_type.ndim
    name = old.op.name
    if name == "reshape":
        before, after = first.shape, old.shape
        same = [d for d in before if d != 1] == [d for d in after if d != 1]
        return after.index(before[axis]) if same and before[axis] in after else None
    if any(isinstance(v, Expr) for value in old.attrs.values() for v in _items(value)):
        return None  # an attribute may have the size that is sliced
    if isinstance(old.op, OpDecl) and old.op.kind in POINTWISE and isinstance(old.type, TensorType):
        same = all(a.op is FIRST_OF and a.attrs["axis"] % rank == axis for a in args if a.type != _scalar(a))
        return axis if same and old.type.ndim == rank else None
    if name == "transpose":
        order = old.attrs["axes"] or tuple(reversed(range(rank)))
        return tuple(a % rank for a in order).index(axis)
    if name == "gather":
        along: int = old.attrs["axis"] % args[0].tensor_type.ndim
        size = args[0].shape[along]
        # The indices after the number are 0, so there must be an element.
        if args[1] is first and args[0].op is not FIRST_OF and isinstance(size, int) and size > 0:
            return along + axis
        if args[0] is first and args[1].op is not FIRST_OF and along != axis:
            return axis if axis < along else axis + args[1].tensor_type.ndim - 1
        return None
    if name == "slice":
        axes = old.attrs["axes"]
        cut = range(len(old.attrs["begins"])) if axes is None else {a % rank for a in axes}
        return None if axis in cut else axis
    if name == "squeeze" and old.attrs["axes"] is not None:
        removed = {a % rank for a in old.attrs["axes"]}
        return None if axis in removed else axis - sum(a < axis for a in removed)
    return None


def _scalar(value: Node) -> TensorType | None:
    """The type of a tensor of one element; None for others."""
    type_ = value.type
    return type_ if isinstance(type_, TensorType) and all(d == 1 for d in type_.shape) else None


def _items(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


__all__ = ["BoundResults"]
