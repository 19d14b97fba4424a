"""Compilation of the kernels of one module, one by one, in several processes.

Each kernel is scheduled, lowered and emitted independently of the others, if the cache of kernels does not
have it.  This process and forks of it, which share the module's memory, take kernels one by one, the largest
first.  A fork returns the signatures and the code of its kernels, not their programs.

If a fork fails, is killed or hangs, this process compiles its kernels.  If a kernel cannot be compiled,
everything is compiled again in one process.  So errors and code do not depend on the number of processes.
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
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from dlc_core.cancel import SECONDS_BETWEEN_CHECKPOINTS, checkpoint
from dlc_core.config import config as settings
from dlc_core.diag import CancelledError, LimitError
from dlc_core.driver.kernel_cache import (
    KernelCache,
    Result,
    decode_result,
    encode_result,
    renamed,
)
from dlc_core.driver.key import kernel_state, tuner_state
from dlc_core.ir.module import IRModule
from dlc_core.passes import PassContext, Pipeline
from dlc_core.passes.reproducer import REPRODUCERS
from dlc_core.plugin.registry import codegen_of
from dlc_core.runtime.machine.cores import usable_cores
from dlc_core.support.record import record
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import Block, PrimFunc, Seq

EACH = 3
"""The least number of kernels per process; fewer are compiled before a fork has started."""
MOST_PROCESSES = 16
MOST_KERNELS = 4096
"""The kernel numbers that fit into the buffer of a pipe."""
PATIENCE = (60.0, 10.0)
"""The time limit of forks after this process has run out of kernels: seconds, or a multiple of its own time,
whichever is longer."""


_NUMBER = 4
"""Bytes of a kernel's number."""
_LENGTH = 8
"""Bytes of the length before a fork's results."""


@record(frozen=True)
class Compiled:
    """A module whose kernels have no bodies, and their code by name.

    `cached` of its kernels were in the cache; `processes` have compiled the others.
    """

    module: IRModule
    parts: Mapping[str, bytes]
    processes: int
    cached: int


def processes_for(kernels: int) -> int:
    """Return the number of processes for so many kernels; 1 is this process alone."""
    wanted = settings.compile_processes
    most = min(usable_cores(), kernels // EACH) if wanted is None else min(wanted, kernels)
    forks = sys.platform == "linux" and hasattr(os, "fork")
    if not forks or kernels > MOST_KERNELS or not _others_wait():
        return 1
    return max(1, min(most, MOST_PROCESSES))


def _others_wait() -> bool:
    """Whether all other threads wait for an event or a condition in their outermost function.

    Another thread may hold a lock that would never be released in a fork. A thread that waits there holds
    none of a function that it calls. Monitors of progress bars are such threads.
    """
    frames = sys._current_frames()
    del frames[threading.get_ident()]  # it refers to this dict: the cycle would keep all callers' values
    others = (thread for thread in threading.enumerate() if thread is not threading.current_thread())
    return all(_waits(frames.get(thread.ident or 0)) for thread in others)


def _waits(frame: FrameType | None) -> bool:
    """Whether a thread whose innermost frame this is waits in its outermost function."""
    if frame is None or frame.f_code.co_name != "wait":
        return False
    own = 0
    while frame is not None:
        own += frame.f_globals.get("__name__") != threading.__name__
        frame = frame.f_back
    return own <= 1


def compile_kernels(
    module: IRModule, pipeline: Pipeline, context: PassContext, cache: KernelCache | None = None
) -> Compiled | None:
    """Run `pipeline` and the code generator's `emit_part` on the kernels of a module that `cache` does not
    have, in several processes.

    Returns None if that is not possible or not worth its cost; the caller then compiles them itself.
    """
    kernels: dict[str, PrimFunc] = module.of_kind(PrimFunc)
    emit_part = getattr(codegen_of(context.target), "emit_part", None)
    if emit_part is None or tuner_state(context) is None:
        return None
    if cache is None and kernel_state(context.tuner) is not None:  # this process must see the kernels
        return None
    if not all(one.separate for one in pipeline.active(context).passes):
        return None
    found: dict[str, Result] = {}
    paths: dict[str, Path] = {}
    if cache is not None:
        paths = {name: cache.path(func) for name, func in kernels.items()}
        looked_up = {name: cache.get(paths[name], func) for name, func in kernels.items()}
        found = {name: result for name, result in looked_up.items() if result is not None}
    missing = {name: func for name, func in kernels.items() if name not in found}
    processes = processes_for(len(missing))
    if processes < 2 and cache is None:
        return None
    given = missing if cache is None else {name: cache.nameless(func) for name, func in missing.items()}
    team = _Team(given, pipeline, context, emit_part)
    try:
        made = team.run(processes)
    except (CancelledError, LimitError):
        raise
    except Exception:  # noqa: BLE001  (the caller's own compile raises it again, with the whole module)
        return None
    if cache is not None:
        for name, result in made.items():
            cache.put(paths[name], kernels[name], result)
    results = {**found, **{name: renamed(result, name) for name, result in made.items()}}
    functions = {name: results[name][0] for name in kernels}
    parts = {name: results[name][1] for name in kernels}
    return Compiled(module.with_functions(functions), parts, team.processes, len(found))


def _size(func: PrimFunc) -> int:
    """A rough measure of a kernel's compile time: reductions take longer, because they are tiled."""
    return sum(_block_size(block) for block in block_list(func.body))


def _block_size(block: Block) -> int:
    return 1 if block.init is None else 4


class _Team:
    """This process and its forks."""

    def __init__(
        self, kernels: Mapping[str, PrimFunc], pipeline: Pipeline, context: PassContext, emit_part: Any
    ) -> None:
        self.kernels = kernels
        self.pipeline = pipeline
        # Forks write no reproducers: an error occurs in this process again.
        self.context = context.with_(watchers=(), config={REPRODUCERS: ""})
        self.emit_part = emit_part
        self.order = sorted(kernels, key=lambda name: -_size(kernels[name]))
        self.processes = 1

    def run(self, processes: int) -> dict[str, Result]:
        """The results of all kernels."""
        tasks, source = os.pipe()
        copies: list[_Copy] = []
        try:
            with os.fdopen(source, "wb") as out:
                out.write(b"".join(n.to_bytes(_NUMBER, "little") for n in range(len(self.order))))
            with suppress(OSError):  # no memory or process left: go on with those that exist
                for _ in range(processes - 1):
                    copies.append(self._copy(tasks))  # noqa: PERF401  (all are ended in any case)
            self.processes += len(copies)
            start = time.monotonic()
            results: dict[str, Result] = {}
            while (name := self._next(tasks)) is not None:
                results[name] = self._compiled(name)
            now = time.monotonic()
            deadline = now + max(PATIENCE[0], PATIENCE[1] * (now - start))
            for copy in copies:
                for number, data in copy.results(deadline):
                    name = self.order[number]
                    results[name] = decode_result(data, self.kernels[name])
        finally:
            os.close(tasks)
            for copy in copies:
                copy.end()
        for name in self.order:
            if name not in results:
                results[name] = self._compiled(name)
        return results

    def _next(self, tasks: int) -> str | None:
        """Take the next kernel."""
        number = os.read(tasks, _NUMBER)
        return self.order[int.from_bytes(number, "little")] if len(number) == _NUMBER else None

    def _compiled(self, name: str) -> Result:
        checkpoint()
        func = self.kernels[name]
        done = self.pipeline.run(IRModule({func.name: func}, entry=func.name), self.context)
        if list(done.functions) != [func.name]:
            raise NotImplementedError(f"the passes make {len(done.functions)} functions of {name}")
        made = done[func.name]
        return replace(made, body=Seq(())), self.emit_part(made, self.context.target)

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
        """The work of a fork."""
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # the parent reports an interrupt
            gc.freeze()
            gc.disable()
            done: list[bytes] = []
            with suppress(Exception):
                while (name := self._next(tasks)) is not None:
                    data = encode_result(self._compiled(name), self.kernels[name])
                    done += [self.order.index(name).to_bytes(_NUMBER, "little"), _with_length(data)]
            with os.fdopen(out, "wb") as file:
                file.write(_with_length(b"".join(done)))
        finally:
            os._exit(0)


def _with_length(data: bytes) -> bytes:
    return len(data).to_bytes(_LENGTH, "little") + data


class _Copy:
    """A copy of this process, and the end of the pipe through which it gives its results."""

    def __init__(self, number: int, results: int) -> None:
        self._number = number
        self._results = results
        self._complete = False

    def results(self, deadline: float) -> Iterator[tuple[int, bytes]]:
        """Its results with the numbers of their kernels; none if it died or exceeded the time limit."""
        data = bytearray()
        poll = select.poll()
        poll.register(self._results, select.POLLIN | select.POLLHUP)
        while (left := deadline - time.monotonic()) >= 0:
            checkpoint()
            if not poll.poll(min(left, SECONDS_BETWEEN_CHECKPOINTS) * 1000):
                continue
            piece = os.read(self._results, 1 << 20)
            if not piece:
                break
            data += piece
        else:
            return
        self._complete = len(data) == _LENGTH + int.from_bytes(data[:_LENGTH], "little")
        at = _LENGTH if self._complete else len(data)
        while at < len(data):
            start = at + _NUMBER + _LENGTH
            number, length = data[at : at + _NUMBER], data[at + _NUMBER : start]
            at = start + int.from_bytes(length, "little")
            yield int.from_bytes(number, "little"), bytes(data[start:at])

    def end(self) -> None:
        """Kill the process if it still runs, and reap it."""
        os.close(self._results)
        with suppress(ChildProcessError):  # other code has reaped it, or SIGCHLD is ignored
            if not self._complete and os.waitpid(self._number, os.WNOHANG)[0] == 0:
                os.kill(self._number, signal.SIGKILL)
            elif not self._complete:
                return
            os.waitpid(self._number, 0)


__all__ = ["Compiled", "compile_kernels", "processes_for"]
