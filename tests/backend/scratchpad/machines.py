"""Machines with scratchpads, and the way from a kernel to a stream."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core.backend.scratchpad import ElementwiseRule, ScratchpadRule, check_tokens, synchronise
from dlc_core.backend.scratchpad.commands import Command
from dlc_core.backend.scratchpad.cycles import Timing, simulate
from dlc_core.backend.scratchpad.execution import Memories, run
from dlc_core.backend.scratchpad.ordering import ordered
from dlc_core.backend.scratchpad.recording import Recorded, record_commands
from dlc_core.decisions import DECISIONS
from dlc_core.graph import Node, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.passes.base import PassContext
from dlc_core.passes.default_pipelines import default_pipeline
from dlc_core.plugin.registry import registry
from dlc_core.target import Description, MemoryScope, Unit
from dlc_core.testing.schedules import kernel_of, target_of
from dlc_core.tir.stmt import PrimFunc


def machine(pad: int = 1 << 16, acc: int = 1 << 14, banks: int = 16, align: int = 64) -> Description:
    """A machine with an array of 8 x 8."""
    return Description(
        parallel=False,
        memory_scopes=(
            "global",
            "local",
            MemoryScope("pad", bytes=pad, banks=banks, align=align),
            MemoryScope("acc", bytes=acc, banks=banks, align=align),
        ),
        units=(
            Unit("load", "load", rate=16, latency=20),
            Unit("array", "product", shape=(8, 8), startup=8),
            Unit("vector", "vector", rate=8, startup=4),
            Unit("store", "store", rate=16, latency=20),
        ),
    )


RULES = (
    ScratchpadRule("test.contraction", operands="pad", sums="acc"),
    ElementwiseRule("test.map", scope="pad"),
)


def tensor(name: str, *shape: int, dtype: str = "float32") -> Node:
    return param(name, tensor_type(shape, dtype))


def lowered(func: PrimFunc, description: Description, decisions: str = "") -> PrimFunc:
    """A kernel in its final form; `decisions` are forced."""
    pipeline = default_pipeline("tir", registry().passes)
    config = {DECISIONS: decisions} if decisions else {}
    context = PassContext(target=target_of(description), schedule_rules=RULES, config=config)
    made = pipeline.run(IRModule({func.name: func}, {}, func.name), context)[func.name]
    assert isinstance(made, PrimFunc)
    return made


def recorded(func: PrimFunc, description: Description) -> Recorded:
    return record_commands(IRModule({func.name: func}, {}, func.name), func, description)


def stream(func: PrimFunc, description: Description) -> tuple[Command, ...]:
    """The commands of a kernel in their final order, with tokens that are proved to suffice."""
    made = recorded(func, description).commands
    commands = synchronise([made[number] for number in ordered(made, description)])
    check_tokens(commands)
    return commands


def arguments(func: PrimFunc, seed: int = 0) -> list[np.ndarray]:
    """Flat arrays for the buffers of a kernel in its final form."""
    rng = np.random.default_rng(seed)
    found = []
    for buffer in func.buffers:
        (size,) = buffer.static_shape() or (0,)
        values = rng.integers(-50, 50, size)
        found.append(values.astype(buffer.dtype.numpy))
    return found


def executed(
    commands: Sequence[Command], description: Description, arrays: Sequence[np.ndarray]
) -> tuple[list[np.ndarray], Timing]:
    """The arrays after a run of a stream, and its times."""
    own = [array.copy() for array in arrays]
    timing = simulate(commands, description)
    run(commands, timing.spans, Memories(description, [array.view(np.uint8) for array in own]))
    return own, timing


__all__ = [
    "RULES",
    "arguments",
    "executed",
    "kernel_of",
    "lowered",
    "machine",
    "recorded",
    "stream",
    "tensor",
]
