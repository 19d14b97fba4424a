"""Random regions on random machines: the results of the references, and sufficient tokens."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_backend_vta.config import Config
from helpers import TINY
from test_lowering import compare, number, requantized, tensor

from dlc_core.graph import Node, constant, make_tuple
from dlc_core.op import std

ODD = Config(
    batch=3,
    block_in=5,
    block_out=7,
    inp_kb=1,
    wgt_kb=1,
    acc_kb=2,
    uop_kb=1,
    bus_bytes=3,
    alu_lanes=5,
    queue=2,
)


def grown(seed: int) -> tuple[Node, list[Node]]:
    """A graph of bytes and sums, in which values are used once, twice, or returned."""
    rng = np.random.default_rng(seed)
    dtype = str(rng.choice(["int8", "uint8"]))
    x = tensor("x", int(rng.integers(1, 4)), int(rng.integers(1, 9)), 6, 5, dtype=dtype)
    values, results = [x], []

    def weights(*shape: int) -> Node:
        return constant(rng.integers(-128, 128, shape).astype(np.int8))

    for _ in range(5):
        value = values[rng.integers(max(0, len(values) - 2), len(values))]
        channels, rows, columns = (int(d) for d in value.shape[1:])
        kind = rng.integers(0, 6)
        if kind <= 2:
            groups = int(rng.choice([1, channels]))
            count = groups * int(rng.integers(1, 4))
            given = value
            if rng.random() < 0.4:
                given = std.pad(value, pads=(0, 0, 1, 0, 0, 0, 0, 2), mode="constant", value=5.0)
            height = min(3, int(given.shape[2]))
            made = std.conv(
                given,
                weights(count, channels // groups, height, 1),
                padding=(1, 0, 1, 0) if rng.random() < 0.5 else None,
                strides=(int(rng.integers(1, 3)), 1),
                groups=groups,
                out_dtype="int32",
            )
            if rng.random() < 0.5:
                made = std.add(made, constant(rng.integers(-999, 999, (count, 1, 1)).astype(np.int32)))
            made = requantized(made, (count, 1, 1), dtype, bool(rng.random() < 0.5))
        elif kind == 3 and min(rows, columns) > 1:
            made = std.max_pool(
                value, kernel=(2, 2), strides=(int(rng.integers(1, 3)), 1), padding=(1, 0, 0, 1)
            )
        elif kind == 4:
            made = std.maximum(std.minimum(value, number(90, dtype)), number(4, dtype))
        else:
            same = [other for other in values if other.shape == value.shape]
            other = same[rng.integers(len(same))]
            parts = [
                std.mul(std.sub(std.cast(each, to="int32"), number(int(rng.integers(0, 99)))), number(7 * i))
                for i, each in enumerate((value, other), 1)
            ]
            made = std.requantize_fixed(std.add(*parts), number(1 << 20), number(24), to=dtype)
        values.append(made)
        if rng.random() < 0.3:
            results.append(made)
    results.append(values[-1])
    flat = std.reshape(values[-1], shape=(int(x.shape[0]), -1))
    results.append(std.matmul(flat, weights(int(flat.shape[1]), 11), out_dtype="int32"))
    return make_tuple(results), [x]


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 120))]
)
def test_regions(seed):
    body, params = grown(seed)
    compare(body, params, (Config(), TINY, ODD)[seed % 3], seed)
