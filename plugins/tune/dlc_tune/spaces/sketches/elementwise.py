"""Pointwise blocks: vectors along the innermost axis, and parallel outer loops."""

from __future__ import annotations

from dlc_core.ir.expr import const_value
from dlc_core.schedule import BlockRV, LoopRV, Loops
from dlc_core.schedule.rules.analysis import count_of, is_pointwise, mergeable_tail
from dlc_core.schedule.rules.cpu.vector import vectorize_columns
from dlc_tune.spaces.sketches.inline import place
from dlc_tune.spaces.sketches.outer import parallelize
from dlc_tune.spaces.sketches.sketch import Sketch


class Elementwise:
    """The sketch rule for blocks with one store and no reduction."""

    name = "elementwise"
    about = "Vectors along the innermost axis of a pointwise block, and parallel outer loops."

    def matches(self, sketch: Sketch, block: BlockRV) -> bool:
        return is_pointwise(sketch.s.get(block)) and sketch.own_loops(block) is not None

    def apply(self, sketch: Sketch, block: BlockRV) -> None:
        s = sketch.s
        place(sketch, block)
        own = sketch.own_loops(block)
        loops = sketch.tile_loops(block)
        around = len(s.get_loops(block)) - len(loops)
        if not loops:
            return
        work = count_of(s, loops)
        merged = mergeable_tail(s.get(block), loops) if own is not None else 1
        if merged > 1 and not around:
            loops = [*loops[:-merged], s.fuse(*loops[-merged:])]
        lanes = sketch.lanes(block)
        inner = loops.pop()
        fusable = len(loops) + 1
        if lanes > 1 and self._has_vectors(sketch, block):
            vectors = vectorized(sketch, block, inner, lanes)
            # A tail makes the loop around it imperfect.
            fusable = len(loops) + (vectors is not None and vectors.tail is None)
            loops += [] if vectors is None else [vectors[0]]
        else:
            loops.append(inner)
        if not around:
            parallelize(sketch, block, loops, None if work is None else work // max(1, lanes), fusable)

    def _has_vectors(self, sketch: Sketch, block: BlockRV) -> bool:
        """Whether neighbouring elements are stored along the innermost axis."""
        access = sketch.access(block)
        if access is None or not access.spatial:
            return False
        factors = access.result.factors
        step = None if factors is None else const_value(factors[access.block.axes[-1].var])
        return step == 1


def vectorized(sketch: Sketch, block: BlockRV, loop: LoopRV, lanes: int) -> Loops | None:
    """Vectorise a loop; returns the loops over vectors and lanes, or None if there is only one vector."""
    s = sketch.s
    extent = sketch.extent(loop)
    if extent is not None and extent <= lanes:
        vectorize_columns(s, loop, lanes)
        return None
    counts = [n for n in (1, 2, 4) if extent is None or n * lanes <= extent]
    width = lanes * sketch.ask(block, "vectors", counts)
    split = s.split(loop, [None, width], tail="partition")
    s.vectorize(split[1])
    if split.tail is not None and sketch.extent(split.tail.loop) is not None:
        vectorize_columns(s, split.tail.loop, lanes)
    return split


__all__ = ["Elementwise", "vectorized"]
