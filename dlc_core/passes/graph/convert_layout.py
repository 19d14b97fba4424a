"""convert_layout: convert convolutions, poolings and the operations between them to channels last (or first).

Law: the function computes the same values within tolerance; parameters and results keep their layout.

    relu(conv(x, w))   =>   transpose(relu(conv(transpose(x), w', layout="NXC", kernel_layout="XIO")))

The pass visits the graph once, arguments first. Each value is *stored* with its axes in some order. A
transpose of a stored value only renames the order and costs nothing. Elementwise operations, concatenations,
reductions, pads, slices, softmax and reshapes are applied to the stored tensor. If an operation needs the
plain order, one transpose for each value is inserted. Constants are transposed as views.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dlc_core.decisions import Decision
from dlc_core.diag import UsageError
from dlc_core.graph.node import CONST, PARAM, Function, Node, const_array, constant, node, post_order, spanned
from dlc_core.ir.types import TensorType
from dlc_core.op.declare import OpDecl
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.axes import RULES, Order, between, identity, order_for_reshape
from dlc_core.passes.graph.rules_shape import permutation, reshaped, transposed
from dlc_core.passes.heuristics import CONVERSION
from dlc_core.support.record import record

CONV, CONV_TRANSPOSE, MAX_POOL, AVG_POOL, WEIGHT_GRADIENT = (
    OPS[name] for name in ("conv", "conv_transpose", "max_pool", "avg_pool", "conv_weight_gradient")
)
TRANSPOSE, RESHAPE, CONCAT, BATCH_NORM = (
    OPS[name] for name in ("transpose", "reshape", "concat", "batch_norm")
)
LAYOUTS = ("NXC", "NCX")
LAYOUT = Decision(
    "layout.windows",
    "Whether a convolution or pooling works on channels last, which vectors read contiguously, or first.",
    ("last", "first"),
)


@record(frozen=True)
class ConvertLayout(GraphPass):
    """Convert convolutions and poolings to `layout`: NXC (channels last) or NCX (channels first)."""

    name: ClassVar[str] = "convert_layout"
    min_level: ClassVar[int] = 1
    exact: ClassVar[bool] = False
    layout: str = "NXC"

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise UsageError(f"convert_layout to {self.layout!r}", hint=f"one of {', '.join(LAYOUTS)}")

    def run_function(self, function: Function, context: PassContext) -> Function:
        body = _Converter(self.layout).run(function.body)
        return function if body is function.body else function.with_body(body)


class _Converter:
    def __init__(self, layout: str) -> None:
        self.layout = layout
        self.stored: dict[Node, tuple[Node, Order]] = {}
        self.views: dict[tuple[Node, Order], Node] = {}
        self.has_windows = False

    def run(self, body: Node) -> Node:
        nodes = list(post_order(body))
        windowed = (CONV, CONV_TRANSPOSE, MAX_POOL, AVG_POOL, WEIGHT_GRADIENT)
        self.has_windows = any(each.op in windowed for each in nodes)
        for current in nodes:
            with spanned(current.spans):
                value, order = self.convert(current)
            value.add_spans(current.spans)
            self.stored[current] = value, order
            self.views[current, order] = value
        return self.plain(body)

    # Stored values and their views.

    def order_of(self, value: Node) -> Order:
        return self.stored[value][1]

    def view(self, value: Node, target: Order) -> Node:
        """Return a value in an order of axes, transposed if necessary."""
        found = self.views.get((value, target))
        if found is None:
            source, order = self.stored[value]
            axes = between(order, target)
            array = const_array(source)
            if array is None:
                found = transposed(source, axes)
                found.add_spans(value.spans)
            else:
                found = constant(array.transpose(axes))
            self.views[value, target] = found
        return found

    def plain(self, value: Node) -> Node:
        if not isinstance(value.type, TensorType):
            return self.stored[value][0]
        return self.view(value, identity(len(value.shape)))

    def is_moved(self, value: Node) -> bool:
        return isinstance(value.type, TensorType) and self.order_of(value) != identity(len(value.shape))

    # Single nodes.

    def is_image_param(self, value: Node) -> bool:
        """Whether a value is a parameter with its channels last, transposed to channels first."""
        if self.layout != "NXC" or value.op is not TRANSPOSE or value.args[0].op is not PARAM:
            return False
        rank = len(value.shape)
        return self.has_windows and rank > 3 and permutation(value) == (0, rank - 1, *range(1, rank - 1))

    def convert(self, current: Node) -> tuple[Node, Order]:
        decl = current.op
        if decl in (CONV, CONV_TRANSPOSE, MAX_POOL, AVG_POOL):
            return self.windowed(current)
        if decl is WEIGHT_GRADIENT:
            return self.weight_gradient(current)
        if isinstance(decl, OpDecl) and any(map(self.is_moved, current.args)):
            moved = self.moved(current, decl)
            if moved is not None:
                return moved
        rank = len(current.shape) if isinstance(current.type, TensorType) else 0
        if self.is_image_param(current):
            return current.args[0], between(permutation(current), identity(rank))
        if current.op in (PARAM, CONST):
            return current, identity(rank)
        args = tuple(map(self.plain, current.args))
        same = args == current.args
        return (current if same else node(current.op, args, current.attrs, current.type)), identity(rank)

    def windowed(self, current: Node) -> tuple[Node, Order]:
        layout, order = self.chosen(current)
        attrs = {**current.attrs, "layout": layout}
        args = [self.view(current.args[0], order)]
        if current.op in (CONV, CONV_TRANSPOSE):
            kernel, attrs["kernel_layout"] = self.kernel(current, layout)
            args += [kernel, *map(self.plain, current.args[2:])]
        decl = current.op
        assert isinstance(decl, OpDecl)
        return decl.build(*args, **attrs), order

    def chosen(self, current: Node) -> tuple[str, Order]:
        """Choose the layout of an operation on windows, and the order of its images' axes for it."""
        rank = len(current.shape)
        last, first = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
        order = identity(rank)
        where = f"{current.op.name} {current.args[0].shape} {current.shape}"
        preferred = "last" if self.layout == "NXC" else "first"
        last_why = "the channels of a pixel are a vector, and rows of a GEMM"
        reasons = {"first": last_why, "last": f"the option of the pass is {self.layout}"}
        chosen = LAYOUT.choose(preferred, where=where, refused=reasons.__getitem__, spans=current.spans)
        layout = "NXC" if chosen == "last" else "NCX"
        if current.attrs["layout"] != layout:
            order = last if layout == "NXC" else first
        return layout, order

    def weight_gradient(self, current: Node) -> tuple[Node, Order]:
        """Compute the gradient of weights from images in the layout, in the layout of weights for it."""
        layout, order = self.chosen(current)
        target = "XIO" if layout == "NXC" else "OIX"
        attrs = {**current.attrs, "layout": layout, "kernel_layout": target}
        made = WEIGHT_GRADIENT.build(*(self.view(each, order) for each in current.args), **attrs)
        rank = len(current.shape)
        if target == current.attrs["kernel_layout"]:
            return made, identity(rank)
        if target == "XIO":
            return made, (*range(2, rank), 1, 0)
        return made, (rank - 1, rank - 2, *range(rank - 2))

    def kernel(self, current: Node, layout: str) -> tuple[Node, str]:
        """Return the weights, and the name of their layout, that match a layout of the values."""
        own = current.attrs["kernel_layout"]
        channels_first = "OIX" if current.op is CONV else "IOX"
        target = "XIO" if layout == "NXC" else channels_first
        rank = len(current.args[1].shape)
        window = tuple(range(2, rank))
        if own == target:
            order = identity(rank)
        elif target == "XIO":
            order = (*window, 1, 0) if current.op is CONV else (*window, 0, 1)
        else:
            outer = tuple(range(rank - 2))
            order = (rank - 1, rank - 2, *outer) if current.op is CONV else (rank - 2, rank - 1, *outer)
        return self.view(current.args[1], order), target

    def moved(self, current: Node, decl: OpDecl) -> tuple[Node, Order] | None:
        """Apply a node to stored tensors; None if the op needs the original order."""
        if decl is TRANSPOSE:
            value, order = self.stored[current.args[0]]
            return value, between(permutation(current), order)
        if decl is CONCAT:
            order = self.common_order(current.args)
            axis = order.index(current.attrs["axis"] % len(order))
            return CONCAT.build(*(self.view(a, order) for a in current.args), axis=axis), order
        if decl is BATCH_NORM:
            if not self.is_moved(current.args[0]):
                return None
            order = self.order_of(current.args[0])
            axis = order.index(current.attrs["axis"] % len(order))
            args = (self.view(current.args[0], order), *map(self.plain, current.args[1:]))
            return BATCH_NORM.build(*args, **{**current.attrs, "axis": axis}), order
        if decl.kind == "broadcast":
            return self.broadcast(current, decl)
        rename = RULES.get(decl)
        if rename is None:
            return None
        source = current.args[0]
        order = self.order_of(source)
        if decl is RESHAPE:
            gathered = order_for_reshape(current, order)
            if gathered is None:
                return None
            order = gathered
        renamed = rename(current, order)
        if renamed is None:
            return None
        attrs, result = renamed
        return decl.build(self.view(source, order), **attrs), result

    def common_order(self, values: Sequence[Node]) -> Order:
        """Return the order of the largest value that is not stored in its original order."""
        moved = [v for v in values if self.is_moved(v)]
        return self.order_of(max(moved, key=_size))

    def broadcast(self, current: Node, decl: OpDecl) -> tuple[Node, Order] | None:
        rank = len(current.shape)
        moved = [a for a in current.args if len(a.shape) == rank and self.is_moved(a)]
        if not moved:
            return None
        order = self.order_of(max(moved, key=_size))
        attrs = dict(current.attrs)
        if "shape" in attrs:
            attrs["shape"] = tuple(current.shape[a] for a in order)
        return decl.build(*(self.aligned(a, order) for a in current.args), **attrs), order

    def aligned(self, value: Node, order: Order) -> Node:
        """Return an operand of an elementwise operation in the order of its result."""
        rank = len(order)
        if len(value.shape) == rank:
            return self.view(value, order)
        if all(size == 1 for size in value.shape):
            return reshaped(self.plain(value), ())
        padded = reshaped(self.plain(value), ((1,) * (rank - len(value.shape)) + tuple(value.shape)))
        array = const_array(padded)
        return transposed(padded, order) if array is None else constant(array.transpose(order))


def _size(value: Node) -> int:
    """Return the number of elements for comparisons. A symbolic dim counts as a large number."""
    total = 1
    for dim in value.shape:
        total *= dim if isinstance(dim, int) else CONVERSION.unknown_extent
    return total
