"""Partial sums of a reduction along a contiguous axis: its iterations are the lanes of vectors.

for spatial axes (parallel):
  partial[lanes] = 0
  for steps: for lanes (vectors): partial[lane] += …        by rfactor
  for lanes: result += partial[lane]
"""

from __future__ import annotations

from dlc_core.schedule import BlockRV
from dlc_core.schedule.rules.analysis import extent_of
from dlc_core.schedule.rules.cpu.vector import vectorize_columns
from dlc_core.tir.stmt import IterVar
from dlc_tune.spaces.sketches.access import Access, short_name
from dlc_tune.spaces.sketches.inline import place
from dlc_tune.spaces.sketches.outer import parallelize
from dlc_tune.spaces.sketches.sketch import Sketch


class Partial:
    """The sketch rule for reductions along an axis whose neighbours are contiguous in an operand."""

    name = "partial"
    about = "Partial sums in the lanes of vectors (rfactor) for a reduction along a contiguous axis."

    def matches(self, sketch: Sketch, block: BlockRV) -> bool:
        access = sketch.access(block)
        if access is None or not access.is_reduction or sketch.own_loops(block) is None:
            return False
        return self._axis(access) is not None and len(sketch.s.get_loops(block)) == len(access.block.axes)

    def _axis(self, access: Access) -> IterVar | None:
        """The reduction axis along which an operand is contiguous, and which lanes divide."""
        for axis in access.reduced[::-1]:
            steps = [o.step(axis) for o in access.operands if o.uses(axis)]
            if steps and all(step == 1 for step in steps) and (extent_of(axis) or 1) % 2 == 0:
                return axis
        return None

    def apply(self, sketch: Sketch, block: BlockRV) -> None:
        s = sketch.s
        access = sketch.access(block)
        assert access is not None
        axis = self._axis(access)
        assert axis is not None
        extent, lanes = extent_of(axis) or 1, sketch.lanes(block)
        widths = [n for n in (4 * lanes, 2 * lanes, lanes) if extent % n == 0 and n > 1]
        if not widths:
            widths = [next(n for n in (1 << k for k in range(10, 0, -1)) if extent % n == 0)]
        width = sketch.ask(block, f"lanes.{short_name(axis)}", widths)
        place(sketch, block)
        loops = sketch.tile_loops(block)
        around = len(s.get_loops(block)) - len(loops)
        position = [a.var for a in access.block.axes].index(axis.var)
        _, lane = s.split(loops[position], [None, width], tail="exact")
        made = s.rfactor(lane, 0)
        s.set_scope(made, 0, "local")
        combined = s.get(block)
        own = zip(sketch.tile_loops(block), combined.axes, strict=True)
        spatial = [loop for loop, a in own if a.kind != "reduce"]
        if spatial:
            s.compute_at(made, spatial[-1])
        self._in_vectors(sketch, made, access)
        if not around:
            work = None if access.work is None else access.work // width
            parallelize(sketch, block, spatial, work)

    def _in_vectors(self, sketch: Sketch, made: BlockRV, access: Access) -> None:
        """Accumulate the lanes, which are the first dim of the partial results, in vectors."""
        s = sketch.s
        block = s.get(made)
        loops = sketch.tile_loops(made)
        kinds = [a.kind for a in block.axes]
        body = sketch.access(made)
        assert body is not None
        first = body.result.load.indices[0]
        lane = next(loop for loop, a in zip(loops, block.axes, strict=True) if a.var is first)
        steps = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "reduce"]
        others = [loop for loop in loops if loop not in steps and loop != lane]
        s.reorder(*others, *steps, lane)
        init = s.decompose_reduction(made, steps[0])
        for loop in (lane, s.get_loops(init)[-1]):
            vectorize_columns(s, loop, sketch.lanes(made))


__all__ = ["Partial"]
