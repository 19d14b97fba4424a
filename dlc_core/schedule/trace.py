"""The trace of a schedule: the sequence of its primitives as data.

It prints as Python, can be saved as JSON, and can be replayed on another program.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dlc_core.diag import ArtifactError, ScheduleError
from dlc_core.ir.expr import Expr, Var, free_vars, substitute
from dlc_core.ir.json import EXPR_KINDS, Field, Kind, decode, encode
from dlc_core.schedule.handles import BlockRV, Drawn, Handle, LoopRV, with_handles
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.intrin import TensorIntrin
from dlc_core.schedule.python_text import Names, imports_of, text_of
from dlc_core.support.record import record

DECISION = "decision"
"""The option with the value that a sampling primitive drew."""


QUERY = "get_"
"""The prefix of primitives that only query."""


@dataclass(frozen=True)
class Step:
    """One call of a primitive.

    `results` are its handles and drawn numbers; `single` says that it returns one without a container.
    """

    name: str
    args: tuple[Any, ...]
    options: Mapping[str, Any]
    results: tuple[Handle | Drawn, ...]
    single: bool = False


@dataclass
class Trace:
    """Calls in order.

    `replay` repeats them on another schedule, whose blocks must have the same names.  It finds symbolic dims
    by name.  Texts refer to tensor intrinsics by name.
    """

    steps: list[Step] = field(default_factory=list)

    def replay(self, schedule: Any, *, after_step: Callable[[], None] = lambda: None) -> None:
        """Apply every step to `schedule`; ScheduleError if a step does not fit its program.

        `after_step` is called after each step; it may raise ScheduleError to end the replay.
        """
        names = _Renamed()
        for step in self.steps:
            if not is_primitive(getattr(type(schedule), step.name, None)):
                raise ScheduleError(
                    f"the trace calls {step.name!r}, which is no primitive",
                    hint=f"primitives: {', '.join(primitive_names(type(schedule)))}",
                )
            args = with_handles(step.args, names.handle)
            options = {key: with_handles(value, names.handle) for key, value in step.options.items()}
            settle = names.dims_of(schedule.dims_for(args, options))
            args = with_handles(args, settle)
            options = {key: with_handles(value, settle) for key, value in options.items()}
            getattr(schedule, step.name)(*args, **options)
            results = schedule.trace.steps[-1].results
            if list(map(type, results)) != list(map(type, step.results)):
                raise ScheduleError(
                    f"{step.name} gave {len(results)} handles where the trace has {len(step.results)}",
                    why="the trace was recorded on a program of another structure",
                )
            for old, new in zip(step.results, results, strict=True):
                names.add(old, new)
            after_step()

    def tidied(self) -> Trace:
        """The trace without queries whose results are unused, and with blocks found by name."""
        asked = [step.name.startswith(QUERY) for step in self.steps]
        loops = [[r for r in step.results if isinstance(r, LoopRV)] for step in self.steps]
        mentioned = [_mentioned([step.args, *step.options.values()]) for step in self.steps]
        used: set[Any] = set().union(*mentioned)
        known: set[Handle | Drawn] = set()
        kept: list[Step] = []
        for step, asks, found, needs in zip(self.steps, asked, loops, mentioned, strict=True):
            if asks and not any(r not in known and (r in used or r.var in used) for r in found):
                continue
            for block in needs:
                if isinstance(block, BlockRV) and block not in known:
                    name = (block.name, block.func) if block.func else (block.name,)
                    kept.append(Step("get_block", name, {}, (block,), single=True))
                    known.add(block)
            kept.append(step)
            known.update(r for r in step.results if not isinstance(r, Drawn))
        return Trace(kept)

    # Decisions of sampling primitives.

    @property
    def decisions(self) -> list[Any]:
        """The decisions of the sampling primitives, in order."""
        return [step.options[DECISION] for step in self.steps if DECISION in step.options]

    def with_decisions(self, decisions: Iterable[Any]) -> Trace:
        """The trace with other decisions, in order; for None, the replaying schedule draws again."""
        given = list(decisions)
        if len(given) != len(self.decisions):
            raise ScheduleError(f"{len(given)} decisions for a trace that draws {len(self.decisions)} times")
        rest = iter(given)
        return Trace(
            [
                replace(step, options={**step.options, DECISION: next(rest)})
                if DECISION in step.options
                else step
                for step in self.steps
            ]
        )

    # Texts.

    def as_python(self, schedule: str = "sch") -> str:
        """The calls as Python statements, after the imports that they need."""
        names = Names(schedule)
        lines = [_line(step, names) for step in self.steps]
        return "\n".join([*imports_of(lines), *lines])

    def __str__(self) -> str:
        return self.as_python()

    def to_json(self) -> str:
        """The trace as text that `from_json` reads; UsageError for arguments that JSON cannot hold."""
        data = encode(self.plain_steps(), (*EXPR_KINDS, *TRACE_KINDS))
        return json.dumps({**data, "schema": SCHEMA, "version": VERSION})

    def plain_steps(self) -> tuple[Step, ...]:
        """The steps as values of `TRACE_KINDS`: intrinsics by name, drawn numbers by position."""
        drawn: list[Drawn] = []

        def plain(value: Any) -> Any:
            if isinstance(value, Drawn):
                found = [i for i, known in enumerate(drawn) if known is value]
                return _DrawnBefore(found[0]) if found else int(value)
            return value.name if isinstance(value, TensorIntrin) else value

        steps: list[Step] = []
        for step in self.steps:
            args = with_handles(step.args, plain)
            options = {key: with_handles(value, plain) for key, value in step.options.items()}
            drawn += [r for r in step.results if isinstance(r, Drawn)]
            results = tuple(int(r) if isinstance(r, Drawn) else r for r in step.results)
            steps.append(Step(step.name, args, options, results, step.single))  # type: ignore[arg-type]
        return tuple(steps)

    @staticmethod
    def from_json(text: str) -> Trace:
        """The trace that `to_json` wrote; ArtifactError for any other text."""
        try:
            data = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise ArtifactError(f"a trace that is no JSON: {error}") from error
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ArtifactError("this is no trace of a schedule", hint=f"it has no schema {SCHEMA!r}")
        if data.get("version") != VERSION:
            raise ArtifactError(
                f"a trace of version {data.get('version')!r}", hint=f"this version reads {VERSION}"
            )
        found = decode({**data, "schema": "dlc-ir"}, (*EXPR_KINDS, *TRACE_KINDS))
        return Trace.of_plain(found)

    @staticmethod
    def of_plain(found: Any) -> Trace:
        """The trace of `plain_steps`; ArtifactError for anything else."""
        if not isinstance(found, tuple) or not all(isinstance(step, Step) for step in found):
            raise ArtifactError("the JSON of a trace holds something else than steps")
        drawn: list[Drawn] = []

        def read(value: Any) -> Any:
            if not isinstance(value, _DrawnBefore):
                return value
            if not 0 <= value.number < len(drawn):
                raise ArtifactError(f"the trace uses drawn number {value.number} before it is drawn")
            return drawn[value.number]

        steps: list[Step] = []
        for step in found:
            args = with_handles(step.args, read)
            options = {key: with_handles(value, read) for key, value in step.options.items()}
            results = tuple(Drawn(r) if type(r) is int else r for r in step.results)
            drawn += [r for r in results if isinstance(r, Drawn)]
            steps.append(Step(step.name, args, options, results, step.single))
        return Trace(steps)


def _mentioned(value: Any) -> dict[Any, None]:
    """The handles in arguments and the variables of their expressions, in order."""
    found: dict[Any, None] = {}

    def note(item: Any) -> Any:
        if isinstance(item, (BlockRV, LoopRV)):
            found[item] = None
        elif isinstance(item, IndexMap):
            found.update(dict.fromkeys(free_vars(*item.outputs)))
        elif isinstance(item, Expr):
            found.update(dict.fromkeys(free_vars(item)))
        return item

    with_handles(value, note)
    return found


def is_primitive(method: Any) -> bool:
    """Whether a function of a Schedule is recorded in its trace."""
    return bool(getattr(method, "is_primitive", False))


def primitive_names(schedule: type) -> list[str]:
    """The primitives of a class of schedules, by name."""
    return [name for name in dir(schedule) if is_primitive(getattr(schedule, name))]


class _Renamed:
    """The handles and decisions of a trace in the schedule that it is replayed on."""

    def __init__(self) -> None:
        self.handles: dict[Handle, Handle] = {}
        self.vars: dict[Var, Expr] = {}
        self.drawn: dict[int, tuple[Drawn, Drawn]] = {}

    def add(self, old: Handle | Drawn, new: Handle | Drawn) -> None:
        if isinstance(old, Drawn) and isinstance(new, Drawn):
            self.drawn[id(old)] = (old, new)
        elif isinstance(old, (BlockRV, LoopRV)) and isinstance(new, (BlockRV, LoopRV)):
            self.handles[old] = new
            if isinstance(old, LoopRV) and isinstance(new, LoopRV):
                self.vars[old.var] = new.var

    def handle(self, value: Any) -> Any:
        if isinstance(value, (BlockRV, LoopRV)):
            return self.handles.get(value, value)
        if isinstance(value, Drawn):
            return self.drawn[id(value)][1] if id(value) in self.drawn else value
        return value

    def dims_of(self, dims: Sequence[Var]) -> Callable[[Any], Any]:
        """Rename the loops in expressions to the current ones, and find symbolic dims by name."""
        return lambda value: self._settled(value, dims)

    def _settled(self, value: Any, dims: Sequence[Var]) -> Any:
        if isinstance(value, IndexMap):
            bound = set(value.inputs)
            outputs = tuple(self._expr(o, dims, bound) for o in value.outputs)
            return IndexMap(value.inputs, outputs, tuple(self._settled(p, dims) for p in value.parts))
        return self._expr(value, dims, set()) if isinstance(value, Expr) else value

    def _expr(self, expr: Expr, dims: Sequence[Var], bound: set[Var]) -> Expr:
        env: dict[Var, Expr] = {}
        for var in free_vars(expr):
            if var in self.vars:
                env[var] = self.vars[var]
            elif var not in bound and var not in dims:
                found = [d for d in dims if d.name == var.name]
                if not found:
                    raise ScheduleError(
                        f"the trace uses the symbolic dim {var.name}, which the program does not have",
                        hint=f"it has {', '.join(d.name for d in dims) or 'none'}",
                    )
                env[var] = found[0]
        return substitute(expr, env)


def _line(step: Step, names: Names) -> str:
    parts = [text_of(a, names) for a in step.args]
    parts += [f"{key}={text_of(value, names)}" for key, value in step.options.items()]
    call = f"{names.schedule}.{step.name}({', '.join(parts)})"
    targets = [names.target(result) for result in step.results]
    if not targets:
        return call
    if step.single:
        return f"{targets[0]} = {call}"
    handles = not any(isinstance(r, Drawn) for r in step.results)
    return f"{', '.join(targets)}{',' * (len(targets) == 1)} = {f'flat({call})' if handles else call}"


@record(frozen=True)
class _DrawnBefore:
    """A drawn number in JSON, by its position among the draws of the trace."""

    number: int


SCHEMA, VERSION = "dlc-trace", 1


def _step(name: Any, args: Any, options: Any, results: Any, single: Any) -> Step:
    given = isinstance(args, tuple) and isinstance(options, Mapping) and isinstance(results, tuple)
    if not given or not isinstance(single, bool) or not all(isinstance(key, str) for key in options):
        raise TypeError("a step has a name, arguments, options and results")
    if not all(isinstance(r, (BlockRV, LoopRV)) or type(r) is int for r in results):
        raise TypeError("results of a step are handles or numbers")
    return Step(name, args, dict(options), results, single)


def _literals(*names: str) -> tuple[Field, ...]:
    return tuple(Field(name, "literal") for name in names)


def _fields(how: str, types: tuple[type, ...], *names: str) -> tuple[Field, ...]:
    return tuple(Field(name, how, types) for name in names)


TRACE_KINDS: tuple[Kind, ...] = (
    Kind("loop", LoopRV, _fields("ref", (Var,), "var"), LoopRV),
    Kind("block", BlockRV, (Field("name", "str"), Field("func", "str")), BlockRV),
    Kind("drawn", _DrawnBefore, (Field("number", "int"),), _DrawnBefore),
    Kind(
        "index_map",
        IndexMap,
        (
            *_fields("refs", (Var,), "inputs"),
            *_fields("refs", (Expr,), "outputs"),
            *_fields("refs", (IndexMap,), "parts"),
        ),
        IndexMap,
    ),
    Kind("step", Step, (Field("name", "str"), *_literals("args", "options", "results", "single")), _step),
)

__all__ = ["DECISION", "QUERY", "TRACE_KINDS", "Step", "Trace", "is_primitive", "primitive_names"]
