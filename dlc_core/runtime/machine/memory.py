"""The memory that this process may still take.

available_memory() -> int | None        bytes; None where the system does not say
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from dlc_core.diag import RuntimeFailure, bytes_text
from dlc_core.runtime.machine.cores import cgroup_folders

SMALL = 1 << 28
"""Bytes up to which nobody asks whether there are so many."""


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that can be used without anybody being stopped for them, containers considered.

    What caches of files hold can be given back, and swap counts.  `root` is the folder below which `proc` and
    `sys` are looked for.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        facts = {key: int(rest.split()[0]) << 10 for key, _, rest in (line.partition(":") for line in lines)}
        free = facts["MemAvailable"] + facts.get("SwapFree", 0)
    except (OSError, ValueError, KeyError, IndexError):
        return None
    return min((free, *_left_in_cgroups(root)))


def _left_in_cgroups(root: Path) -> Iterator[int]:
    for folder in cgroup_folders("memory", root):
        for limit, used, cached in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            try:
                most = int((folder / limit).read_text())
                now = int((folder / used).read_text())
                stat = (folder / "memory.stat").read_text().splitlines()
            except (OSError, ValueError):  # no such file, or "max"
                continue
            given_back = next((int(line.split()[1]) for line in stat if line.split()[:1] == [cached]), 0)
            yield max(0, most - now + given_back)


def check_memory(scratch: int, results: int, release: Callable[[], None], sizes: str) -> None:
    """RuntimeFailure where there are not so many bytes for a call; `sizes` says which call it is.

    `release` gives back what is kept for coming calls, before they are refused.
    """
    need = scratch + results
    if need <= SMALL:
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
            hint="give it smaller inputs; exe.memory.at(...) tells what others take",
        )


__all__ = ["available_memory", "check_memory"]
