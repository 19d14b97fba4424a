"""The memory that is available to this process.

available_memory() -> int | None        bytes; None if unknown
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from dlc_core.diag import RuntimeFailure, bytes_text
from dlc_core.runtime.machine.cores import cgroup_folders

UNCHECKED = 1 << 28
"""The available memory is not checked for calls of at most this number of bytes."""


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that can be allocated without a process being killed, within the limits of its containers.

    Memory of file caches counts as available, and so does swap. `root` is the folder that contains `proc` and
    `sys`.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        facts = {key: int(rest.split()[0]) << 10 for key, _, rest in (line.partition(":") for line in lines)}
        free = facts["MemAvailable"] + facts.get("SwapFree", 0)
    except (OSError, ValueError, KeyError, IndexError):
        return None
    return min((free, *_available_in_cgroups(root)))


def _available_in_cgroups(root: Path) -> Iterator[int]:
    """Bytes that each cgroup of this process may still allocate."""
    for folder in cgroup_folders("memory", root):
        for limit, used, cached in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            try:
                maximum = int((folder / limit).read_text())
                current = int((folder / used).read_text())
                stat = (folder / "memory.stat").read_text().splitlines()
            except (OSError, ValueError):  # no such file, or "max"
                continue
            reclaimable = next((int(line.split()[1]) for line in stat if line.split()[:1] == [cached]), 0)
            yield max(0, maximum - current + reclaimable)


def check_memory(scratch: int, results: int, release: Callable[[], None], sizes: str) -> None:
    """Raise RuntimeFailure if there is not enough memory for a call. `sizes` describes the call in the error.

    If there is not, `release` first frees memory that is kept for later calls.
    """
    need = scratch + results
    if need <= UNCHECKED:
        return
    free = available_memory()
    if free is not None and need > free:
        release()
        free = available_memory()
    if free is not None and need > free:
        raise RuntimeFailure(
            f"this call takes {bytes_text(need)} of memory, and {bytes_text(free)} are available",
            why=f"it takes {bytes_text(scratch)} of scratch memory and {bytes_text(results)} for its results"
            + (f", where {sizes}" if sizes else ""),
            hint="give it smaller inputs; exe.memory.at(...) computes the memory of a call",
        )


__all__ = ["available_memory", "check_memory"]
