"""Kernels as streams: they compute the same as the kernels, on small and large scratchpads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dlc_core.backend.scratchpad import check_tokens, simulate, synchronise
from dlc_core.backend.scratchpad.ordering import dependences, ordered
from dlc_core.backend.scratchpad.tiles import TILES
from dlc_core.diag import CodegenError, RuntimeFailure
from dlc_core.graph import Node
from dlc_core.op import std
from dlc_core.passes.tir.software_pipeline import inject_software_pipelines
from dlc_core.schedule import Schedule
from dlc_core.script import parse
from dlc_core.testing import decision_coverage
from dlc_core.testing.schedules import check_schedule
from dlc_core.tir import interpreter
from tests.backend.scratchpad.machines import (
    RULES,
    arguments,
    executed,
    kernel_of,
    lowered,
    machine,
    recorded,
    stream,
    tensor,
)

KERNELS: dict[str, Callable[[], Node]] = {
    "conv": lambda: std.relu(
        std.add(
            std.conv(tensor("x", 1, 12, 9, 7), tensor("w", 20, 12, 3, 3), padding=(1, 1, 1, 1)),
            tensor("b", 20, 1, 1),
        )
    ),
    "residual": lambda: std.relu(
        std.add(std.conv(tensor("x", 1, 8, 7, 7), tensor("w", 24, 8, 1, 1)), tensor("r", 1, 24, 7, 7))
    ),
    "strided": lambda: std.conv(tensor("x", 1, 9, 9, 7), tensor("w", 10, 9, 1, 1), strides=(2, 2)),
    "batch": lambda: std.conv(
        tensor("x", 2, 5, 9, 7), tensor("w", 6, 5, 3, 3), strides=(2, 2), padding=(1, 1, 1, 1)
    ),
    "one dim": lambda: std.conv(tensor("x", 1, 5, 19), tensor("w", 6, 5, 3)),
    "dilated": lambda: std.conv(tensor("x", 1, 5, 9, 7), tensor("w", 6, 5, 3, 3), dilation=(2, 2)),
    "matmul": lambda: std.matmul(tensor("x", 19, 33), tensor("w", 33, 21)),
    "row": lambda: std.add(std.matmul(tensor("x", 1, 33), tensor("w", 33, 21)), tensor("b", 21)),
    "batched": lambda: std.matmul(tensor("x", 3, 9, 33), tensor("w", 3, 33, 20)),
    "transposed": lambda: std.matmul(tensor("x", 9, 33), tensor("w", 20, 33), transpose_b=True),
    "bytes": lambda: std.matmul(tensor("x", 9, 33, dtype="int8"), tensor("w", 33, 20, dtype="int8")),
    "conv of bytes": lambda: std.conv(
        tensor("x", 1, 5, 9, 7, dtype="int8"), tensor("w", 6, 5, 3, 3, dtype="int8"), padding=(1, 1, 1, 1)
    ),
    "map": lambda: std.relu(std.add(tensor("x", 37, 50), tensor("y", 50))),
    "transpose": lambda: std.transpose(tensor("x", 37, 50), axes=(1, 0)),
}
MACHINES = {
    "large": machine(),
    "small": machine(pad=8 << 10, acc=1 << 10, banks=8),
    "tiny": machine(pad=3 << 10, acc=256, banks=1, align=4),
}


@pytest.mark.parametrize("size", MACHINES)
@pytest.mark.parametrize("name", KERNELS)
def test_a_stream_computes_what_the_kernel_does(name: str, size: str) -> None:
    description = MACHINES[size]
    func = lowered(kernel_of(KERNELS[name]()), description)
    assert func.attrs["rule"].startswith("test."), func.attrs["why_not"]
    arrays = arguments(func)
    expected = [array.copy() for array in arrays]
    interpreter.run(func, *expected, capacities=description.capacities)
    found, timing = executed(stream(func, description), description, arrays)
    np.testing.assert_array_equal(found[-1], expected[-1])  # sums of small integers are exact
    assert timing.cycles > 0


@pytest.mark.parametrize("name", KERNELS)
def test_rules_use_primitives_only(name: str) -> None:
    made = check_schedule(kernel_of(KERNELS[name]()), MACHINES["small"], rules=RULES, trace=True)
    assert made.attrs["rule"].startswith("test.")


@pytest.mark.parametrize("alternative", TILES.alternatives)
@pytest.mark.parametrize("name", ["conv", "matmul", "batched"])
def test_any_operand_may_stay(name: str, alternative: str) -> None:
    description = MACHINES["small"]
    func = lowered(kernel_of(KERNELS[name]()), description, f"{TILES.name}={alternative}")
    choices = [text for text in func.attrs["decisions"] if text.startswith(f"{TILES.name}={alternative}")]
    assert choices
    arrays = arguments(func)
    expected = [array.copy() for array in arrays]
    interpreter.run(func, *expected)
    found, _ = executed(stream(func, description), description, arrays)
    np.testing.assert_array_equal(found[-1], expected[-1])
    decision_coverage.executed(choices)


def conv_stream(size: str = "small") -> tuple:
    description = MACHINES[size]
    func = lowered(kernel_of(KERNELS["conv"]()), description)
    return func, description, stream(func, description)


def test_every_token_is_needed_and_its_loss_is_found() -> None:
    _, description, commands = conv_stream()
    waits = [(i, unit) for i, command in enumerate(commands) for unit in command.pops]
    assert len(waits) > 20
    for i, unit in waits[:: max(1, len(waits) // 25)]:
        giver = matching_push(commands, i, unit)
        changed = list(commands)
        changed[i] = replace(commands[i], pops=tuple(u for u in commands[i].pops if u != unit))
        changed[giver] = replace(
            changed[giver], pushes=tuple(u for u in changed[giver].pushes if u != commands[i].unit)
        )
        with pytest.raises(RuntimeFailure, match=r"race: .* is not ordered after"):
            check_tokens(changed)
    with pytest.raises(RuntimeFailure, match="deadlock"):
        simulate([replace(commands[0], pops=("store",)), *commands[1:]], description)


def matching_push(commands: tuple, waiting: int, unit: str) -> int:
    """The command whose token a wait takes."""
    own = commands[waiting].unit
    number = sum(unit in c.pops for c in commands[:waiting] if c.unit == own)
    return [i for i, c in enumerate(commands) if c.unit == unit and own in c.pushes][number]


def test_a_stream_without_tokens_computes_wrong_numbers() -> None:
    func, description, commands = conv_stream("tiny")  # the exclusive use of banks would order them too
    arrays = arguments(func)
    right, _ = executed(commands, description, arrays)
    wrong, _ = executed([replace(c, pops=(), pushes=()) for c in commands], description, arrays)
    assert not np.array_equal(right[-1], wrong[-1])


def test_tokens_are_given_along_links_only() -> None:
    func, description, _ = conv_stream()
    with pytest.raises(CodegenError, match="load gives array no tokens"):
        synchronise(recorded(func, description).commands, lambda a, b: (a, b) != ("load", "array"))


def test_the_scheduler_keeps_dependences_and_saves_time() -> None:
    description = MACHINES["small"]
    made = recorded(lowered(kernel_of(KERNELS["residual"]()), description), description).commands
    order = ordered(made, description)
    place = {number: i for i, number in enumerate(order)}
    assert sorted(order) == list(range(len(made)))
    for number, before in enumerate(dependences(made)):
        own = [
            other for last in before.up_to for other in range(last + 1) if made[other].unit == made[last].unit
        ]
        assert all(place[other] < place[number] for other in (*before.single, *own))
    in_order = simulate(synchronise(made), description).cycles
    assert simulate(synchronise([made[i] for i in order]), description).cycles <= in_order


def test_loads_run_ahead_of_products() -> None:
    _, description, commands = conv_stream("large")
    timing = simulate(commands, description)
    serial = sum(end - start for start, end in timing.spans)
    assert timing.cycles < 0.8 * serial


def pipelined(scope: str = "pad", stages: tuple[int, ...] = (0, 2)) -> object:
    """out += a tile of x in each iteration, as a software pipeline with asynchronous copies."""
    func = parse("""
@T.prim_func
def f(x: T.Buffer((8, 16), "float32"), out: T.Buffer((8, 16), "float32")):
    for t in range(8):
        for j in range(16):
            with T.block("double"):
                vt, vj = T.axis.remap("SS", [t, j])
                T.reads(x[vt, vj])
                T.writes(out[vt, vj])
                out[vt, vj] = x[vt, vj] + x[vt, vj]
""")
    s = Schedule(func)
    block = s.get_block("double")
    copy = s.cache_read(block, 0, scope)
    s.compute_at(copy, s.get_loops(block)[0])
    s.compact_buffers()
    s.software_pipeline(s.get_loops(block)[0], stages)
    return inject_software_pipelines(s.func)


def test_the_interpreter_checks_fences_of_copies_to_a_scratchpad() -> None:
    func = pipelined()
    assert "copies_barrier" in func.script()
    x, out = np.arange(128, dtype=np.float32).reshape(8, 16), np.zeros((8, 16), np.float32)
    interpreter.run(func, x, out, check=True)
    np.testing.assert_array_equal(out, 2 * x)
    late = parse(func.script().replace("copies_barrier(1", "copies_barrier(2"))
    assert late.script() != func.script()
    with pytest.raises(RuntimeFailure, match=r"race: .* is read while a copy to it may be under way"):
        interpreter.run(late, x, out, check=True)


def test_the_interpreter_counts_all_versions_of_a_tile() -> None:
    func = pipelined()
    x, out = np.zeros((8, 16), np.float32), np.zeros((8, 16), np.float32)
    interpreter.run(func, x, out, capacities={"pad": 3 * 64})
    with pytest.raises(RuntimeFailure, match="x_pad of 192 bytes does not fit the scope 'pad'"):
        interpreter.run(func, x, out, capacities={"pad": 128})
