"""Instructions of a layer under a schedule.

Each step of the loops has loads, computations and, at the last chunk of inputs, stores.  Tokens between them:

    load -> compute     the operands of a step are there
    compute -> load     the step is done that used the half which is loaded next
    compute -> store    the results of a tile are there
    store -> compute    the tile is stored whose half of the accumulators is written next

The loads of a step stand in the stream before the computations of the one before it, where there are two
halves.  Layers follow each other with a token from store to compute to load.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dlc_backend_vta.config import ACC, INP, UOP, UOP_BYTES, WGT
from dlc_backend_vta.isa import Alu, Gemm, Instruction, Load, Op, Store
from dlc_backend_vta.layers import Step, View
from dlc_backend_vta.tiling import Plan


@dataclass
class Actions:
    """A step of the loops: what each unit does in it.  `result` is the number of the tile of results."""

    loads: list[Load] = field(default_factory=list)
    computes: list[Instruction] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    result: int = 0
    first: bool = True
    """Whether it begins a tile of results."""


@dataclass(frozen=True)
class Position:
    """Where a step is: the tile of images, rows and columns, of channels, the chunk of inputs."""

    image: int
    row: int
    column: int
    output: int
    chunk: int
    index: int = 0
    """Number of the step."""


class Generator:
    """The instructions of one plan.  `uops_at` is where its micro-operations lie behind `constants`."""

    def __init__(self, plan: Plan, constants: int = 0, uops_at: int = 0) -> None:
        self.plan = plan
        self.layer, self.tiling, self.config = plan.layer, plan.tiling, plan.config
        self.constants = constants
        self.uops_at = uops_at
        self.sets: dict[tuple[int, int], tuple[int, int]] = {}
        """Where the micro-operations of products begin and end, by blocks of outputs and inputs."""
        begin = 2 * plan.tiling.outputs
        for outputs, inputs in plan.product_sets if plan.layer.kind == "gemm" else ():
            end = begin + outputs * inputs * plan.layer.taps
            self.sets[outputs, inputs] = (begin, end)
            begin = end

    # Micro-operations

    def uops(self) -> np.ndarray[tuple[int, int], np.dtype[np.uint16]]:
        """The micro-operations of the layer as rows (acc, inp or src, wgt, 0)."""
        plan, layer = self.plan, self.layer
        each = range(self.tiling.outputs)
        rows = [(c * plan.pixels, c * layer.vector_count, 0) for c in each]
        rows += [(c * plan.pixels, c * plan.pixels, 0) for c in each]
        kernel, dilation = layer.kernel, layer.dilation
        own = plan.inp_depth * plan.in_pixels if layer.starts else 0
        windows = [
            y * dilation[0] * plan.in_columns + x * dilation[1]
            for y in range(kernel[0])
            for x in range(kernel[1])
        ] * layer.parts
        if layer.kind == "gemm":
            for outputs, inputs in self.sets:
                rows += [
                    (
                        c * plan.pixels,
                        c * own + i * plan.in_pixels + window,
                        (c * plan.wgt_depth + i) * layer.taps + tap,
                    )
                    for i in range(inputs)
                    for tap, window in enumerate(windows)
                    for c in range(outputs)
                ]
        else:
            rows += [(c * plan.pixels, c * plan.in_pixels + window, 0) for window in windows for c in each]
        return np.array([(*row, 0) for row in rows], np.uint16)

    def begin(self) -> Load:
        """The load of the micro-operations."""
        count = self.plan.needs()[UOP]
        return Load(
            memory=UOP, base=self.constants, offset=self.uops_at, x=count, xs=UOP_BYTES, b=UOP_BYTES, bs=1
        )

    # Steps

    def positions(self) -> Iterator[Position]:
        """The steps in their order."""
        plan = self.plan
        tiles = [
            (n, y, x)
            for n in range(plan.tiles[0])
            for y in range(plan.tiles[1])
            for x in range(plan.tiles[2])
        ]
        index = 0
        if self.tiling.resident == "weight":
            pairs = ((tile, c) for c in range(plan.outputs) for tile in tiles)
        else:
            pairs = ((tile, c) for tile in tiles for c in range(plan.outputs))
        for tile, c in pairs:
            for k in range(plan.chunks):
                yield Position(*tile, c, k, index)
                index += 1

    def actions(self, at: Position) -> Actions:
        """The actions of a step."""
        plan, layer, tile = self.plan, self.layer, self.tiling
        result = at.index // plan.chunks
        done = Actions(result=result, first=at.chunk == 0)
        last = at.chunk == plan.chunks - 1
        spatial = (at.image * plan.tiles[1] + at.row) * plan.tiles[2] + at.column
        step_slot = at.index % plan.streams
        result_slot = result % plan.results
        inp = wgt = 0
        if layer.kind == "gemm":
            chunk = at.chunk * tile.inputs
            if tile.resident == "input":
                inp = (spatial % plan.rounds) * plan.inp_size + chunk * plan.in_pixels
            else:
                inp = step_slot * plan.inp_size
            first = at.output * tile.outputs
            for c, start in enumerate(layer.starts[first : first + tile.outputs]):
                element_offset = inp + c * plan.inp_depth * plan.in_pixels
                done.loads += self._source(at, INP, element_offset, chunk, tile.inputs, start)
            if not layer.starts and (tile.resident != "input" or at.output == 0):
                done.loads += self._source(at, INP, inp, chunk, tile.inputs)
            size = tile.outputs * plan.wgt_depth * layer.taps
            if tile.resident == "weight":
                wgt = (at.output % plan.rounds) * size + chunk * layer.taps
            else:
                wgt = step_slot * size
            if tile.resident != "weight" or spatial == 0:
                done.loads += self._weights(at, wgt)
        vectors = plan.vector_at
        if layer.vector_count:
            turn = self._turn(at, spatial)
            vectors += (turn % plan.vector_slots) * tile.outputs * layer.vector_count
            if last and self._new_vectors(at, spatial):
                done.loads += self._vectors(at, vectors)
        acc = result_slot * plan.result_size
        tensors = [
            plan.tensor_at + (t * plan.results + result_slot) * plan.result_size
            for t in range(len(layer.tensors))
        ]
        if last:
            for view, element_offset in zip(layer.tensors, tensors):
                done.loads += [Load(**fields) for fields in self._block(at, view, element_offset)]
        rows, columns = self._extent(at)
        outputs = self._outputs(at)
        if layer.kind == "gemm":
            done.computes += self._products(at, outputs, rows, columns, acc, inp, wgt)
        else:
            source = plan.source_at + result_slot * tile.outputs * plan.in_pixels
            done.loads += self._source(at, ACC, source, at.output * tile.outputs, tile.outputs)
            done.computes += self._windows(outputs, rows, columns, acc, source)
        if last:
            done.computes += [
                self._vector(step, outputs, rows, columns, acc, vectors, tensors) for step in layer.steps
            ]
            done.stores = [Store(**fields) for fields in self._block(at, layer.target, acc)]
        return done

    def _turn(self, at: Position, spatial: int) -> int:
        """How often the vectors changed before a step."""
        if self.plan.outputs == 1 or self.tiling.resident == "weight":
            return at.output
        return spatial * self.plan.outputs + at.output

    def _new_vectors(self, at: Position, spatial: int) -> bool:
        """Whether the vectors of a tile are other ones than those of the tile before."""
        keeps = self.plan.outputs == 1 or self.tiling.resident == "weight"
        return spatial == 0 or not keeps

    def _extent(self, at: Position) -> tuple[int, int]:
        """Rows and columns of the results of a tile."""
        rows = min(self.tiling.rows, self.layer.rows - at.row * self.tiling.rows)
        return rows, min(self.tiling.columns, self.layer.columns - at.column * self.tiling.columns)

    def _outputs(self, at: Position) -> int:
        """Blocks of channels of a tile."""
        return min(self.tiling.outputs, self.plan.blocks[1] - at.output * self.tiling.outputs)

    # Transfers

    def _lanes(self, at: Position, first: int, count: int) -> list[tuple[int, int, int]]:
        """Columns of an image block as (first, count, images): the last column may have fewer."""
        layer = self.layer
        images = min(self.config.batch, layer.images - at.image * self.config.batch)
        if not layer.ragged or first + count < layer.columns or layer.ragged == images:
            return [(first, count, images)]
        whole = [(first, count - 1, images)] if count > 1 else []
        return [*whole, (first + count - 1, 1, layer.ragged)]

    def _source(
        self, at: Position, memory: int, sram: int, block: int, count: int, channel: int = 0
    ) -> list[Load]:
        """A tile of the input with its border: `count` blocks of channels from `block` on, of those behind
        `channel`."""
        plan, layer, view = self.plan, self.layer, self.layer.source
        rows, columns = self._extent(at)
        spans = []
        for axis, (size, out, length) in enumerate(
            (
                (rows, at.row * self.tiling.rows, layer.height),
                (columns, at.column * self.tiling.columns, layer.width),
            )
        ):
            first = out * layer.stride[axis] - layer.pads[axis]
            reach = (size - 1) * layer.stride[axis] + (layer.kernel[axis] - 1) * layer.dilation[axis] + 1
            low = min(reach, max(0, -first))
            high = min(reach - low, max(0, first + reach - length))
            spans.append((min(first + low, length - 1), reach - low - high, low, high))
        (y, height, top, bottom), (x, width, left, right) = spans
        channels = layer.inputs if layer.kind == "gemm" else layer.channels
        lanes = self.config.shapes[memory][1]
        images, found = self._lanes(at, x, width), []
        for start, blocks, valid in _pieces(block, count, channels, lanes):
            for column, number, rows_a in images:
                first_part, last_part = column == x, column + number == x + width
                found.append(
                    Load(
                        memory=memory,
                        wide=view.wide,
                        flip=view.flip,
                        base=view.base,
                        sram=sram
                        + (start - block) * plan.in_pixels
                        + (0 if first_part else left + column - x),
                        offset=view.offset
                        + at.image * self.config.batch * view.strides[0]
                        + (channel + start * lanes) * view.strides[1]
                        + y * view.strides[2]
                        + column * view.strides[3],
                        z=blocks,
                        y=height,
                        x=number,
                        a=rows_a,
                        b=valid,
                        zs=lanes * view.strides[1],
                        ys=view.strides[2],
                        xs=view.strides[3],
                        as_=view.strides[0],
                        bs=view.strides[1],
                        z_pitch=plan.in_pixels,
                        y_pitch=plan.in_columns,
                        top=top,
                        bottom=bottom,
                        left=left if first_part else 0,
                        right=right if last_part else 0,
                        fill=layer.fill,
                    )
                )
        return found

    def _weights(self, at: Position, sram: int) -> list[Load]:
        """The weights of a step."""
        plan, layer, weights = self.plan, self.layer, self.layer.weights
        assert weights is not None
        out, inp = self.config.block_out, self.config.block_in
        first, outputs = at.output * self.tiling.outputs, self._outputs(at)
        chunk = at.chunk * self.tiling.inputs
        inputs = min(self.tiling.inputs, plan.blocks[2] - chunk)
        pitch = plan.wgt_depth * layer.taps
        if weights.packed:
            block = out * inp
            row = plan.blocks[2] * layer.taps * block
            return [
                Load(
                    memory=WGT,
                    base=weights.base,
                    sram=sram,
                    offset=weights.offset + first * row + chunk * layer.taps * block,
                    z=outputs,
                    x=inputs * layer.taps,
                    a=out,
                    b=inp,
                    zs=row,
                    xs=block,
                    as_=inp,
                    bs=1,
                    z_pitch=pitch,
                )
            ]
        so, si, st = weights.strides
        return [
            Load(
                memory=WGT,
                flip=weights.flip,
                base=weights.base,
                sram=sram + (o - first) * pitch + (i - chunk) * layer.taps,
                offset=weights.offset + o * out * so + i * inp * si,
                z=o_blocks,
                y=i_blocks,
                x=layer.taps,
                a=o_valid,
                b=i_valid,
                zs=out * so,
                ys=inp * si,
                xs=st,
                as_=so,
                bs=si,
                z_pitch=pitch,
                y_pitch=layer.taps,
            )
            for o, o_blocks, o_valid in _pieces(first, outputs, layer.channels, out)
            for i, i_blocks, i_valid in _pieces(chunk, inputs, layer.inputs, inp)
        ]

    def _vectors(self, at: Position, sram: int) -> list[Load]:
        """The vectors over the channels of a tile, the same in all rows of a block."""
        layer, view = self.layer, self.layer.vectors
        assert view is not None
        size = 4 * self.config.block_out
        blocks = self._outputs(at) * layer.vector_count
        first = at.output * self.tiling.outputs * layer.vector_count
        return [
            Load(
                memory=ACC,
                wide=True,
                base=view.base,
                sram=sram,
                offset=view.offset + first * size,
                x=blocks,
                a=self.config.batch,
                b=self.config.block_out,
                xs=size,
                bs=4,
            )
        ]

    def _block(self, at: Position, view: View, sram: int) -> list[dict[str, Any]]:
        """Transfers between a tensor of the results' shape and a tile of accumulators."""
        plan, tile, out = self.plan, self.tiling, self.config.block_out
        rows, columns = self._extent(at)
        first = at.output * tile.outputs
        x = at.column * tile.columns
        return [
            {
                "memory": ACC,
                "wide": view.wide,
                "flip": view.flip,
                "base": view.base,
                "sram": sram + (block - first) * plan.pixels + column - x,
                "offset": view.offset
                + at.image * self.config.batch * view.strides[0]
                + block * out * view.strides[1]
                + at.row * tile.rows * view.strides[2]
                + column * view.strides[3],
                "z": blocks,
                "y": rows,
                "x": number,
                "a": images,
                "b": valid,
                "zs": out * view.strides[1],
                "ys": view.strides[2],
                "xs": view.strides[3],
                "as_": view.strides[0],
                "bs": view.strides[1],
                "z_pitch": plan.pixels,
                "y_pitch": tile.columns,
            }
            for block, blocks, valid in _pieces(first, self._outputs(at), self.layer.channels, out)
            for column, number, images in self._lanes(at, x, columns)
        ]

    # Computations

    def _products(
        self, at: Position, outputs: int, rows: int, columns: int, acc: int, inp: int, wgt: int
    ) -> list[Instruction]:
        plan, layer = self.plan, self.layer
        inputs = min(self.tiling.inputs, plan.blocks[2] - at.chunk * self.tiling.inputs)
        begin, end = self.sets[outputs, inputs]
        ranges = [(begin, end, False)]
        if at.chunk == 0:
            ranges = [(begin, begin + outputs, True), (begin + outputs, end, False)]
        return [
            Gemm(
                fresh=fresh,
                begin=low,
                end=high,
                outer=rows,
                inner=columns,
                acc=acc,
                acc_i=self.tiling.columns,
                acc_j=1,
                inp=inp,
                inp_i=layer.stride[0] * plan.in_columns,
                inp_j=layer.stride[1],
                wgt=wgt,
            )
            for low, high, fresh in ranges
            if high > low
        ]

    def _windows(self, outputs: int, rows: int, columns: int, acc: int, source: int) -> list[Instruction]:
        """The maximum over windows of what was loaded."""
        plan, layer = self.plan, self.layer
        start = 2 * self.tiling.outputs
        return [
            Alu(
                op=Op.MAX if tap else Op.MOV,
                begin=start + tap * self.tiling.outputs,
                end=start + tap * self.tiling.outputs + outputs,
                outer=rows,
                inner=columns,
                acc=acc,
                acc_i=self.tiling.columns,
                acc_j=1,
                src=source,
                src_i=layer.stride[0] * plan.in_columns,
                src_j=layer.stride[1],
            )
            for tap in range(layer.taps)
        ]

    def _vector(
        self, step: Step, outputs: int, rows: int, columns: int, acc: int, vectors: int, tensors: list[int]
    ) -> Instruction:
        pitch = self.tiling.columns
        of_tensor = step.tensor is not None
        start = self.tiling.outputs if of_tensor else 0
        source = tensors[step.tensor] if step.tensor is not None else vectors + (step.vector or 0)
        immediate = step.vector is None and not of_tensor
        return Alu(
            op=step.op,
            immediate=immediate,
            begin=start,
            end=start + outputs,
            outer=rows,
            inner=columns,
            acc=acc if step.tensor_out is None else tensors[step.tensor_out],
            acc_i=pitch,
            acc_j=1,
            src=0 if immediate else source,
            src_i=pitch if of_tensor else 0,
            src_j=1 if of_tensor else 0,
            first=step.first,
            second=step.second,
        )


def _pieces(first: int, count: int, size: int, lanes: int) -> list[tuple[int, int, int]]:
    """Blocks from `first` on as (first, count, elements in each): the last of all may not be full."""
    count = min(count, -(-size // lanes) - first)
    rest = size - (first + count - 1) * lanes
    if rest >= lanes:
        return [(first, count, lanes)]
    return [*([(first, count - 1, lanes)] if count > 1 else []), (first + count - 1, 1, rest)]


def stream(generator: Generator, follows: bool = False, ends: bool = True) -> Iterator[Instruction]:
    """The instructions of a layer with their tokens, in the order of the stream.

    `follows` says that a layer was before it, `ends` that none comes behind.
    """
    plan = generator.plan
    begin = generator.begin()
    begin.pop_next = follows
    yield begin
    slots, total = plan.tiling.slots, plan.spatial * plan.outputs
    positions = generator.positions()
    steps: dict[int, Actions] = {}
    made = loaded = now = 0
    while now < plan.steps:
        # A step's tokens are known when the steps are that use its halves again.
        while made < plan.steps and made <= now + slots:
            steps[made] = one = generator.actions(next(positions))
            _link(one, steps.get(made - slots), plan.results, total, ends)
            made += 1
        while loaded < min(now + slots, made):
            yield from steps[loaded].loads
            loaded += 1
        done = steps.pop(now)
        yield from done.computes
        yield from done.stores
        now += 1
    if not ends:
        yield Alu(op=Op.MOV, immediate=True, pop_next=True, push_prev=True)


def _link(one: Actions, earlier: Actions | None, results: int, total: int, ends: bool) -> None:
    """Tokens of a step; `earlier` is the one whose halves its loads fill again."""
    if one.loads:
        one.loads[-1].push_next = one.computes[0].pop_prev = True
        if earlier is not None:
            earlier.computes[-1].push_prev = one.loads[0].pop_next = True
    if one.first and one.result >= results:
        one.computes[0].pop_next = True
    if one.stores:
        one.computes[-1].push_next = one.stores[0].pop_prev = True
        again, final = one.result + results < total, one.result == total - 1
        one.stores[-1].push_prev = again or (final and not ends)


__all__ = ["Actions", "Generator", "Position", "stream"]
