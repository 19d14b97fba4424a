"""Traces of records, which are not trusted.

A trace is data: it is replayed by primitives, which check that each step keeps the program's results. Limits
of time and sizes hold in addition, and those of the target.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dlc_core.diag import DlcError, ScheduleError
from dlc_core.schedule import Trace
from dlc_core.target import Target
from dlc_core.tir.functor import stmts
from dlc_tune.limits import check_limits

MAX_STEPS = 4096
"""The steps of a trace; those of real kernels have less than 200."""
MAX_STATEMENTS = 1 << 14
"""The statements of a program in between."""
CHECKED = 8
"""The steps after which the limits of time and statements are checked."""
MAX_REASON = 300
"""The characters of a reason, which may quote the trace."""
MAX_SECONDS = 20.0
"""The processor time of a replay."""


class CheckedTrace(Trace):
    """The trace of a record. `replay` raises ScheduleError if it is no legal schedule of the program, exceeds
    a limit, or takes too long. `source` is named in these errors.
    """

    def __init__(self, text: str, target: Target, source: str = "") -> None:
        super().__init__()
        self._text = text
        self._target = target
        self._source = source

    def replay(self, schedule: Any, *, after_step: Callable[[], None] = lambda: None) -> None:
        try:
            self._replay(Trace.from_json(self._text), schedule, after_step)
        except DlcError as error:
            raise self._refused(f"{error.what}{f': {error.why}' if error.why else ''}") from error
        except Exception as error:
            # Arguments of other types than a primitive expects make any exception.
            step = len(schedule.trace.steps) + 1
            raise self._refused(f"step {step} of the trace fails: {type(error).__name__}: {error}") from error

    def _replay(self, trace: Trace, schedule: Any, after_step: Callable[[], None]) -> None:
        if len(trace.steps) > MAX_STEPS:
            raise ScheduleError(f"a trace of {len(trace.steps)} steps", why=f"at most {MAX_STEPS} are legal")
        end = time.thread_time() + MAX_SECONDS
        steps = 0

        def check() -> None:
            nonlocal steps
            after_step()
            steps += 1
            if steps % CHECKED and steps < len(trace.steps):
                return
            if time.thread_time() > end:
                raise ScheduleError(f"the replay of the trace takes more than {MAX_SECONDS:g} s")
            if sum(1 for _ in stmts(schedule.func.body)) > MAX_STATEMENTS:
                raise ScheduleError(f"the trace makes a program of more than {MAX_STATEMENTS} statements")

        trace.replay(schedule, after_step=check)
        check_limits(schedule.func, self._target.describe())

    def _refused(self, why: str) -> ScheduleError:
        return ScheduleError(f"{self._source}: {why}"[:MAX_REASON] if self._source else why[:MAX_REASON])


__all__ = ["CheckedTrace"]
