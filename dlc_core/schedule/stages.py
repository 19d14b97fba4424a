"""Schedules of tensors by stages, in the style of classic te: `s[C].split(axis, factor=8)`.

    s = create_schedule(C)
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 8, 8)
    s[B].compute_at(s[C], yo)
    s[C].vectorize(yi)
    exe = dlc.build(s, [A, C])

A stage computes one tensor: it is a block of a `Schedule`, whose primitives do all the work.  Its axes are
those of the tensor's operation (`s[C].op.axis`, `s[C].op.reduce_axis`) and those that `split` and other
primitives return.  Transformations of a stage's loops before `compute_at` also apply to its loops afterwards.
`s.schedule`, `stage.block` and `stage.loop(axis)` give access to primitives that stages lack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from dlc_core.arith.analyzer import Analyzer
from dlc_core.diag import ScheduleError, UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, ExprLike, Var, const_value, free_vars
from dlc_core.schedule.dependence import axis_kinds
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.intrin import TensorIntrin
from dlc_core.schedule.schedule import Schedule
from dlc_core.target import Target
from dlc_core.te.func import Argument, create_prim_func, inputs_of
from dlc_core.te.scan import ScanOp
from dlc_core.te.tensor import Operation, Tensor, producer_of
from dlc_core.te.threads import USUAL, ThreadAxis, axis_name
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import Block, IterVar, PrimFunc, Range


@dataclass(frozen=True, eq=False)
class StageOp(Operation):
    """The axes of a stage that a schedule has created."""

    axis: tuple[IterVar, ...]
    reduce_axis: tuple[IterVar, ...] = ()


@dataclass(frozen=True)
class _Step:
    """A primitive on the loops of a stage, with the axes that it takes and creates."""

    name: str
    axes: tuple[IterVar, ...]
    args: tuple[Any, ...] = ()
    made: tuple[IterVar, ...] = ()


class Stage:
    """The computation of one operation; `s[tensor]` returns it."""

    def __init__(self, of: StagedSchedule, op: Any, block: BlockRV, axes: Sequence[IterVar]) -> None:
        self.of = of
        self.op = op
        """The current operation, with `axis` and `reduce_axis`."""
        self.block = block
        """The stage's block in `s.schedule`."""
        self.axes = tuple(axes)
        """The axes of the block."""
        self.attached: Stage | None = None
        """The stage in whose loops this one is computed."""
        self._waiting: IterVar | None = None
        """The axis of `attached` that the stage moves to once its readers are there."""
        self._loops: dict[IterVar, LoopRV] = {}
        self._steps: list[_Step] = []
        self._renew()

    def __repr__(self) -> str:
        return f"<stage {self.op.name}>"

    def loop(self, axis: IterVar) -> LoopRV:
        """Return the loop over an axis; ScheduleError if the axis has no loop any more."""
        found = self._loops.get(axis)
        if found is None:
            name = getattr(getattr(axis, "var", None), "name", repr(axis))
            known = ", ".join(a.var.name for a in self._loops) or "none"
            raise ScheduleError(
                f"stage {self.op.name!r} has no loop over axis {name}",
                why="it belongs to another stage, or was split or fused",
                hint=f"its axes now: {known}",
            )
        return found

    # Loops.

    def split(
        self, axis: IterVar, factor: ExprLike | None = None, nparts: ExprLike | None = None
    ) -> tuple[IterVar, IterVar]:
        """Split an axis: the inner one has `factor` iterations, or the outer one has `nparts`."""
        if (factor is None) == (nparts is None):
            raise UsageError("split takes a factor or a number of parts", hint="give one of the two")
        outer, inner = self._do("split", (axis,), [nparts, factor])
        return outer, inner

    def tile(
        self, x: IterVar, y: IterVar, x_factor: ExprLike, y_factor: ExprLike
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Tile two axes; return their outer loops, then their inner ones."""
        with self.of.together():
            x_outer, x_inner = self.split(x, x_factor)
            y_outer, y_inner = self.split(y, y_factor)
            self.reorder(x_outer, y_outer, x_inner, y_inner)
        return x_outer, y_outer, x_inner, y_inner

    def fuse(self, *axes: IterVar) -> IterVar:
        """Fuse directly nested axes, given outer to inner."""
        return self._do("fuse", axes)[0]

    def reorder(self, *axes: IterVar) -> None:
        """Reorder loops, outer to inner."""
        self._do("reorder", axes)

    def vectorize(self, axis: IterVar) -> None:
        """Vectorise an axis of constant extent."""
        self._do("vectorize", (axis,))

    def parallel(self, axis: IterVar) -> None:
        """Run the iterations on several threads."""
        self._do("parallel", (axis,))

    def unroll(self, axis: IterVar) -> None:
        """Unroll an axis of constant extent when it is lowered."""
        self._do("unroll", (axis,))

    def bind(self, axis: IterVar, thread: ThreadAxis | str) -> None:
        """Bind an axis to a hardware axis of the target, by name or as a `te.thread_axis`.

        Raises UsageError for a name that is no axis of the schedule's target, or of usual targets.
        """
        name = axis_name(thread if isinstance(thread, str) else thread.name, self.of.thread_axes)
        if isinstance(thread, ThreadAxis) and thread.dom is not None:
            extent = self.of.schedule.extent(self.loop(axis))
            if not Analyzer().prove_equal(extent, thread.dom.extent):
                raise ScheduleError(
                    f"axis {axis.var.name} of {extent} iterations bound to {name} of {thread.dom.extent}"
                )
        self._do("bind", (axis,), name)

    def pragma(self, axis: IterVar, key: str, value: Any = True) -> None:
        """Attach a value to the loop over an axis."""
        self._do("annotate", (axis,), key, value)

    def annotate(self, key: str, value: Any) -> None:
        """Attach a value to the block."""
        self.of.schedule.annotate(self.block, key, value)

    def tensorize(self, axis: IterVar, intrin: TensorIntrin | str) -> None:
        """Compute everything from the loop over an axis inward by a tensor intrinsic."""
        with self.of.together():
            self.block = self.of.schedule.tensorize(self.loop(axis), intrin)

    # Positions of stages.

    def compute_at(self, parent: Stage, axis: IterVar) -> None:
        """Move the computation into a consumer's loop, where it computes what one iteration needs.

        While a reader is still outside of that loop, the stage stays where it is, and moves after the reader.
        Programs whose readers never move there are refused.
        """
        with self.of.together():
            parent.loop(axis)
            self.attached, self._waiting = parent, axis
            self.of.move_waiting()

    @property
    def waits(self) -> bool:
        """Whether the stage waits for its readers to move into the loop of its `compute_at`."""
        return self._waiting is not None

    def _move(self) -> None:
        """Do the `compute_at` that the stage waits for."""
        assert self.attached is not None
        assert self._waiting is not None
        self.of.schedule.compute_at(self.block, self.attached.loop(self._waiting))
        self._waiting = None
        self._renew()
        for step in self._steps:
            self._apply(step)

    def check_moved(self) -> None:
        """Raise ScheduleError if readers have not moved into the loop of the stage's `compute_at`."""
        for reader in self._readers_outside():
            assert self.attached is not None
            assert self._waiting is not None
            raise ScheduleError(
                f"stage {self.op.name!r} cannot be computed in the loops of {self.attached.op.name!r}",
                why=f"block {reader.name!r} reads it outside of the loop {self._waiting.var.name}",
                hint="compute the reader there too",
            )

    def _readers_outside(self) -> list[BlockRV]:
        """The blocks that read the result outside of the loop that the stage waits to move into."""
        if self.attached is None or self._waiting is None:
            return []
        schedule, inside = self.of.schedule, self.attached.loop(self._waiting)
        written = {r.buffer for r in schedule.get(self.block).writes}
        readers = [
            b
            for b in schedule.get_blocks()
            if b != self.block and written & {r.buffer for r in schedule.get(b).reads}
        ]
        return [b for b in readers if inside not in schedule.get_loops(b)]

    def compute_inline(self) -> None:
        """Inline the stage into all its readers; the stage is removed."""
        with self.of.together():
            self.of.schedule.compute_inline(self.block)
            self._loops.clear()
            self._steps.clear()
            self.of.move_waiting()

    def compute_root(self) -> None:
        """Compute in separate loops, which is the default. `compute_at` cannot be undone."""
        if self.attached is not None:
            raise ScheduleError(
                f"stage {self.op.name!r} is computed in the loops of {self.attached.op.name!r}",
                hint="make the schedule without that compute_at",
            )

    def set_scope(self, scope: str) -> None:
        """Move the result, an intermediate, to another memory scope."""
        self.of.schedule.set_scope(self.block, 0, scope)

    def storage_align(self, axis: IterVar, factor: int, offset: int = 0) -> None:
        """Give a dim of the result a stride of `offset` more than a multiple of `factor`."""
        if axis not in self.op.axis:
            raise UsageError(f"{axis.var.name} is no axis of the result of stage {self.op.name!r}")
        self.of.schedule.storage_align(self.block, 0, self.op.axis.index(axis), factor, offset)

    def double_buffer(self) -> None:
        """Fill the result for the next iteration while its readers use the current one."""
        self.of.schedule.double_buffer(self.block)

    # Implementation.

    def _renew(self) -> None:
        """Find the loops of the block's axes."""
        loops = self.of.schedule.get_loops(self.block)
        self._loops = dict(zip(self.axes, loops[len(loops) - len(self.axes) :], strict=True))

    def _do(self, name: str, axes: Sequence[IterVar], *args: Any) -> tuple[IterVar, ...]:
        step = self._apply(_Step(name, tuple(axes), args))
        self._steps.append(step)
        return step.made

    def _apply(self, step: _Step) -> _Step:
        """Apply a step to the current loops; a repeated step creates the same axes."""
        schedule = self.of.schedule
        found = getattr(schedule, step.name)(*map(self.loop, step.axes), *step.args)
        made = (found,) if isinstance(found, LoopRV) else tuple(found or ())
        axes = step.made or tuple(self._axis_of(loop) for loop in made)
        if made:
            for old in step.axes:
                del self._loops[old]
            self._loops.update(zip(axes, made, strict=True))
        return replace(step, made=axes)

    def _axis_of(self, handle: LoopRV) -> IterVar:
        schedule = self.of.schedule
        loop = schedule.get_for(handle)
        kind = "reduce" if "reduce" in axis_kinds(schedule.get(self.block), handle.var) else "spatial"
        return IterVar(loop.var, Range(loop.begin, loop.extent), kind)


class StagedSchedule:
    """A `Schedule` of tensors by stages; see the module docstring."""

    def __init__(self, outputs: Sequence[Tensor], target: Target | None = None) -> None:
        self.outputs = tuple(outputs)
        self.thread_axes = USUAL if target is None else tuple(target.describe().thread_axes)
        """The names of axes that `bind` takes."""
        func = create_prim_func(inputs_of(outputs), self.outputs)
        self.schedule = Schedule(func)
        """The schedule of the stages."""
        self._stages: dict[Operation, Stage] = {}
        waiting: dict[Operation, list[Operation]] = {}
        for block, handle in zip(block_list(func.body), self.schedule.get_blocks(), strict=True):
            op = _maker(block)
            if isinstance(op, ScanOp):
                # The first blocks of a scan copy the initial values; the others compute the next ones.
                updates = [s for s in op.stages if any(t.op is s for t in op.update)]
                left = waiting.setdefault(op, [op] * len(op.state) + list(updates))
                op = left.pop(0)
            if not isinstance(op, ScanOp):
                self._stages[op] = Stage(self, op, handle, (*op.axis, *op.reduce_axis))  # type: ignore[attr-defined]

    def __getitem__(self, of: Tensor | Operation) -> Stage:
        op = of.op if isinstance(of, Tensor) else of
        found = self._stages.get(op) if isinstance(op, Operation) else None
        if found is None:
            why = "it is a placeholder" if op is None else "it computes nothing of this schedule"
            if isinstance(op, ScanOp):
                why = "a scan has no loops of its own: schedule the stages of its update"
            known = ", ".join(stage.op.name for stage in self.stages)
            raise UsageError(f"{of!r} has no stage", why=why, hint=f"stages: {known}")
        return found

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages, in the order of the original program."""
        return tuple(self._stages.values())

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Raises UsageError: stages refer to tensors of this process."""
        raise UsageError(
            "a schedule of tensors cannot be pickled",
            why="its stages are those of tensors of this process",
            hint="pickle s.func, the current program, or s.schedule, which has the trace too",
        )

    @property
    def func(self) -> PrimFunc:
        """The current program, with reductions initialised before their loops and buffers compacted."""
        for stage in self.stages:
            stage.check_moved()
        settled = self.schedule.copy()
        for handle in settled.get_blocks():
            _initialise_before(settled, handle)
        settled.compact_buffers()
        return settled.func

    def program(self, args: Sequence[Argument] | None = None, name: str | None = None) -> PrimFunc:
        """The program with its parameters in the order of `args`: all inputs, outputs and variables."""
        func = self.func if name is None else replace(self.func, name=name)
        if args is None:
            return func
        given = [a.buffer for a in args if isinstance(a, Tensor)]
        for argument, buffer in zip((a for a in args if isinstance(a, Tensor)), given, strict=True):
            if buffer not in func.params:
                raise UsageError(
                    f"the argument {argument.name} is no input or output of the schedule",
                    hint="list what is to be returned among the outputs that the schedule is made of",
                )
        for buffer in func.buffers:
            if given.count(buffer) != 1:
                what = "output" if any(t.buffer is buffer for t in self.outputs) else "input"
                times = "not" if buffer not in given else "twice"
                raise UsageError(f"the {what} {buffer.name} is {times} among the arguments")
        scalars = dict.fromkeys([*(a for a in args if isinstance(a, Var)), *func.scalars])
        return replace(func, params=(*given, *scalars))

    def show(self) -> str:
        """The loop nest with its blocks, one line each."""
        return self.schedule.show()

    # New stages.

    def cache_read(
        self, tensor: Tensor, scope: str, readers: Tensor | Operation | Sequence[Tensor | Operation]
    ) -> Tensor:
        """Copy a tensor to another memory scope for some readers; returns the copy."""
        given = [readers] if isinstance(readers, (Tensor, Operation)) else list(readers)
        if not given:
            raise UsageError(
                f"cache_read of {tensor.name} for no reader", hint="list the tensors that read it"
            )
        first, *others = map(self.__getitem__, given)
        with self.together():
            sources = list(dict.fromkeys(r.buffer for r in self.schedule.get(first.block).reads))
            which: int | str = sources.index(tensor.buffer) if tensor.buffer in sources else tensor.name
            more = [[other.block for other in others]] if others else []
            copy = self.schedule.cache_read(first.block, which, scope, *more)
            return self._made(copy)

    def cache_write(self, tensor: Tensor, scope: str) -> Tensor:
        """Compute a tensor in another memory scope; the tensor's own stage copies from there.

        Returns the tensor in that scope, whose stage has the reduction axes.
        """
        stage = self[tensor]
        if stage._steps or stage.attached is not None:
            raise ScheduleError(
                f"stage {stage.op.name!r} has been scheduled already", hint="cache before other steps"
            )
        if len({r.buffer for r in self.schedule.get(stage.block).writes}) != 1:
            raise UsageError(f"{stage.op.name!r} has several results", hint="use s.schedule.cache_write")
        with self.together():
            copy = self.schedule.cache_write(stage.block, 0, scope)
            made = self._made(stage.block, len(stage.op.reduce_axis))
            own = stage.op.axis
            stage.op = StageOp(stage.op.name, own)
            stage.block, stage.axes = copy, own
            stage._renew()
        return made

    def rfactor(self, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Tensor:
        """Return the partial results for each step of a reduction axis; the axis is dim `factor_axis`.

        The stage of `tensor` combines them; its `op.reduce_axis` is then the axis over partial results.
        """
        stage = self[tensor]
        with self.together():
            partial = self.schedule.rfactor(stage.loop(axis), factor_axis)
            block = self.schedule.get(partial)
            kept = sum(a.kind == "reduce" for a in block.axes)
            made = self._made(partial, kept, factor_axis)
            total = self.schedule.get(stage.block)
            step = IterVar(Var(total.axes[-1].var.name.removeprefix("v_")), total.axes[-1].dom, "reduce")
            loops = self.schedule.get_loops(stage.block)
            outer = [a for a, _ in stage._loops.items() if a.kind == "spatial"]
            order = sorted(outer, key=lambda a: self._depth(partial, stage._loops[a]))
            own = loops[len(loops) - len(order) - 1 :]
            stage._loops = dict(zip((*order, step), own, strict=True))
            stage._steps = [s for s in stage._steps if all(a.kind == "spatial" for a in s.axes)]
            spatial = tuple(a for a in stage.axes if a.kind == "spatial")
            stage.op = StageOp(stage.op.name, spatial, (step,))
            stage.axes = (*spatial, step)
        return made

    # Implementation.

    def move_waiting(self) -> None:
        """Move the stages that wait for `compute_at` and whose readers are there."""
        ready = [s for s in self.stages if s._waiting is not None and not s._readers_outside()]
        while ready:
            ready[0]._move()
            ready = [s for s in self.stages if s._waiting is not None and not s._readers_outside()]

    def _depth(self, block: BlockRV, loop: LoopRV) -> int:
        return self.schedule.get_loops(block).index(loop)

    def _made(self, handle: BlockRV, reduced: int = 0, lane: int | None = None) -> Tensor:
        """Create the tensor and the stage of a block that a primitive made.

        The last `reduced` axes are reduction axes.  With `lane`, the operation lists the last spatial axis
        as number `lane` of its spatial axes.
        """
        block = self.schedule.get(handle)
        axes = [IterVar(Var(a.var.name.removeprefix("v_")), a.dom, a.kind) for a in block.axes]
        own, inner = axes[: len(axes) - reduced], axes[len(axes) - reduced :]
        if lane is not None:
            own.insert(lane, own.pop())
        buffer: Buffer = block.writes[0].buffer
        op = StageOp(buffer.name, tuple(own), tuple(inner))
        stage = Stage.__new__(Stage)
        self._stages[op] = stage
        stage.of, stage.op, stage.block, stage.axes = self, op, handle, tuple(axes)
        stage.attached, stage._waiting, stage._steps = None, None, []
        loops = {loop.var: loop for loop in self.schedule.get_loops(handle)}
        bindings: list[tuple[IterVar, Expr]] = list(zip(axes, block.values, strict=True))
        stage._loops = {a: loops[v] for a, e in bindings if (v := _moving(e, loops)) is not None}
        return Tensor(buffer, op)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run several steps as one transaction: an error undoes all of them."""
        before = self.schedule.copy()
        stages = {op: dict(vars(stage)) for op, stage in self._stages.items()}
        for kept in stages.values():
            kept.update(_loops=dict(kept["_loops"]), _steps=list(kept["_steps"]))
        known = dict(self._stages)
        try:
            yield
        except BaseException:
            self.schedule, self._stages = before, known
            for op, kept in stages.items():
                vars(known[op]).update(kept)
            raise


def _initialise_before(schedule: Schedule, handle: BlockRV) -> None:
    """Move the initialisation of a block out of its reduction loops, if possible."""
    block = schedule.get(handle)
    loops = schedule.get_loops(handle)
    over = next((loop for loop in loops if "reduce" in axis_kinds(block, loop.var)), None)
    if block.init is None or over is None or schedule.get_for(over).kind == "thread":
        return
    with suppress(ScheduleError):  # The block then initialises at its first step.
        schedule.decompose_reduction(handle, over)


def _moving(value: Expr, loops: Mapping[Var, LoopRV]) -> Var | None:
    """The only loop variable in a binding, if its coefficient is 1; else None."""
    used = [v for v in free_vars(value) if v in loops]
    if len(used) != 1 or const_value(Analyzer().coefficient_of(value, used[0]) or 0) != 1:
        return None
    return used[0]


def _maker(block: Block) -> Operation:
    """The operation that a block computes."""
    found = [known[0] for r in block.writes if (known := producer_of(r.buffer)) is not None]
    return found[0]


def create_schedule(
    outputs: Tensor | Operation | Sequence[Tensor | Operation], target: Target | None = None
) -> StagedSchedule:
    """Create the schedule of the computation of some tensors, or of the tensors of some operations.

    `target` gives the names of thread axes that `bind` takes. Without it these are the usual ones.
    """
    given = [outputs] if isinstance(outputs, (Tensor, Operation)) else list(outputs)
    tensors: list[Tensor] = []
    for one in given:
        if isinstance(one, Tensor):
            tensors.append(one)
        elif isinstance(one, Operation):
            tensors += [Tensor(b, one, i) for i, b in enumerate(one.buffers())]
        else:
            raise UsageError(f"a schedule of {one!r}", hint="give tensors that are computed")
    return StagedSchedule(tensors, target)


__all__ = ["Stage", "StageOp", "StagedSchedule", "create_schedule"]
