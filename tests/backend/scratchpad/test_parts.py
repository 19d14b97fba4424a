"""The parts of the library for scratchpads: placement, times, tiles, commands, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc_core.backend.scratchpad import ScratchpadRule, simulate
from dlc_core.backend.scratchpad.allocation import Request, needed, place, place_next
from dlc_core.backend.scratchpad.commands import Command, Operand, duration, from_data, normal, runs, to_data
from dlc_core.backend.scratchpad.execution import Memories, evaluate, result
from dlc_core.backend.scratchpad.problem import problem_of
from dlc_core.backend.scratchpad.queues import Deadlock, Queues, Step
from dlc_core.backend.scratchpad.tiles import TILES, Plan, Scopes, choose, plans
from dlc_core.decisions import forced, scope
from dlc_core.diag import ArtifactError, CodegenError, RuntimeFailure, ScheduleError
from dlc_core.op import std
from dlc_core.schedule import Schedule
from dlc_core.schedule.rules.base import Machine
from dlc_core.script import parse
from dlc_core.target import MemoryScope
from dlc_core.tir.functor import block_list
from tests.backend.scratchpad.machines import kernel_of, lowered, machine, recorded, stream, tensor

# Placement


def test_disjoint_live_ranges_share_memory() -> None:
    pad = MemoryScope("pad", bytes=8192, align=64)
    early, late, both = Request("a", 4096, 0, 5), Request("b", 4096, 6, 9), Request("c", 100, 3, 7)
    assert place([early, late], pad) == (0, 0)
    assert place([early, Request("b", 4096, 5, 9)], pad) == (0, 4096)
    assert place([both, early, late], pad) == (4096, 0, 0)
    assert place([early, late, Request("d", 4097, 0, 9)], pad) is None
    assert needed([early, late, both]) == 4196


def test_tiles_have_banks_of_their_own() -> None:
    pad = MemoryScope("pad", bytes=4096, banks=4, align=64)
    small = [Request(name, 100, 0, 9) for name in "abcd"]
    assert place(small, pad) == (0, 1024, 2048, 3072)
    assert place([*small, Request("e", 100, 0, 9)], pad) is None
    assert place([*small, Request("e", 100, 0, 9)], pad, in_banks=False) == (0, 128, 256, 384, 512)


def test_slots_alternate_between_shared_banks() -> None:
    pad = MemoryScope("pad", bytes=4096, banks=2, align=64)
    left, right = ([Request(name, 900, 0, 9, slot=slot) for slot in (0, 1)] for name in ("left", "right"))
    assert place([*left, *right], pad) is None
    assert place([*left, *right], pad, in_banks=False) == (0, 2048, 960, 3008)
    # A tile that is larger than a bank spans both, and another one goes where room is left.
    assert place([Request("sums", 2500, 0, 9), left[0]], pad, in_banks=False) == (0, 2560)
    assert place([Request("sums", 2500, 0, 9), *left], pad, in_banks=False) is None
    assert place([Request("sums", 2500, 0, 9), left[0], Request("b", 64, 0, 9)], pad, in_banks=False) == (
        0,
        2560,
        3520,
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 600), st.integers(0, 20), st.integers(0, 8)), min_size=1, max_size=12),
    st.sampled_from([1, 4]),
)
def test_overlapping_tiles_are_disjoint(shapes: list[tuple[int, int, int]], banks: int) -> None:
    pad = MemoryScope("pad", bytes=4096, banks=banks, align=32)
    requests = [
        Request(str(i), size, begin, begin + length) for i, (size, begin, length) in enumerate(shapes)
    ]
    offsets = place(requests, pad)
    if offsets is None:
        assert banks > 1 or needed(requests) > 2048  # what first-fit leaves unused is less than half
        return
    for i, (one, a) in enumerate(zip(requests, offsets, strict=True)):
        assert a % 32 == 0
        assert a + one.size <= 4096
        for other, b in zip(requests[:i], offsets[:i], strict=True):
            if one.begin <= other.end and other.begin <= one.end:
                assert a + one.size <= b or b + other.size <= a


def test_tiles_without_sites_go_next_to_the_last() -> None:
    requests = [Request("t", 40, begin, begin + 1) for begin in (0, 1, 3, 5)]
    assert place_next(requests, 100) == (0, 40, 0, 40)
    assert place_next(requests, 70) == requests[1]
    assert place_next(requests[:1] + requests[2:], 70) == (0, 0, 0)


# Commands and their times


def load(to: int, size: int = 64, **more: object) -> Command:
    operands = (Operand("pad", 0, to, (4,), "float32"), Operand("", 0, 0, (4,), "float32"))
    return Command("load", "load", (size,), operands, **more)


def add(to: int, source: int, size: int = 64, **more: object) -> Command:
    operands = (Operand("pad", 0, to, (4,), "float32"), Operand("pad", 0, source, (4,), "float32"))
    return Command("vector", "vector", (size,), operands, ("x1", "#1.0:float32", "add"), **more)


def test_times_by_hand() -> None:
    description = machine(banks=1)
    commands = [
        load(0, pushes=("vector",)),  # starts at 4; 20 + 256 / 16 = 36 cycles
        load(1024, pushes=("vector",)),
        add(512, 0, pops=("load",)),  # 4 + 64 / 8 = 12 cycles
        add(1536, 1024, pops=("load",)),
    ]
    timing = simulate(commands, description, dispatch=4)
    assert timing.spans == ((4, 40), (40, 76), (40, 52), (76, 88))
    assert timing.cycles == 88
    assert timing.busy["vector"] == 24
    assert timing.waits["vector"] == {"tokens of load": 64}


def test_units_wait_for_banks_and_for_room_in_queues() -> None:
    description = machine(banks=16)  # banks of 4096 bytes
    apart = simulate([load(0), add(4096, 8192)], description, dispatch=1)
    same = simulate([load(0), add(2048, 8192)], description, dispatch=1)
    assert apart.spans[1][0] == 2
    assert same.spans[1][0] == apart.spans[0][1]
    assert same.waits["vector"]["banks"] > 0
    narrow = replace(description, units=tuple(replace(u, queue=1) for u in description.units))
    commands = [load(0), load(4096), load(8192), add(12288, 16384)]
    assert (
        simulate(commands, narrow, dispatch=1).spans[3][0]
        > simulate(commands, description, dispatch=1).spans[3][0]
    )


def test_tokens_may_come_from_later_instructions() -> None:
    steps = {
        "a": Step("load", 5, pops=("vector",)),
        "b": Step("vector", 7, pushes=("load",)),
        "c": Step("vector", 1, pops=("store",)),
    }
    depths = {"load": 1, "vector": 2, "store": 1}
    timing = Queues(depths, steps.__getitem__).run("ab")
    assert timing is not None
    assert timing.spans == ((7, 12), (0, 7))
    assert timing.waits["load"] == {"tokens of vector": 7}
    with pytest.raises(Deadlock, match=r"load waits at: a[^$]*the queue of load is full"):
        Queues(depths, steps.__getitem__).run("aab")
    with pytest.raises(Deadlock, match="vector waits at: c"):
        Queues(depths, steps.__getitem__).run("c")
    with pytest.raises(RuntimeFailure, match="the machine has no unit 'load'"):
        Queues({"vector": 1}, steps.__getitem__).run("ab")
    assert Queues(depths, steps.__getitem__, limit=3).run("bb") is None


def test_runs_of_bytes() -> None:
    assert runs((4, 8), (32, 4), 4) == (1, 128)
    assert runs((4, 7), (32, 4), 4) == (4, 28)
    assert runs((3, 4, 8), (1024, 32, 4), 4) == (3, 128)
    assert runs((5, 7), (64, 8), 4) == (5, 52)  # every second element: one run with what is between
    assert runs((7,), (64,), 4) == (7, 4)
    assert runs((9,), (0,), 4) == (1, 4)


def test_normal_commands_have_few_loops() -> None:
    command = Command(
        "load", "load", (1, 4, 8),
        (Operand("pad", 0, 0, (999, 32, 4), "float32"), Operand("", 0, 0, (999, 32, 4), "float32")),
    )  # fmt: skip
    assert normal(command).extents == (32,)
    border = replace(command, value=("#0.0:float32",), inside=((0, 1), (1, 3), (0, 8)))
    assert normal(border).extents == (32,)
    assert normal(border).inside == ((8, 24),)
    kept = replace(border, inside=((0, 1), (0, 4), (2, 8)))
    assert normal(kept).extents == (4, 8)
    units = {unit.name: unit for unit in machine().units}
    assert duration(normal(border), units["load"]) == duration(border, units["load"]) == 20 + 4


def test_commands_as_data() -> None:
    description = machine()
    for command in stream(lowered(kernel_of(std.relu(tensor("x", 5, 9))), description), description):
        assert from_data(json.loads(json.dumps(to_data(command)))) == command
    good = to_data(load(0))
    for broken in ([], good[:-1], [*good[:1], "fly", *good[2:]], [*good[:2], [1, 2], *good[3:]]):
        with pytest.raises(ArtifactError, match="malformed command"):
            from_data(broken)


def test_values_and_memories() -> None:
    x = np.array([1.5, -2.0], np.float32)
    np.testing.assert_array_equal(evaluate(("x1", "#0.5:float32", "mul", "cast:int32"), [x]), [0, -1])
    with pytest.raises(RuntimeFailure, match="no operation 'fly'"):
        evaluate(("x1", "fly"), [x])
    memories = Memories(machine(), [np.zeros(64, np.uint8)])
    with pytest.raises(RuntimeFailure, match="bytes 0 to 256 of main memory"):
        result(load(0), memories)


# Tiles


def matmul_plans(m: int, n: int, k: int, pad: int = 1 << 17, acc: int = 1 << 16) -> tuple:
    description = machine(pad, acc, banks=1)
    func = kernel_of(std.matmul(tensor("x", m, k), tensor("w", k, n)))
    problem = problem_of(block_list(func.body)[0], {}, None)
    scopes = Scopes(*(description.scope(name) for name in ("pad", "acc")))
    return problem, description, scopes


def test_a_refusal_names_a_tile_that_fits() -> None:
    description = machine(1 << 17, 1 << 16)
    func = kernel_of(std.matmul(tensor("x", 256, 512), tensor("w", 512, 256)))
    rule = ScratchpadRule("test.fixed", operands="pad", sums="acc", tile=(64, 64, 384))
    with pytest.raises(ScheduleError) as refused:
        rule.apply(Schedule(func), Machine(description, 1))
    assert refused.value.what == "tile 64x64x384 needs 196,608 bytes of pad, it has 131,072"
    assert refused.value.hint == "64x64x192 fits"
    with pytest.raises(
        ScheduleError, match=r"no tile fits: tile 1x\d+x\d+ needs \d+ bytes of pad, it has 64"
    ):
        ScratchpadRule("test.none", operands="pad", sums="acc").apply(
            Schedule(func), Machine(machine(64, 64, banks=1), 1)
        )


def test_the_choice_has_the_fewest_predicted_cycles_of_those_that_fit() -> None:
    problem, description, scopes = matmul_plans(200, 96, 300, pad=1 << 15, acc=1 << 13)
    chosen = choose(problem, description, scopes)
    slots = chosen.slots()
    assert slots is not None
    fitting = [(plan, plan.slots()) for plan in plans(problem, description, scopes)]
    assert min(plan.cycles(s) for plan, s in fitting if s is not None) == chosen.cycles(slots)
    assert any(s is None for _, s in fitting)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(64, 64, 64), (200, 96, 300), (1, 100, 512), (49, 512, 64), (100, 48, 40)]
)
def test_predictions_are_near_the_simulation(m: int, n: int, k: int) -> None:
    problem, description, scopes = matmul_plans(m, n, k, pad=1 << 15, acc=1 << 13)
    chosen: Plan = choose(problem, description, scopes)
    slots = chosen.slots()
    assert slots is not None
    func = lowered(kernel_of(std.matmul(tensor("x", m, k), tensor("w", k, n))), description)
    cycles = simulate(stream(func, description), description).cycles
    assert 0.8 < chosen.cycles(slots) / cycles < 1.25


def test_the_choice_is_recorded_and_can_be_forced() -> None:
    problem, description, scopes = matmul_plans(64, 64, 64)
    with scope("k") as choices:
        best = choose(problem, description, scopes)
    assert choices[0].decision == TILES.name
    assert choices[0].candidates[0].cost is not None
    with forced(f"{TILES.name}=right"):
        other = choose(problem, description, scopes)
    assert other.tiling.keep == "right"
    assert other.cycles() >= best.cycles()


# What is no command


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("out[i] = x[i] + x[i]", "out in main memory is computed as"),
        ("t[i] = x[(i * i) % 8]", "units walk i with a constant stride"),
        ("t[i] = x[i] + x[i]", "x in main memory is used by"),
        ("out[i] = T.if_then_else(i % 2 == 0, x[i], T.float32(0.0))", "under the condition"),
        ("out[i] = out[i] + x[i] * x[i]", "the product accesses out in main memory"),
    ],
)
def test_programs_that_no_unit_executes_are_refused(body: str, text: str) -> None:
    func = parse(f"""
@T.prim_func
def f(x: T.Buffer((8,), "float32"), out: T.Buffer((8,), "float32")):
    T.func_attr({{"rule": "some.rule", "why_not": ("other: no",)}})
    t = T.alloc_buffer((8,), "float32", scope="pad")
    for i in range(8):
        {body}
""")
    with pytest.raises(CodegenError, match=r"f: ") as refused:
        recorded(func, machine())
    assert text in str(refused.value)
    assert "refused: other: no" in str(refused.value)


def test_refusals_name_rules_and_capacities() -> None:
    func = parse("""
@T.prim_func
def f(x: T.Buffer((64,), "float32"), out: T.Buffer((64,), "float32")):
    T.func_attr({"rule": "some.rule", "why_not": ("other: no",)})
    t = T.alloc_buffer((64,), "float32", scope="elsewhere")
    for i in range(64):
        t[i] = x[i]
    for i in range(64):
        out[i] = t[i]
""")
    with pytest.raises(CodegenError, match="there is no memory 'elsewhere'"):
        recorded(func, machine())
    inside = parse(func.script().replace('"elsewhere"', '"pad"'))
    with pytest.raises(
        CodegenError, match=r"f: its tiles need 256 bytes of pad at once[^$]*it has 128 bytes"
    ):
        recorded(inside, machine(pad=128, banks=1))
    local = parse(func.script().replace('"elsewhere"', '"local"'))
    with pytest.raises(
        CodegenError, match=r"t is in the scope 'local'[^$]*rule: some.rule[^$]*refused: other: no"
    ):
        recorded(local, machine())
