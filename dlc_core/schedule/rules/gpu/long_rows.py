"""Few long rows or columns: a first launch reduces parts, further launches combine them.

launch: for row, part (group): for thread: elements of the part      partial results
launch: for row (group): for thread: partial results                 the value of the row
  … the same for the next reduction of the row …
launch: for element (thread)                                         the consumers
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.ir.expr import const_value
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.rules.analysis import (
    contiguous_over,
    count_of,
    inline_producers,
    is_pointwise,
    reductions,
    spatial,
)
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.gpu.choices import ROW_STAGES, choose_parts
from dlc_core.schedule.rules.gpu.grid import Grid, bind_points, power_of_two
from dlc_core.schedule.rules.gpu.heuristics import ROW
from dlc_core.schedule.rules.gpu.maps import map_points
from dlc_core.schedule.schedule import Schedule


def reduce_parts(s: Schedule, grid: Grid, handle: BlockRV) -> BlockRV | None:
    """Reduce parts of rows in a launch of its own, if there are too few rows for all units.

    `handle` then combines the parts. Returns None if rows are short, many or symbolic.
    """
    block, loops = s.get(handle), s.get_loops(handle)
    steps = [loop for loop, a in zip(loops, block.axes, strict=True) if a.kind == "reduce"]
    rows = [loop for loop in loops if loop not in steps]
    count, length = count_of(s, rows), count_of(s, steps)
    if count is None or length is None or count < 1:
        return None
    across_columns = reduces_columns(s, handle)
    if across_columns:
        enough = count >= ROW.few_columns * grid.units or length < ROW.part_steps * ROW.column_parts
        parts = min(-(-length // ROW.part_steps), ROW.threads_of_unit * grid.units // count)
    else:
        enough = count >= grid.units or length < ROW.long_parts * ROW.part_elements
        parts = min(
            -(-length // ROW.part_elements),
            ROW.groups_per_unit * grid.units // count,
            grid.max_groups // count,
        )
    most = min(length, grid.max_groups if across_columns else grid.max_groups // count)
    preferred = 1 if enough or parts < 2 else parts
    too_few = f"{count} rows are too few for {grid.units} units"
    parts = choose_parts(
        preferred,
        lambda: (1, *(n for n in ROW.forced_parts if n <= most)),
        handle.name,
        refused=lambda n: too_few if n == 1 else "rows are many, or short" if preferred == 1 else "",
    )
    if parts < 2:
        return None
    inline_producers(s, handle)
    if rows:
        s.reorder(*rows, *steps)
    flat = s.fuse(*steps) if len(steps) > 1 else steps[0]
    part, _ = s.split(flat, [parts, None])
    partial = s.rfactor(part, 0)
    around = s.get_loops(partial)
    values = {value: a.kind for a, value in zip(s.get(partial).axes, s.get(partial).values, strict=True)}
    lead = [loop for loop in around if values.get(loop.var) == "spatial"]
    rest = [loop for loop in around if loop not in lead]
    if across_columns:
        # The part is the outermost dim of the partial results, so rows stay contiguous.
        (own,) = [loop for loop in lead if loop.var is s.get(partial).values[0]]
        lead = [own, *(loop for loop in lead if loop != own)]
        s.reorder(*lead, *rest)
        bind_points(s, grid, lead)
    else:
        s.reorder(*lead, *rest)
        _bind_row(s, grid, partial, lead, rest, min(grid.max_threads, ROW.row_threads))
    return partial


def launch_stages_separately(s: Schedule, grid: Grid, machine: Machine) -> bool:
    """Schedule each stage of few long rows as a launch, if a row has several reductions; return whether it
    did."""
    found = reductions(s.func)
    sizes = [_sizes(s, BlockRV(b.name)) for b in found]
    if len(found) < 2 or any(count is None or length is None for count, length in sizes):
        return False
    preferred = any(
        0 < (c or 0) < grid.units and (n or 0) >= ROW.long_parts * ROW.part_elements for c, n in sizes
    )
    many = any(not 0 < (c or 0) <= grid.max_groups for c, _ in sizes) or len(s.get_output_blocks()) > 1
    names = ("one_launch",) if many else ROW_STAGES.alternatives
    reasons = {
        "one_launch": f"rows are long, and too few for {grid.units} units",
        "launch_per_stage": "rows are many, or short: a launch for each stage would read them again",
    }
    chosen = ROW_STAGES.choose(
        "launch_per_stage" if preferred else "one_launch", names, refused=reasons.__getitem__
    )
    if chosen == "one_launch":
        return False
    for block in found:
        handle = BlockRV(block.name)
        if reduce_parts(s, grid, handle) is None:
            inline_producers(s, handle)
        loops, axes = s.get_loops(handle), s.get(handle).axes
        kinds = [a.kind for a in axes]
        rows = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "spatial"]
        steps = [loop for loop in loops if loop not in rows]
        length = count_of(s, steps) or 1
        s.reorder(*rows, *steps)
        _bind_row(s, grid, handle, rows, steps, min(grid.max_threads, power_of_two(length), ROW.row_threads))
    (out,) = s.get_output_blocks()
    if is_pointwise(s.get(out)):
        inline_producers(s, out)
        map_points(s, grid, out, machine)
    return True


def reduces_columns(s: Schedule, handle: BlockRV) -> bool:
    """Whether neighbouring results are reduced from neighbouring inputs."""
    block = s.get(handle)
    axes = [a for a in spatial(block) if const_value(a.dom.extent) != 1]
    extent = const_value(axes[-1].dom.extent) if axes else None
    wide = isinstance(extent, int) and extent >= ROW.contiguous_results
    return wide and contiguous_over(block, axes[-1].var)


def _sizes(s: Schedule, handle: BlockRV) -> tuple[int | None, int | None]:
    """Rows of a reduction, and elements of a row."""
    pairs = list(zip(s.get_loops(handle), s.get(handle).axes, strict=True))
    steps = [loop for loop, a in pairs if a.kind == "reduce"]
    return count_of(s, [loop for loop, _ in pairs if loop not in steps]), count_of(s, steps)


def _bind_row(
    s: Schedule, grid: Grid, handle: BlockRV, rows: list[LoopRV], steps: Sequence[LoopRV], threads: int
) -> None:
    """Reduce each row by a group, whose threads take every T-th step."""
    flat = s.fuse(*steps) if len(steps) > 1 else steps[0]
    step, thread = s.split(flat, [None, threads])
    s.reorder(thread, step)
    row = s.fuse(*rows) if len(rows) > 1 else rows[0] if rows else s.add_unit_loop(thread)
    s.bind(row, grid.groups)
    s.bind(thread, grid.threads)


__all__ = ["launch_stages_separately", "reduce_parts"]
