"""Recurrences over the first dim: `scan`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dlc_core.arith.analyzer import Analyzer
from dlc_core.diag import UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, Var, free_vars, loads_in, maximum, minimum
from dlc_core.te.nest import Outer, compute_nest, copy_nest
from dlc_core.te.tensor import ComputeOp, Operation, Tensor, make_tensors, producer_of
from dlc_core.tir.stmt import For, Range, Stmt, seq


@dataclass(frozen=True, eq=False)
class ScanOp(Operation):
    """States over time: the first `begin` steps are those of `init`, each later one is computed by `stages`.

    `stages` are all computes that depend on the states, in dependence order. `update` are those of their
    tensors that are the states' next values.
    """

    init: tuple[Tensor, ...]
    update: tuple[Tensor, ...]
    state: tuple[Tensor, ...]
    stages: tuple[ComputeOp, ...]

    @property
    def steps(self) -> Expr:
        return self.state[0].shape[0]

    @property
    def begin(self) -> Expr:
        return self.init[0].shape[0]

    def results(self) -> tuple[tuple[tuple[Expr, ...], DType], ...]:
        return tuple((t.shape, t.dtype) for t in self.state)

    def reads(self) -> Iterable[Buffer]:
        own = {t.buffer for t in self.state}
        found = dict.fromkeys(t.buffer for t in self.init)
        found.update(dict.fromkeys(b for op in self.stages for b in op.reads()))
        return [b for b in found if b not in own and not self._is_stage(b)]

    def _is_stage(self, buffer: Buffer) -> bool:
        known = producer_of(buffer)
        return known is not None and known[0] in self.stages

    def free_vars(self) -> Iterable[Var]:
        dims = free_vars(*(d for t in (*self.state, *self.init) for d in t.shape))
        return dict.fromkeys((*dims, *(v for op in self.stages for v in op.free_vars())))

    def stage_buffers(self, results: Sequence[Buffer]) -> dict[ComputeOp, tuple[Buffer, ...]]:
        """The buffers that each stage stores to. A stage that computes next values stores to the states'
        buffers.
        """
        targets = {(t.op, t.index): b for t, b in zip(self.update, results, strict=True)}
        return {op: tuple(targets.get((op, i), b) for i, b in enumerate(op.buffers())) for op in self.stages}


def scan_nest(op: ScanOp, results: Sequence[Buffer], loop_vars: set[Var]) -> tuple[Stmt, list[Buffer]]:
    """Copy the first steps, then loop over time around the stages. Also returns the buffers of inner stages.

    Each block has the time as an axis. It reads the states at earlier points than it writes, so schedules
    keep the order of the steps.
    """
    analyzer = Analyzer()
    for var in op.free_vars():
        analyzer.declare_dim(var, 0)
    fits = analyzer.prove(op.begin <= op.steps)
    rows = op.begin if fits else minimum(op.begin, op.steps)
    rest = analyzer.simplify(op.steps - op.begin)
    parts: list[Stmt] = [
        copy_nest(_numbered(f"{op.name}_init", i, results), first.buffer, state, rows)
        for i, (first, state) in enumerate(zip(op.init, results, strict=True))
    ]
    outer = Outer(Var(op.stages[0].axes[0].var.name), Range(op.begin, rest if fits else maximum(rest, 0)))
    made = op.stage_buffers(results)
    replacements = dict(zip((t.buffer for t in op.state), results, strict=True))
    for stage, stored in made.items():
        replacements.update(zip(stage.buffers(), stored, strict=True))
    steps = [compute_nest(s, made[s], loop_vars, replacements=replacements, outer=outer) for s in op.stages]
    parts.append(For(outer.var, outer.dom.begin, outer.dom.extent, seq(*steps)))
    inner = [b for stored in made.values() for b in stored if b not in results]
    return seq(*parts), inner


def _numbered(name: str, index: int, among: Sequence[Buffer]) -> str:
    return name if len(among) == 1 else f"{name}_{index}"


def scan(
    init: Tensor | Sequence[Tensor],
    update: Tensor | Sequence[Tensor],
    state_placeholder: Tensor | Sequence[Tensor],
    inputs: Sequence[Tensor] = (),
    name: str = "scan",
) -> Any:
    """States that are computed from earlier states, step by step along the first dim, the time.

        X = te.placeholder((steps, n), name="X")
        state = te.placeholder((steps, n), name="state")
        first = te.compute((1, n), lambda t, i: X[0, i], "first")
        step = te.compute((steps, n), lambda t, i: state[t - 1, i] + X[t, i], "step")
        total = te.scan(first, step, state, inputs=[X])          # the running sum

    `state_placeholder` represents the states of all steps. `init` has the first states, as many as its first
    dim. `update`, a compute over all steps, computes the later states from states of earlier steps. Computes
    between state and update have the time as their first axis, and are read at the current step. With lists
    for several states the result is a tuple. `inputs` documents the other inputs of the update.

    Raises UsageError for mismatched shapes and dtypes, and for an update that is not proved to read only
    states of earlier steps.
    """
    first, then, state = (_listed(t) for t in (init, update, state_placeholder))
    if not len(first) == len(then) == len(state) or not state:
        raise UsageError(
            f"scan {name!r} has {len(state)} states, {len(first)} first and {len(then)} next values"
        )
    wrong = [t for t in inputs if not isinstance(t, Tensor)]
    if wrong:
        raise UsageError(f"an input of scan {name!r} is {wrong[0]!r}, no tensor")
    _check_shapes(name, first, then, state)
    stages = _stages(name, then, state)
    for stage in stages:
        _check_times(name, stage, first[0].shape[0], state, stages)
    made = make_tensors(ScanOp(name, first, then, state, stages))
    return made if len(made) > 1 else made[0]


def _listed(tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    return (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)


def _check_shapes(
    name: str, first: Sequence[Tensor], then: Sequence[Tensor], state: Sequence[Tensor]
) -> None:
    analyzer = Analyzer()
    dims = free_vars(*(d for t in (*first, *then, *state) for d in t.shape))
    for var in dims:
        analyzer.declare_dim(var, 0)
    for one, start, after in zip(state, first, then, strict=True):
        if one.op is not None or one.ndim == 0:
            raise UsageError(f"the state {one!r} of scan {name!r} is no placeholder over time")
        for what, tensor in (("first value", start), ("next value", after)):
            if tensor.dtype is not one.dtype or tensor.ndim != one.ndim:
                raise UsageError(f"the {what} {tensor!r} of scan {name!r} does not fit the state {one!r}")
        pairs = [*zip(start.shape[1:], one.shape[1:]), *zip(after.shape, one.shape)]
        pairs += [(one.shape[0], state[0].shape[0]), (start.shape[0], first[0].shape[0])]
        for found, expected in pairs:
            if not analyzer.prove_equal(found, expected):
                raise UsageError(
                    f"the first and next values of scan {name!r} do not have the shape of the state",
                    why=f"{found} is not known to be {expected}",
                    details=[f"state {one!r}", f"first {start!r}", f"next {after!r}"],
                )
        if not isinstance(after.op, ComputeOp):
            raise UsageError(
                f"the next value {after!r} of scan {name!r} is no compute over the steps",
                hint="make it a compute that reads its inputs at the current step",
            )
    if analyzer.prove(first[0].shape[0] > state[0].shape[0]):
        raise UsageError(f"scan {name!r} has {first[0].shape[0]} first values for {state[0].shape[0]} steps")
    if not analyzer.prove(first[0].shape[0] >= 1):
        raise UsageError(
            f"scan {name!r} has {first[0].shape[0]} first values", hint="its first step needs one at least"
        )


def _stages(name: str, then: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[ComputeOp, ...]:
    """The computes that depend on the states, including those of the next values, in dependence order."""
    own = {t.buffer for t in state}
    updates = {t.op for t in then}
    depends: dict[Operation, bool] = {}
    order: list[ComputeOp] = []
    stack: list[tuple[Operation, bool]] = [(t.op, False) for t in reversed(then) if t.op is not None]
    while stack:
        op, expanded = stack.pop()
        if op in depends:
            continue
        found = [known[0] for b in op.reads() if (known := producer_of(b)) is not None]
        if not expanded:
            stack.append((op, True))
            stack += [(one, False) for one in reversed(found) if one not in depends]
            continue
        depends[op] = op in updates or any(b in own for b in op.reads()) or any(depends[one] for one in found)
        if depends[op]:
            if not isinstance(op, ComputeOp) or not op.axes:
                raise UsageError(
                    f"{op.name!r} depends on a state of scan {name!r} and is no compute over the steps"
                )
            order.append(op)
    return tuple(order)


def _check_times(
    name: str, op: ComputeOp, begin: Expr, state: Sequence[Tensor], stages: Sequence[ComputeOp]
) -> None:
    """Check that states are read at earlier steps, and other stages at the current step."""
    own = {t.buffer for t in state}
    time = op.axes[0].var
    analyzer = Analyzer()
    for var in op.free_vars():
        analyzer.declare_dim(var, 0)
    steps = state[0].shape[0]
    if not analyzer.prove_equal(op.axes[0].dom.extent, steps):
        raise UsageError(
            f"{op.name!r}, a part of scan {name!r}, has {op.axes[0].dom.extent} rows",
            why=f"its first axis is the time, of {steps} steps",
        )
    analyzer.bind(time, begin, analyzer.simplify(steps - begin))
    for axis in (*op.axes[1:], *op.reduce_axes):
        analyzer.bind(axis.var, axis.dom.begin, axis.dom.extent)
    for one in loads_in(*op.sources):
        known = producer_of(one.buffer)
        if one.buffer in own and not analyzer.prove(one.indices[0] < time):
            raise UsageError(
                f"{op.name!r}, a part of scan {name!r}, reads {one}",
                why=f"{one.indices[0]} is not known to be a step before {time.name}",
            )
        if known is not None and known[0] in stages and one.indices[0] is not time:
            raise UsageError(
                f"{op.name!r}, a part of scan {name!r}, reads {one}",
                why=f"{one.buffer.name} depends on the states, so it is known only at the step {time.name}",
            )


__all__ = ["ScanOp", "scan", "scan_nest"]
