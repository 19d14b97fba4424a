"""The block that stores the results of a reduction: its epilogue, or a copy of its accumulators."""

from __future__ import annotations

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Expr, Var, const_value
from dlc_core.schedule import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import is_pointwise, loads_of
from dlc_core.tir.stmt import IterVar
from dlc_tune.spaces.sketches.access import Access
from dlc_tune.spaces.sketches.sketch import Sketch


def results_of(sketch: Sketch, block: BlockRV, access: Access) -> tuple[BlockRV, dict[IterVar, LoopRV]]:
    """The block that stores the results of a reduction, and its loops by the axes of the reduction.

    It is the only reader, if this is pointwise and has the same axes, else a copy from registers.
    """
    s = sketch.s
    readers = s.get_consumers(block)
    is_result = block in s.get_output_blocks()
    if len(readers) == 1 and readers[0] not in sketch.finished and not is_result:
        found = loops_by_axis(sketch, readers[0], access)
        if found is not None and sketch.ask(block, "epilogue", ["fused", "separate"]) == "fused":
            s.set_scope(block, 0, "local")
            sketch.finished.add(readers[0])
            return readers[0], found
    out = s.cache_write(block, 0, "local")
    loops = loops_by_axis(sketch, out, access)
    if loops is None:
        raise ScheduleError(f"the results of {block.name!r} are no box of its spatial axes")
    return out, loops


def loops_by_axis(sketch: Sketch, out: BlockRV, access: Access) -> dict[IterVar, LoopRV] | None:
    """The loops of a reader by the axes of the reduction; None if it has others."""
    s = sketch.s
    block = s.get(out)
    loops = sketch.own_loops(out)
    if not is_pointwise(block) or loops is None or len(s.get_loops(out)) != len(loops):
        return None
    name = access.result.name
    reads = [load.indices for load in loads_of(block) if load.buffer.name.removesuffix("_local") == name]
    if not reads or any(r != reads[0] for r in reads):
        return None
    by_var: dict[Expr, LoopRV] = {a.var: loop for a, loop in zip(block.axes, loops, strict=True)}
    found: dict[IterVar, LoopRV] = {}
    for axis in access.spatial:
        dim = access.dim_of(axis)
        index = None if dim is None else reads[0][dim]
        if isinstance(index, Var) and index in by_var:
            found[axis] = by_var[index]
        elif index is None or const_value(index) is None:
            return None
    return found if len({*found.values()}) == len(found) == len(loops) else None


__all__ = ["loops_by_axis", "results_of"]
