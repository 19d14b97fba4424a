"""Layers on a card, and their expected results."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import numpy as np
from dlc_backend_vta.config import Config
from dlc_backend_vta.generate import Generator, stream
from dlc_backend_vta.isa import Instruction, Op, Unit, decode_all, encode_all
from dlc_backend_vta.layers import Layer, Step, View, Weights, matmul
from dlc_backend_vta.machine import Machine
from dlc_backend_vta.tiling import Plan

NDArray = np.ndarray[Any, Any]
Case = tuple[Layer, list[NDArray], NDArray]
TINY = Config(batch=2, block_in=8, block_out=4, inp_kb=2, wgt_kb=4, acc_kb=4, uop_kb=4)


def flat(array: NDArray) -> NDArray:
    """An array as memory of the card."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy()


def drawn(rng: np.random.Generator, *shape: int) -> NDArray:
    return rng.integers(-128, 128, shape).astype(np.int8)


def program_of(plan: Plan) -> list[Instruction]:
    """The stream of a plan, as the card reads it; micro-operations are in base register 3."""
    code = encode_all(list(stream(Generator(plan, constants=3))))
    return decode_all(code)


def product_case(m: int, n: int, k: int, config: Config, seed: int = 0) -> Case:
    """A product of matrices: the layer, its inputs, the sums in int32."""
    rng = np.random.default_rng(seed)
    a, b = drawn(rng, m, k), drawn(rng, k, n)
    return matmul("product", m, n, k, config), [a, b], a.astype(np.int32) @ b.astype(np.int32)


def conv_case(
    shape: tuple[int, int, int, int],
    outputs: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pads: tuple[int, int, int, int],
    dilation: tuple[int, int],
    config: Config,
    packed: bool,
    fill: int = 3,
) -> Case:
    """A convolution with bias, shift, limits, and twice another tensor added; results in int8."""
    rng = np.random.default_rng(7)
    n, c, h, w = shape
    x, weights = drawn(rng, *shape), drawn(rng, outputs, c, *kernel)
    total = convolved(x, weights, stride, pads, dilation, fill)
    _, _, rows, columns = total.shape
    bias = rng.integers(-1000, 1000, outputs).astype(np.int32)
    other = drawn(rng, *total.shape)
    expected = (np.clip((total + bias[:, None, None]) >> 5, -100, 100) + 2 * other.astype(np.int32)).astype(
        np.int8
    )
    out, inp, taps = config.block_out, config.block_in, kernel[0] * kernel[1]
    blocks, chunks = -(-outputs // out), -(-c // inp)
    stored, where = weights, Weights(1, 0, (c * taps, taps, 1), packed=False)
    if packed:
        table = np.zeros((blocks * out, chunks * inp, taps), np.int8)
        table[:outputs, :c] = weights.reshape(outputs, c, taps)
        stored = table.reshape(blocks, out, chunks, inp, taps).transpose(0, 2, 4, 1, 3)
        where = Weights(1, 0)
    vectors = np.zeros(blocks * out, np.int32)
    vectors[:outputs] = bias
    size = rows * columns
    layer = Layer(
        "conv",
        "gemm",
        n,
        outputs,
        rows,
        columns,
        View(0, 0, (c * h * w, h * w, w, 1)),
        View(2, 0, (outputs * size, size, columns, 1)),
        c,
        h,
        w,
        kernel,
        stride,
        dilation,
        (pads[0], pads[1]),
        fill,
        weights=where,
        steps=(
            Step(Op.ADD, vector=0),
            Step(Op.SHR, first=5),
            Step(Op.CLIP, first=-100, second=100),
            Step(Op.MUL, first=2, tensor_out=0),
            Step(Op.ADD, tensor=0),
        ),
        vectors=View(4, 0, (0, 0, 0, 0), wide=True),
        vector_count=1,
        tensors=(View(5, 0, (outputs * size, size, columns, 1)),),
    )
    return layer, [x, stored, vectors, other], expected


def convolved(
    x: NDArray,
    weights: NDArray,
    stride: tuple[int, int],
    pads: tuple[int, int, int, int],
    dilation: tuple[int, int],
    fill: int,
) -> NDArray:
    """The sums of a convolution in int32, window by window."""
    top, left, bottom, right = pads
    wide = np.pad(x.astype(np.int32), ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    kh, kw = weights.shape[2:]
    rows = (wide.shape[2] - (kh - 1) * dilation[0] - 1) // stride[0] + 1
    columns = (wide.shape[3] - (kw - 1) * dilation[1] - 1) // stride[1] + 1
    total = np.zeros((x.shape[0], weights.shape[0], rows, columns), np.int64)
    for i in range(kh):
        for j in range(kw):
            y, z = i * dilation[0], j * dilation[1]
            part = wide[:, :, y : y + (rows - 1) * stride[0] + 1 : stride[0]]
            part = part[:, :, :, z : z + (columns - 1) * stride[1] + 1 : stride[1]]
            total += np.einsum("nchw,oc->nohw", part, weights[:, :, i, j].astype(np.int64))
    return total.astype(np.int32)


def card_of(plan: Plan, inputs: list[NDArray], expected: NDArray) -> list[NDArray]:
    """The memory of the card: two inputs, the result, micro-operations, further inputs."""
    uops = Generator(plan).uops()
    first, second, *more = map(flat, inputs)
    return [first, second, np.zeros(expected.nbytes, np.uint8), flat(uops), *more]


def result_of(card: list[NDArray], expected: NDArray) -> NDArray:
    return np.asarray(card[2].view(expected.dtype).reshape(expected.shape))


def run_in_any_order(program: list[Instruction], config: Config, card: list[NDArray], seed: int) -> None:
    """Execute a stream in a random order that tokens and queues allow."""
    drawn_by, machine = random.Random(seed), Machine(config)
    queues = {unit: deque(one for one in program if one.unit is unit) for unit in Unit}
    tokens: dict[tuple[int, int], int] = {}
    while any(queues.values()):
        ready = []
        for unit, queue in queues.items():
            if queue:
                pops = [unit - 1] * queue[0].pop_prev + [unit + 1] * queue[0].pop_next
                if all(tokens.get((other, unit), 0) for other in pops):
                    ready.append((unit, pops))
        assert ready, "deadlock"
        unit, pops = drawn_by.choice(ready)
        for other in pops:
            tokens[other, unit] -= 1
        one = queues[unit].popleft()
        machine.step(one, card)
        for other in [unit - 1] * one.push_prev + [unit + 1] * one.push_next:
            tokens[unit, other] = tokens.get((unit, other), 0) + 1
