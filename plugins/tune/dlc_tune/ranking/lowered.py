"""The lowered program of a candidate: its final loops, and the vector code that follows from them.

    found = Lowering(task).lowered(candidate.func)
    found.loops     loops of all kinds over flat buffers, before any is vectorised
    found.code      the same with vectors instead of vectorised loops

Only the passes of the stage "tir" that change loops and accesses run: not those that prove bounds, place
temporaries or emit launches. Loops stay rolled, because unrolling takes longer than all the rest; the cost
model counts them as the code that they become. Symbolic dims get the sizes at which the task is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from dlc_core.driver import pipelines
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Var, const_value
from dlc_core.ir.module import IRModule
from dlc_core.passes import Pipeline
from dlc_core.passes.tir.check_foreign import CheckForeign
from dlc_core.passes.tir.prove_regions import ProveRegions
from dlc_core.passes.tir.schedule_kernels import ScheduleKernels
from dlc_core.passes.tir.vectorize import VectorizeLoops
from dlc_core.support.record import record
from dlc_core.tir.functor import specialize
from dlc_core.tir.stmt import For, PrimFunc, Stmt
from dlc_tune.task import Task

_CHECKS = frozenset({ProveRegions.name, CheckForeign.name})
"""Passes that change nothing."""
USUAL_SIZE = 64
"""The size of a symbolic dim that the task gives no value."""


@record(frozen=True)
class Lowered:
    """The lowered program of a candidate; see the docstring of the module."""

    loops: PrimFunc
    code: PrimFunc


class Lowering:
    """Lowers the candidates of one task."""

    def __init__(self, task: Task) -> None:
        self._task = task

    @cached_property
    def _pipelines(self) -> tuple[Pipeline, Pipeline]:
        """The passes until loops are final, and the one that vectorises them."""
        passes = list(pipelines(self._task.target, self._task.context).get("tir", ()))
        names = [one.name for one in passes]
        end = names.index(VectorizeLoops.name) if VectorizeLoops.name in names else len(names)
        first = names.index(ScheduleKernels.name) + 1 if ScheduleKernels.name in names else 0
        before = [one for one in passes[first:end] if one.name not in _CHECKS]
        return Pipeline(tuple(before)), Pipeline(tuple(passes[end : end + 1]))

    def lowered(self, func: PrimFunc) -> Lowered:
        """Lower a scheduled kernel of the task. Raises DlcError if a pass refuses it."""
        known = known_sizes(func, self._task.sizes)
        first, second = self._pipelines
        loops = self._run(first, specialize(func, known) if known else func)
        return Lowered(loops, self._run(second, loops))

    def _run(self, passes: Pipeline, func: PrimFunc) -> PrimFunc:
        module = passes.run(IRModule({func.name: func}, entry=func.name), self._task.context)
        made = module.functions[func.name]
        assert isinstance(made, PrimFunc)
        return made


def known_sizes(func: PrimFunc, sizes: Mapping[str, int]) -> dict[Var, int]:
    """The sizes of symbolic dims: those given by name, else the usual size within the bounds of the dim."""
    return {dim: _size_of(dim, sizes) for dim in func.scalars if dim.dtype is INDEX}


def _size_of(dim: Var, sizes: Mapping[str, int]) -> int:
    if dim.name in sizes:
        return sizes[dim.name]
    if dim.bounds is None:
        return USUAL_SIZE
    size = max(USUAL_SIZE, dim.bounds.low)
    return size if dim.bounds.high is None else min(size, dim.bounds.high)


def statement_copies(root: Stmt) -> int:
    """The number of statements without children after all unrolled loops are unrolled."""
    total = 0
    work: list[tuple[Stmt, int]] = [(root, 1)]
    while work:
        stmt, copies = work.pop()
        if isinstance(stmt, For) and stmt.kind == "unrolled":
            copies *= const_value(stmt.extent) or 1
        children = stmt.child_stmts()
        total += 0 if children else copies
        work += [(child, copies) for child in children]
    return total


__all__ = ["Lowered", "Lowering", "known_sizes", "statement_copies"]
