"""Limits of a target: each names the number and the limit, and refuses nothing that the rules make."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dlc_tune.limits import MAX_STACK, MAX_UNROLLED, MAX_VECTOR, check_limits, register_elements
from dlc_tune.space import Invalid, candidate
from dlc_tune.task import Task

import dlc_core as dlc
from dlc_core import te
from dlc_core.diag import ScheduleError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var
from dlc_core.schedule import Schedule
from dlc_core.script import T
from dlc_core.target import Description, MemoryScope
from dlc_core.tir.stmt import Alloc, PrimFunc

CPU = Description(vector_bits=256, vector_registers=16, cores=4, fork_cycles=4096)
GPU = Description(
    thread_axes={"block.x": 1 << 16, "thread.x": 1024},
    group_threads=256,
    shared_bytes=16 << 10,
    thread_registers=64,
    memory_scopes=("global", "local", "shared"),
)


def refused(func: PrimFunc, machine: Description) -> str:
    """The text of the error that a scheduled kernel raises."""
    with pytest.raises(ScheduleError) as caught:
        check_limits(func, machine)
    return str(caught.value)


def product(m: int = 256, n: int = 256, k: int = 64) -> PrimFunc:
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), "c")
    return te.create_prim_func([a, b], [c], "product")


def elementwise(*shape) -> PrimFunc:
    x = te.placeholder(shape, name="x")
    return te.create_prim_func([x], [te.compute(shape, lambda *i: x[i] * 2.0, "y")], "double")


def tiled(rows: int, columns: int) -> PrimFunc:
    """A GEMM whose register tile has `rows` x `columns` accumulators."""
    schedule = Schedule(product())
    tile = schedule.cache_write(schedule.get_block("c"), 0, "local")
    i, j, k = schedule.get_loops(schedule.get_block("c"))
    (io, ii), (jo, ji) = schedule.split(i, [None, rows]), schedule.split(j, [None, columns])
    schedule.reorder(io, jo, k, ii, ji)
    schedule.unroll(ii)
    schedule.vectorize(ji)
    schedule.reverse_compute_at(tile, jo)
    *_, row, column = schedule.get_loops(tile)
    schedule.unroll(row)
    schedule.vectorize(column)
    schedule.decompose_reduction(schedule.get_block("c"), k)
    first = schedule.get_block("c_init")
    *_, row, column = schedule.get_loops(first)
    schedule.unroll(row)
    schedule.vectorize(column)
    schedule.compact_buffers()
    return schedule.func


def test_accumulators_that_need_many_more_registers_than_there_are():
    check_limits(tiled(8, 16), CPU)
    check_limits(tiled(16, 32), CPU)  # 64 registers of 16 spill, but not absurdly
    text = refused(tiled(32, 32), CPU)
    assert "128 registers" in text
    assert "at most 64: 4 times the machine's 16" in text
    assert "about 112 are spilled" in text
    check_limits(tiled(32, 32), replace(CPU, vector_registers=32))
    check_limits(tiled(32, 32), replace(CPU, vector_bits=512))


def test_temporaries_that_serial_loops_index_are_no_registers():
    schedule = Schedule(tiled(32, 32))
    assert set(register_elements(schedule.func.body).values()) == {32 * 32}
    schedule = Schedule(product())
    schedule.cache_write(schedule.get_block("c"), 0, "local")
    assert register_elements(schedule.func.body) == {}


def test_unrolled_loops_that_copy_too_many_statements():
    schedule = Schedule(elementwise(64, 128))
    for loop in schedule.get_loops(schedule.get_block("y")):
        schedule.unroll(loop)
    text = refused(schedule.func, CPU)
    assert str(64 * 128) in text
    assert str(MAX_UNROLLED) in text
    schedule = Schedule(elementwise(64, 64))
    for loop in schedule.get_loops(schedule.get_block("y")):
        schedule.unroll(loop)
    check_limits(schedule.func, CPU)


def test_unrolled_loops_beside_each_other_count_together():
    @T.prim_func
    def twice(a: T.Buffer((3000,), "float32"), b: T.Buffer((3000,), "float32")):
        for i in T.unroll(3000):
            a[i] = T.float32(0.0)
        for i in T.unroll(3000):
            b[i] = T.float32(0.0)

    assert "6000 times" in refused(twice, CPU)


def test_unrolled_loops_of_unknown_extent():
    n = Var("n")
    schedule = Schedule(elementwise(n))
    (loop,) = schedule.get_loops(schedule.get_block("y"))
    func = schedule.func
    body = replace(func.body, kind="unrolled")
    assert loop
    assert "extent n" in refused(replace(func, body=body), CPU)


def test_vectors_of_too_many_registers():
    schedule = Schedule(elementwise(16, 1024))
    schedule.vectorize(schedule.get_loops(schedule.get_block("y"))[1])
    text = refused(schedule.func, CPU)
    assert "1024 iterations" in text
    assert "128 vector registers" in text
    assert f"at most {MAX_VECTOR}" in text
    check_limits(schedule.func, replace(CPU, vector_bits=512))


@T.prim_func
def through_pad(a: T.Buffer((4096,), "float32"), b: T.Buffer((4096,), "float32")):
    pad = T.alloc_buffer((4096,), "float32", scope="pad")
    for i in range(4096):
        pad[i] = a[i]
    for i in range(4096):
        b[i] = pad[i] * T.float32(2.0)


def test_buffers_that_do_not_fit_their_memory():
    small, large = (
        replace(CPU, memory_scopes=("global", "local", MemoryScope("pad", bytes=size)))
        for size in (8 << 10, 16 << 10)
    )
    check_limits(through_pad, large)
    text = refused(through_pad, small)
    assert "16,384 bytes" in text
    assert "8,192 bytes" in text
    assert "'pad'" in text


def test_memories_that_the_machine_does_not_have():
    assert "there is no memory 'pad'" in refused(through_pad, CPU)


def test_temporaries_on_the_stack_of_a_small_machine():
    func = elementwise(256)
    for number in range(MAX_STACK + 1):
        func = replace(func, body=Alloc(Buffer(f"t{number}", (256,), "float32"), func.body))
    check_limits(func, CPU)
    check_limits(func, replace(CPU, stack_bytes=512))  # they are in the arena
    text = refused(func, replace(CPU, stack_bytes=1024))
    assert f"{1024 * (MAX_STACK + 1):,} bytes" in text
    assert f"at most {1024 * MAX_STACK:,} bytes" in text


def test_temporaries_in_the_arena_that_are_much_larger_than_the_tensors():
    @T.prim_func
    def huge(a: T.Buffer((256,), "float32")):
        t = T.alloc_buffer((1 << 25,), "float32")
        for i in range(256):
            t[i * 131072] = a[i]
        for i in range(256):
            a[i] = t[i * 131072]

    text = refused(huge, CPU)
    assert "134,217,728 bytes" in text
    assert "67,108,864 bytes" in text


def test_parallel_loops_that_are_started_often_for_little():
    def inner(columns: int) -> PrimFunc:
        schedule = Schedule(elementwise(64, columns))
        schedule.parallel(schedule.get_loops(schedule.get_block("y"))[1])
        return schedule.func

    text = refused(inner(32), CPU)
    assert "started 64 times for 32 iterations" in text
    assert "at least 64 iterations" in text
    check_limits(inner(128), CPU)
    check_limits(inner(32), replace(CPU, parallel=False))
    check_limits(inner(32), replace(CPU, fork_cycles=1000))


def test_groups_of_too_many_threads():
    def bound(threads: int) -> PrimFunc:
        schedule = Schedule(elementwise(1 << 12))
        (loop,) = schedule.get_loops(schedule.get_block("y"))
        outer, inner = schedule.split(loop, [None, threads])
        schedule.bind(outer, "block.x")
        schedule.bind(inner, "thread.x")
        return schedule.func

    check_limits(bound(256), GPU)
    text = refused(bound(512), GPU)
    assert "512 threads" in text
    assert "256 at most" in text


def test_regions_of_intrinsics_that_are_not_proved():
    @T.prim_func
    def outside(a: T.Buffer((64,), "float32")):
        for i in range(5):
            with T.block("tile"):
                v = T.axis.spatial(5, i)
                T.reads()
                T.writes(a[v * 16 : v * 16 + 16])
                T.evaluate(T.call_extern("fill16", T.address_of(a[v * 16]), dtype="int32"))

    text = refused(outside, CPU)
    assert "not proved to be inside" in text
    assert "1 regions of" in text


class Wide:
    """A space whose only point is a vector of 4096 elements."""

    name = "wide"
    about = "One vector."

    def fits(self, task):
        return ""

    def generate(self, schedule, choose, task):
        (loop,) = schedule.get_loops(schedule.get_block("y"))
        schedule.vectorize(loop)


def test_candidates_beyond_a_limit_are_invalid_with_the_reason():
    task = Task(elementwise(1 << 14), dlc.Target("c -mcpu=cortex-a72"))
    found = candidate(Wide(), task, lambda question: 0)
    assert isinstance(found, Invalid)
    assert "vector registers" in found.why


@pytest.mark.parametrize("target", ["c -mcpu=cortex-a72", "c -mcpu=cortex-m4", "c -mcpu=cortex-m0"])
@pytest.mark.parametrize("func", [product(), elementwise(64, 1000)], ids=["product", "elementwise"])
def test_schedules_of_the_rules_keep_all_limits(func, target):
    task = Task(func, dlc.Target(target))
    task.check(task.by_rules)
