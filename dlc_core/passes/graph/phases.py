"""phases: replace transposed convolutions by convolutions whose output channels are the phases of the
results.

Law: the function computes the same values within tolerance.

    conv_transpose(x, w, strides=(s, s))   =>   crop(interleave(conv(x, w')))    s · s times the outputs
                                                interleave(concat(conv(x, w[r::s]), …))    for each phase r

The result of a transposed convolution of stride s, at index s · j + r before cropping, is a sum over only the
taps r, r + s, … of the window, at neighbouring inputs from j down. So all s phases r are one convolution of
the unchanged input with s times the output channels, whose results are interleaved. The definition instead
inserts zeros into the input, and multiplies s · s times as much. Windows whose size is not a multiple of the
stride are padded by taps of 0. Phases also begin at different indices, so one convolution has results at its
ends that are cropped. If that is a large part of its work, as for small images and odd windows, each phase
becomes a separate convolution. So it does if the weights are computed, as in gradients: their taps are sliced
then. A phase that no tap reaches has zeros.

Source: Shi et al., Is the deconvolution layer the same as a convolutional layer?, 2016.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, ClassVar

import numpy as np

from dlc_core.decisions import Decision
from dlc_core.graph.node import Function, Node, const_array, constant, rewrite
from dlc_core.ir.types import Dim, dim
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.op.std.convolution import Conv, conv_sizes
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.rules_shape import reshaped, transposed
from dlc_core.passes.heuristics import PHASES
from dlc_core.support.record import record

CONV, CONV_TRANSPOSE, ADD = (OPS[name] for name in ("conv", "conv_transpose", "add"))
CONCAT, SLICE, FLIP, BROADCAST = (OPS[name] for name in ("concat", "slice", "flip", "broadcast_to"))
Array = np.ndarray[Any, Any]
FORM = Decision(
    "conv_transpose.phases",
    "Whether a transposed convolution is one convolution of all phases, one per phase, or of a spread input.",
    ("together", "separate", "spread"),
    recordable=True,
)


@record(frozen=True)
class Phase:
    """The results along an axis at distances of the stride, as a convolution of the input."""

    first: int
    """The first tap of the window; the others follow at distances of the stride."""
    taps: int
    before: int
    """Border of the input that it reads."""
    after: int


@record(frozen=True)
class Phases(GraphPass):
    """Compute transposed convolutions, channels last, by the phases of their strides.

    This is not for machines with thread axes, whose rules read windows of the zero-padded input in place.
    """

    name: ClassVar[str] = "phases"
    min_level: ClassVar[int] = 2
    exact: ClassVar[bool] = False

    def run_function(self, function: Function, context: PassContext) -> Function:
        if context.target is None or context.target.describe().thread_axes:
            return function
        body = rewrite(function.body, _by_phases)
        return function if body is function.body else function.with_body(body)


def _by_phases(old: Node, args: tuple[Node, ...]) -> Node | None:
    if old.op is not CONV_TRANSPOSE or old.attrs["layout"] != "NXC" or old.attrs["kernel_layout"] != "XIO":
        return None
    weights = const_array(args[1])
    conv = conv_sizes(
        [dim(d) for d in args[0].shape], [dim(d) for d in args[1].shape], old.attrs, transposed=True
    )
    window = conv.window
    steps = window.strides
    if any(s > 1 and d > 1 for s, d in zip(steps, window.dilation, strict=True)):
        return None
    if weights is None and math.prod(steps) == 1:
        return None
    # `first` is the first result of a phase that is not cropped, limited by the reach of its taps.
    taps = [-(-k // s) for k, s in zip(window.kernel, steps, strict=True)]
    reach = [(t - 1) * d for t, d in zip(taps, window.dilation, strict=True)]
    first = [min(b // s, r) for b, s, r in zip(window.before, steps, reach, strict=True)]
    before = [r - f for r, f in zip(reach, first, strict=True)]
    extra = old.attrs["output_padding"] or (0,) * len(steps)
    ends = [e + more - a for e, more, a in zip(window.extents, extra, window.after, strict=True)]
    after = [max(-(-e // s) - 1, 0) for e, s in zip(ends, steps, strict=True)]
    bias = const_array(args[2]) if len(args) > 2 else None
    attrs = {"padding": (*before, *after), "dilation": old.attrs["dilation"], "groups": conv.groups}
    attrs |= {name: old.attrs[name] for name in ("layout", "kernel_layout", "out_dtype")}
    axes = _axes(old, conv)
    separate = bool(axes) and (weights is None or _is_separate_cheaper(old, conv, axes))
    reasons = {
        "spread": "most taps would multiply zeros",
        "together": "the weights are computed"
        if weights is None
        else f"one convolution would multiply at least {PHASES.work_ratio:g} times as much",
        "separate": "single phases would not multiply much less"
        if axes
        else "there are groups, too many phases, or phases that begin outside of the input",
    }
    other = "spread" if weights is None else "together"
    legal = {"separate": bool(axes), "together": weights is not None, "spread": True}
    form = FORM.choose(
        "separate" if separate else other,
        tuple(each for each in FORM.alternatives if legal[each]),
        where=f"{old.shape} {dict(old.attrs)}",
        refused=reasons.__getitem__,
        spans=old.spans,
    )
    if form == "spread":
        return None
    if form == "separate":
        return _separate_convolutions(old, args, conv, axes, attrs)
    assert weights is not None
    given = [args[0], constant(_split_weights(weights, conv, taps))]
    if bias is not None:
        shape = (conv.groups, math.prod(steps), conv.group_outputs)
        given.append(constant(np.broadcast_to(bias.reshape(conv.groups, 1, -1), shape).reshape(-1)))
    result = _interleaved(CONV.build(*given, **attrs), conv)
    begins = [b - f * s for b, f, s in zip(window.before, first, steps, strict=True)]
    result = _cropped(result, old, begins)
    return ADD.build(result, args[2]) if len(args) > 2 and bias is None else result


def _axes(old: Node, conv: Conv) -> list[list[Phase]]:
    """Return the phases of each axis; none if they cannot be separate convolutions."""
    steps = conv.window.strides
    axes = [_phases(conv, axis, old.shape[1 + axis]) for axis in range(len(steps))]
    return axes if conv.groups == 1 and all(axes) and math.prod(steps) <= PHASES.max_phases else []


def _is_separate_cheaper(old: Node, conv: Conv, axes: Sequence[Sequence[Phase]]) -> bool:
    """Whether separate convolutions of phases need far fewer multiplications than one convolution of all."""
    steps = conv.window.strides
    together = work = 1
    for step, phases, size, kernel in zip(steps, axes, old.shape[1:-1], conv.window.kernel, strict=True):
        results = size // step + (len({phase.before - phase.taps for phase in phases}) - 1)
        together *= results * step * -(-kernel // step)
        work *= size // step * sum(phase.taps for phase in phases)
    return together >= PHASES.work_ratio * work


def _separate_convolutions(
    old: Node, args: Sequence[Node], conv: Conv, axes: Sequence[Sequence[Phase]], attrs: Mapping[str, Any]
) -> Node:
    """Build a convolution for each phase, and interleave the results."""
    counts = [size // step for size, step in zip(old.shape[1:-1], conv.window.strides, strict=True)]
    shape = (conv.batch, *map(dim, counts), conv.outputs)
    parts = []
    for chosen in product(*axes):
        if not all(phase.taps for phase in chosen):
            zeros = args[2] if len(args) > 2 else constant(np.zeros((1,)), args[0].dtype)
            parts.append(BROADCAST.build(zeros, shape=shape))
            continue
        padding = (*(phase.before for phase in chosen), *(phase.after for phase in chosen))
        weights = _taps(args[1], chosen, conv.window.strides)
        parts.append(CONV.build(args[0], weights, *args[2:], **{**attrs, "padding": padding}))
    return _interleaved(CONCAT.build(*parts, axis=-1), conv)


def _taps(weights: Node, chosen: Sequence[Phase], steps: Sequence[int]) -> Node:
    """The taps of phases in the reverse order, as a constant if the weights are one."""
    axes, array = tuple(range(len(steps))), const_array(weights)
    if array is not None:
        taps = tuple(slice(phase.first, None, step) for phase, step in zip(chosen, steps, strict=True))
        return constant(np.ascontiguousarray(np.flip(array[taps], axes)))
    firsts = tuple(phase.first for phase in chosen)
    ends = tuple(weights.shape[: len(steps)])
    part = SLICE.build(weights, begins=firsts, ends=ends, axes=axes, strides=tuple(steps))
    return FLIP.build(part, axes=axes)


def _phases(conv: Conv, axis: int, results: Dim) -> list[Phase]:
    """Return the phases along an axis in the order of their results; none if they are no convolutions."""
    window, size = conv.window, conv.sizes[axis]
    step, dilation = window.strides[axis], window.dilation[axis]
    if not isinstance(size, int) or not isinstance(results, int) or results % step:
        return []
    found = []
    for index in range(step):
        begin, first = divmod(index + window.before[axis], step)
        taps = -(-(window.kernel[axis] - first) // step)
        if taps < 1:
            found.append(Phase(first, 0, 0, 0))
            continue
        before = (taps - 1) * dilation - begin
        after = begin + results // step - size
        if before < 0 or after < 0:
            return []
        found.append(Phase(first, taps, before, after))
    return found


def _split_weights(weights: Array, conv: Conv, taps: Sequence[int]) -> Array:
    """Split weights [window…, in, out / groups] to [taps…, in / groups, (groups, phases, out / groups)]."""
    steps, rank = conv.window.strides, len(taps)
    more = [(0, t * s - k) for t, s, k in zip(taps, steps, weights.shape, strict=False)]
    padded = np.pad(weights, [*more, (0, 0), (0, 0)])
    split = [size for pair in zip(taps, steps, strict=True) for size in pair]
    parts = padded.reshape(*split, conv.groups, conv.group_inputs, conv.group_outputs)
    parts = np.flip(parts, tuple(range(0, 2 * rank, 2)))  # later taps read earlier inputs
    group, inner, outer = range(2 * rank, 2 * rank + 3)
    order = (*range(0, 2 * rank, 2), inner, group, *range(1, 2 * rank, 2), outer)
    return np.ascontiguousarray(parts.transpose(order).reshape(*taps, conv.group_inputs, -1))


def _interleaved(value: Node, conv: Conv) -> Node:
    """Interleave the phases of [n, spatial…, groups · phases · channels] along the spatial axes."""
    steps, rank = conv.window.strides, len(conv.window.strides)
    if all(step == 1 for step in steps):
        return value
    batch, *spatial = value.shape[:-1]
    own = () if conv.groups == 1 else (conv.groups,)
    split = reshaped(value, (batch, *spatial, *own, *steps, conv.group_outputs))
    phase = 1 + rank + len(own)
    pairs = [axis for i in range(rank) for axis in (1 + i, phase + i)]
    moved = transposed(split, (0, *pairs, *range(1 + rank, phase), phase + rank))
    sizes = [dim(size * step) for size, step in zip(spatial, steps, strict=True)]
    return reshaped(moved, (batch, *sizes, conv.outputs))


def _cropped(value: Node, old: Node, begins: Sequence[int]) -> Node:
    """Crop the spatial dims as `old` does."""
    axes = [1 + i for i, b in enumerate(begins) if b or value.shape[1 + i] != old.shape[1 + i]]
    if not axes:
        return value
    from_ = [begins[axis - 1] for axis in axes]
    ends = [dim(b + old.shape[axis]) for b, axis in zip(from_, axes, strict=True)]
    return SLICE.build(value, axes=tuple(axes), begins=tuple(from_), ends=tuple(ends))
