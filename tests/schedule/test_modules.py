"""Schedules of modules: functions by name, and handles of functions."""

from __future__ import annotations

import pytest

from dlc_core.diag import ScheduleError
from dlc_core.ir.module import IRModule
from dlc_core.ir.structural import first_difference, structural_equal
from dlc_core.schedule import BlockRV, Schedule, Trace
from tests.schedule.conftest import program


@pytest.fixture
def module() -> IRModule:
    return IRModule({"main": program(), "small": program(8, 8, 8)}, {"note": 1})


def test_functions_by_name(module):
    sch = Schedule(module)
    one, two = sch.get_block("relu"), sch.get_block("relu", func="small")
    assert (one.func, two.func) == ("main", "small")
    sch.fuse(*sch.get_loops(two))
    assert sch.mod["main"] is module["main"]
    assert len(sch.get_loops(two)) == 1
    assert len(sch.get_loops(one)) == 2
    assert sch.mod.attrs == {"note": 1}
    sch.work_on("small")
    assert sch.func is sch.mod["small"]
    assert sch.get_blocks() == [BlockRV(n, "small") for n in ("matmul", "bias", "relu")]
    sch.compute_inline(BlockRV("bias"))
    assert [b.name for b in sch.get_blocks()] == ["matmul", "relu"]
    assert sch.get(one).name == "relu"


def test_a_function_is_a_module_of_one_function(sch):
    assert list(sch.mod) == ["main"]
    sch.compute_inline(BlockRV("bias"))
    assert sch.mod["main"] is sch.func
    assert sch.get_block("relu", func="main") == BlockRV("relu")
    with pytest.raises(ScheduleError, match="no function 'other'"):
        sch.get_block("relu", func="other")


def test_handles_of_several_functions_are_refused(module):
    sch = Schedule(module)
    i = sch.get_loops(sch.get_block("relu"))[0]
    j = sch.get_loops(sch.get_block("relu", func="small"))[0]
    before = sch.mod
    with pytest.raises(ScheduleError, match="several functions"):
        sch.reorder(i, j)
    with pytest.raises(ScheduleError, match="no function 'x'"):
        sch.work_on("x")
    with pytest.raises(ScheduleError, match="no PrimFunc"):
        Schedule(IRModule())
    assert structural_equal(sch.mod, before)


def test_functions_that_share_loops_are_distinguished():
    func = program()
    sch = Schedule(IRModule({"main": func, "again": func}))
    i, _ = sch.get_loops(sch.get_block("relu", func="again"))
    sch.parallel(i)
    assert sch.mod["main"] is func
    assert "parallel" in str(sch.get_for(i).kind)


def test_traces_of_modules_replay(module):
    sch = Schedule(module)
    loops = sch.get_loops(sch.get_block("relu", func="small"))
    sch.split(loops[0], [None, 4])
    sch.work_on("small")
    sch.compute_inline(sch.get_block("bias"))
    sch.parallel(sch.get_loops(sch.get_block("relu", func="main"))[0])
    again, pasted = Schedule(module), Schedule(module)
    Trace.from_json(sch.trace.to_json()).replay(again)
    exec(sch.trace.as_python(), {"sch": pasted})  # noqa: S102
    for other in (again, pasted, sch.copy()):
        assert first_difference(other.mod, sch.mod) is None
