"""Check whether a scheduled program becomes launches that a machine can run. Schedule rules call it
while another schedule can still be chosen."""

from __future__ import annotations

from dlc_core.diag import DlcError, ScheduleError
from dlc_core.ir.expr import const_value
from dlc_core.passes.tir.cross_thread import lower_cross_thread_reductions, subgroups
from dlc_core.passes.tir.lower_blocks import lower_blocks
from dlc_core.passes.tir.software_pipeline import inject_software_pipelines
from dlc_core.passes.tir.split_host_device import launch_problems, split_host_device
from dlc_core.passes.tir.thread_sync import insert_barriers
from dlc_core.passes.tir.unify_threads import unify_thread_binding
from dlc_core.passes.tir.virtual_threads import inject_virtual_threads
from dlc_core.passes.tir.workspace import allocations_in_loops, is_of_one_thread
from dlc_core.target.description import Description
from dlc_core.tir.functor import child_stmts
from dlc_core.tir.stmt import PrimFunc, Stmt, Store
from dlc_core.tir.threads import is_axis


def check_launches(func: PrimFunc, machine: Description) -> None:
    """Check that a machine can launch a program.

    Raises ScheduleError if a pass refuses the program, the machine lacks a resource, or the host would have
    to store elements.
    """
    try:
        func = lower_cross_thread_reductions(func, *subgroups(machine))
        func = unify_thread_binding(inject_software_pipelines(func))
        func = insert_barriers(inject_virtual_threads(lower_blocks(func)))
        _, kernels = split_host_device(func)
    except DlcError as error:
        raise ScheduleError(error.what, why=error.why, hint=error.hint) from error
    stores = _stores_outside(func.body)
    if stores:
        raise ScheduleError(f"{func.name}: no launch writes {stores[0].buffer.name}")
    problems = [problem for kernel in kernels.values() for problem in launch_problems(kernel, machine)]
    problems += [
        f"the size of {buffer.name} is not known"
        for buffer, loops in allocations_in_loops(func.body)
        if any(map(is_axis, loops))
        and const_value(buffer.num_elements()) is None
        and not is_of_one_thread(buffer, loops)
    ]
    if problems:
        raise ScheduleError(f"{func.name} cannot be launched", why="; ".join(problems))


def _stores_outside(root: Stmt) -> list[Store]:
    """Return the stores outside of launches."""
    found: list[Store] = []
    work = [root]
    while work:
        stmt = work.pop()
        if isinstance(stmt, Store):
            found.append(stmt)
        if not is_axis(stmt):
            work.extend(child_stmts(stmt))
    return found


__all__ = ["check_launches"]
