"""Sketches: schedules derived from the access patterns of a kernel's blocks.

generator      the space: rules schedule the blocks from the last to the first
sketch         the state that rules share, and what a rule is
access         the access pattern of a block: axes, operands, reuse
inline         inlining of pointwise blocks, and their position in the loops of their readers
tile           register tiles of reductions, with the epilogue fused
tile_plan      the choices of a tile, by the predicted cycles of register tiles (registers)
layouts        packing, transposition and copies of operands
results        the epilogue of a reduction, or the copy of its accumulators
dots           tiles that dot-product intrinsics compute
partial        partial sums in vectors (rfactor)
elementwise    pointwise blocks
loops          all other blocks
outer          parallel outer loops
threads        groups and threads, for machines with thread axes
"""

from dlc_tune.spaces.sketches.generator import RULES, SPACE, Sketches
from dlc_tune.spaces.sketches.sketch import Sketch, SketchRule

__all__ = ["RULES", "SPACE", "Sketch", "SketchRule", "Sketches"]
