"""Segments on devices whose launches block, run at the same time as other steps of a host program.

A launch on a `queued` device returns before it has finished. One on another device blocks its thread, so it
runs in a thread of its own, if there are steps to run before its results are needed. Which segments these are
follows from the program (`launches_beside`): a chain of segments never leaves the thread of the caller.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from contextvars import copy_context
from typing import Any

from dlc_core.graph.node import CALL_PRIM, GET, TUPLE, Node, functions_of, nodes_of

TUPLE_OPS = (GET, TUPLE)


class Running:
    """Work that runs in another thread, after `before` has ended."""

    def __init__(self, work: Callable[[], Any], before: Running | None) -> None:
        self._work: Callable[[], Any] | None = work
        self._context = copy_context()
        self._before = before
        self._is_cancelled = False
        self._ended = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do the work, in the thread that it was given to."""
        try:
            if self._before is not None:
                self._before.wait()
            if not self._is_cancelled and self._work is not None:
                self._result = self._context.run(self._work)
        except BaseException as error:  # noqa: BLE001  (it is raised in the thread that waits)
            self._error = error
        finally:
            self._work = self._before = None
            self._ended.set()

    def wait(self) -> None:
        """Wait until it has ended."""
        self._ended.wait()

    def result(self) -> Any:
        """Wait until it has ended. Raises what it raised."""
        self._ended.wait()
        if self._error is not None:
            raise self._error
        return self._result

    def cancel(self) -> None:
        """Do not begin the work if it has not begun."""
        self._is_cancelled = True


def run_beside(work: Callable[[], Any], before: Running | None = None) -> Running:
    """Run work in another thread, in the context of this one, after `before` has ended."""
    running = Running(work, before)
    try:
        worker = _IDLE.pop()
    except IndexError:
        worker = _Worker()
    worker.jobs.put(running)
    return running


def end_all(values: Sequence[Any]) -> None:
    """Wait for all running work among some values, after an error: what has not begun does not begin."""
    found = [value for value in values if isinstance(value, Running)]
    for running in found:
        running.cancel()
    for running in found:
        running.wait()


class _Worker:
    """A thread that runs one job after the other, and is idle in between. It does not keep the process
    alive.
    """

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[Running] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="dlc-segment", daemon=True).start()

    def _work(self) -> None:
        while True:
            job = self.jobs.get()
            job.run()
            del job
            _IDLE.append(self)


_IDLE: list[_Worker] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_IDLE.clear)


def tuples_last(order: Sequence[Node]) -> list[Node]:
    """The nodes with each tuple and field of a tuple right before its first use, so that it waits for no
    launch earlier than its users do.
    """
    found: list[Node] = []
    delayed: dict[Node, None] = {}

    def add(n: Node) -> None:
        needed = [n]
        for m in needed:
            needed += [arg for arg in m.args if arg in delayed and arg not in needed]
        for m in reversed(needed):
            if m in delayed or m is n:
                delayed.pop(m, None)
                found.append(m)

    for n in order:
        if n.op in TUPLE_OPS:
            delayed[n] = None
        else:
            add(n)
    for n in list(delayed):
        if n in delayed:
            add(n)
    return found


def launches_beside(
    order: Sequence[Node], lanes: Mapping[str, str], functions: Container[str] = ()
) -> dict[Node, int]:
    """The launches that run beside later steps, each with the index of the step that waits for it: the first
    one that needs its results, or that contains launches on the same device; the number of steps if there is
    none.

    `lanes` has the devices of the segments that may. A launch is among them if other steps, which are not
    launches on its device, come before the one that waits. `functions` are called by name; they may contain
    launches on all devices.
    """
    found: dict[Node, int] = {}
    first_use: dict[Node, int] = {}
    inner: list[tuple[int, set[str]]] = []
    for i, n in enumerate(order):
        for arg in n.args:
            first_use.setdefault(arg, i)
        within = _lanes_within(n, lanes, functions)
        if within:
            inner.append((i, within))
    for i, n in enumerate(order):
        lane = _lane(n, lanes)
        if lane is None:
            continue
        waiting = (k for k, within in inner if k > i and lane in within)
        needed = min(first_use.get(n, len(order)), next(waiting, len(order)))
        between = (m for m in order[i + 1 : needed] if m.op not in TUPLE_OPS)
        if any(_lane(m, lanes) != lane for m in between):
            found[n] = needed
    return found


def _lanes_within(n: Node, lanes: Mapping[str, str], functions: Container[str]) -> set[str]:
    """The devices of launches in the functions of a step."""
    found: set[str] = set()
    for m in (n, *nodes_of(*functions_of(n))):
        if m.op is CALL_PRIM and m.attrs["symbol"] in functions:
            return set(lanes.values())
        lane = None if m is n else _lane(m, lanes)
        if lane is not None:
            found.add(lane)
    return found


def _lane(n: Node, lanes: Mapping[str, str]) -> str | None:
    return lanes.get(n.attrs["symbol"]) if n.op is CALL_PRIM else None


__all__ = ["Running", "end_all", "launches_beside", "run_beside", "tuples_last"]
