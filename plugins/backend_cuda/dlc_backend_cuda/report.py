"""The assembler's report on each kernel (registers, memory, spills), and its occupancy.

[1] CUDA C++ Best Practices Guide, chapter on occupancy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dlc_core.backend.occupancy import Grains, occupancy
from dlc_core.target import Description

_KERNEL = re.compile(r"Compiling entry function '(\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_GRAINS = Grains(registers=256, shared_bytes=1 << 10, groups=32)
"""Source: [1]."""

Report = dict[str, dict[str, int]]


def read_report(log: str) -> Report:
    """Parse the output of the assembler with `-v`: the facts of each kernel, by its name."""
    found: Report = {}
    now: dict[str, int] = {}
    for line in log.splitlines():
        if kernel := _KERNEL.search(line):
            now = found.setdefault(kernel[1], {})
        elif stack := _STACK.search(line):
            now["stack bytes"], now["spill bytes"] = int(stack[1]), int(stack[2]) + int(stack[3])
        elif used := _USED.search(line):
            now["registers"] = int(used[1])
            shared = _SHARED.search(line)
            now["shared bytes"] = int(shared[1]) if shared else 0
    return found


def with_occupancy(report: Report, threads: Mapping[str, int], machine: Description) -> Report:
    """Add to the report the threads per group of each kernel, if they are constant, and its occupancy in
    percent: the resident threads relative to the maximum of a multiprocessor [1].
    """
    for symbol, facts in report.items():
        count = threads.get(symbol)
        if count is not None and "registers" in facts:
            facts["group threads"] = count
            used = facts["registers"], facts["shared bytes"]
            facts["occupancy %"] = occupancy(machine, _GRAINS, count, *used)
    return report


__all__ = ["Report", "read_report", "with_occupancy"]
