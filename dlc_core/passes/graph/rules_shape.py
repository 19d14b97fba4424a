"""Rules of ops that only rearrange elements: transpose, reshape, broadcasting.

Canonical forms: `squeeze`, `unsqueeze` and `flatten` are `reshape`; a reshape has all its dims written out; a
transpose that moves only dims of 1 is a reshape, which is free.  Reshapes sink below elementwise operations,
so that these follow the contraction whose result was reshaped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc_core.graph.node import CONST, Node, const_array, constant, param
from dlc_core.ir.types import Dim, tensor_type
from dlc_core.op.declare import OpDecl
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.op.std import OPS as ALL_OPS
from dlc_core.rewrite import Match, Rule, attr, match_any, match_op, var
from dlc_core.rewrite.rule import Example

TRANSPOSE, RESHAPE, BROADCAST_TO = (OPS[name] for name in ("transpose", "reshape", "broadcast_to"))
RESHAPING = tuple(OPS[name] for name in ("squeeze", "unsqueeze", "flatten"))
UNARY = tuple(decl for decl in ALL_OPS if decl.kind == "elementwise" and len(decl.inputs) == 1)
BINARY = tuple(
    decl for decl in ALL_OPS if decl.kind == "broadcast" and len(decl.inputs) == 2 and not decl.attrs
)
BROADCASTING = tuple(decl for decl in ALL_OPS if decl.kind == "broadcast" and len(decl.inputs) >= 2)

x, y = var("x"), var("y")
DTYPES = ("float32", "int8")


def permutation(value: Node) -> tuple[int, ...]:
    """Return the axes of a transpose as non-negative numbers."""
    axes = value.attrs["axes"]
    rank = len(value.shape)
    return tuple(reversed(range(rank))) if axes is None else tuple(a % rank for a in axes)


def transposed(value: Node, axes: Sequence[int]) -> Node:
    """Transpose a value; return it unchanged if the axes are in order."""
    return value if list(axes) == list(range(len(axes))) else TRANSPOSE.build(value, axes=tuple(axes))


def reshaped(value: Node, shape: Sequence[Dim]) -> Node:
    """Reshape a value to explicit dims; return it unchanged if it has this shape. Constants become views."""
    if value.shape == tuple(shape):
        return value
    array = const_array(value)
    if array is not None and all(isinstance(d, int) for d in shape):
        return constant(array.reshape([int(d) for d in shape if isinstance(d, int)]))
    return RESHAPE.build(value, shape=tuple(shape))


def _merge_transposes(match: Match) -> Node:
    inner, outer = permutation(match["inner"]), permutation(match.root)
    return transposed(match["x"], [inner[k] for k in outer])


def _moves_only_ones(match: Match) -> bool:
    kept = [a for a in permutation(match.root) if match["x"].shape[a] != 1]
    return kept == sorted(kept)


def _is_not_canonical(match: Match) -> bool:
    return bool(match["shape"] != match.root.shape)


def _sink_unary(match: Match) -> Node:
    decl = match.root.op
    assert isinstance(decl, OpDecl)
    return reshaped(decl.build(match["x"], **match.root.attrs), match.root.shape)


def _is_scalar(value: Node) -> bool:
    return all(d == 1 for d in value.shape)


def _row_of(value: Node, width: Dim) -> bool:
    """Whether all dims of a tensor but the innermost are 1."""
    return bool(value.shape) and value.shape[-1] == width and all(d == 1 for d in value.shape[:-1])


def _sink_binary(match: Match) -> Node | None:
    """Move a reshape below an operation with a scalar, with a row along an unchanged innermost dim, or with a
    tensor of the same shape.

    With a tensor of the same shape it moves only towards the lower rank. The rank then decreases, so the rule
    cannot loop between two operands.
    """
    root = match.root
    decl = root.op
    assert isinstance(decl, OpDecl)
    for position, own in enumerate(root.args):
        other = root.args[1 - position]
        if own.op is not RESHAPE or own.shape != root.shape:
            continue
        source = own.args[0]
        if _is_scalar(other):
            partner = reshaped(other, ())
        elif other.op is RESHAPE and other.args[0].shape == source.shape:
            partner = other.args[0]
        elif (
            source.shape
            and root.shape
            and source.shape[-1] == root.shape[-1]
            and _row_of(other, root.shape[-1])
        ):
            partner = reshaped(other, (root.shape[-1],))
        elif other.shape == root.shape and len(source.shape) < len(root.shape):
            partner = reshaped(other, source.shape)
        else:
            continue
        made = decl.build(source, partner) if position == 0 else decl.build(partner, source)
        if made.shape == source.shape:
            return reshaped(made, root.shape)
    return None


def _without_broadcasts(match: Match) -> Node | None:
    """Remove an explicit broadcast of an operand if implicit broadcasting gives the same shape."""
    root = match.root
    decl = root.op
    assert isinstance(decl, OpDecl)
    args = list(root.args)
    for position, arg in enumerate(args):
        if arg.op is BROADCAST_TO:
            tried = [*args[:position], arg.args[0], *args[position + 1 :]]
            if decl.infer_type([a.type for a in tried], root.attrs, tried) == root.type:
                args = tried
    return decl.build(*args, **root.attrs) if tuple(args) != root.args else None


def _input(dtype: str, *shape: int) -> Node:
    return param("x", tensor_type(shape, dtype))


def _reshaping_examples() -> tuple[Example, ...]:
    return (
        lambda t: RESHAPING[0].build(_input(t, 1, 4, 1, 6), axes=(0, 2)),
        lambda t: RESHAPING[1].build(_input(t, 4, 6), axes=(1, -1)),
        lambda t: RESHAPING[2].build(_input(t, 2, 3, 4), axis=2),
    )


def _sinking_examples() -> tuple[Example, ...]:
    add = OPS["add"].build

    def high(dtype: str) -> Node:
        return RESHAPE.build(_input(dtype, 8, 6), shape=(2, 4, 6))

    def other(dtype: str, *shape: int) -> Node:
        return param("y", tensor_type(shape, dtype))

    return (
        lambda t: add(high(t), constant([[2]], t)),
        lambda t: add(other(t, 1, 1, 1), high(t)),
        lambda t: add(high(t), other(t, 6)),
        lambda t: add(other(t, 1, 6), high(t)),
        lambda t: add(high(t), other(t, 2, 4, 6)),
        lambda t: add(
            RESHAPE.build(_input(t, 2, 4, 6), shape=(8, 6)), RESHAPE.build(other(t, 2, 4, 6), shape=(8, 6))
        ),
    )


def _absorbing_examples() -> tuple[Example, ...]:
    def wide(dtype: str) -> Node:
        return BROADCAST_TO.build(_input(dtype, 4, 1), shape=(2, 4, 6))

    return (
        lambda t: OPS["add"].build(wide(t), param("y", tensor_type((2, 4, 6), t))),
        lambda t: OPS["where"].build(
            param("c", tensor_type((2, 1, 6), "bool")), wide(t), param("y", tensor_type((4, 6), t))
        ),
    )


def _not_constant(find: Callable[[Match], bool]) -> Callable[[Match], bool]:
    """Exclude constants from a rule: constant folding handles them, so that they need no canonical form."""
    return lambda match: match["x"].op is not CONST and find(match)


RULES: tuple[Rule, ...] = (
    Rule(
        "transpose_transpose",
        match_op(TRANSPOSE, match_op(TRANSPOSE, x, capture="inner")),
        _merge_transposes,
        doc="transposes compose",
        dtypes=DTYPES,
        examples=(
            lambda t: TRANSPOSE.build(TRANSPOSE.build(_input(t, 2, 3, 4), axes=(1, 2, 0)), axes=(2, 1, 0)),
            lambda t: TRANSPOSE.build(TRANSPOSE.build(_input(t, 2, 3, 4), axes=(1, 2, 0)), axes=(-1, 0, 1)),
            lambda t: TRANSPOSE.build(TRANSPOSE.build(_input(t, 2, 3))),
        ),
    ),
    Rule(
        "transpose_nothing",
        match_op(TRANSPOSE, x),
        x,
        lambda m: permutation(m.root) == tuple(range(len(m.root.shape))),
        doc="axes in order are no transpose",
        examples=(lambda t: TRANSPOSE.build(_input(t, 2, 3), axes=(0, 1)),),
        dtypes=DTYPES,
    ),
    Rule(
        "transpose_ones",
        match_op(TRANSPOSE, x),
        lambda m: reshaped(m["x"], m.root.shape),
        _moves_only_ones,
        doc="dims of 1 may stand anywhere: the elements keep their order",
        dtypes=DTYPES,
        examples=(lambda t: TRANSPOSE.build(_input(t, 1, 4, 1, 6), axes=(1, 0, 3, 2)),),
    ),
    Rule(
        "to_reshape",
        match_op(RESHAPING, x),
        lambda m: reshaped(m["x"], m.root.shape),
        _not_constant(lambda m: True),
        doc="squeeze, unsqueeze and flatten are reshapes",
        examples=_reshaping_examples(),
        dtypes=DTYPES,
    ),
    Rule(
        "reshape_dims",
        match_op(RESHAPE, x, shape=attr("shape")),
        lambda m: reshaped(m["x"], m.root.shape),
        _not_constant(_is_not_canonical),
        doc="a reshape has its dims written out",
        examples=(lambda t: RESHAPE.build(_input(t, 2, 12), shape=(2, -1, 3)),),
        dtypes=DTYPES,
    ),
    Rule(
        "reshape_nothing",
        match_op(RESHAPE, x),
        x,
        lambda m: m["x"].type == m.root.type,
        doc="the same shape is no reshape",
        examples=(lambda t: RESHAPE.build(_input(t, 2, 3), shape=(2, 3)),),
        dtypes=DTYPES,
    ),
    Rule(
        "reshape_reshape",
        match_op(RESHAPE, match_op(RESHAPE, x)),
        lambda m: reshaped(m["x"], m.root.shape),
        doc="the last reshape decides",
        dtypes=DTYPES,
        examples=(
            lambda t: RESHAPE.build(RESHAPE.build(_input(t, 4, 6), shape=(2, 12)), shape=(3, 8)),
            lambda t: RESHAPE.build(RESHAPE.build(_input(t, 4, 6), shape=(2, 12)), shape=(4, 6)),
        ),
    ),
    Rule(
        "reshape_below_unary",
        match_op(UNARY, match_op(RESHAPE, x)),
        _sink_unary,
        doc="f(reshape(x)) = reshape(f(x)) for elementwise f",
        dtypes=("float32",),
        examples=(
            lambda t: OPS["relu"].build(RESHAPE.build(_input(t, 4, 6), shape=(24,))),
            lambda t: OPS["cast"].build(RESHAPE.build(_input(t, 4, 6), shape=(2, 2, 6)), to="float64"),
            lambda t: OPS["clip"].build(RESHAPE.build(_input(t, 4, 6), shape=(24,)), min=0.5),
        ),
    ),
    Rule(
        "reshape_below_binary",
        match_any(BINARY),
        _sink_binary,
        lambda m: any(arg.op is RESHAPE for arg in m.root.args),
        doc="f(reshape(x), y) = reshape(f(x, y')) for elementwise f",
        examples=_sinking_examples(),
        dtypes=DTYPES,
    ),
    Rule(
        "broadcast_nothing",
        match_op(BROADCAST_TO, x),
        x,
        lambda m: m["x"].type == m.root.type,
        doc="the same shape is no broadcast",
        examples=(lambda t: BROADCAST_TO.build(_input(t, 2, 3), shape=(2, 3)),),
        dtypes=DTYPES,
    ),
    Rule(
        "broadcast_broadcast",
        match_op(BROADCAST_TO, match_op(BROADCAST_TO, x)),
        lambda m: BROADCAST_TO.build(m["x"], shape=m.root.shape),
        doc="the last broadcast decides",
        dtypes=DTYPES,
        examples=(
            lambda t: BROADCAST_TO.build(BROADCAST_TO.build(_input(t, 4, 1), shape=(4, 6)), shape=(2, 4, 6)),
        ),
    ),
    Rule(
        "broadcast_absorbed",
        match_any(BROADCASTING),
        _without_broadcasts,
        lambda m: any(arg.op is BROADCAST_TO for arg in m.root.args),
        doc="elementwise operations broadcast by themselves",
        examples=_absorbing_examples(),
        dtypes=DTYPES,
    ),
)
