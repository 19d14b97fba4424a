"""Checks of schedule rules in the interpreter: kernels of the ordinary tests, machines of every kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import Any
from unittest import mock

from dlc_core.algorithms.winograd import choice as winograd_choice
from dlc_core.algorithms.winograd.choice import Plan
from dlc_core.heuristics import overridden
from dlc_core.ir.expr import Var
from dlc_core.op import std
from dlc_core.passes.tir.flatten import flatten_and_simplify
from dlc_core.passes.tir.lower_blocks import lower_blocks
from dlc_core.passes.tir.strided import group_strided
from dlc_core.passes.tir.unroll import unroll_loops
from dlc_core.passes.tir.vectorize import vectorize_loops
from dlc_core.passes.tir.workspace import hoist_workspace
from dlc_core.target import Description
from dlc_core.testing.cases import difference
from dlc_core.testing.schedules import (
    TOLERANCES,
    check_schedule,
    kernel_of,
    make_arrays,
    run_kernel,
)
from dlc_core.tir.functor import buffers_written
from dlc_core.tir.stmt import PrimFunc
from tests.algorithms.attention import test_cpu_rule as attention
from tests.algorithms.row_filter import test_rule as row_filter
from tests.algorithms.strassen import test_rule as strassen
from tests.algorithms.winograd import test_rule as winograd
from tests.mutation.check import Check, open_accesses
from tests.schedule import test_rules_contraction as contraction
from tests.schedule import test_rules_lanes as lanes
from tests.schedule import test_rules_loops as loops
from tests.schedule import test_rules_maps as maps
from tests.schedule import test_rules_panels as panels
from tests.schedule import test_rules_rows as rows
from tests.schedule import test_rules_tiles as tiles

_WITH_TEMPORARIES = ("conv/padded", "conv/1d", "norm", "softmax", "lanes/odd", "lanes/symbolic",
                     "winograd/odd", "row filter/odd", "matmul/across tiles", "rows")  # fmt: skip
"""Kernels that are tried with their temporaries as parameters."""
Kernel = Callable[[], PrimFunc]
Sizes = Mapping[Var, int]
N, M = Var("n"), Var("m")
FEW_WAYS = Description(vector_bits=256, vector_registers=16, cores=3, caches=(1 << 11, 1 << 14), cache_ways=2)


def rule_checks() -> Iterator[Check]:
    """Every kernel on every machine of its rule, in each of its sizes."""
    for name, make, machines, sizes in _kernels():
        for machine_name, machine in machines.items():
            for number, given in enumerate(sizes):
                key = f"rule/{name}/{machine_name}/{number}"
                yield Check(key, partial(_scheduled, make, machine, given))
        if name.startswith(_WITH_TEMPORARIES):
            machine_name, machine = list(machines.items())[-1]
            yield Check(f"parts/{name}/{machine_name}", partial(_in_parts, make, machine, sizes[-1]))
    for group, phases, parts in ((1, False, 1), (2, True, 1), (4, True, 1), (2, False, 2), (4, False, 2)):
        key = f"rule/winograd/group {group} {phases} {parts}"
        yield Check(key, partial(_winograd, group, phases, parts))
    yield Check("rule/rows/not kept", _long_rows)


def _scheduled(make: Kernel, machine: Description, sizes: Sizes) -> int:
    made = check_schedule(make(), machine, sizes)
    # If a rule leaves the kernel to another rule, a primitive has refused, which is not a matter of costs.
    return open_accesses(made) + sum(1000 for _ in made.attrs["why_not"])


def _in_parts(make: Kernel, machine: Description, sizes: Sizes) -> int:
    """A scheduled kernel whose temporaries are all parameters, one slice for each of three parts."""
    func = make()
    made = check_schedule(func, machine, sizes)
    arrays = make_arrays(func, sizes, 0)
    written = set(buffers_written(func.body))
    outputs = [i for i, b in enumerate(func.buffers) if b in written]
    expected = run_kernel(lower_blocks(func), arrays, sizes, outputs)
    for position, layout in made.attrs.get("repack", {}).items():
        arrays[position] = layout.apply_numpy(arrays[position])
    for change in (lower_blocks, flatten_and_simplify, vectorize_loops, unroll_loops, group_strided):
        made = change(made)
    found = run_kernel(
        hoist_workspace(made, 3, -1), [a.reshape(-1) for a in arrays], sizes, outputs, check=True
    )
    wrong = difference(found, [e.reshape(-1) for e in expected], TOLERANCES)
    if wrong is not None:
        raise AssertionError(wrong)
    return 0


def _winograd(group: int, phases: bool, parts: int) -> int:
    def planned(layer: Any, tile: Any, core: Any) -> Plan:
        return Plan(tile, group, phases, 0.0, parts)

    with mock.patch.object(winograd_choice, "plan", planned):
        made = check_schedule(winograd.kernel((2, 7, 6, 4), 32, 2, (1, 1, 1, 1)), winograd.WIDE)
    packed = made.buffers[1].static_shape()
    if parts > 1:
        assert packed is not None
        assert packed[0] == parts, "weights lie part by part"
        assert math.prod(packed) == 4 * 4 * 4 * 32, "and take no more room"
    return open_accesses(made)


def _long_rows() -> int:
    with overridden("loops.row_bytes=64"):
        return sum(
            open_accesses(check_schedule(kernel_of(std.softmax(rows.tensor(3, size))), machine))
            for size in (37, 50)
            for machine in rows.MACHINES.values()
        )


def _kernels() -> Iterator[tuple[str, Kernel, Mapping[str, Description], list[Sizes]]]:
    yield from _contractions()
    yield from _windows()
    yield from _reductions()
    yield from _maps()
    yield from _attentions()


def _contractions() -> Iterator[tuple[str, Kernel, Mapping[str, Description], list[Sizes]]]:
    machines = {name: contraction.MACHINES[name] for name in ("scalar", "usual", "wide")}
    machines["few ways"] = FEW_WAYS
    shuffled = {
        name: replace(machine, intrinsics=frozenset({"vector_shuffle"})) for name, machine in machines.items()
    }
    for name, make in contraction.ACROSS.items():
        yield f"matmul/across {name}", make, shuffled, [{}]
    two = {name: machines[name] for name in ("scalar", "usual")}
    for name, make in contraction.MATMULS.items():
        yield f"matmul/{name}", make, machines, [{}]
    for name, make in contraction.SYMBOLIC.items():
        sizes = [*contraction.SIZES.values(), {contraction.M: 30, contraction.N: 70, contraction.K: 2,
                                               contraction.B: 3}]  # fmt: skip
        yield f"matmul/{name}", make, two, sizes
    for name, make in {**contraction.CONVS, **contraction.GROUPED}.items():
        yield f"conv/{name}", make, machines, [{}]
    for name, make in contraction.CONVS.items():
        yield f"conv/{name} NCX", partial(make, layout="NCX"), {"usual": machines["usual"]}, [{}]
    for m, k, n in ((1, 300, 40), (29, 4, 49), (7, 20, 100), (2, 257, 9)):
        make = partial(contraction.matmul, (m, k), (k, n), constants=(1,), finish=True)
        yield f"matmul/{m} {k} {n}", make, machines, [{}]
    for m, k, n in ((20, 16, 64), (17, 8, 128)):
        yield f"matmul/computed {m} {k} {n}", partial(contraction.matmul, (m, k), (k, n)), machines, [{}]
    wide = {f"{cores}": replace(panels.WIDE, cores=cores, vector_registers=20) for cores in (1, 2)}
    for height, width in ((1, 5), (1, 13)):
        yield f"panels/{height} {width}", partial(panels.convolution, height, width, 80), wide, [{}]
    long = partial(contraction.matmul, (9, 240), (240, 50), constants=(1,), finish=True)
    yield "panels/matmul", long, {"2": wide["2"]}, [{}]
    for size_name, size in {**tiles.SIZES, "short sums": (9, 16, 2), "odd sums": (9, 16, 3)}.items():
        for kind, types in tiles.PAIRS.items():
            make = partial(tiles.product, *size, types, bias=True)
            yield f"tiles/{size_name} {kind}", make, {"units": tiles.MACHINE}, [{}]
    deals = {"threads": strassen.WIDE, "many": strassen.MANY, "alone": strassen.ALONE}
    for name, case in list(strassen.CASES.items())[:6]:
        yield f"strassen/{name}", partial(strassen.kernel, *case), deals, [{}]
    rows = [{strassen.N: count} for count in (7, strassen.BLOCK + 11)]
    yield "strassen/rows and a rest", partial(strassen.kernel, (strassen.N,), 8, 32), deals, rows
    given = partial(strassen.kernel, (strassen.N,), 8, 32, block=16)
    yield "strassen/blocks and a rest", given, deals, [{strassen.N: 43}]
    for name, case in winograd.CASES.items():
        made = {"threads": winograd.WIDE, "alone": winograd.ALONE}
        yield f"winograd/{name}", partial(winograd.kernel, *case, residual=case[0][0] == 1), made, [{}]
    for shape, tile, padding in (((1, 9, 7, 4), 2, (1, 1, 1, 1)), ((2, 12, 8, 4), 4, (0, 1, 1, 0))):
        make = partial(winograd.kernel, shape, 8, tile, padding, stride=2)
        yield f"winograd/by two {tile}", make, {"threads": winograd.WIDE}, [{}]
    for name, case in row_filter.CASES.items():
        made = {"threads": row_filter.WIDE, "alone": row_filter.ALONE}
        yield f"row filter/{name}", partial(row_filter.kernel, *case), made, [{}]


def _windows() -> Iterator[tuple[str, Kernel, Mapping[str, Description], list[Sizes]]]:
    machines = {name: lanes.MACHINES[name] for name in ("scalar", "small cache", "wide")}
    for name, make in lanes.CASES.items():
        yield f"lanes/{name}", make, machines, [{}]
    roomy = {"roomy": Description(vector_bits=256, cores=2, caches=(1 << 10, 1 << 18)),
             "one": Description(vector_bits=256, parallel=False, caches=(1 << 12, 1 << 16))}  # fmt: skip
    wide = {"kernel": 5, "padding": (2, 2, 2, 2)}
    yield "lanes/bands", partial(lanes.depthwise, 1, 8, 3, 40, **wide), {**machines, **roomy}, [{}]
    yield "lanes/strips", partial(lanes.depthwise, 1, 6, 5, 70, padding=(1, 1, 1, 1)), roomy, [{}]
    symbolic = partial(lanes.depthwise, lanes.B, lanes.H, lanes.W, 8, padding=(1, 1, 1, 1))
    sizes = [{lanes.B: b, lanes.H: h, lanes.W: w} for b, h, w in ((1, 5, 6), (2, 9, 3), (0, 3, 3), (1, 1, 1))]
    yield "lanes/symbolic", symbolic, machines, sizes
    for size in range(7, 16):
        make = partial(lanes.depthwise, 1, size, size + 1, 9, padding=(1, 2, 2, 1))
        yield f"lanes/size {size}", make, {"wide": lanes.MACHINES["wide"]}, [{}]


def _reductions() -> Iterator[tuple[str, Kernel, Mapping[str, Description], list[Sizes]]]:
    few = {name: rows.MACHINES[name] for name in ("scalar", "usual")}
    for shape in rows.SHAPES:
        for axes in rows.axes_of(shape):
            make = partial(rows.reduction, std.reduce_sum, shape, axes)
            yield f"sum/{shape} {axes}", make, few, [{}]
        for axis in range(len(shape)):
            yield f"softmax/{shape} {axis}", partial(_softmax, shape, axis), few, [{}]
    for shape, axis in (((3, 37), -1), ((2, 3, 16), -1), ((2, 3, 4, 9), -2), ((3, 1), -1)):
        yield f"norm/{shape}", partial(rows.norm, shape, axis, residual=axis == -1), few, [{}]
    for name, make in rows.SYMBOLIC.items():
        yield f"rows/{name}", make, few, list(rows.SIZES)
    for axes in rows.axes_of((rows.B, rows.M, rows.N)):
        make = partial(rows.reduction, std.reduce_max, (rows.B, rows.M, rows.N), axes)
        yield f"max/{axes}", make, {"usual": rows.USUAL}, list(rows.SIZES)
    for columns in (1, 5, 8, 11, 64):
        both = {"usual": loops.USUAL, "plain": loops.PLAIN}
        yield f"scatter/{columns}", partial(loops.rows_scattered, 6, columns, 9), both, [{}]
    for axis in (0, 1):
        yield f"cumsum/{axis}", partial(_cumsum, axis), {"usual": loops.USUAL}, [{}]


def _softmax(shape: tuple[int, ...], axis: int) -> PrimFunc:
    return kernel_of(std.softmax(rows.tensor(*shape), axis=axis))


def _cumsum(axis: int) -> PrimFunc:
    return kernel_of(std.exp(std.cumsum(loops.tensor(4, 40, 8, 16), axis=axis)))


def _maps() -> Iterator[tuple[str, Kernel, Mapping[str, Description], list[Sizes]]]:
    machines = {name: maps.MACHINES[name] for name in ("narrow", "wide")}
    grouped = {**maps.MACHINES, "groups": replace(maps.MACHINES["wide"], vector_group=4)}
    for shape in ((32, 16), (16, 64), (17, 33), (5, 40), (40, 5), (3, 50), (50, 2), (1, 20)):
        yield f"transposed/{shape}", partial(_transposed, shape, (1, 0)), machines, [{}]
    for perm in permutations(range(3)):
        yield f"transposed/{perm}", partial(_transposed, (4, 18, 35), perm), machines, [{}]
    for parts in (2, 3, 4, 8):
        for shape in ((6, parts, 32), (6, 32, parts), (5, 37, parts), (3, parts, 21)):
            yield f"transposed/{shape}", partial(_transposed, shape, (0, 2, 1)), machines, [{}]
    for shape in ((64, 64), (4, 160), (3, 30), (7, 19)):
        yield f"map/{shape}", partial(_long_map, shape), grouped, [{}]
    for parts in (2, 3, 4):
        yield f"joined/{parts}", partial(_joined, parts), machines, [{}]


def _transposed(shape: tuple[int, ...], perm: tuple[int, ...]) -> PrimFunc:
    return kernel_of(std.transpose(maps.tensor(*shape), axes=perm))


def _long_map(shape: tuple[int, ...]) -> PrimFunc:
    return kernel_of(std.sqrt(std.exp(std.tanh(std.sigmoid(maps.tensor(*shape))))))


def _joined(parts: int) -> PrimFunc:
    given = [maps.tensor(7, 32, name=f"x{n}") for n in range(parts)]
    both = std.reshape(std.concat(*given, axis=1), shape=(7, parts, 32))
    return kernel_of(std.transpose(both, axes=(0, 2, 1)))


def _attentions() -> Iterator[tuple[str, Kernel, Mapping[str, Description], list[Sizes]]]:
    n, m = attention.N, attention.M
    for name, machine in attention.MACHINES.items():
        own = partial(attention.kernel, lanes=machine.lanes(32))
        for size in ((9, 13, 20, 12), (4, 16, 8, 72), (1, 7, 5, 9), (7, 3, 80, 80)):
            yield f"attention/{size}", partial(own, *size), {name: machine}, [{}]
        sizes = [{n: a, m: b} for a, b in ((1, 1), (3, 40), (23, 9), (0, 4))]
        yield "attention/symbolic", partial(own, n, m), {name: machine}, sizes
    usual = {"usual": attention.USUAL}
    for size, past in (((9, 9), 0), ((5, 21), 16), ((1, 6), 5), ((9, 4), 0)):
        yield (
            f"attention/causal {size}",
            partial(attention.kernel, *size, causal=True, past=past),
            usual,
            [{}],
        )
    mask = {"batch": 2, "mask": ((6, 11), "bool")}
    yield "attention/mask", partial(attention.kernel, 6, 11, **mask), usual, [{}]
    shared = {"heads": 6, "groups": 2, "batch": 2}
    yield "attention/shared", partial(attention.kernel, 5, 9, **shared), usual, [{}]


__all__ = ["rule_checks"]
