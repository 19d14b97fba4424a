"""Streams of many commands: dependences are complete, and their number is linear."""

from __future__ import annotations

import random

import pytest

from dlc_core.backend.scratchpad import (
    ScratchpadRule,
    StreamCodegen,
    check_tokens,
    ordering,
    record_commands,
    synchronise,
)
from dlc_core.backend.scratchpad.commands import MAIN, Command, Operand
from dlc_core.diag import CodegenError
from dlc_core.ir.module import IRModule
from dlc_core.op import std
from dlc_core.passes.base import PassContext
from dlc_core.passes.default_pipelines import default_pipeline
from dlc_core.plugin.registry import registry
from dlc_core.script import parse
from dlc_core.target import Description, MemoryScope, Unit
from dlc_core.testing.schedules import target_of
from dlc_core.tir.stmt import PrimFunc
from tests.backend.scratchpad.machines import kernel_of, machine, recorded, tensor

PLANE, ROW = 28 * 28 * 4, 28 * 4


def layers(count: int) -> list[Command]:
    """Layers of 2 x 32 tiles of an NCHW tensor. Each load of a layer conflicts, as an interval of bytes, with
    about half of the stores of the layer before.
    """
    made: list[Command] = []
    for layer in range(count):
        source, target = (parity * (1 << 20) for parity in (layer % 2, 1 - layer % 2))
        for tile in range(64):
            at, slot = tile // 2 % 7 * 4 * ROW, tile % 2 * 0x4000
            main = [Operand(MAIN, 0, base + at, (PLANE, 4), "float32") for base in (source, target)]
            chip = [Operand("pad", 0, slot + base, (4 * ROW, 4), "float32") for base in (0, 0x8000)]
            made.append(Command("load", "load", (4, 112), (chip[0], main[0])))
            made.append(Command("vector", "vector", (4, 112), (chip[1], chip[0]), ("x1", "x1", "add")))
            made.append(Command("store", "store", (4, 112), (main[1], chip[1])))
    return made


def number_of(found: list[ordering.Before]) -> int:
    return sum(len(each.single) + len(each.up_to) for each in found)


def test_dependences_are_linear_in_the_number_of_commands() -> None:
    few, many = (number_of(ordering.dependences(layers(n))) for n in (8, 32))
    assert many < 4.5 * few
    # At most `SINGLE` of its own, and one for each unit.
    assert many <= len(layers(32)) * (ordering.SINGLE + 3)


def conflicts(first: Command, second: Command) -> bool:
    """Whether one writes bytes, as an interval, that the other accesses."""
    spans = [[*((o, s, False) for o, s in each.reads()), (*each.writes(), True)] for each in (first, second)]
    return any(
        (a.space, a.memory) == (b.space, b.memory) and s[0] < t[1] and t[0] < s[1] and (v or w)
        for a, s, v in spans[0]
        for b, t, w in spans[1]
    )


def random_stream(seed: int) -> list[Command]:
    rng = random.Random(seed)
    made = []
    for _ in range(150):
        unit = rng.choice(("load", "vector", "store"))
        extents = (rng.randint(1, 4), rng.randint(1, 6))
        spaces = {"load": ("pad", MAIN), "vector": ("pad", "pad"), "store": (MAIN, "pad")}[unit]
        operands = tuple(
            Operand(space, 0, 4 * rng.randrange(200), (4 * rng.choice((extents[1], 20)), 4), "float32")
            for space in spaces
        )
        made.append(Command(unit, unit, extents, operands, ("x1", "neg") if unit == "vector" else ()))
    return made


@pytest.mark.parametrize("recent", [4, 32, 256])
@pytest.mark.parametrize("seed", range(4))
def test_the_order_keeps_all_conflicts(seed: int, recent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few recent accesses, most dependences are those on all commands up to a number."""
    monkeypatch.setattr(ordering, "RECENT", recent)
    monkeypatch.setattr(ordering, "SINGLE", max(1, recent // 16))
    commands = random_stream(seed)
    if recent == 4:
        assert sum(len(each.up_to) for each in ordering.dependences(commands)) > len(commands)
    order = ordering.ordered(commands, machine())
    place = {number: i for i, number in enumerate(order)}
    assert order != sorted(order)  # the scheduler has something to do
    for second in range(len(commands)):
        for first in range(second):
            if conflicts(commands[first], commands[second]):
                assert place[first] < place[second]
    check_tokens(synchronise([commands[number] for number in order]))


def conditional(rows: int, body: str) -> PrimFunc:
    """A copy of `rows` x 32 numbers into a scratchpad and back, by a body for t, i and j."""
    return parse(f"""
@T.prim_func
def f(x: T.Buffer(({rows * 32},), "float32"), out: T.Buffer(({rows * 32},), "float32")):
    pad = T.alloc_buffer(({rows * 32},), "float32", scope="pad")
    for t in range({rows}):
        for i in range(3):
            {body}
    for t in range({rows * 32}):
        out[t] = pad[t]
""")


TAIL = """for j in range(14):
                if i * 14 + j < 32:
                    pad[t * 32 + i * 14 + j] = x[t * 32 + i * 14 + j]"""
CLIPPED = """for j in range(T.min(14, 32 - i * 14)):
                pad[t * 32 + i * 14 + j] = x[t * 32 + i * 14 + j]
            for j in range(T.min(14, 32 - i * 14)):
                out[t * 32 + i * 14 + j] = pad[t * 32 + i * 14 + j]"""


def test_a_condition_inside_a_nest_is_refused_before_it_unrolls_every_element() -> None:
    few = recorded(conditional(20, TAIL), machine()).commands
    assert len(few) == 20 * 32 + 1
    with pytest.raises(CodegenError, match=r"f: each element of pad is a command, more than 4,096") as error:
        recorded(conditional(200, TAIL), machine())
    assert "the condition i * 14 + j < 32 is inside a loop nest" in error.value.why
    assert "T.min" in error.value.hint
    assert len(recorded(conditional(200, CLIPPED), machine()).commands) == 200 * 3 * 2 + 1


def test_a_stream_has_a_most_number_of_commands() -> None:
    func = conditional(20, TAIL)
    module = IRModule({"f": func}, {}, "f")
    assert len(record_commands(module, func, machine(), 641).commands) == 641
    with pytest.raises(CodegenError, match="f: the stream has more than 640 commands") as error:
        record_commands(module, func, machine(), 640)
    assert "f has 640 of them" in error.value.why
    assert "T.min" in error.value.hint


def test_a_code_generator_gives_the_most_commands() -> None:
    class Short(StreamCodegen):
        name, kinds, format = "short", ("short",), "short"
        most_commands = 10

    func = conditional(20, TAIL)
    with pytest.raises(CodegenError, match="more than 10 commands"):
        Short().commands(IRModule({"f": func}, {}, "f"), func, machine())


def test_the_choice_of_tiles_counts_dispatch() -> None:
    """Products of a unit without startup are not free: large tiles need fewer commands."""
    chip = Description(
        parallel=False,
        memory_scopes=("global", "local", MemoryScope("pad", bytes=32 << 10, align=64)),
        units=(
            Unit("dma", ("load", "store"), rate=8, latency=40),
            Unit("fma", ("product", "vector"), shape=(1, 32), rate=32),
        ),
    )
    x, w = tensor("x", 1, 64, 28, 28), tensor("w", 64, 64, 3, 3)
    pipeline = default_pipeline("tir", registry().passes)
    rules = (ScratchpadRule("test.fma", operands="pad", sums="pad"),)
    context = PassContext(target=target_of(chip), schedule_rules=rules)
    kernel = kernel_of(std.relu(std.conv(x, w, padding=(1, 1, 1, 1))))
    func = pipeline.run(IRModule({kernel.name: kernel}, {}, kernel.name), context)[kernel.name]
    assert isinstance(func, PrimFunc)
    products = [each for each in recorded(func, chip).commands if each.work == "product"]
    assert len(products) < 1000  # 3,072 without dispatch in the formula
