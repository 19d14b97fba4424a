"""Sketches against the analytic rules: `python -m benchmarks.sketches [NAME ...] [--threads 1,2]`

The programs are naive tensor expressions: a GEMM of 512³ and the convolutions of ResNet-18 in NCHW. The rules
schedule a program as they find it (`rule`), and the same operator in the form that it has in models: in NHWC,
and with constant weights, which they pack (`model`). The space of sketches knows no rule; few of its
candidates are tried. All times of a row are measured alternately in one process, and the shortest of several
repeats counts.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from dlc_tune.measuring.kernel import inputs_of, kernel_module
from dlc_tune.space import Candidate
from dlc_tune.strategy import Tried
from dlc_tune.task import Task

import dlc_core as dlc
from benchmarks.peers import OURS
from benchmarks.report import head, machine, print_table
from dlc_core import te
from dlc_core.diag import UnsupportedError
from dlc_core.ir.expr import logical_and
from dlc_core.plugin.registry import registry
from dlc_core.runtime.executable import Executable
from dlc_core.tir.intrinsics import if_then_else
from dlc_core.tir.stmt import PrimFunc

GEMM_TRIALS, CONV_TRIALS = 64, 16
BATCH = 8
SECONDS = 0.02
"""The time for which a candidate and the default alternate."""
FINAL_SECONDS = 0.5
RESNET18 = (
    (3, 64, 224, 7, 2),
    (64, 64, 56, 3, 1),
    (64, 128, 56, 3, 2),
    (64, 128, 56, 1, 2),
    (128, 128, 28, 3, 1),
    (128, 256, 28, 3, 2),
    (128, 256, 28, 1, 2),
    (256, 256, 14, 3, 1),
    (256, 512, 14, 3, 2),
    (256, 512, 14, 1, 2),
    (512, 512, 7, 3, 1),
)
"""Channels, filters, rows and columns, size of the window, stride."""


@dataclass(frozen=True)
class Program:
    """A naive program, the same one in the form that models get (NHWC, constant weights), the floating-point
    operations, and the usual number of trials."""

    name: str
    func: PrimFunc
    model: PrimFunc
    flops: int
    trials: int


@dataclass(frozen=True)
class Figure:
    """The GFLOP/s of one program: `rule` and `model` by the rules, `sketches` of the best candidate."""

    name: str
    threads: int
    rule: float
    model: float
    default: float
    """Of the point of defaults of the sketches."""
    sketches: float
    trials: int
    point: dict[str, str]

    @property
    def ratio(self) -> float:
        return self.sketches / self.rule

    @property
    def of_model(self) -> float:
        return self.sketches / self.model

    def cells(self) -> list[str]:
        speeds = [f"{each:.1f}" for each in (self.rule, self.model, self.default, self.sketches)]
        return [self.name, str(self.threads), *speeds, f"{self.ratio:.2f}", f"{self.of_model:.2f}"]


TITLES = ("program", "threads", "rule", "model", "first", "sketches", "/ rule", "/ model")


def naive_gemm(m: int, n: int, k: int, constant: bool = False) -> PrimFunc:
    a, b, axis = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b"), te.reduce_axis(k, "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), "c")
    func = te.create_prim_func([a, b], [c], "gemm")
    return with_constants(func) if constant else func


def naive_conv(
    channels: int, filters: int, extent: int, size: int, stride: int, last: bool = False
) -> PrimFunc:
    """A convolution with constant weights, in NCHW or, with `last`, NHWC. Padding is a stage of its own."""

    def order(c: Any, i: Any, j: Any) -> tuple[Any, ...]:
        return (i, j, c) if last else (c, i, j)

    def image(index: Sequence[Any]) -> tuple[Any, ...]:
        return (index[2], index[0], index[1]) if last else tuple(index)

    pad = size // 2
    x = te.placeholder(order(channels, extent, extent), name="x")
    shape = (size, size, channels, filters) if last else (filters, channels, size, size)
    weights = te.placeholder(shape, name="w")
    out, padded, end = (extent + 2 * pad - size) // stride + 1, extent + 2 * pad, extent + pad
    axes = te.reduce_axis(channels, "c"), te.reduce_axis(size, "y"), te.reduce_axis(size, "z")

    def value(*index: Any) -> Any:
        c, i, j = image(index)
        inside = logical_and(i >= pad, i < end, j >= pad, j < end)
        return if_then_else(inside, x[order(c, i - pad, j - pad)], 0.0)

    source = te.compute(order(channels, padded, padded), value, "pad") if pad else x

    def window(*index: Any) -> Any:
        o, i, j = image(index)
        c, y, z = axes
        weight = weights[y, z, c, o] if last else weights[o, c, y, z]
        point = order(c.var, i * stride + y.var, j * stride + z.var)
        return te.sum(source[point] * weight, axis=(y, z, c) if last else axes)

    result = te.compute(order(filters, out, out), window, "conv")
    return with_constants(te.create_prim_func([x, weights], [result], "conv"))


def with_constants(func: PrimFunc) -> PrimFunc:
    """The program with its second parameter as a constant, as weights of models are."""
    return replace(func, attrs=MappingProxyType({**func.attrs, "constants": (1,)}))


def all_programs(size: int = 512, convolutions: Sequence[tuple[int, ...]] = RESNET18) -> list[Program]:
    edges = (size, size, size)
    found = [Program(f"GEMM {size}³", naive_gemm(*edges), naive_gemm(*edges, True), 2 * size**3, GEMM_TRIALS)]
    for channels, filters, extent, window, stride in convolutions:
        out = (extent + 2 * (window // 2) - window) // stride + 1
        name = f"conv {channels}→{filters} {extent}² {window}×{window}" + (
            f" /{stride}" if stride > 1 else ""
        )
        flops = 2 * out * out * filters * channels * window * window
        forms = [naive_conv(channels, filters, extent, window, stride, last) for last in (False, True)]
        found.append(Program(name, *forms, flops, CONV_TRIALS))
    return found


def task_of(func: PrimFunc, target: str) -> Task:
    """The task of a program's kernel, as a compile makes it."""
    kernels: list[PrimFunc] = []
    with dlc.PassContext(tuner=lambda kernel, _: kernels.append(kernel)):
        dlc.compile(kernel_module(func), target, cache=False)
    return Task(kernels[0], dlc.Target(target), func.name)


def built(func: PrimFunc, target: str, trace: Any = None) -> Executable:
    with dlc.PassContext(tuner=lambda *_: trace):
        exe = dlc.compile(kernel_module(func), target, cache=False)
    assert trace is None or exe.explain().kernels[0].rule == "tuned"
    return exe


def alternate(calls: Sequence[Callable[[], object]], seconds: float) -> list[float]:
    """The shortest time of each call; they alternate for this long, and at least three times."""
    best = [math.inf] * len(calls)
    for call in calls:
        call()
    end, count = time.perf_counter() + seconds * len(calls), 0
    while count < 3 or time.perf_counter() < end:
        for number, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[number] = min(best[number], time.perf_counter() - start)
        count += 1
    return best


def measure(
    program: Program, threads: int, trials: int, strategy: str, seed: int, seconds: float = FINAL_SECONDS
) -> Figure:
    """Search for sketches of a program, and compare the best with the rules."""
    target = f"llvm -num-threads={threads}"
    func, task = program.func, task_of(program.func, target)
    arrays = inputs_of(task.func)
    exe = built(func, target)
    by_rule, expected = exe.bind(arrays), np.asarray(exe(*arrays))
    search = registry().search_strategies[strategy].start(task, registry().search_spaces["sketches"], seed)
    best, first, done = (math.inf, None, None), None, 0
    while done < trials and (asked := search.ask(min(BATCH, trials - done))):
        told = []
        for made in asked:
            call = _checked(func, target, made, arrays, expected)
            elapsed = alternate([by_rule, call], SECONDS)[1]
            first = first or call
            best = min(best, (elapsed, call, made), key=lambda each: each[0])
            told.append(Tried(made, elapsed))
        search.tell(told)
        done += len(asked)
    _, fastest, chosen = best
    if fastest is None or first is None or chosen is None:
        raise UnsupportedError(f"no candidate of {program.name} is legal")
    in_model = built(program.model, target).bind(inputs_of(program.model))
    times = alternate([by_rule, in_model, first, fastest], seconds)
    speeds = [program.flops / each / 1e9 for each in times]
    return Figure(program.name, threads, *speeds, done, dict(chosen.point))


def _checked(
    func: PrimFunc, target: str, made: Candidate, arrays: Sequence[Any], expected: Any
) -> Callable[[], object]:
    """A call of a candidate, whose results are those of the rules."""
    exe = built(func, target, made.trace)
    np.testing.assert_allclose(np.asarray(exe(*arrays)), expected, rtol=1e-3, atol=1e-3)
    call: Callable[[], object] = exe.bind(arrays)
    return call


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sketches", description="Sketches of naive programs against the rules."
    )
    parser.add_argument("names", nargs="*", help="only programs whose names contain one of these")
    parser.add_argument("--threads", default="1,2", help="thread counts (%(default)s)")
    parser.add_argument("--trials", type=int, help=f"candidates; {GEMM_TRIALS} for GEMM, {CONV_TRIALS} else")
    parser.add_argument("--strategy", default="evolutionary", help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    parser.add_argument("--tiny", action="store_true", help="small programs, to test this script")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    options = parser.parse_args(arguments)

    programs = all_programs(48, [(4, 16, 8, 3, 1)]) if options.tiny else all_programs()
    chosen = [p for p in programs if not options.names or any(name in p.name for name in options.names)]
    if not chosen:
        known = ", ".join(p.name for p in programs)
        print(f"no program {options.names[0]}; known: {known}", file=sys.stderr)
        return 2
    facts = machine()
    print(head(facts, [OURS]), flush=True)
    seconds = SECONDS if options.tiny else FINAL_SECONDS
    figures = [
        measure(each, threads, options.trials or each.trials, options.strategy, options.seed, seconds)
        for each in chosen
        for threads in map(int, options.threads.split(","))
    ]
    print(
        f"GFLOP/s; sketches: the best of {options.trials or 'the'} trials by the strategy {options.strategy}"
    )
    print_table(TITLES, [figure.cells() for figure in figures], markdown=options.markdown)
    for title, ratios in (("rule", [f.ratio for f in figures]), ("model", [f.of_model for f in figures])):
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"sketches / {title}: geometric mean {mean:.2f}, least {min(ratios):.2f}")
    if options.json is not None:
        rows = [{**asdict(f), "ratio": f.ratio, "of_model": f.of_model} for f in figures]
        options.json.write_text(json.dumps({"machine": facts, "programs": rows}, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
