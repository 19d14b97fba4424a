"""All rules together on random graphs: rewriting terminates at a fixed point and keeps values.

The graphs are small and full of matches of several rules: constants of constants, dims of 1, reshapes between
the same shapes, signs.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from dlc_core.graph.node import constant, get_item, make_tuple, param
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.passes.graph import RULES
from dlc_core.rewrite import rewrite_body

SHAPES = [(), (1,), (6,), (1, 1), (1, 6), (6, 1), (1, 1, 6), (2, 3), (6, 6), (2, 3, 6), (1, 6, 1), (1, 6, 6)]
NUMBERS = (-1.0, -0.0, 0.0, 0.5, 1.0, 2.0)
BINARY = (std.add, std.add, std.add, std.mul, std.mul, std.mul, std.sub, std.div, std.maximum, std.minimum)
UNARY = (std.neg, std.relu, std.abs, std.identity, std.floor)


def factors(rng, size):
    """Dims whose product is a size of the form 2^a 3^b."""
    dims = []
    while size > 1:
        dims.append(rng.choice([n for n in (2, 3, 6, 36) if size % n == 0]))
        size //= dims[-1]
    for _ in range(rng.randint(0, 2)):
        dims.insert(rng.randint(0, len(dims)), 1)
    return tuple(dims)


class Maker:
    """Draws a graph of few shapes node by node."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.shapes = self.rng.sample(SHAPES, 3)
        self.params = [param(f"p{n}", tensor_type(self.rng.choice(self.shapes))) for n in range(2)]
        self.values = [*self.params, *(self.constant() for _ in range(3))]

    def constant(self):
        # Powers of two: divisions by them become products.
        drawn = self.numbers.choice([-2.0, -1.0, 0.5, 1.0, 2.0, 4.0], self.rng.choice(self.shapes))
        return constant(self.rng.choice(NUMBERS) if self.rng.random() < 0.4 else drawn, "float32")

    def partner(self, shape):
        def broadcasts(value):
            return all(a == b or 1 in (a, b) for a, b in zip(value.shape[::-1], shape[::-1]))

        return self.rng.choice([value for value in self.values if broadcasts(value)])

    def made(self):
        rng = self.rng
        x = rng.choice(self.values[-8:])
        rank, size = len(x.shape), int(np.prod(x.shape))
        match rng.choice("bbbbbbbbrrrrrutswcxpfk"):
            case "b":
                args = [x, self.partner(x.shape)]
                rng.shuffle(args)
                return rng.choice(BINARY)(*args)
            case "r":
                return std.reshape(x, shape=factors(rng, size))
            case "u":
                return rng.choice(UNARY)(x)
            case "t":
                return std.transpose(x, axes=tuple(rng.sample(range(rank), rank)))
            case "s":
                return std.cast(std.cast(x, to="float64"), to="float32")
            case "w":
                dims = [d if d > 1 else rng.choice((1, 6)) for d in x.shape]
                return std.broadcast_to(x, shape=(*[1] * rng.randint(0, 1), *dims))
            case "c":
                return std.clip(x, min=rng.choice((None, -1.0, 0.0)), max=rng.choice((None, 0.5, 6.0)))
            case "x" if rank:
                return std.concat(
                    x, rng.choice([v for v in self.values if v.shape == x.shape]), axis=rank - 1
                )
            case "p" if rank and x.shape[0] > 1:
                parts = std.split(x, sizes=(1, x.shape[0] - 1), axis=0)
                return get_item(parts, rng.randrange(2))
            case "f" if rank:
                axes = (rng.randrange(rank),)
                return rng.choice((std.reduce_max, std.reduce_sum))(x, axes=axes, keepdims=rng.random() < 0.5)
        return self.constant()

    def graph(self, count):
        for _ in range(count):
            value = self.made()
            if (
                len(value.shape) < 6
                and int(np.prod(value.shape)) <= 1296
                and not set(value.shape) - {1, 2, 3, 6, 36}
            ):
                self.values.append(value)
        return make_tuple(self.values[-3:])


@pytest.mark.parametrize("first", range(0, 300, 30))
def test_rewriting_terminates_and_keeps_values(first):
    for seed in range(first, first + 30):
        maker = Maker(seed)
        body = maker.graph(14)
        made = rewrite_body(body, RULES).body
        assert not rewrite_body(made, RULES).counts
        feeds = {
            p: np.round(maker.numbers.standard_normal(p.shape) * 4).astype(np.float32) / 4
            for p in maker.params
        }
        with np.errstate(all="ignore"):
            pairs = zip(evaluate(body, feeds), evaluate(made, feeds), strict=True)
        for before, after in pairs:
            largest = np.abs(before[np.isfinite(before)]).max(initial=1.0)
            np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5 * largest)
