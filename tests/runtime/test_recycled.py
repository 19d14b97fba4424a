"""Long-lived memory: reuse of the memory of results, and large pages."""

from __future__ import annotations

import mmap
import threading

import numpy as np
import pytest

from dlc_core.diag import RuntimeFailure
from dlc_core.runtime.memory.host import ALIGN, LARGE_PAGE, MIN_LARGE, address, long_lived_bytes
from dlc_core.runtime.memory.recycled import LARGE, Recycled

FLOAT = np.dtype(np.float32)
SHAPE = (LARGE // 4, 3)


def allocator(pool, shape=SHAPE):
    (made,) = pool.allocators([shape], [FLOAT])
    return made


def test_memory_is_reused_after_the_result_is_freed():
    allocate = allocator(Recycled())
    first = allocate()
    assert first.shape == SHAPE
    assert first.dtype == FLOAT
    assert address(first) % ALIGN == 0
    reused = address(first)
    second = allocate()
    assert not np.shares_memory(first, second)
    del first
    assert address(allocate()) == reused


@pytest.mark.parametrize(
    "hold", [lambda a: a[5:], memoryview, np.from_dlpack], ids=["view", "bytes", "dlpack"]
)
def test_views_keep_memory(hold):
    allocate = allocator(Recycled())
    first = allocate()
    first[...] = 7
    held = hold(first)
    del first
    others = [allocate() for _ in range(4)]
    for other in others:
        other[...] = 0
    assert np.all(np.asarray(held) == 7)


def test_kept_results_have_their_own_memory():
    """At most the memory of `CALLS` results is kept after they are freed."""
    pool = Recycled()
    allocate = allocator(pool)
    held = [allocate() for _ in range(5)]
    assert len({address(a) for a in held}) == 5
    last = {address(a) for a in held[-2:]}
    del held
    again = [allocate() for _ in range(3)]
    assert {address(a) for a in again[:2]} == last


def test_keeps_at_most_the_results_of_the_largest_calls():
    """Blocks of other sizes are dropped first."""
    pool = Recycled()
    small, large = allocator(pool), allocator(pool, (LARGE, 4))
    for _ in range(3):
        small(), large()
    assert pool._bytes <= pool._limit
    assert sum(size * len(kept) for size, kept in pool._kept.items()) == pool._bytes
    held = [large(), large()]
    blocks = {address(a) for a in held}
    del held
    assert {address(large()) for _ in range(4)} <= blocks
    pool.clear()
    assert not pool._kept


def test_small_results_are_not_kept():
    pool = Recycled()
    allocate = allocator(pool, (3,))
    assert allocate().flags.owndata
    assert not pool._kept


def test_threads_never_share_a_result():
    pool = Recycled()
    allocate = allocator(pool)
    wrong = []

    def work(number):
        for _ in range(400):
            mine = allocate()
            mine[0, 0] = mine[-1, -1] = number
            if not mine[0, 0] == mine[-1, -1] == number:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("size", [1, MIN_LARGE - 1, MIN_LARGE, LARGE_PAGE, 3 * LARGE_PAGE + 5])
def test_long_lived_memory_is_in_large_pages(size):
    memory = long_lived_bytes(size)
    memory[...] = 255
    assert memory.shape == (size,)
    large = size >= MIN_LARGE and hasattr(mmap, "MADV_HUGEPAGE")
    assert address(memory) % (LARGE_PAGE if large else ALIGN) == 0


def test_refuses_too_large_allocations():
    with pytest.raises(RuntimeFailure, match="cannot allocate"):
        long_lived_bytes(1 << 60)
