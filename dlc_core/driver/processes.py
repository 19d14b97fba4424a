"""The kernels of one compile, shared out to processes.

Scheduling a kernel, lowering it and writing its code depend on that kernel alone.  Where it pays, this
process and copies of it (forks, which have the whole module without being sent it) take kernels one by one,
the largest first, until none is left.  A copy hands back how its kernels are called and their code; programs
stay where they were made.

What a copy does not hand back, because it failed, was killed or is stuck, is done here, and where a kernel
cannot be compiled at all everything is done again without copies: errors are those of a compile in one
process, and code is the same whatever the number of processes.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NoReturn

from dlc_core.config import config as settings
from dlc_core.ir.module import IRModule
from dlc_core.ir.pickling import Known, dumps, loads
from dlc_core.passes import PassContext, Pipeline
from dlc_core.runtime.cores import usable_cores
from dlc_core.target import Target
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import Block, PrimFunc, Seq

EACH = 3
"""Kernels for each process, at least: less work is done before a copy has begun."""
MOST_PROCESSES = 16
MOST_KERNELS = 4096
"""As many numbers as fit a pipe that nobody reads yet."""
PATIENCE = (60.0, 10.0)
"""How long copies may take when this process has no kernel left to take: so many seconds, or so many times
what it took for its own, whichever is more."""

_NUMBER = 4
"""Bytes of the number of a kernel."""
_LENGTH = 8
"""Bytes before the results of a copy that say how long they are."""

Result = tuple[tuple[Any, ...], Mapping[str, Any], Any]
"""Of a kernel: parameters, attributes, code."""


@dataclass(frozen=True)
class Shared:
    """A module whose kernels have no bodies any more, the code of these by name, and how many processes made
    it."""

    module: IRModule
    parts: Mapping[str, Any]
    processes: int


def processes_for(kernels: int) -> int:
    """How many processes are worth while for so many kernels: 1 is this one alone."""
    wanted = settings.compile_processes
    most = min(usable_cores(), kernels // EACH) if wanted is None else min(wanted, kernels)
    forks = sys.platform == "linux" and hasattr(os, "fork")
    # Another thread may hold a lock that no copy would ever see released.
    if not forks or threading.active_count() > 1 or kernels > MOST_KERNELS:
        return 1
    return max(1, min(most, MOST_PROCESSES))


def share_out(
    module: IRModule, pipeline: Pipeline, context: PassContext, target: Target, codegen: Any
) -> Shared | None:
    """The module after `pipeline`, its kernels compiled to code by `codegen.emit_part` in several processes.

    None where that does not pay or cannot be: the caller then does it alone.
    """
    kernels: dict[str, PrimFunc] = module.of_kind(PrimFunc)
    processes = processes_for(len(kernels))
    emit_part = getattr(codegen, "emit_part", None)
    if processes < 2 or emit_part is None or context.tuner is not None:
        return None
    if not all(one.separate for one in pipeline.active(context).passes):
        return None
    team = _Team(kernels, pipeline, context, target, emit_part)
    try:
        results = team.run(processes)
    except Exception:  # noqa: BLE001  (the caller meets it again, with the whole module to show)
        return None
    functions = {
        name: replace(kernels[name], params=params, attrs=MappingProxyType(dict(attrs)), body=Seq(()))
        for name, (params, attrs, _) in results.items()
    }
    parts = {name: part for name, (_, _, part) in results.items()}
    return Shared(module.with_functions({name: functions[name] for name in kernels}), parts, team.processes)


def _size(func: PrimFunc) -> int:
    """About how long a kernel takes: reductions are tiled, the rest is mapped."""
    return sum(_block_size(block) for block in block_list(func.body))


def _block_size(block: Block) -> int:
    return 1 if block.init is None else 4


class _Team:
    """This process and its copies at work."""

    def __init__(
        self, kernels: Mapping[str, PrimFunc], pipeline: Pipeline, context: PassContext, target: Target,
        emit_part: Any,
    ) -> None:  # fmt: skip
        self.kernels = kernels
        self.pipeline = pipeline
        # Copies leave no traces on disk: what fails there fails here, too.
        self.context = context.with_(watchers=(), config={"reproducer_dir": ""})
        self.target = target
        self.emit_part = emit_part
        self.order = sorted(kernels, key=lambda name: -_size(kernels[name]))
        self.processes = 1
        self.known: Known = [p for func in kernels.values() for p in func.params]

    def run(self, processes: int) -> dict[str, Result]:
        """The results of all kernels."""
        tasks, source = os.pipe()
        copies: list[_Copy] = []
        try:
            with os.fdopen(source, "wb") as out:
                out.write(b"".join(n.to_bytes(_NUMBER, "little") for n in range(len(self.order))))
            with suppress(OSError):  # no memory, or no process more is allowed: then those that there are
                for _ in range(processes - 1):
                    copies.append(self._copy(tasks))  # noqa: PERF401  (they are ended in any case)
            self.processes += len(copies)
            start = time.monotonic()
            results: dict[str, Result] = {}
            while (name := self._next(tasks)) is not None:
                results[name] = self._compiled(name)
            now = time.monotonic()
            deadline = now + max(PATIENCE[0], PATIENCE[1] * (now - start))
            for copy in copies:
                for name, data in copy.results(deadline).items():
                    results[name] = loads(data, self.known)
        finally:
            os.close(tasks)
            for copy in copies:
                copy.end()
        for name in self.order:
            if name not in results:
                results[name] = self._compiled(name)
        return results

    def _next(self, tasks: int) -> str | None:
        """A kernel that nobody has taken yet."""
        number = os.read(tasks, _NUMBER)
        return self.order[int.from_bytes(number, "little")] if len(number) == _NUMBER else None

    def _compiled(self, name: str) -> Result:
        done = self.pipeline.run(IRModule({name: self.kernels[name]}, entry=name), self.context)
        if list(done.functions) != [name]:
            raise NotImplementedError(f"the passes make {len(done.functions)} functions of {name}")
        func = done[name]
        return func.params, func.attrs, self.emit_part(func, self.target)

    def _copy(self, tasks: int) -> _Copy:
        results, out = os.pipe()
        try:
            with warnings.catch_warnings():
                # Threads of native code, such as those of BLAS, look after themselves.
                warnings.simplefilter("ignore", DeprecationWarning)
                number = os.fork()
        except OSError:
            os.close(results)
            os.close(out)
            raise
        if not number:
            self._work(tasks, out)
        os.close(out)
        return _Copy(number, results)

    def _work(self, tasks: int, out: int) -> NoReturn:
        """What a copy does until its end."""
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interrupt is told by the process that is seen
            gc.freeze()
            gc.disable()
            done: dict[str, bytes] = {}
            with suppress(Exception):
                while (name := self._next(tasks)) is not None:
                    done[name] = dumps(self._compiled(name), self.known)
            data = dumps(done)
            with os.fdopen(out, "wb") as file:
                file.write(len(data).to_bytes(_LENGTH, "little"))
                file.write(data)
        finally:
            os._exit(0)


class _Copy:
    """A copy of this process, and the end of the pipe through which it gives its results."""

    def __init__(self, number: int, results: int) -> None:
        self._number = number
        self._results = results
        self._complete = False

    def results(self, deadline: float) -> Mapping[str, bytes]:
        """What it has compiled; nothing where it ended before, or does not come to an end in time."""
        data = bytearray()
        poll = select.poll()
        poll.register(self._results, select.POLLIN | select.POLLHUP)
        while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            piece = os.read(self._results, 1 << 20)
            if not piece:
                break
            data += piece
        else:
            return {}
        self._complete = len(data) == _LENGTH + int.from_bytes(data[:_LENGTH], "little")
        found: dict[str, bytes] = loads(bytes(data[_LENGTH:])) if self._complete else {}
        return found

    def end(self) -> None:
        """Leave nothing of it, finished or not."""
        os.close(self._results)
        with suppress(ChildProcessError):  # somebody else waits for all children, or they are not waited for
            if not self._complete and os.waitpid(self._number, os.WNOHANG)[0] == 0:
                os.kill(self._number, signal.SIGKILL)
            elif not self._complete:
                return
            os.waitpid(self._number, 0)


__all__ = ["Shared", "processes_for", "share_out"]
