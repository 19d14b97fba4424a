"""Which operations the machine takes, and why not the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from dlc_backend_vta.config import Config
from dlc_backend_vta.forms import Form
from dlc_backend_vta.layers import Layer, View, Weights
from dlc_backend_vta.tiling import Plan, smallest
from dlc_core.graph import Node, const_array
from dlc_core.ir.types import TensorType

BYTES = ("int8", "uint8")
SUMS = "int32"
Verdict = bool | str
LARGEST = 1 << 31
"""Bytes that strides and offsets reach."""


def is_const(value: Node) -> bool:
    return const_array(value) is not None


def sizes(value: Node) -> tuple[int, ...]:
    """The dims of a tensor of known size."""
    return tuple(int(size) for size in value.shape)


def window(value: Node) -> dict[str, Any] | str:
    """The geometry of a convolution or pooling as fields of a layer, or why it has none.

    Attributes and fields are those of two spatial dims; of one it is the second.
    """
    x, attrs = value.args[0], value.attrs
    space = sizes(x)[2:]
    kernel = attrs["kernel"] if "kernel" in attrs else sizes(value.args[1])[2:]
    rank = len(kernel)
    if rank not in (1, 2):
        return f"windows of {rank} dims"
    ones, zeros = (1,) * rank, (0,) * rank
    strides, dilation = attrs["strides"] or ones, attrs["dilation"] or ones
    before = (attrs["padding"] or zeros + zeros)[:rank]
    for axis in range(rank):
        extent = (kernel[axis] - 1) * dilation[axis] + 1
        count = sizes(value)[2 + axis]
        behind = (count - 1) * strides[axis] - before[axis] + extent - space[axis]
        if max(before[axis], behind) > 255:
            return "a border of more than 255"
    height, width = (1, *space) if rank == 1 else space

    def both(values: Sequence[int], one: int) -> tuple[int, int]:
        first, second = (one, *values) if rank == 1 else values
        return int(first), int(second)

    return {
        "height": height,
        "width": width,
        "kernel": both(kernel, 1),
        "stride": both(strides, 1),
        "dilation": both(dilation, 1),
        "pads": both(before, 0),
    }


def _fits(layer: Layer, config: Config) -> Verdict:
    """Whether the smallest tile of a layer, with room for what may follow it, is on the chip."""
    return Plan(layer, smallest(layer), config).problem() or True


_NOWHERE = View(0, 0, (0, 0, 0, 0))


def _window_fits(
    value: Node, config: Config, kind: str, inputs: int, parts: int, starts: tuple[int, ...] = ()
) -> Verdict:
    found = window(value)
    if isinstance(found, str):
        return found
    form = Form.first(sizes(value))
    fields = {**form.fields(), **found, "inputs": inputs, "parts": parts, "starts": starts}
    if kind == "gemm":
        fields["weights"] = Weights(0, 0)
    return _fits(Layer("", kind, source=_NOWHERE, target=_NOWHERE, **fields), config)


def parts_of(weights: Node) -> int:
    """How many signed bytes sum up to a weight, at most."""
    array = const_array(weights)
    top = 127 if array is None or not array.size else int(array.max())
    return max(1, -(-top // 127))


def _operands(value: Node) -> Verdict:
    x, w = value.args[:2]
    if x.dtype.name not in BYTES or w.dtype.name not in BYTES:
        return f"products of {x.dtype} and {w.dtype}"
    if value.dtype.name != SUMS:
        return f"sums in {value.dtype}"
    if not is_const(w) and (x.dtype.name, w.dtype.name) != ("int8", "int8"):
        return "unsigned bytes by weights that are no constants"
    if is_const(x):
        return "products of a constant input"
    return True


def conv(value: Node, config: Config) -> Verdict:
    ready = _operands(value)
    if ready is not True:
        return ready
    if value.attrs["layout"] != "NCX" or value.attrs["kernel_layout"] != "OIX":
        return "channels that are not first"
    groups = value.attrs["groups"]
    if groups != 1 and not is_const(value.args[1]):
        return "groups of channels with weights that are no constants"
    if len(value.args) > 2:
        return "a bias in the convolution"
    inputs, starts = groups_of(value, config)
    return _window_fits(value, config, "gemm", inputs, parts_of(value.args[1]), starts)


def groups_of(value: Node, config: Config) -> tuple[int, tuple[int, ...]]:
    """The number of input channels that a block of results reads, and the first channel of each block.

    Blocks may span several groups; all read as many channels as the largest.
    """
    groups, inputs, outputs = value.attrs["groups"], sizes(value.args[0])[1], sizes(value)[1]
    if groups == 1:
        return inputs, ()
    lanes, each_in, each_out = config.block_out, inputs // groups, outputs // groups
    spans = [
        (first // each_out * each_in, (min(first + lanes, outputs) - 1) // each_out * each_in + each_in)
        for first in range(0, outputs, lanes)
    ]
    count = max(high - low for low, high in spans)
    return count, tuple(min(low, inputs - count) for low, _ in spans)


def matmul(value: Node, config: Config) -> Verdict:
    a, b = value.args[:2]
    if value.attrs["transpose_a"]:
        return "a transposed left matrix"
    if len(a.shape) < 2 or len(b.shape) != 2:
        return f"products of {len(a.shape)} by {len(b.shape)} dims"
    return _operands(value)


def pool(value: Node, config: Config) -> Verdict:
    if value.dtype.name not in BYTES:
        return f"maxima of {value.dtype}"
    if value.attrs["layout"] != "NCX":
        return "channels that are not first"
    if is_const(value.args[0]):
        return "a constant input"
    return _window_fits(value, config, "max", 1, 1)


def pad(value: Node, config: Config) -> Verdict:
    pads, shape = value.attrs["pads"], sizes(value)
    rank = len(shape)
    if value.attrs["mode"] != "constant" or value.dtype.name not in BYTES:
        return f"a border of mode {value.attrs['mode']} in {value.dtype}"
    if rank not in (3, 4) or any(pads[axis] or pads[axis + rank] for axis in (0, 1)):
        return "a border in other dims than the last two"
    if min(pads) < 0 or max(pads) > 255:
        return "a border below 0 or above 255"
    return True if not is_const(value.args[0]) else "a constant input"


def _with_constant(value: Node) -> tuple[Node, Node] | str:
    """The operand that is no constant, and the other; or why there are none."""
    a, b = value.args
    if is_const(a) and not is_const(b) and value.op.name != "sub":
        a, b = b, a
    if is_const(a):
        return "a constant on the left"
    return a, b


def _vector(constant: Node, value: Node, config: Config) -> Verdict:
    """Whether a constant is one number, or one for each channel."""
    forms = [Form.last(sizes(value), config)]
    if len(value.shape) > 2:
        forms.append(Form.first(sizes(value)))
    if any(form.fits(sizes(constant)) for form in forms):
        return True
    return "a constant that is neither a number nor one for each channel"


def arithmetic(value: Node, config: Config) -> Verdict:
    """add, sub and mul in int32."""
    if value.dtype.name != SUMS:
        return f"arithmetic in {value.dtype}"
    found = _with_constant(value)
    if isinstance(found, str):
        return found
    a, b = found
    if is_const(b):
        return _vector(b, value, config) if sizes(a) == sizes(value) else "a constant that widens the tensor"
    if value.op.name != "add":
        return f"{value.op.name} of two tensors"
    return True if sizes(a) == sizes(b) else "tensors of different shapes"


def limit(value: Node, config: Config) -> Verdict:
    """maximum and minimum by one number."""
    if value.dtype.name not in (*BYTES, SUMS):
        return f"limits of {value.dtype}"
    found = _with_constant(value)
    if isinstance(found, str):
        return found
    a, b = found
    if not is_const(b):
        return f"{value.op.name} of two tensors"
    return True if math.prod(b.shape) == 1 and sizes(a) == sizes(value) else "limits that are no number"


def relu(value: Node, config: Config) -> Verdict:
    return True if value.dtype.name in (*BYTES, SUMS) else f"relu of {value.dtype}"


def cast(value: Node, config: Config) -> Verdict:
    x = value.args[0]
    if x.dtype.name not in (*BYTES, SUMS) or value.dtype.name != SUMS:
        return f"a cast of {x.dtype} to {value.dtype}"
    return True if not is_const(x) else "a constant input"


def requantize(value: Node, config: Config) -> Verdict:
    """requantize and requantize_fixed."""
    n, *others = value.args
    if value.dtype.name not in BYTES:
        return f"results in {value.dtype}"
    if is_const(n):
        return "a constant input"
    count = 1 if value.op.name == "requantize" else 2
    for constant in others[:count]:
        if not is_const(constant):
            return "a factor that is no constant"
        fits = _vector(constant, value, config)
        if fits is not True:
            return fits
    for zero in others[count:]:
        if not is_const(zero) or math.prod(zero.shape) != 1:
            return "a zero point that is no constant number"
    return True


def reshape(value: Node, config: Config) -> Verdict:
    x = value.args[0]
    if value.dtype.name not in (*BYTES, SUMS):
        return f"a reshape of {value.dtype}"
    return True if not is_const(x) else "a constant input"


CHECKS: dict[str, Callable[[Node, Config], Verdict]] = {
    "conv": conv,
    "matmul": matmul,
    "max_pool": pool,
    "pad": pad,
    "add": arithmetic,
    "sub": arithmetic,
    "mul": arithmetic,
    "maximum": limit,
    "minimum": limit,
    "relu": relu,
    "cast": cast,
    "requantize": requantize,
    "requantize_fixed": requantize,
    "reshape": reshape,
}
"""The check of each operation, by its name."""
ANCHORS = ("conv", "matmul", "max_pool", "requantize", "requantize_fixed")
"""Operations that are worth a transfer."""


def accepts(value: Node, config: Config) -> Verdict:
    """Whether the machine takes a node, or why not."""
    for each in (value, *value.args):
        if not isinstance(each.type, TensorType) or each.type.static_shape() is None:
            return "dims that are not known at compile time"
        shape = sizes(each)
        if 0 in shape:
            return "a tensor without elements"
        if math.prod(shape) * 4 >= LARGEST:
            return "a tensor of 2 GiB"
    return CHECKS[value.op.name](value, config)


__all__ = ["ANCHORS", "CHECKS", "accepts", "groups_of", "is_const", "parts_of", "sizes", "window"]
