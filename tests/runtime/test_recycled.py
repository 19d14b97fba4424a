"""Memory that lasts: results whose memory serves again, and large pages."""

from __future__ import annotations

import mmap
import threading

import numpy as np
import pytest

from dlc_core.diag import RuntimeFailure
from dlc_core.runtime.memory.host import ALIGN, LARGE_FROM, LARGE_PAGE, address, lasting_bytes
from dlc_core.runtime.memory.recycled import LARGE, Recycled

FLOAT = np.dtype(np.float32)
SHAPE = (LARGE // 4, 3)


def maker(pool, shape=SHAPE):
    (made,) = pool.makers([shape], [FLOAT])
    return made


def test_memory_serves_again_once_nobody_holds_the_result():
    make = maker(Recycled())
    first = make()
    assert first.shape == SHAPE
    assert first.dtype == FLOAT
    assert address(first) % ALIGN == 0
    place = address(first)
    second = make()
    assert not np.shares_memory(first, second)
    del first
    assert address(make()) == place


@pytest.mark.parametrize(
    "hold", [lambda a: a[5:], memoryview, np.from_dlpack], ids=["view", "bytes", "dlpack"]
)
def test_memory_that_is_seen_is_held(hold):
    make = maker(Recycled())
    first = make()
    first[...] = 7
    held = hold(first)
    del first
    others = [make() for _ in range(4)]
    for other in others:
        other[...] = 0
    assert np.all(np.asarray(held) == 7)


def test_results_that_callers_keep_are_theirs():
    """And no more is kept than callers are taken to hold at a time."""
    pool = Recycled()
    make = maker(pool)
    held = [make() for _ in range(5)]
    assert len({address(a) for a in held}) == 5
    last = {address(a) for a in held[-2:]}
    del held
    again = [make() for _ in range(3)]
    assert {address(a) for a in again[:2]} == last


def test_no_more_is_kept_than_the_largest_calls_need():
    """Other sizes make room first."""
    pool = Recycled()
    small, large = maker(pool), maker(pool, (LARGE, 4))
    for _ in range(3):
        small(), large()
    assert pool._bytes <= pool._most
    assert sum(size * len(kept) for size, kept in pool._kept.items()) == pool._bytes
    held = [large(), large()]
    places = {address(a) for a in held}
    del held
    assert {address(large()) for _ in range(4)} <= places
    pool.clear()
    assert not pool._kept


def test_small_results_are_no_concern():
    pool = Recycled()
    make = maker(pool, (3,))
    assert make().flags.owndata
    assert not pool._kept


def test_threads_never_share_a_result():
    pool = Recycled()
    make = maker(pool)
    wrong = []

    def work(number):
        for _ in range(400):
            mine = make()
            mine[0, 0] = mine[-1, -1] = number
            if not mine[0, 0] == mine[-1, -1] == number:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("size", [1, LARGE_FROM - 1, LARGE_FROM, LARGE_PAGE, 3 * LARGE_PAGE + 5])
def test_lasting_memory(size):
    memory = lasting_bytes(size)
    memory[...] = 255
    assert memory.shape == (size,)
    large = size >= LARGE_FROM and hasattr(mmap, "MADV_HUGEPAGE")
    assert address(memory) % (LARGE_PAGE if large else ALIGN) == 0


def test_there_may_be_no_memory():
    with pytest.raises(RuntimeFailure, match="cannot allocate"):
        lasting_bytes(1 << 60)
