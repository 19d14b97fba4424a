"""From the operations of a region to layers.

A convolution, product or maximum begins a layer, and what follows on its results joins it as steps of the
vector unit, as long as nothing else needs the values in between.  A chain of such steps on what lies on the
card is a layer too; where one meets another in an addition, as the other branch of a residual block does, it
becomes an operand of that.

Unsigned bytes are less 128 on the chip.  The offset of values is kept with them, and added where an
operation needs it: a zero point behind a limit never is, for what is stored keeps the low 8 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from dlc_backend_vta.config import Config
from dlc_backend_vta.forms import Form
from dlc_backend_vta.isa import Op
from dlc_backend_vta.layers import Layer, Step, View, Weights
from dlc_backend_vta.support import SUMS, groups_of, is_const, sizes, window
from dlc_core.graph import Function, Node, const_array, post_order

NDArray = np.ndarray[Any, Any]
CONSTANTS, SCRATCH, FIRST = 0, 1, 2
"""Base registers: constants, memory between layers, the first of inputs and then of outputs."""
ALIGN = 64
MOST_OPERANDS = 6
"""Vectors and tensors of one layer; more begin another layer."""


@dataclass
class Stored:
    """A compact tensor on the card."""

    base: int
    offset: int
    shape: tuple[int, ...]
    dtype: str


@dataclass
class Pending:
    """A layer to which steps are still added; its values are those on the chip plus `offset`."""

    kind: str
    form: Form
    shape: tuple[int, ...]
    dtype: str
    fields: dict[str, Any]
    steps: list[Step] = field(default_factory=list)
    vectors: list[NDArray] = field(default_factory=list)
    tensors: list[View] = field(default_factory=list)
    offset: int = 0

    @property
    def plain(self) -> bool:
        """Whether it is a tensor of the card with steps by numbers, which can be the operand of a layer."""
        alone = self.kind == "copy" and not self.tensors and not self.vectors
        return alone and "height" not in self.fields

    def settle(self) -> None:
        """Add what the values are off by."""
        if self.offset:
            self.steps.append(Step(Op.ADD, first=wrapped(self.offset)))
            self.offset = 0


@dataclass
class Padded:
    """A tensor of the card with a border that is not stored."""

    inner: Stored
    pads: tuple[int, ...]
    value: int


Value = Stored | Pending | Padded


@dataclass(frozen=True)
class Lowered:
    """Layers in their order, the constants that they read, and bytes of memory between them."""

    layers: tuple[Layer, ...]
    constants: bytes
    scratch: int


def wrapped(value: int) -> int:
    """A number as int32 holds it."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def lower(function: Function, config: Config) -> Lowered:
    """The layers of a region whose nodes were all accepted.

    Inputs and outputs are compact tensors in base registers from `FIRST` on.
    """
    return _Lowering(function, config).run()


class _Lowering:
    def __init__(self, function: Function, config: Config) -> None:
        self.config = config
        self.function = function
        self.layers: list[Layer] = []
        self.constants = bytearray()
        self.scratch = 0
        self.values: dict[Node, Value] = {}
        self.order = list(post_order(function.body))
        self.uses = dict.fromkeys(self.order, 0)
        for each in self.order:
            for arg in each.args:
                self.uses[arg] += 1
        for register, param in enumerate(function.params, FIRST):
            self.values[param] = Stored(register, 0, sizes(param), param.dtype.name)
        first = FIRST + len(function.params)
        self.outputs: dict[Node, int] = {}
        for register, result in enumerate(function.results, first):
            self.outputs.setdefault(result, register)
        for each in reversed(self.order):  # a reshape is the memory of what it reads
            if each.op.name == "reshape" and each in self.outputs and self.uses[each.args[0]] == 1:
                self.outputs.setdefault(each.args[0], self.outputs[each])

    def run(self) -> Lowered:
        for each in self.order:
            if each.op.name in self._HANDLERS and each not in self.values and not is_const(each):
                made: Value = self._HANDLERS[each.op.name](self, each)
                if isinstance(made, Pending) and (self.uses[each] != 1 or each in self.outputs):
                    made = self.store(made, each)
                self.values[each] = made
        first = FIRST + len(self.function.params)
        for register, result in enumerate(self.function.results, first):
            found = self.stored(result)
            if (found.base, found.offset) != (register, 0):
                self.copy(found, register)
        return Lowered(tuple(self.layers), bytes(self.constants), self.scratch)

    # Memory

    def constant(self, array: NDArray) -> int:
        """Where constants have an array."""
        at = len(self.constants)
        self.constants += np.ascontiguousarray(array).tobytes()
        self.constants += bytes(-len(self.constants) % ALIGN)
        return at

    def store(self, value: Pending, of: Node) -> Stored:
        """End a layer: its values on the card."""
        size = 4 if value.dtype == SUMS else 1
        if of in self.outputs:
            location = Stored(self.outputs[of], 0, value.shape, value.dtype)
        else:
            location = Stored(SCRATCH, self.scratch, value.shape, value.dtype)
            self.scratch += -(-math.prod(value.shape) * size // ALIGN) * ALIGN
        target = value.form.view(location.base, location.offset, value.dtype)
        flip = value.dtype != SUMS and value.offset % 256 == 128
        if not flip and (value.dtype == SUMS or value.offset % 256):
            value.settle()
        self.emit(value, replace(target, flip=flip), of)
        return location

    def emit(self, value: Pending, target: View, of: Node | None) -> None:
        """A layer with its vectors among the constants."""
        vectors = None
        if value.vectors:
            lanes = self.config.block_out
            blocks = -(-value.form.channels // lanes)
            table = np.zeros((blocks * lanes, len(value.vectors)), np.int32)
            table[: value.form.channels] = np.stack(value.vectors, 1)
            packed = table.reshape(blocks, lanes, -1).transpose(0, 2, 1)
            vectors = View(CONSTANTS, self.constant(packed), (0, 0, 0, 0), wide=True)
        sized = {"height": value.form.rows, "width": value.form.columns, **value.fields}
        names = [span.name for span in of.spans if span.name] if of is not None else []
        self.layers.append(
            Layer(
                names[0] if names else f"{value.kind}_{len(self.layers)}",
                value.kind,
                **value.form.fields(),
                target=target,
                steps=tuple(value.steps),
                vectors=vectors,
                vector_count=len(value.vectors),
                tensors=tuple(value.tensors),
                **sized,
            )
        )

    def copy(self, found: Stored, register: int) -> None:
        """A result that lies elsewhere."""
        flat = replace(found, shape=(math.prod(found.shape),), dtype=SUMS if found.dtype == SUMS else "int8")
        value = self.begin(flat)
        self.emit(value, value.form.view(register, 0, flat.dtype), None)

    def stored(self, node: Node) -> Stored:
        """A value on the card."""
        found = self.values[node]
        if isinstance(found, Padded):
            found = self.bordered(found)
        if isinstance(found, Pending):
            found = self.store(found, node)
        self.values[node] = found
        return found

    def bordered(self, found: Padded) -> Pending:
        """A copy of a tensor with its border."""
        inner, rank = found.inner, len(found.inner.shape)
        shape = tuple(s + found.pads[i] + found.pads[i + rank] for i, s in enumerate(inner.shape))
        made = self.begin(inner)
        before = found.pads[2:rank]
        return replace(
            made,
            form=Form.first(shape),
            shape=shape,
            fields={
                **made.fields,
                "height": made.form.rows,
                "width": made.form.columns,
                "pads": (0, *before) if rank == 3 else before,
                "fill": found.value - (128 if inner.dtype == "uint8" else 0),
            },
        )

    # Values

    def begin(self, found: Stored, form: Form | None = None) -> Pending:
        """A chain of steps on a tensor of the card."""
        form = form or Form.of(found.shape, self.config)
        view = form.view(found.base, found.offset, found.dtype)
        offset = 128 if view.flip else 0
        return Pending("copy", form, found.shape, found.dtype, {"source": view}, offset=offset)

    def chain(self, node: Node) -> Pending:
        """A value to which steps can be added."""
        found = self.values[node]
        if isinstance(found, Padded):
            found = self.bordered(found)
        if isinstance(found, Pending) and len(found.vectors) + len(found.tensors) < MOST_OPERANDS:
            return found
        return self.begin(self.stored(node))

    def with_vector(self, value: Pending, node: Node, *constants: NDArray) -> tuple[Pending, int | None]:
        """The number of the first of some vectors over channels; None where all are numbers.

        The value may have to be stored, to have its channels elsewhere.
        """
        if all(array.size == 1 for array in constants):
            return value, None
        if not all(value.form.fits(array.shape) for array in constants):
            found = self.store(value, node)
            form = Form.last(found.shape, self.config)
            if not all(form.fits(array.shape) for array in constants):
                form = Form.first(found.shape)
            value = self.begin(found, form)
        number = len(value.vectors)
        for array in constants:
            value.vectors.append(np.broadcast_to(array.reshape(-1), (value.form.channels,)).astype(np.int32))
        return value, number

    # Operations

    def conv(self, node: Node) -> Pending:
        x, w = node.args
        fields = window(node)
        assert isinstance(fields, dict)
        found = self.values[x]
        border = 0
        if isinstance(found, Padded) and not any(node.attrs["padding"] or ()):
            inner = found.inner
            rank = len(inner.shape)
            before = found.pads[2:rank]
            space = inner.shape[2:]
            fields["pads"] = (0, *before) if rank == 3 else tuple(before)
            fields["height"], fields["width"] = (1, *space) if rank == 3 else space
            border = found.value
            source = inner
        else:
            source = self.stored(x)
        shape = sizes(node)
        form, taps = Form.first(shape), fields["kernel"][0] * fields["kernel"][1]
        view = Form.first(source.shape).view(source.base, source.offset, source.dtype)
        inputs, starts = groups_of(node, self.config)
        fields |= {"source": view, "inputs": inputs, "starts": starts}
        fields["fill"] = border - (128 if view.flip else 0)
        array = const_array(w)
        if array is None:
            held = self.stored(w)
            strides = (held.shape[1] * taps, taps, 1)
            fields["weights"] = Weights(held.base, held.offset, strides, packed=False)
            return Pending("gemm", form, shape, SUMS, fields)
        weights = array.reshape(shape[1], -1, taps)
        if starts:
            weights = self.spread(weights, inputs, starts, node.attrs["groups"])
        return self.product(form, shape, fields, weights, view.flip)

    def spread(self, weights: NDArray, inputs: int, starts: tuple[int, ...], groups: int) -> NDArray:
        """Weights of groups among the `inputs` channels from `starts` on that blocks of results read."""
        count, depth, taps = weights.shape
        channel = np.arange(count)
        location = channel // (count // groups) * depth - np.array(starts)[channel // self.config.block_out]
        made = np.zeros((count, inputs, taps), weights.dtype)
        made[channel[:, None], location[:, None] + np.arange(depth)] = weights
        return made

    def matmul(self, node: Node) -> Pending:
        a, b = node.args[:2]
        shape, found, array = sizes(node), self.stored(a), const_array(b)
        form, inner = Form.last(shape, self.config), found.shape[-1]
        left = Form.last(found.shape, self.config)
        view = left.view(found.base, found.offset, found.dtype)
        fields: dict[str, Any] = {"source": view, "inputs": inner}
        turned = bool(node.attrs["transpose_b"])
        if array is None:
            held = self.stored(b)
            strides = (inner, 1, 0) if turned else (1, shape[-1], 0)
            fields["weights"] = Weights(held.base, held.offset, strides, packed=False)
            return Pending("gemm", form, shape, SUMS, fields)
        weights = array if turned else array.T
        return self.product(form, shape, fields, weights[:, :, None], view.flip)

    def product(
        self, form: Form, shape: tuple[int, ...], fields: dict[str, Any], weights: NDArray, flip: bool
    ) -> Pending:
        """A product by constant weights [outputs, inputs, taps]."""
        parts: list[NDArray] = []
        rest = weights.astype(np.int32)
        while not parts or rest.any():
            parts.append(np.clip(rest, -128, 127))
            rest = rest - parts[-1]
        out, inp = self.config.block_out, self.config.block_in
        count, depth, taps = weights.shape
        blocks, chunks = -(-count // out), -(-depth // inp)
        table = np.zeros((blocks * out, chunks * inp, taps * len(parts)), np.int8)
        table[:count, :depth] = np.concatenate(parts, 2)
        packed = table.reshape(blocks, out, chunks, inp, -1).transpose(0, 2, 4, 1, 3)
        fields |= {"weights": Weights(CONSTANTS, self.constant(packed)), "parts": len(parts)}
        made = Pending("gemm", form, shape, SUMS, fields)
        if flip:
            made.vectors.append((128 * weights.astype(np.int64).sum((1, 2))).astype(np.int32))
            made.steps.append(Step(Op.ADD, vector=0))
        return made

    def max_pool(self, node: Node) -> Pending:
        found, fields = self.stored(node.args[0]), window(node)
        assert isinstance(fields, dict)
        form = Form.first(found.shape)
        view = form.view(found.base, found.offset, found.dtype)
        fields |= {"source": view, "fill": -128}
        shape = sizes(node)
        offset = 128 if view.flip else 0
        return Pending("max", Form.first(shape), shape, found.dtype, fields, offset=offset)

    def pad(self, node: Node) -> Padded:
        return Padded(self.stored(node.args[0]), tuple(node.attrs["pads"]), int(node.attrs["value"]))

    def reshape(self, node: Node) -> Stored:
        return replace(self.stored(node.args[0]), shape=sizes(node))

    def cast(self, node: Node) -> Pending:
        value = self.chain(node.args[0])
        value.dtype = SUMS
        return value

    def arithmetic(self, node: Node) -> Pending:
        """add, sub and mul."""
        a, b = node.args
        if is_const(a):
            a, b = b, a
        array = const_array(b)
        if array is None:
            return self.sum(node, a, b)
        value = self.chain(a)
        if node.op.name == "mul":
            value.settle()
            value, number = self.with_vector(value, a, array)
            first = int(array.item()) if number is None else 0
            value.steps.append(Step(Op.MUL, vector=number, first=first))
            return value
        term = -array.astype(np.int64) if node.op.name == "sub" else array.astype(np.int64)
        if array.size == 1:
            value.offset = wrapped(value.offset + int(term.item()))
            return value
        term = term.astype(np.int32)
        last = value.steps[-1] if value.steps else None
        if last is not None and last.op is Op.ADD and last.vector is not None and value.form.fits(term.shape):
            value.vectors[last.vector] = value.vectors[last.vector] + term.reshape(-1)
            return value
        value, number = self.with_vector(value, a, term)
        value.steps.append(Step(Op.ADD, vector=number))
        return value

    def sum(self, node: Node, a: Node, b: Node) -> Pending:
        """The sum of two tensors: one of them, or what lies on the card of it, is an operand of the other."""
        if self.is_plain(a) and not self.is_plain(b):
            a, b = b, a
        value = self.chain(a)
        operand = self.values[b]
        if not (isinstance(operand, Pending) and operand.plain and operand.form == value.form):
            found = self.stored(b) if b is not a else self.stored(a)
            operand = self.begin(found, value.form)
        location = len(value.tensors)
        value.tensors.append(operand.fields["source"])
        value.steps += [replace(step, tensor_out=location) for step in operand.steps]
        value.steps.append(Step(Op.ADD, tensor=location))
        value.offset = wrapped(value.offset + operand.offset)
        return value

    def is_plain(self, node: Node) -> bool:
        found = self.values[node]
        return isinstance(found, Pending) and found.plain

    def limit(self, node: Node) -> Pending:
        """maximum and minimum by a number, relu."""
        a, *others = node.args
        if others and is_const(a):
            a, others = others[0], [a]
        array = const_array(others[0]) if others else None
        value = self.chain(a)
        if value.dtype == SUMS:
            value.settle()
        bound = (0 if array is None else int(array.item())) - value.offset
        upper = node.op.name == "minimum"
        last = value.steps[-1] if value.steps else None
        if last is not None and last.op is Op.CLIP and last.tensor_out is None:
            low, high = last.first, last.second
            ends = (min(low, bound), min(high, bound)) if upper else (max(low, bound), max(high, bound))
            value.steps[-1] = replace(last, first=ends[0], second=ends[1])
        else:
            value.steps.append(Step(Op.MIN if upper else Op.MAX, first=bound))
        return value

    def requantize(self, node: Node) -> Pending:
        """requantize and requantize_fixed."""
        fixed = node.op.name == "requantize_fixed"
        n, *others = node.args
        arrays = [array for other in others if (array := const_array(other)) is not None]
        value = self.chain(n)
        value.settle()
        factors = arrays[:2] if fixed else [np.asarray(arrays[0], np.float32).view(np.int32)]
        points = arrays[2:] if fixed else arrays[1:]
        value, number = self.with_vector(value, n, *factors)
        numbers = [0, 0] if number is not None else [*(int(a.item()) for a in factors), 0][:2]
        op = Op.FIXED if fixed else Op.SCALE
        value.steps.append(Step(op, vector=number, first=numbers[0], second=numbers[1]))
        low, high = node.dtype.int_range()
        zero = int(points[0].item()) if points else 0
        value.steps.append(Step(Op.CLIP, first=low - zero, second=high - zero))
        value.offset, value.dtype = zero, node.dtype.name
        return value

    _HANDLERS: ClassVar[dict[str, Callable[[Any, Node], Value]]] = {
        "conv": conv,
        "matmul": matmul,
        "max_pool": max_pool,
        "pad": pad,
        "reshape": reshape,
        "cast": cast,
        "add": arithmetic,
        "sub": arithmetic,
        "mul": arithmetic,
        "maximum": limit,
        "minimum": limit,
        "relu": limit,
        "requantize": requantize,
        "requantize_fixed": requantize,
    }


__all__ = ["CONSTANTS", "FIRST", "SCRATCH", "Lowered", "lower"]
