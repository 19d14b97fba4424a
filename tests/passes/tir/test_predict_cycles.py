"""Predicted cycles of scheduled kernels."""

from __future__ import annotations

import pytest

from dlc_core.passes.tir.predict_cycles import issue_cycles, issue_parts
from dlc_core.passes.tir.unroll import unroll_loops
from dlc_core.script import T
from dlc_core.target import Description
from dlc_core.target.heuristics import ISSUE

WIDE = Description(vector_bits=512, vector_units=1, fma_per_cycle=2.0, fma=True)
NARROW = Description(vector_bits=256, vector_units=2, fma_per_cycle=2.0, fma=True)


@T.prim_func
def scalars(a: T.Buffer((1 << 12,), "float32"), b: T.Buffer((1 << 12,), "float32")):
    for i in range(1 << 12):
        b[i] = a[i] + T.float32(1.0)


@T.prim_func
def vectors(a: T.Buffer((1 << 12,), "float32"), b: T.Buffer((1 << 12,), "float32")):
    for i in range(1 << 8):
        b[T.ramp(i * 16, 1, 16)] = a[T.ramp(i * 16, 1, 16)] + T.broadcast(T.float32(1.0), 16)


@T.prim_func
def shifted(a: T.Buffer((1 << 13,), "float32"), b: T.Buffer((1 << 12,), "float32")):
    for i in range(1 << 8):
        b[T.ramp(i * 16, 1, 16)] = (
            T.broadcast(T.float32(1.0), 16) + a[T.ramp(i * 16, 1, 16) + T.broadcast(i, 16)]
        )


@T.prim_func
def strided(a: T.Buffer((1 << 13,), "float32"), b: T.Buffer((1 << 12,), "float32")):
    for i in range(1 << 8):
        b[T.ramp(i * 16, 1, 16)] = a[T.ramp(i * 32, 2, 16)] + T.broadcast(T.float32(1.0), 16)


@T.prim_func
def functions(a: T.Buffer((1 << 12,), "float32"), b: T.Buffer((1 << 12,), "float32")):
    for i in range(1 << 8):
        b[T.ramp(i * 16, 1, 16)] = T.exp(a[T.ramp(i * 16, 1, 16)])


@T.prim_func
def divisions(a: T.Buffer((1 << 12,), "float32"), b: T.Buffer((1 << 12,), "float32")):
    for i in range(1 << 8):
        b[T.ramp(i * 16, 1, 16)] = T.broadcast(T.float32(1.0), 16) / a[T.ramp(i * 16, 1, 16)]


def cycles(func, machine: Description = WIDE) -> float:
    found = issue_cycles(func, machine)
    assert found is not None
    return found


def test_vectors_take_fewer_cycles_than_scalars():
    assert 7 < cycles(scalars) / cycles(vectors) < 16


def test_a_value_of_two_units_takes_as_long_as_two_values():
    assert cycles(vectors, WIDE) == pytest.approx(cycles(vectors, NARROW))


def test_lanes_that_are_no_neighbours_are_loaded_one_by_one():
    assert cycles(strided) > (1 << 12) * ISSUE.lane_cycles
    assert cycles(shifted) == pytest.approx(cycles(vectors), rel=0.2)


def test_functions_and_divisions_take_the_cycles_of_their_instructions():
    plain = cycles(vectors)
    assert 3 * plain < cycles(functions) < 8 * plain
    assert cycles(divisions) >= (1 << 8) * 2 * ISSUE.division_cycles


def test_what_a_loop_does_not_change_counts_once():
    @T.prim_func
    def inner(a: T.Buffer((64,), "float32"), b: T.Buffer((1 << 12,), "float32")):
        for i in range(64):
            for j in range(4):
                b[T.ramp(i * 64 + j * 16, 1, 16)] = T.broadcast(T.exp(a[i]), 16)

    @T.prim_func
    def each(a: T.Buffer((1 << 8,), "float32"), b: T.Buffer((1 << 12,), "float32")):
        for i in range(64):
            for j in range(4):
                b[T.ramp(i * 64 + j * 16, 1, 16)] = T.broadcast(T.exp(a[i * 4 + j]), 16)

    assert cycles(each) > 2 * cycles(inner)


def test_temporaries_with_constant_indices_are_registers():
    @T.prim_func
    def sums(a: T.Buffer((1 << 12,), "float32"), b: T.Buffer((16,), "float32")):
        acc = T.alloc_buffer((16,), "float32", scope="local")
        acc[T.ramp(0, 1, 16)] = T.broadcast(T.float32(0.0), 16)
        for i in range(1 << 8):
            acc[T.ramp(0, 1, 16)] = acc[T.ramp(0, 1, 16)] + a[T.ramp(i * 16, 1, 16)]
        b[T.ramp(0, 1, 16)] = acc[T.ramp(0, 1, 16)]

    # One load and one addition of two units of half a register, at two a cycle.
    assert 1 << 8 <= cycles(sums) < 1.5 * (1 << 8)


def test_the_sides_of_a_condition_are_evaluated_in_turn():
    @T.prim_func
    def joined(a: T.Buffer((1 << 12,), "float32"), c: T.Buffer((1 << 12,), "float32"),
               b: T.Buffer((1 << 12,), "float32")):  # fmt: skip
        for i in range(1 << 8):
            b[T.ramp(i * 16, 1, 16)] = T.if_then_else(
                T.broadcast(i < 100, 16), T.exp(a[T.ramp(i * 16, 1, 16)]), T.exp(c[T.ramp(i * 16, 1, 16)])
            )

    assert cycles(joined) == pytest.approx(cycles(functions), rel=0.25)


def test_integer_divisions_by_powers_of_two_are_shifts():
    @T.prim_func
    def shifts(b: T.Buffer((1 << 12,), "int64")):
        for i in range(1 << 12):
            b[i] = T.int64(8) + i // 4

    @T.prim_func
    def products(b: T.Buffer((1 << 12,), "int64")):
        for i in range(1 << 12):
            b[i] = T.int64(8) + i // 3

    assert cycles(products) - cycles(shifts) > (1 << 12)


def test_iterations_that_add_to_one_element_wait_for_each_other():
    @T.prim_func
    def scattered(rows: T.Buffer((1 << 10,), "int64"), x: T.Buffer((1 << 10,), "float32"),
                  y: T.Buffer((64,), "float32")):  # fmt: skip
        for i in range(1 << 10):
            row = rows[i]
            y[row] = y[row] + x[i]

    @T.prim_func
    def added(x: T.Buffer((1 << 10,), "float32"), y: T.Buffer((1 << 10,), "float32")):
        for i in range(1 << 10):
            y[i] = y[i] + x[i]

    assert cycles(scattered) >= (1 << 10) * ISSUE.forward_cycles
    assert cycles(added) < (1 << 10) * ISSUE.forward_cycles


def test_loops_that_depend_on_dims_have_no_prediction():
    @T.prim_func
    def symbolic(a: T.Buffer((n,), "float32"), b: T.Buffer((n,), "float32"), n: T.int64):  # noqa: F821
        for i in range(n):
            b[i] = a[i]

    assert issue_cycles(symbolic, WIDE) is None


def test_loops_that_will_be_unrolled_count_as_their_code():
    @T.prim_func
    def tile(a: T.Buffer((1 << 14,), "float32"), b: T.Buffer((1 << 10,), "float32"),
             c: T.Buffer((1 << 8,), "float32")):  # fmt: skip
        acc = T.alloc_buffer((64,), "float32", scope="local")
        for i in T.unroll(4):
            acc[T.ramp(i * 16, 1, 16)] = T.broadcast(T.float32(0.0), 16)
        for k in range(1 << 6):
            for i in T.unroll(4):
                for j in T.unroll(2):
                    acc[T.ramp(i * 16, 1, 16)] = (
                        acc[T.ramp(i * 16, 1, 16)]
                        + T.broadcast(a[k * 4 + i], 16) * b[T.ramp(k * 16 + j * 1024, 1, 16)]
                    )
        for i in T.unroll(4):
            c[T.ramp(i * 16, 1, 16)] = acc[T.ramp(i * 16, 1, 16)]

    rolled = issue_parts(tile, WIDE)
    unrolled = issue_parts(unroll_loops(tile), WIDE)
    assert rolled is not None
    assert unrolled is not None
    assert rolled.loads == pytest.approx(unrolled.loads, rel=1e-6)  # each operand once in an iteration of k
    assert rolled.stores == unrolled.stores
    assert rolled.vector == pytest.approx(unrolled.vector, rel=0.01)
    assert rolled.carried == unrolled.carried == 0.0
    assert rolled.cycles == pytest.approx(unrolled.cycles, rel=0.01)


def test_the_parts_of_cycles_make_up_the_whole():
    parts = issue_parts(strided, WIDE)
    assert parts is not None
    assert parts.loads > max(parts.vector, parts.stores, parts.scalar)
    others = parts.vector + parts.stores + parts.scalar
    assert cycles(strided) == pytest.approx(parts.loads + ISSUE.overlap * others)
