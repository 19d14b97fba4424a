"""Rules of slicing, joining, padding and repetition, and of reductions over nothing.

Canonical forms: parts of a `split` and a `gather` of one constant index are slices; slices of slices are one
slice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core.graph.node import GET, Node, const_array, constant, get_item, param
from dlc_core.ir.types import Dim, dim, tensor_type
from dlc_core.op.declare import OpDecl
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.graph.rules_shape import reshaped
from dlc_core.rewrite import Match, Rule, match_any, match_op, var
from dlc_core.rewrite.rule import Example

CONCAT, SPLIT, SLICE, PAD, FLIP, GATHER = (
    OPS[name] for name in ("concat", "split", "slice", "pad", "flip", "gather")
)
TILE = OPS["tile"]
REPEATING = (TILE, OPS["repeat"], OPS["roll"])
SUMS = tuple(OPS[f"reduce_{name}"] for name in ("sum", "mean"))
EXTREMES = tuple(OPS[f"reduce_{name}"] for name in ("max", "min", "prod"))

x, y = var("x"), var("y")
DTYPES = ("float32", "int8")
MAX_PARTS = 256
"""The most parts of a concatenation that has merged another one."""
MIN_COPIES = 8
"""Copies of one value from which a concatenation is a `tile`, whose kernel has one case and a remainder."""
Window = tuple[int, int, int]
"""First index, number of indices, stride: along one axis."""


def windows(value: Node) -> list[Window] | None:
    """Return the window of a slice on each axis; None if a bound is symbolic."""
    shape = value.args[0].tensor_type.static_shape()
    begins, ends, axes, strides = (value.attrs[name] for name in ("begins", "ends", "axes", "strides"))
    if shape is None or not all(isinstance(v, int) for v in (*begins, *ends)):
        return None
    found: list[Window] = [(0, size, 1) for size in shape]
    for i, axis in enumerate(range(len(begins)) if axes is None else axes):
        step = 1 if strides is None else strides[i]
        taken = range(*slice(begins[i], ends[i], step).indices(shape[axis]))
        found[axis % len(shape)] = (taken.start, len(taken), step)
    return found


def sliced(value: Node, target: Sequence[Window]) -> Node:
    """Slice the axes that the windows shorten, with positive strides; return `value` if there are none."""
    shape = value.shape
    cut = [i for i, window in enumerate(target) if window != (0, shape[i], 1)]
    if not cut:
        return value
    begins = tuple(target[i][0] for i in cut)
    ends = tuple(target[i][0] + max((target[i][1] - 1) * target[i][2] + 1, 0) for i in cut)
    strides = tuple(target[i][2] for i in cut)
    return SLICE.build(
        value, begins=begins, ends=ends, axes=tuple(cut), strides=None if set(strides) == {1} else strides
    )


def _slice_of_slice(match: Match) -> Node | None:
    outer, inner = windows(match.root), windows(match["inner"])
    if outer is None or inner is None or any(step < 1 for _, _, step in (*outer, *inner)):
        return None
    merged = [(a + b * s, n, s * t) for (a, _, s), (b, n, t) in zip(inner, outer, strict=True)]
    # A window of at most one element has no stride.
    return sliced(match["x"], [(a, n, t if n > 1 else 1) for a, n, t in merged])


def _slice_of_concat(match: Match) -> Node | None:
    """Slice the only input of a concatenation that the slice reads."""
    joined = match.root.args[0]
    target = windows(match.root)
    if target is None:
        return None
    axis = joined.attrs["axis"] % len(joined.shape)
    first, count, step = target[axis]
    if step < 1 or count == 0:
        return None
    last, begin = first + (count - 1) * step, 0
    for part in joined.args:
        size = part.shape[axis]
        if begin <= first and last < begin + size:
            inside = [*target[:axis], (first - begin, count, step), *target[axis + 1 :]]
            return sliced(part, inside) if all(s > 0 for _, _, s in inside) else None
        begin += size
    return None


def _part(match: Match) -> Node | None:
    """Return part `index` of a split as a slice."""
    split, index = match.root.args[0], match.root.attrs["index"]
    source = split.args[0]
    sizes: tuple[Dim, ...] = split.attrs["sizes"]
    if len(sizes) == 1:
        return source if source.type == match.root.type else None
    begin: Dim = 0
    for size in sizes[:index]:
        begin = dim(begin + size)
    axis = split.attrs["axis"] % len(source.shape)
    made = SLICE.build(source, begins=(begin,), ends=(dim(begin + sizes[index]),), axes=(axis,))
    return made if made.type == match.root.type else None


def _tidy_concat(match: Match) -> Node | None:
    """Merge nested concatenations, remove empty inputs, and merge adjacent slices of one value.

    Nested concatenations of one value can have a number of parts that is exponential in their depth. So they
    are not merged beyond `MAX_PARTS`, and many copies of one value are a `tile`.
    """
    root = match.root
    axis = root.attrs["axis"] % len(root.shape)
    if len(root.args) >= MIN_COPIES and len(set(root.args)) == 1:
        repeats = [1] * len(root.shape)
        repeats[axis] = len(root.args)
        return TILE.build(root.args[0], repeats=tuple(repeats))
    parts: list[Node] = []
    for arg in root.args:
        nested = arg.op is CONCAT and arg.attrs["axis"] % len(arg.shape) == axis
        parts += arg.args if nested and len(parts) + len(arg.args) <= MAX_PARTS else [arg]
    parts = [p for p in parts if p.shape[axis] != 0] or parts[:1]
    joined: list[Node] = []
    for part in parts:
        previous = _joined_slices(joined[-1], part, axis) if joined else None
        if previous is None:
            joined.append(part)
        else:
            joined[-1] = previous
    if tuple(joined) == root.args and len(joined) > 1:
        return None
    return joined[0] if len(joined) == 1 else CONCAT.build(*joined, axis=axis)


def _joined_slices(a: Node, b: Node, axis: int) -> Node | None:
    if a.op is not SLICE or b.op is not SLICE or a.args != b.args:
        return None
    one, two = windows(a), windows(b)
    if one is None or two is None or any(step != 1 for _, _, step in (*one, *two)):
        return None
    follows = one[axis][0] + one[axis][1] == two[axis][0]
    if not follows or [w for i, w in enumerate(one) if i != axis] != [
        w for i, w in enumerate(two) if i != axis
    ]:
        return None
    return sliced(a.args[0], [*one[:axis], (one[axis][0], one[axis][1] + two[axis][1], 1), *one[axis + 1 :]])


def _gather_one(match: Match) -> Node | None:
    """Replace a gather of one constant index by a slice."""
    value, indices = match.root.args
    array = const_array(indices)
    axis = match.root.attrs["axis"] % len(value.shape)
    size = value.shape[axis]
    if array is None or array.size != 1 or not isinstance(size, int):
        return None
    index = int(array.flat[0])
    index += size if index < 0 else 0
    if not 0 <= index < size:
        return None
    return reshaped(SLICE.build(value, begins=(index,), ends=(index + 1,), axes=(axis,)), match.root.shape)


def _folds_nothing(match: Match) -> bool:
    before = match["x"].tensor_type.static_shape()
    axes = match.root.attrs["axes"]
    if before is None or 0 in before:
        return False
    folded = range(len(before)) if axes is None else [a % len(before) for a in axes]
    return all(before[a] == 1 for a in folded)


def _folding_examples(decls: Sequence[OpDecl]) -> tuple[Example, ...]:
    def make(decl: OpDecl, keepdims: bool) -> Example:
        return lambda dtype: decl.build(_input(dtype, 4, 1, 6), axes=(1,), keepdims=keepdims)

    return tuple(make(decl, index == 0) for index, decl in enumerate(decls))


def _repeats_nothing(match: Match) -> bool:
    attrs = match.root.attrs
    if "repeats" in attrs:
        times = attrs["repeats"]
        return all(t == 1 for t in times) if isinstance(times, tuple) else bool(times == 1)
    return all(shift == 0 for shift in attrs["shifts"])


def _merge_pads(match: Match) -> Node | None:
    outer, inner = match.root.attrs, match["inner"].attrs
    same = np.float64(outer["value"]).tobytes() == np.float64(inner["value"]).tobytes()
    if {outer["mode"], inner["mode"]} != {"constant"} or not same:
        return None
    pads = (*outer["pads"], *inner["pads"])
    if not all(isinstance(p, int) and p >= 0 for p in pads):
        return None
    total = tuple(a + b for a, b in zip(outer["pads"], inner["pads"], strict=True))
    return PAD.build(match["x"], pads=total, value=outer["value"])


def _input(dtype: str, *shape: int, name: str = "x") -> Node:
    return param(name, tensor_type(shape, dtype))


def _cut(value: Node, axis: int, begin: int, end: int, stride: int = 1) -> Node:
    return SLICE.build(value, begins=(begin,), ends=(end,), axes=(axis,), strides=(stride,))


def _slices_of_one(dtype: str) -> Node:
    value = _input(dtype, 4, 6)
    return CONCAT.build(_cut(value, 1, 0, 2), _cut(value, 1, 2, 5), _input(dtype, 4, 1, name="y"), axis=1)


def _slices_of_all(dtype: str) -> Node:
    value = _input(dtype, 4, 6)
    return CONCAT.build(_cut(value, 1, 0, 2), _cut(value, 1, 2, 6), axis=-1)


def _pair(dtype: str) -> Node:
    return CONCAT.build(_input(dtype, 4, 2), _input(dtype, 4, 5, name="y"), axis=1)


RULES: tuple[Rule, ...] = (
    Rule(
        "slice_all",
        match_op(SLICE, x),
        x,
        lambda m: m["x"].type == m.root.type and all(s == 1 for s in m.root.attrs["strides"] or ()),
        doc="a slice of the same type with stride 1 takes everything",
        dtypes=DTYPES,
        examples=(lambda t: SLICE.build(_input(t, 4, 6), begins=(0, -9), ends=(4, 99)),),
    ),
    Rule(
        "slice_slice",
        match_op(SLICE, match_op(SLICE, x, capture="inner")),
        _slice_of_slice,
        doc="slices compose",
        examples=(
            lambda t: _cut(_cut(_input(t, 4, 20), 1, 3, 19), 1, 2, -1),
            lambda t: _cut(_cut(_input(t, 4, 20), 1, 1, 18, 3), 1, 1, 5, 2),
            lambda t: _cut(_cut(_input(t, 4, 20), 1, 3, 9), 0, 1, 3),
            lambda t: _cut(_cut(_input(t, 4, 20), 1, 3, 9, 2), 1, 2, 2),
        ),
        dtypes=DTYPES,
    ),
    Rule(
        "slice_concat",
        match_op(SLICE, match_any(CONCAT)),
        _slice_of_concat,
        doc="a slice within one input of a concat is a slice of that input",
        examples=(
            lambda t: _cut(_pair(t), 1, 3, 6),
            lambda t: _cut(_pair(t), 1, 0, 2),
            lambda t: _cut(_pair(t), 1, 2, 7, 2),
        ),
        dtypes=DTYPES,
    ),
    Rule(
        "get_split",
        match_op(GET, match_op(SPLIT, x)),
        _part,
        doc="a part of a split is a slice",
        dtypes=DTYPES,
        examples=(
            lambda t: get_item(SPLIT.build(_input(t, 4, 6), sizes=(1, 2, 3), axis=1), 1),
            lambda t: get_item(SPLIT.build(_input(t, 4, 6), sizes=(4,), axis=0), 0),
        ),
    ),
    Rule(
        "concat_parts",
        match_any(CONCAT),
        _tidy_concat,
        doc="concats nest into one; neighbouring slices of one value are one slice; many copies are a tile",
        examples=(
            _slices_of_one,
            _slices_of_all,
            lambda t: CONCAT.build(_pair(t), _input(t, 4, 1, name="z"), axis=1),
            lambda t: CONCAT.build(_input(t, 4, 6), axis=0),
            lambda t: CONCAT.build(_input(t, 4, 6), _input(t, 0, 6, name="y"), axis=0),
            lambda t: CONCAT.build(*[_input(t, 4, 6)] * MIN_COPIES, axis=1),
        ),
        dtypes=DTYPES,
    ),
    Rule(
        "gather_one",
        match_op(GATHER, x, y),
        _gather_one,
        doc="a gather of one constant index is a slice",
        examples=(
            lambda t: GATHER.build(_input(t, 4, 6), constant(np.int64(2)), axis=1),
            lambda t: GATHER.build(_input(t, 4, 6), constant(np.array([-1], np.int64)), axis=0),
        ),
        dtypes=DTYPES,
    ),
    Rule(
        "reduce_ones",
        match_op(EXTREMES, x),
        lambda m: reshaped(m["x"], m.root.shape),
        _folds_nothing,
        doc="a product or extreme of one element is the element",
        examples=_folding_examples(EXTREMES),
        dtypes=DTYPES,
    ),
    Rule(
        "sum_ones",
        match_op(SUMS, x),
        lambda m: reshaped(m["x"], m.root.shape),
        _folds_nothing,
        approximate=True,
        doc="a sum or mean of one element is the element, except that 0 + -0 is 0",
        examples=_folding_examples(SUMS),
        dtypes=DTYPES,
    ),
    Rule(
        "pad_nothing",
        match_op(PAD, x, pads=lambda pads: all(p == 0 for p in pads)),
        x,
        doc="no border is no pad",
        examples=(lambda t: PAD.build(_input(t, 4, 6), pads=(0, 0, 0, 0), value=1.0),),
        dtypes=DTYPES,
    ),
    Rule(
        "pad_pad",
        match_op(PAD, match_op(PAD, x, capture="inner")),
        _merge_pads,
        doc="borders of one value add up",
        dtypes=DTYPES,
        examples=(lambda t: PAD.build(PAD.build(_input(t, 4, 6), pads=(1, 0, 2, 3)), pads=(0, 1, 1, 0)),),
    ),
    Rule(
        "repeat_nothing",
        match_op(REPEATING, x),
        x,
        _repeats_nothing,
        doc="once is the value itself",
        dtypes=DTYPES,
        examples=(
            lambda t: OPS["tile"].build(_input(t, 4, 6), repeats=(1, 1)),
            lambda t: OPS["repeat"].build(_input(t, 4, 6), repeats=1, axis=0),
            lambda t: OPS["roll"].build(_input(t, 4, 6), shifts=(0,), axes=(1,)),
        ),
    ),
    Rule(
        "flip_flip",
        match_op(FLIP, match_op(FLIP, x, capture="inner")),
        x,
        lambda m: (
            sorted(a % len(m.root.shape) for a in m.root.attrs["axes"])
            == sorted(a % len(m.root.shape) for a in m["inner"].attrs["axes"])
        ),
        doc="two flips of the same axes undo each other",
        dtypes=DTYPES,
        examples=(lambda t: FLIP.build(FLIP.build(_input(t, 4, 6), axes=(1, 0)), axes=(0, -1)),),
    ),
)
