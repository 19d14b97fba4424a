"""The target kind `dpu`: what schedules, and those who check them, know of the card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlc_backend_dpu.runtime import RUNTIME
from dlc_core.backend.compiler import compiler_problem
from dlc_core.diag import TargetError
from dlc_core.target import COMPUTED, Description, Option, TargetKind

GROUP_THREADS = 256
PAD = "dpu.pad"
"""The description's key for this package's own rule; rules are tried on every target."""
PAD_BYTES = 16 << 10
"""The shared memory of a group."""
DTYPES = tuple(name for name in COMPUTED if not name.endswith("float16"))
"""float16 and bfloat16 are no types of the language: the core expresses them by float32 and bits."""


def describe(options: Mapping[str, Any]) -> Description:
    """The record that schedules read."""
    cores = options["cores"]
    if cores < 1:
        raise TargetError(f"target option -cores={cores}", hint="give a number from 1")
    return Description(
        cores=cores,
        parallel=False,
        dtypes=DTYPES,
        memory_scopes=("global", "local", "shared"),
        thread_axes={
            "block.x": (1 << 31) - 1,
            "block.y": (1 << 16) - 1,
            "thread.x": GROUP_THREADS,
            "thread.y": GROUP_THREADS,
        },
        group_threads=GROUP_THREADS,
        shared_bytes=PAD_BYTES,
        subgroup=16,
        stack_bytes=4 << 10,
        frequency=1e9,
        memory_bandwidth=100e9,
        extra={PAD: True},
    )


KIND = TargetKind(
    name="dpu",
    doc="a card of threads and shared memory, simulated",
    codegen="dpu",
    device="dpu",
    options=(
        Option("cores", "int", 8, "cores of the card, each of which runs groups of threads"),
        Option("check", "bool", False, "whether the simulation reports stray accesses and races"),
    ),
    describe=describe,
    problem=compiler_problem,
    runtime=RUNTIME,
)

__all__ = ["DTYPES", "GROUP_THREADS", "KIND", "PAD", "PAD_BYTES"]
