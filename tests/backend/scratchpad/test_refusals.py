"""Kernels and machines that the schedule rules refuse, with reasons."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dlc_core.backend.scratchpad import ElementwiseRule, simulate
from dlc_core.backend.scratchpad.cycles import banks_of
from dlc_core.diag import ScheduleError
from dlc_core.graph import Node, param
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.schedule import Schedule
from dlc_core.schedule.rules.base import Machine
from dlc_core.target import Description, MemoryScope
from tests.backend.scratchpad.machines import (
    RULES,
    arguments,
    executed,
    kernel_of,
    lowered,
    machine,
    stream,
    tensor,
)

CONTRACTION, MAP = RULES


def product_of(rows: int | Var = 4) -> Node:
    return std.matmul(param("x", tensor_type((rows, 4), "float32")), tensor("w", 4, 4))


def map_of(rows: int | Var = 4) -> Node:
    return std.relu(param("x", tensor_type((rows, 4), "float32")))


def without(work: str) -> Description:
    whole = machine()
    return replace(whole, units=tuple(unit for unit in whole.units if work not in unit.works))


def refusal(value: Node, description: Description, rule: object) -> str:
    assert isinstance(rule, type(CONTRACTION) | ElementwiseRule)
    func, own = kernel_of(value), Machine(description, 1)
    assert rule.matches(func, own)
    with pytest.raises(ScheduleError) as refused:
        rule.apply(Schedule(func), own)
    return refused.value.what


def test_symbolic_sizes_are_refused_by_the_rules() -> None:
    for value, rule in ((product_of(Var("n3")), CONTRACTION), (map_of(Var("n3")), MAP)):
        assert "has the extent n3" in refusal(value, machine(), rule)


def test_a_machine_without_a_unit_or_a_memory_is_refused() -> None:
    assert refusal(product_of(), without("product"), CONTRACTION) == "the machine has no unit for product"
    assert refusal(map_of(), without("vector"), MAP) == "the machine has no unit for vector"
    empty = machine(pad=0, acc=0, align=1)
    for value, rule in ((product_of(), CONTRACTION), (map_of(), MAP)):
        assert refusal(value, empty, rule) == "the machine has no memory 'pad' of known size"
    assert not MAP.matches(kernel_of(map_of()), Machine(Description(), 1))


def test_a_memory_of_unknown_size_has_no_banks() -> None:
    description = machine()
    commands = stream(lowered(kernel_of(map_of()), description), description)
    unknown = replace(
        description, memory_scopes=("global", MemoryScope("pad", banks=2), MemoryScope("acc", banks=2))
    )
    assert banks_of(commands[0], description)
    assert not banks_of(commands[0], unknown)
    assert simulate(commands, unknown).cycles > 0


def test_scalars_are_computed() -> None:
    description = machine()
    func = lowered(kernel_of(std.add(tensor("x"), tensor("y"))), description)
    assert func.attrs["rule"] == MAP.name
    arrays = arguments(func)
    found, _ = executed(stream(func, description), description, arrays)
    np.testing.assert_array_equal(found[2], arrays[0] + arrays[1])
