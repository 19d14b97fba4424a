"""Copies and pickles of schedules.

A pickle has the current program, the trace as data, the decisions' random state, and the tensor intrinsics
that the schedule has used or added. Program and trace are written together, so they share variables.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dlc_core.ir.module import IRModule
from dlc_core.schedule.intrin import TensorIntrin
from dlc_core.schedule.sampling import Sampling
from dlc_core.schedule.trace import TRACE_KINDS, Trace
from dlc_core.schedule.traced import Traced
from dlc_core.schedule.tree import Program
from dlc_core.script.json import picklable, restored
from dlc_core.tir.stmt import PrimFunc

S = TypeVar("S", bound="Copied")
_KINDS = tuple(replace(kind, name=f"trace_{kind.name}") for kind in TRACE_KINDS)
"""Blocks of programs and handles of blocks need different names here."""


class Copied(Sampling):
    """A schedule that can be copied and pickled; the base class of Schedule."""

    def __init__(
        self,
        programs: Mapping[str, Program],
        module: IRModule | None,
        working: str,
        intrins: Mapping[str, TensorIntrin],
    ) -> None:
        super().__init__(programs, module, working)
        self._intrins: ChainMap[str, TensorIntrin] = ChainMap({}, intrins)  # type: ignore[arg-type]
        self._used: dict[str, TensorIntrin] = {}
        self.plans: list[object] = []
        """The plans that a rule applied, as values; a kernel keeps their text."""

    @property
    def mod(self) -> IRModule:
        """The current module; a module of one function if the schedule is of a function."""
        module = IRModule(entry=self._working) if self._module is None else self._module
        return module.with_functions({name: program.func for name, program in self._programs.items()})

    def copy(self: S) -> S:
        """Return an independent schedule of the current program; handles are valid for both."""
        functions = {name: program.func for name, program in self._programs.items()}
        other = self._resumed(functions, self._module, self._working, self._trace, self._random.getstate())
        other._intrins, other._used = self._intrins.copy(), dict(self._used)
        other.plans = list(self.plans)
        return other

    @classmethod
    def _resumed(
        cls: type[S],
        functions: Mapping[str, PrimFunc],
        module: IRModule | None,
        working: str,
        trace: Trace,
        random_state: Any,
    ) -> S:
        """A schedule of programs that the steps of a trace have made."""
        other = cls.__new__(cls)
        Traced.__init__(other, {name: Program(func) for name, func in functions.items()}, module, working)
        other._trace.steps.extend(trace.steps)
        other._random.setstate(random_state)
        return other

    def __copy__(self: S) -> S:
        return self.copy()

    def __deepcopy__(self: S, memo: Any) -> S:
        return self.copy()

    def __reduce_ex__(self, protocol: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Handles of loops are not valid for the schedule that is read back: ask it for its own.

        Raises UsageError for an intrinsic whose functions cannot be pickled.
        """
        ir = {"module": self.mod, "steps": self._trace.plain_steps()}
        state = (
            picklable(ir, "schedule", _KINDS),
            tuple(self._programs),
            self._module is not None,
            self._working,
            self._random.getstate(),
            {**self._intrins.maps[0], **self._used},
            tuple(self._used),
            list(self.plans),
        )
        return _unpickled, (type(self), *state)


def _unpickled(
    cls: type[S],
    data: tuple[Any, Any],
    names: Sequence[str],
    of_module: bool,
    working: str,
    random_state: Any,
    intrins: dict[str, TensorIntrin],
    used: Sequence[str],
    plans: list[object],
) -> S:
    """The schedule that `Copied.__reduce_ex__` describes."""
    ir = restored(*data, _KINDS)
    module: IRModule = ir["module"]
    functions = {name: module[name] for name in names}
    trace = Trace.of_plain(ir["steps"])
    made = cls._resumed(functions, module if of_module else None, working, trace, random_state)
    made._intrins = ChainMap(intrins)
    made._used = {name: intrins[name] for name in used}
    made.plans = plans
    return made


__all__ = ["Copied"]
