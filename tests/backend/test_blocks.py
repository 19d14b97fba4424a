"""The accounting of device memory, also if the garbage collector frees a block inside another call."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable

import pytest

from dlc_core.backend.blocks import Blocks
from dlc_core.backend.queue import CommandQueue
from dlc_core.diag import RuntimeFailure

SECONDS = 30.0


def finishes(work: Callable[[], object]) -> bool:
    """Whether a thread finishes some work; one that waits for itself never does."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(SECONDS)
    return not thread.is_alive()


class Garbage:
    """An object in a reference cycle, which only the garbage collector frees."""

    def __init__(self, free: Callable[[], object]) -> None:
        self.cycle = self
        weakref.finalize(self, free)


def test_counts_bytes() -> None:
    blocks: Blocks[str] = Blocks("device 'a'", 100)
    first, second = blocks.add(60, lambda: "x"), blocks.add(40, lambda: "y")
    with pytest.raises(RuntimeFailure, match="out of memory"):
        blocks.add(1, lambda: "z")
    assert (blocks.take(first), blocks.used) == ("x", 40)
    with pytest.raises(RuntimeFailure, match="not allocated"):
        blocks.take(first)
    third = blocks.add(60, lambda: "z")
    assert [blocks.take(handle) for handle in (second, third)] == ["y", "z"]
    assert blocks.used == 0


def test_a_block_may_be_freed_while_another_is_made() -> None:
    blocks: Blocks[str] = Blocks("device 'a'", 100)
    old = blocks.add(60, lambda: "old")

    def make() -> str:
        Garbage(lambda: blocks.take(old))
        gc.collect()
        return "new"

    assert finishes(lambda: blocks.add(30, make))
    assert blocks.used == 30


def test_a_job_may_be_submitted_while_another_is() -> None:
    queue = CommandQueue("dlc-test")
    done: list[int] = []

    def job() -> None:
        done.append(1)

    class Collecting(threading.Thread):
        """A worker that is started while garbage is collected."""

        def start(self) -> None:
            Garbage(lambda: queue.submit(job))
            gc.collect()
            super().start()

    def work() -> None:
        queue.submit(job)
        queue.wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dlc_core.backend.queue.threading.Thread", Collecting)
        worker = threading._start_new_thread  # type: ignore[attr-defined]
        finished = threading.Event()
        worker(lambda: (work(), finished.set()), ())
        assert finished.wait(SECONDS)
    assert len(done) == 2
