"""Common behaviour of all primitives: arguments are checked, the function is found, and the call is recorded.

A refused call leaves the schedule unchanged.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, TypeVar, cast, get_type_hints

from dlc_core.cancel import checkpoint
from dlc_core.diag import ScheduleError, UsageError
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.schedule.arguments import complaint
from dlc_core.schedule.handles import BlockRV, Drawn, Handle, LoopRV, flat, with_handles
from dlc_core.schedule.trace import Step, Trace
from dlc_core.schedule.tree import Program

F = TypeVar("F", bound=Callable[..., Any])


class Traced:
    """Programs and the trace of the primitives applied to them; the base class of Schedule.

    In a schedule of a module, handles have the name of their function.  `_program` is the function that the
    current primitive changes.
    """

    def __init__(self, programs: Mapping[str, Program], module: IRModule | None, working: str) -> None:
        self._programs = dict(programs)
        self._module = module
        self._working = working
        self._trace = Trace()
        self._active = ""
        self._recorded: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self._random = random.Random()
        self._undrawn: Any = None

    @property
    def trace(self) -> Trace:
        """The calls so far."""
        return self._trace

    @property
    def _program(self) -> Program:
        return self._programs[self._active or self._working]

    def dim(self, name: str) -> Var:
        """The symbolic dim of the current function with this name, for use in factors and points."""
        found = [var for var in self._program.func.scalars if var.name == name]
        if not found:
            known = ", ".join(v.name for v in self._program.func.scalars) or "none"
            raise self._program.error(f"the function has no dim {name!r}", hint=f"its dims: {known}")
        return found[0]

    def dims_for(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[Var, ...]:
        """The symbolic dims of the function that a call with these arguments changes."""
        return self._programs[self._function_of(args, options)].func.scalars

    def _function_of(self, *arguments: Any) -> str:
        """The function of the handles among the arguments; the current function if there are none."""
        if self._active:
            return self._active
        found: dict[str, Handle] = {}
        for handle in _handles(arguments):
            found.setdefault(self._function_name(handle), handle)
        if len(found) > 1:
            pairs = ", ".join(f"{handle!r} of {func!r}" for func, handle in found.items())
            raise ScheduleError("handles of several functions in one call", why=pairs)
        return next(iter(found), self._working)

    def _function_name(self, handle: Handle) -> str:
        if isinstance(handle, BlockRV):
            name = handle.func or self._working
            if name not in self._programs:
                known = ", ".join(self._programs)
                raise ScheduleError(f"the schedule has no function {name!r}", hint=f"it has {known}")
            return name
        if len(self._programs) > 1:
            for name, program in self._programs.items():
                if handle.var in program.tree.loops:
                    return name
        return self._working

    def _draw(self) -> random.Random:
        """The random generator.  If the primitive fails later, its state is restored."""
        if self._undrawn is None:
            self._undrawn = self._random.getstate()  # only if needed: it can take as long as a primitive
        return self._random

    def _record(self, *args: Any, **options: Any) -> None:
        """Record these arguments instead of the given ones, so that the trace contains the decisions."""
        self._recorded = (args, options)

    def _stamped(self, value: Any) -> Any:
        """A handle with the name of its function, as the user gets it."""
        if self._module is not None and isinstance(value, BlockRV) and not value.func:
            return BlockRV(value.name, self._active)
        return value


def _handles(value: Any) -> Iterator[Handle]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _handles(item)
    elif isinstance(value, (BlockRV, LoopRV)):
        yield value


def _plain(value: Any) -> Any:
    """An argument for a primitive's implementation: handles without functions, plain numbers."""
    if isinstance(value, BlockRV) and value.func:
        return BlockRV(value.name)
    return int(value) if isinstance(value, Drawn) else value


def _results(value: Any) -> Iterator[Handle | Drawn]:
    if isinstance(value, Drawn):
        yield value
    elif isinstance(value, (list, tuple)) and any(isinstance(v, Drawn) for v in value):
        yield from (v for v in value if isinstance(v, Drawn))
    else:
        yield from flat(value)


def primitive(method: F) -> F:
    """Record calls of a Schedule method.

    If arguments do not fit the method's annotations, or the call raises, the program is unchanged.
    """
    signature = inspect.signature(method)
    hints: dict[str, Any] = {}

    def check(self: Traced, args: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        if not hints:
            hints.update(get_type_hints(method))
        bound = signature.bind(self, *args, **options)
        for name, value in bound.arguments.items():
            parameter = signature.parameters[name]
            many = parameter.kind is inspect.Parameter.VAR_POSITIONAL
            for item in value if many else (value,):
                why = complaint(item, hints.get(name, Any))
                if why:
                    raise self._program.error(f"{method.__name__}: {name} must be {why}, not {item!r}")

    @wraps(method)
    def call(self: Traced, *args: Any, **options: Any) -> Any:
        check(self, args, options)
        outermost = not self._active
        if not outermost:
            return method(self, *args, **options)
        checkpoint()
        self._active = self._function_of(args, options)
        self._recorded = None
        program, working = self._program, self._working
        self._undrawn = None
        before = program.func
        try:
            plain = {key: with_handles(value, _plain) for key, value in options.items()}
            result = method(self, *with_handles(args, _plain), **plain)
            result = with_handles(result, self._stamped)
        except BaseException as error:
            program.set_func(before)
            self._working = working
            if self._undrawn is not None:
                self._random.setstate(self._undrawn)
            if isinstance(error, UsageError):
                raise program.error(f"{method.__name__}: {error.what}", hint=error.hint) from error
            raise
        finally:
            self._active = ""
        given = (args, options) if self._recorded is None else self._recorded
        results = tuple(_results(result))
        single = isinstance(result, (BlockRV, LoopRV, Drawn))
        self._trace.steps.append(Step(method.__name__, *given, results, single))
        return result

    call.is_primitive = True  # type: ignore[attr-defined]
    return cast(F, call)


__all__ = ["Traced", "primitive"]
