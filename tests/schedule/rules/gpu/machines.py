"""Machines with thread axes, as descriptions, and a target that interprets launches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc_core.hooks import hookimpl
from dlc_core.target import STAGES, Description
from dlc_core.target.reference import KIND

USUAL = Description(
    thread_axes={
        "block.x": (1 << 31) - 1,
        "block.y": 65535,
        "block.z": 65535,
        "thread.x": 1024,
        "thread.y": 1024,
        "thread.z": 64,
    },
    memory_scopes=("global", "shared", "local"),
    group_threads=1024,
    shared_bytes=48 << 10,
    subgroup=32,
    thread_registers=255,
    unit_registers=1 << 16,
    unit_threads=2048,
    unit_shared_bytes=96 << 10,
    cores=8,
    parallel=False,
)
SMALL = replace(
    USUAL,
    thread_axes={"blockIdx": 65535, "threadIdx": 256},
    group_threads=256,
    shared_bytes=16 << 10,
    subgroup=0,
    thread_registers=0,
    unit_registers=0,
    unit_threads=0,
    unit_shared_bytes=0,
    cores=2,
)
"""One axis of each kind, no subgroups, little memory, an unknown number of registers."""
NARROW = replace(
    USUAL, thread_axes={"block.x": 3, "thread.x": 16, "thread.y": 4}, group_threads=32, subgroup=4
)
"""So few groups and threads that most kernels loop over several tiles."""
QUICK = replace(
    USUAL,
    thread_axes={"block.x": (1 << 31) - 1, "thread.x": 32, "thread.y": 8},
    group_threads=32,
    subgroup=8,
    shared_bytes=4 << 10,
    cores=2,
)
"""Small groups, so that interpretation is fast."""
machines = pytest.mark.parametrize(
    "machine",
    [
        pytest.param(USUAL, id="usual"),
        pytest.param(SMALL, id="small", marks=pytest.mark.slow),
        pytest.param(NARROW, id="narrow", marks=pytest.mark.slow),
    ],
)


class Launching:
    """The plugin of the target `launching`, whose kernels run in the interpreter. Races are errors."""

    def __init__(self, machine: Description = QUICK) -> None:
        self.machine = machine

    @hookimpl
    def dlc_targets(self):
        level, check, *others = KIND.options
        options = (replace(level, default="tir"), replace(check, default=True), *others)
        return [
            replace(
                KIND, name="launching", options=options, stages=STAGES, describe=lambda options: self.machine
            )
        ]
