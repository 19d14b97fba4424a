"""Contractions by dot products with one sum, on machines without vectors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc_core.graph.node import param
from dlc_core.ir.expr import Call, const_value
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.schedule.rules.cpu.heuristics import GEMM
from dlc_core.schedule.rules.cpu.register_tile import choose, fits, step_cycles
from dlc_core.target import Description
from dlc_core.target.description import Dot, Rates
from dlc_core.testing.schedules import check_schedule, kernel_of
from dlc_core.tir.functor import child_stmts, exprs_of
from dlc_core.tir.stmt import For, Stmt

DOT = Dot("uint8", "int8", "int32", 4, 1, instructions=2, operand_instructions=3, operand_registers=2)
RATES = {"fma_per_cycle": 1.0, "loads_per_cycle": 1.0, "fma_latency": 1.0}
MACHINE = Description(integer_registers=12, single_issue=True, parallel=False, dots=(DOT,), **RATES)


def dots_per_iteration(stmt: Stmt) -> int:
    """The most dot products of one iteration of an innermost loop that is not unrolled."""
    inner = [dots_per_iteration(child) for child in child_stmts(stmt)]
    if isinstance(stmt, For):
        extent = const_value(stmt.extent) if stmt.kind == "unrolled" else 1
        assert extent is not None
        return extent * inner[0]
    own = sum(isinstance(expr, Call) and expr.name == "vector_dot" for expr in exprs_of(stmt))
    return own + max(inner, default=0)


SIZES = {
    "whole": (6, 8, 64),
    "rests everywhere": (13, 11, 20),
    "one row": (1, 10, 32),
    "one group": (8, 8, 4),
    "a prime number of groups": (7, 6, 52),
}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("machine", [MACHINE, replace(MACHINE, short_code=True)], ids=["speed", "size"])
def test_products(size, machine):
    m, n, k = size
    x, w = param("x", tensor_type((m, k), "uint8")), param("w", tensor_type((k, n), "int8"))
    func = kernel_of(std.matmul(x, w, out_dtype="int32"), [x, w], constants=(1,))
    scheduled = check_schedule(func, machine)
    assert scheduled.attrs["rule"] == "cpu.contraction"
    assert scheduled.attrs["why_not"] == ()
    assert dots_per_iteration(scheduled.body) >= 1


CONVS = {
    "a window": ((1, 6, 9, 16), (3, 3, 16, 12), {"padding": (1, 1, 1, 1)}),
    "four channels": ((1, 9, 9, 4), (3, 3, 4, 8), {"strides": (2, 2)}),
    "groups": ((1, 5, 6, 16), (3, 3, 8, 12), {"groups": 2}),
}


@pytest.mark.parametrize("case", CONVS.values(), ids=CONVS)
def test_several_dot_products_per_iteration(case):
    shape, window, attrs = case
    x, w = param("x", tensor_type(shape, "uint8")), param("w", tensor_type(window, "int8"))
    y = std.conv(x, w, layout="NXC", kernel_layout="XIO", out_dtype="int32", **attrs)
    func = kernel_of(y, [x, w], constants=(1,))
    scheduled = check_schedule(func, MACHINE)
    assert dots_per_iteration(scheduled.body) > 6
    several = replace(MACHINE, single_issue=False)
    assert dots_per_iteration(scheduled.body) > dots_per_iteration(check_schedule(func, several).body)


def test_tiles_leave_registers_for_widened_operands():
    """Six sums, two widened columns and a widened row."""
    rates = Rates(1 / DOT.instructions, 1 / DOT.operand_instructions, 1.0, single_issue=True)
    tile = choose(30, 32, 1, 12, rates=rates, operand=2)
    assert (tile.rows, tile.vectors) == (3, 2)
    assert fits(3, 2, 12, 2)
    assert not fits(3, 3, 12, 2)


def test_cycles_of_multiply_adds_and_loads_add_up():
    rates = Rates(1.0, 1.0, 1.0)
    assert step_cycles(3, 2, rates) == 6 + GEMM.step_overhead
    assert step_cycles(3, 2, replace(rates, single_issue=True)) == 11 + GEMM.step_overhead


def test_integer_tiles_use_the_general_registers():
    assert MACHINE.usable_integer_registers == 12
    assert replace(MACHINE, vector_bits=128).usable_integer_registers == MACHINE.vector_registers
    assert replace(MACHINE, integer_registers=0).usable_integer_registers == MACHINE.vector_registers
    assert replace(MACHINE, short_code=True).usable_integer_registers == 3


def test_short_code_has_no_dot_products_around_borders():
    """Tests for the border are inlined there, so groups of elements are not contiguous."""
    x, w = param("x", tensor_type((1, 6, 9, 8), "uint8")), param("w", tensor_type((3, 3, 8, 4), "int8"))
    found = {}
    for padding in (None, (1, 1, 1, 1)):
        y = std.conv(x, w, layout="NXC", kernel_layout="XIO", out_dtype="int32", padding=padding)
        func = kernel_of(y, [x, w], constants=(1,))
        scheduled = check_schedule(func, replace(MACHINE, short_code=True))
        found[padding] = dots_per_iteration(scheduled.body)
    assert found == {None: 1, (1, 1, 1, 1): 0}
