"""mixed_precision: contractions in a narrower dtype where the caller allows it, sums in float32.

Law: parameters and results keep their dtypes; results stay within the tolerance that the precision states.

    relu(conv(x, w, b))     =>     relu(conv(cast(x, to=bfloat16), w', b, out_dtype=float32))

Each operation has a policy:

- *lower*: convolutions and products by constant weights take both operands in the narrow dtype and sum in
  float32;
- *follow*: operations that only move elements, or choose among them, work on whatever is stored;
- *keep*: everything else computes in float32, above all normalisations, softmax and reductions.

A value that a contraction takes is stored in the narrow dtype, so that its producer rounds it before the only
store; what else reads it, a residual addition for instance, widens it again.  Results of the function are
never rounded.

Where the target has no dot product of the narrow dtype, only weights are narrow: half the memory, and all
arithmetic in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlc_core.graph.node import CONST, PARAM, Function, Node, const_array, constant, node, post_order, spanned
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.types import TensorType
from dlc_core.op.declare import OpDecl
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext

FLOAT32 = dtype("float32")
CAST = OPS["cast"]
LOWER = tuple(OPS[name] for name in ("conv", "conv_transpose", "matmul"))
FOLLOW = tuple(
    OPS[name]
    for name in (
        "reshape", "squeeze", "unsqueeze", "flatten", "transpose", "slice", "concat", "broadcast_to", "flip",
        "roll", "tile", "repeat", "max_pool",
    )
)  # fmt: skip


def narrow_dtype(context: PassContext) -> DType:
    """The dtype that the context's precision names."""
    return dtype(str(context.config.get("precision", "float32")))


def lowers_activations(context: PassContext) -> bool:
    """Whether contractions take both operands in the narrow dtype, not their weights alone."""
    narrow = narrow_dtype(context)
    if narrow is FLOAT32 or context.target is None:
        return False
    return context.target.describe().dot(narrow.name, narrow.name, "float32") is not None


@dataclass(frozen=True)
class MixedPrecision(GraphPass):
    """Contractions in the dtype of the compile's `precision`; nothing where that is float32."""

    name: ClassVar[str] = "mixed_precision"
    place: ClassVar[tuple[float, ...]] = (730,)
    exact: ClassVar[bool] = False
    precisions: ClassVar[tuple[str, ...]] = ("bfloat16", "float16")

    def run_function(self, function: Function, context: PassContext) -> Function:
        narrow = narrow_dtype(context)
        if narrow is FLOAT32:
            return function
        body = _Lowering(function, narrow, lowers_activations(context)).run()
        return function if body is function.body else function.with_body(body)


def _is_lowered(value: Node) -> bool:
    """Whether a node is a contraction in float32 by constant weights."""
    if value.op not in LOWER or value.dtype is not FLOAT32:
        return False
    return value.args[1].op is CONST and all(arg.dtype is FLOAT32 for arg in value.args)


class _Lowering:
    def __init__(self, function: Function, narrow: DType, activations: bool) -> None:
        self.body = function.body
        self.narrow = narrow
        self.activations = activations
        self.order = tuple(post_order(function.body))
        self.results = {function.body, *function.results}
        self.stored = self._stored() if activations else frozenset()
        self.wide: dict[Node, Node] = {}
        self.low: dict[Node, Node] = {}

    def _stored(self) -> frozenset[Node]:
        """The values that are stored in the narrow dtype."""
        found: set[Node] = set()
        for value in reversed(self.order):
            if _is_lowered(value):
                found.add(value.args[0])
            elif value in found and value.op in FOLLOW:
                found.update(arg for arg in value.args if arg.op is not CONST)
        return frozenset(found)

    def run(self) -> Node:
        for old in self.order:
            with spanned(old.spans):
                self.wide[old] = self.rebuilt(old)
        return self.wide[self.body]

    def rebuilt(self, old: Node) -> Node:
        """The node in its own dtype, over new arguments."""
        if _is_lowered(old):
            decl = old.op
            assert isinstance(decl, OpDecl)
            first = self.lowered(old.args[0]) if self.activations else self.wide[old.args[0]]
            others = map(self.read, old.args[2:])
            attrs = {**old.attrs, "out_dtype": FLOAT32}
            return decl.build(first, self.lowered(old.args[1]), *others, **attrs)
        if old in self.stored and old.op in FOLLOW and old not in self.results:
            return CAST.build(self.lowered(old), to=FLOAT32)
        args = tuple(map(self.read, old.args))
        return old if args == old.args else node(old.op, args, old.attrs, old.type)

    def read(self, old: Node) -> Node:
        """A value as what computes in float32 reads it: rounded where it is stored so."""
        if old not in self.stored or old.op is PARAM or old in self.results:
            return self.wide[old]
        return CAST.build(self.lowered(old), to=FLOAT32)

    def lowered(self, old: Node) -> Node:
        """A value in the narrow dtype."""
        found = self.low.get(old)
        if found is None:
            with spanned(old.spans):
                found = self.low[old] = self._lowered(old)
        return found

    def _lowered(self, old: Node) -> Node:
        array = const_array(old)
        if array is not None:
            return constant(array.astype(self.narrow.numpy))
        if old.op in FOLLOW and old in self.stored:
            decl = old.op
            assert isinstance(decl, OpDecl)
            return node(
                decl, tuple(map(self.lowered, old.args)), old.attrs, TensorType(old.shape, self.narrow)
            )
        return CAST.build(self.wide[old], to=self.narrow)


__all__ = ["MixedPrecision", "lowers_activations", "narrow_dtype"]
