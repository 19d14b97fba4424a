"""The record of a schedule: every primitive called, as data that prints as Python and replays on another
program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar, cast

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Expr
from dlc_core.schedule.handles import BlockRV, Copy, LoopRV, Loops
from dlc_core.schedule.tree import Program

Handle = BlockRV | LoopRV
F = TypeVar("F", bound=Callable[..., Any])


def flat(result: Any) -> Iterator[Handle]:
    """The handles in a primitive's result, in a fixed order."""
    if isinstance(result, (BlockRV, LoopRV)):
        yield result
    elif isinstance(result, Copy):
        yield from result.loops.values() if result.loops else (result.loop,)
        yield from result.blocks.values()
    elif isinstance(result, (tuple, list)):
        for item in result:
            yield from flat(item)
        if isinstance(result, Loops):
            yield from flat(result.tail)


@dataclass(frozen=True)
class Step:
    """One call of a primitive."""

    name: str
    args: tuple[Any, ...]
    options: dict[str, Any]
    results: tuple[Handle, ...]


@dataclass
class Trace:
    """Calls in order.  `replay` repeats them on another schedule, whose blocks must have the same names."""

    steps: list[Step] = field(default_factory=list)

    def replay(self, schedule: Any) -> None:
        """Apply every step to `schedule`; ScheduleError where a step does not fit its program."""
        names: dict[Handle, Handle] = {}
        for step in self.steps:
            args = [_mapped(a, names) for a in step.args]
            options = {key: _mapped(value, names) for key, value in step.options.items()}
            results = tuple(flat(getattr(schedule, step.name)(*args, **options)))
            if len(results) != len(step.results):
                raise ScheduleError(
                    f"{step.name} gave {len(results)} handles where the trace has {len(step.results)}",
                    why="the trace was recorded on a program of another structure",
                )
            names.update(zip(step.results, results, strict=True))

    def as_python(self, schedule: str = "sch") -> str:
        """The calls as Python statements."""
        names: dict[Handle, str] = {}
        lines: list[str] = []
        for step in self.steps:
            parts = [_text(a, names) for a in step.args]
            parts += [f"{key}={_text(value, names)}" for key, value in step.options.items()]
            call = f"{schedule}.{step.name}({', '.join(parts)})"
            for handle in step.results:
                if handle not in names:
                    prefix = "b" if isinstance(handle, BlockRV) else "l"
                    names[handle] = f"{prefix}{sum(n.startswith(prefix) for n in names.values())}"
            targets = ", ".join(names[h] for h in step.results)
            if step.name in LISTS:
                targets, call = targets + "," * (len(step.results) == 1), f"flat({call})"
            lines.append(f"{targets} = {call}" if step.results else call)
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.as_python()


LISTS = frozenset(
    {"split", "partition", "get_loops", "get_blocks", "get_child_blocks", "get_producers", "get_consumers"}
    | {"get_output_blocks", "decompose_padding"}
)
"""Primitives whose results are sequences of handles."""


def _mapped(value: Any, names: dict[Handle, Handle]) -> Any:
    if isinstance(value, (BlockRV, LoopRV)):
        return names.get(value, value)
    if isinstance(value, (list, tuple)):
        return (
            type(value)(_mapped(v, names) for v in value)
            if type(value) in (list, tuple)
            else [_mapped(v, names) for v in value]
        )
    return value


def _text(value: Any, names: dict[Handle, str]) -> str:
    if isinstance(value, (BlockRV, LoopRV)):
        return names.get(value, repr(value))
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_text(v, names) for v in value) + "]"
    return str(value) if isinstance(value, Expr) else repr(value)


class Traced:
    """A program with the record of what was done to it; the base of Schedule."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._trace = Trace()
        self._depth = 0

    @property
    def trace(self) -> Trace:
        """What was called so far."""
        return self._trace


def primitive(method: F) -> F:
    """Record calls of a Schedule method.  A call that raises leaves the program as it was."""

    @wraps(method)
    def call(self: Traced, *args: Any, **options: Any) -> Any:
        before = self._program.func
        self._depth += 1
        try:
            result = method(self, *args, **options)
        except BaseException:
            self._program.set_func(before)
            raise
        finally:
            self._depth -= 1
        if self._depth == 0:
            self._trace.steps.append(Step(method.__name__, args, options, tuple(flat(result))))
        return result

    return cast(F, call)


__all__ = ["Handle", "Step", "Trace", "Traced", "flat", "primitive"]
