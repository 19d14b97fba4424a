"""Software pipelining: rewrite annotated loops to prologue, steady state and epilogue.

`schedule/pipeline.py` defines the annotations and the loops that may be rewritten.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar

from dlc_core.arith import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, as_expr, const, const_value, maximum
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.passes.tir.lower_blocks import lower_blocks
from dlc_core.schedule.pipeline import ORDER, SPARE, STAGE, Pipelined, check_pipeline
from dlc_core.schedule.tree import Program
from dlc_core.support.record import record
from dlc_core.tir.copies import copies_barrier, copies_begin, copies_end
from dlc_core.tir.functor import move_accesses, rename_bound, stmts_of, substitute_stmt
from dlc_core.tir.stmt import Alloc, Eval, For, If, PrimFunc, Stmt, seq


def inject_software_pipelines(func: PrimFunc) -> PrimFunc:
    """Pipeline every annotated loop, inner ones first, and lower the blocks inside.

    Raises ScheduleError if a pipeline with these annotations would change the result.
    """
    program = Program(func)
    while True:
        wanted = [s for s in stmts_of(program.func.body, For) if STAGE in s.annotations]
        if not wanted:
            return program.func
        _rewrite(program, wanted[-1])


def _rewrite(program: Program, loop: For) -> None:
    """Pipeline a loop that contains no other annotated loop."""
    notes = {k: v for k, v in loop.annotations.items() if k not in (STAGE, ORDER, SPARE)}
    stages = tuple(loop.annotations[STAGE])
    order = tuple(loop.annotations.get(ORDER, range(len(stages))))
    plan = check_pipeline(program, loop, stages, order, int(loop.annotations.get(SPARE, 0)))
    versioned = {old: _with_versions(old, count) for old, count in plan.versions.items() if count > 1}
    number = Var(loop.var.name, loop.var.dtype)
    parts = [_part(program.func, stmt, loop, number, versioned) for stmt in plan.parts]
    new: Stmt = _Pipeliner(program.analyzer(loop), loop, plan, number, parts).pipelined(
        MappingProxyType(notes)
    )
    for buffer in reversed(plan.allocs):
        new = Alloc(versioned.get(buffer, buffer), new)
    program.replace({loop: new})
    for buffer in versioned.keys() - set(plan.allocs):
        alloc = program.tree.allocs[buffer]
        program.replace({alloc: Alloc(versioned[buffer], alloc.body)})


def _with_versions(old: Buffer, count: int) -> Buffer:
    """Widen a buffer to a number of contiguous versions. Padding between rows is kept."""
    strides = None
    if old.strides:
        strides = (old.shape[0] * old.strides[0], *old.strides)
    return Buffer(old.name, (count, *old.shape), old.dtype, strides=strides, scope=old.scope, align=old.align)


def _part(func: PrimFunc, stmt: Stmt, loop: For, number: Var, versioned: dict[Buffer, Buffer]) -> Stmt:
    """Lower the blocks of a part, and index it by its iteration, which also selects the buffer versions."""
    lowered = lower_blocks(PrimFunc(func.name, func.params, stmt)).body

    def with_version(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]] | None:
        new = versioned.get(buffer)
        return None if new is None else (new, (number % new.shape[0], *indices))

    widened = move_accesses(lowered, with_version)
    return substitute_stmt(widened, {loop.var: number + loop.begin})


class _Pipeliner:
    def __init__(
        self, analyzer: Analyzer, loop: For, plan: Pipelined, number: Var, parts: list[Stmt]
    ) -> None:
        self.analyzer = analyzer
        self.loop = loop
        self.plan = plan
        self.number = number
        self.parts = parts
        self.depth = max(plan.stages)

    def pipelined(self, notes: MappingProxyType[str, object]) -> Stmt:
        count, depth = self.loop.extent, self.depth
        fills = self.analyzer.prove(count >= depth)
        first = [self.step(const(t)) for t in range(depth)]
        var = Var(self.loop.var.name, self.loop.var.dtype)
        rest = self.analyzer.simplify(count - depth if fills else maximum(count - depth, 0))
        out: list[Stmt] = list(first)
        if const_value(rest) != 0:
            with self.analyzer.scope():
                self.analyzer.bind(var, depth, rest)
                body = self.step(var)
            out.append(For(var, as_expr(depth), rest, body, annotations=notes))
        end = count if fills else maximum(count, depth)
        out += [self.step(self.analyzer.simplify(end + t), t) for t in range(depth)]
        return seq(*out)

    def step(self, time: Expr, drained: int | None = None) -> Stmt:
        """Emit one time step: each part in the iteration that its stage has reached.

        `drained` counts the steps since the first part finished its iterations.  Each step but the last with
        copies has one group of them, so that the number of groups in flight is known.
        """
        copies, ahead, after = self.plan.copies, self.plan.ahead, drained or 0
        last = max((self.plan.stages[i] for i in copies), default=0)
        copy_positions = [self.plan.order[i] for i in copies if drained is None or drained < last]
        out: list[Stmt] = []
        known_time = const_value(time) if drained is None else None
        if copies and (known_time is None or known_time >= ahead):
            left = ahead - 1 - max(0, after - last)
            out.append(Eval(copies_barrier(max(0, left), self.plan.spare)))
        for i in sorted(range(len(self.parts)), key=lambda i: self.plan.order[i]):
            if copy_positions and self.plan.order[i] == min(copy_positions):
                out.append(Eval(copies_begin()))
            self._add(out, i, time)
            if copy_positions and self.plan.order[i] == max(copy_positions):
                out.append(Eval(copies_end()))
        return seq(*out)

    def _add(self, out: list[Stmt], i: int, time: Expr) -> None:
        """Emit a part, unless its iteration is outside of the loop."""
        iteration = self.analyzer.simplify(time - self.plan.stages[i])
        has_begun, has_next = iteration >= 0, iteration < self.loop.extent
        if self.analyzer.prove(iteration < 0) or self.analyzer.prove(iteration >= self.loop.extent):
            return
        part = rename_bound(substitute_stmt(self.parts[i], {self.number: iteration}))
        for cond in (has_next, has_begun):
            part = part if self.analyzer.prove(cond) else If(cond, part)
        out.append(part)


@record(frozen=True)
class InjectSoftwarePipeline(PrimFuncPass):
    """Turn annotated loops into prologue, steady state and epilogue. Buffers between stages get several
    versions, used in rotation."""

    name: ClassVar[str] = "inject_software_pipeline"

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        return inject_software_pipelines(func)


__all__ = ["InjectSoftwarePipeline", "inject_software_pipelines"]
