"""What a mutant has to pass: random schedules in the interpreter, and kernels of every kind in guard mode."""

from __future__ import annotations

import random

import numpy as np

import dlc_core as dlc
from dlc_core.graph.node import Node, make_tuple, param
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes.tir.bounds import prove
from dlc_core.passes.tir.flatten import flatten_and_simplify
from dlc_core.passes.tir.lower_blocks import lower_blocks
from dlc_core.testing.cases import module_of
from dlc_core.testing.random_schedules import check_schedule_trace, random_schedule
from dlc_core.testing.te_programs import random_te_program
from tests.schedule.products import TINY, TINY_EXTERN

SEEDS = range(40)
N, M = Var("n"), Var("m")


def _schedules() -> None:
    for seed in SEEDS:
        rng = random.Random(seed)
        program = random_te_program(rng)
        player = random_schedule(program.func, rng, intrins=(TINY, TINY_EXTERN))
        check_schedule_trace(program.func, program.sizes, player.sch, seed, texts=False)
        if prove(flatten_and_simplify(lower_blocks(program.func))).open:
            raise AssertionError(f"seed {seed} is not proved any more")


def _tensor(*shape: int | Var, name: str = "x", dtype: str = "float32") -> Node:
    return param(name, tensor_type(shape, dtype))


def _graphs() -> list[tuple[Node, list[Node]]]:
    image, odd = _tensor(1, 5, 13, 11), _tensor(2, 3, 9, 7)
    grouped = _tensor(1, 6, 8, 9)
    weight, few = _tensor(7, 5, 3, 3, name="w"), _tensor(6, 1, 3, 2, name="w")
    a, b = _tensor(19, 23, name="a"), _tensor(23, 37, name="b")
    rows, cols = _tensor(N, 20), _tensor(20, M, name="y")
    batch = _tensor(3, 17, 33)
    index = _tensor(6, name="i", dtype="int64")
    heads = [_tensor(1, 8, n, n, name=f"x{n}") for n in (8, 4, 2)]
    flat = [std.reshape(std.relu(h), shape=(1, 8, n * n)) for h, n in zip(heads, (8, 4, 2), strict=True)]
    return [
        (std.relu(std.conv(image, weight, padding=(1, 1, 1, 1))), [image, weight]),
        (std.conv(image, weight, strides=(2, 2)), [image, weight]),
        (std.conv(grouped, few, groups=6), [grouped, few]),
        (std.matmul(a, b), [a, b]),
        (std.matmul(rows, cols), [rows, cols]),
        (std.max_pool(odd, kernel=(3, 2), strides=(2, 1), padding=(1, 0, 1, 1)), [odd]),
        (std.softmax(batch), [batch]),
        (std.reduce_sum(batch, axes=(1,)), [batch]),
        (std.transpose(batch, axes=(2, 0, 1)), [batch]),
        (std.pad(odd, pads=(0, 1, 2, 0, 0, 0, 1, 3)), [odd]),
        (std.gather(batch, index, axis=1), [batch, index]),
        (std.concat(*flat, axis=2), heads),
        (std.transpose(std.concat(*flat, axis=2), axes=(0, 2, 1)), heads),
        (make_tuple([std.exp(std.relu(batch)), std.reduce_sum(std.relu(batch), axes=(2,))]), [batch]),
    ]  # fmt: skip


def _kernels() -> None:
    rng = np.random.default_rng(0)
    for body, params in _graphs():
        module = module_of(body, params)
        main = module["main"]
        shapes = [tuple({N: 21, M: 18}.get(d, d) for d in p.shape) for p in main.params]
        feeds = [
            rng.integers(-3, 3, s).astype(p.dtype.numpy) for s, p in zip(shapes, main.params, strict=True)
        ]
        expected = dlc.compile(module, "reference", cache=False)(*feeds)
        for mode in ("end", "begin"):
            exe = dlc.compile(module, "llvm", cache=False, num_threads=1, config={"guard": mode})
            if exe.about["accesses"]["checked"]:
                raise AssertionError(f"{body.op.name} has accesses that are not proved")
            found = exe(*feeds)
            for one, other in zip(_listed(found), _listed(expected), strict=True):
                np.testing.assert_allclose(one, other, 1e-4, 1e-4)


def _listed(found: object) -> list[object]:
    return list(found) if isinstance(found, tuple) else [found]


def run_battery() -> None:
    """Raises, or ends the process, where something is wrong."""
    _schedules()
    _kernels()


__all__ = ["run_battery"]
