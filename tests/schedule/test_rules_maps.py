"""The rule for maps: vectors along the contiguous axis, also with strided reads."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from dlc_core.graph.node import Node, param
from dlc_core.ir.expr import Load, Ramp, const_value, post_order
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.target import Description
from dlc_core.testing.schedules import check_schedule, kernel_of, lower_kernel
from dlc_core.tir.functor import exprs_of, stmts
from dlc_core.tir.stmt import PrimFunc, Store

SHUFFLES = frozenset({"vector_shuffle"})
MACHINES = {
    "narrow": Description(vector_bits=128, vector_registers=16, parallel=False, intrinsics=SHUFFLES),
    "usual": Description(vector_bits=256, vector_registers=16, cores=2, intrinsics=SHUFFLES),
    "wide": Description(vector_bits=512, vector_registers=32, cores=8, intrinsics=SHUFFLES),
}
machines = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


def tensor(*shape: int, dtype: str = "float32", name: str = "x") -> Node:
    return param(name, tensor_type(shape, dtype))


def strides(func: PrimFunc) -> set[object]:
    """Steps of the vector accesses of a scheduled kernel in its final form."""
    found: set[object] = set()
    for s in stmts(lower_kernel(func).body):
        places = list(s.indices) if isinstance(s, Store) else []
        places += [i for e in post_order(*exprs_of(s)) if isinstance(e, Load) for i in e.indices]
        found |= {const_value(i.stride) for i in places if isinstance(i, Ramp)}
    return found


def check(node: Node, machine: Description, *, whole: bool = False) -> PrimFunc:
    scheduled = check_schedule(kernel_of(node), machine)
    assert (scheduled.attrs["rule"], scheduled.attrs["why_not"]) == ("cpu.map", ())
    if whole:
        assert strides(scheduled) == {1}
    return scheduled


@machines
@pytest.mark.parametrize("shape", [(32, 16), (16, 64), (17, 33), (5, 40), (40, 5), (3, 50), (50, 2), (1, 20)])
def test_matrices_are_transposed_by_tiles(machine: Description, shape: tuple[int, int]) -> None:
    whole = all(size % 16 == 0 for size in shape)
    check(std.transpose(tensor(*shape), axes=(1, 0)), machine, whole=whole)


@machines
@pytest.mark.parametrize("perm", list(permutations(range(3))))
def test_axes_are_permuted(machine: Description, perm: tuple[int, ...]) -> None:
    check(std.transpose(tensor(4, 18, 35), axes=perm), machine)


@machines
@pytest.mark.parametrize("parts", [2, 3, 4, 5, 6, 7, 8])
def test_channels_are_interleaved(machine: Description, parts: int) -> None:
    interleaved = std.transpose(tensor(6, parts, 32), axes=(0, 2, 1))
    few = parts in (3, 6) and parts < machine.lanes(32)
    check(interleaved, machine, whole=few or parts in (2, 4, 8))
    gathered = std.transpose(tensor(6, 32, parts), axes=(0, 2, 1))
    check(gathered, machine, whole=parts <= machine.lanes(32) or parts == 8)


@pytest.mark.parametrize(("parts", "tiles"), [(3, False), (5, False), (6, False), (7, True)])
def test_rows_are_interleaved_if_that_takes_fewer_shuffles_than_tiles(parts: int, tiles: bool) -> None:
    machine = replace(MACHINES["wide"], vector_bits=512, vector_registers=32)
    body = lower_kernel(check(std.transpose(tensor(parts, 64), axes=(1, 0)), machine)).body
    widths = {s.value.dtype.lanes for s in stmts(body) if isinstance(s, Store)}
    assert (widths != {16}) is tiles


@machines
def test_concatenated_parts_are_interleaved(machine: Description) -> None:
    a, b = tensor(7, 32, name="a"), tensor(7, 32, name="b")
    both = std.reshape(std.concat(a, b, axis=1), shape=(7, 2, 32))
    check(std.transpose(both, axes=(0, 2, 1)), machine, whole=True)


@machines
@pytest.mark.parametrize("dtype", ["int8", "float16", "int64", "bool"])
def test_other_dtypes(machine: Description, dtype: str) -> None:
    check(std.transpose(tensor(19, 32, dtype=dtype), axes=(1, 0)), machine)


@machines
def test_fused_producers_are_computed_in_the_tile(machine: Description) -> None:
    x, y = tensor(32, 48), tensor(48, 32, name="y")
    check(std.relu(std.add(std.transpose(x, axes=(1, 0)), y)), machine, whole=True)


def test_machines_without_shuffles_keep_their_loops() -> None:
    plain = Description(vector_bits=256, vector_registers=16)
    assert strides(check(std.transpose(tensor(32, 32), axes=(1, 0)), plain)) == {1, 32}


def lanes_of(node: Node, machine: Description) -> int:
    """The widest store of a scheduled kernel in its final form."""
    body = lower_kernel(check(node, machine)).body
    return max(s.value.dtype.lanes for s in stmts(body) if isinstance(s, Store))


def test_long_functions_compute_several_vectors_at_once():
    machine = replace(MACHINES["wide"], vector_group=4)
    x = tensor(64, 64)
    two = std.exp(std.tanh(x))
    four = std.sqrt(std.exp(std.tanh(std.sigmoid(x))))
    assert [lanes_of(y, machine) for y in (std.exp(x), two, four)] == [16, 32, 64]
    assert lanes_of(four, MACHINES["wide"]) == 16
    assert lanes_of(four, replace(machine, vector_group=2)) == 32
    column = std.exp(std.exp(tensor(4, 1, name="y")))
    assert lanes_of(std.add(std.exp(std.exp(tensor(4, 160))), column), machine) == 32
    few = std.exp(std.tanh(tensor(3, 30)))
    assert lanes_of(few, machine) == 16
