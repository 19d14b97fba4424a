"""How long a stream takes: three units with queues and tokens, simulated by the core's library.

- The fetch unit reads the stream through a port of its own, one instruction in ceil(64 / bus) cycles. It
  waits while the queue of the unit is full (an instruction leaves its queue as it begins).
- A transfer takes `latency` cycles and those of the bus (`transfer.beats`); loads and stores have a bus each.
- Gemm takes one block in a cycle, `outer inner (end - begin)` of them; Alu takes `alu_beat` cycles for each
  entry; both `STARTUP` cycles more, in which their pipelines fill.

Times follow from the stream alone, whatever the numbers are.
"""

from __future__ import annotations

from collections.abc import Iterable

from dlc_backend_vta.config import Config
from dlc_backend_vta.isa import Alu, Gemm, Instruction, Transfer, Unit, takes_and_gives
from dlc_backend_vta.transfer import beats
from dlc_core.backend.scratchpad.queues import Deadlock, Queues, Step, Timing

STARTUP = 8
"""Cycles in which the pipeline of an instruction of the unit compute fills."""


def duration(one: Instruction, config: Config) -> int:
    """Cycles from the beginning of an instruction to its end."""
    if isinstance(one, Transfer):
        return config.latency + beats(one, config)
    assert isinstance(one, (Gemm, Alu))
    blocks = one.outer * one.inner * (one.end - one.begin)
    return STARTUP + blocks * (1 if isinstance(one, Gemm) else config.alu_beat)


def simulate_within(program: Iterable[Instruction], config: Config, limit: int | None) -> Timing | None:
    """The cycles of a stream on an idle machine; None as soon as they are known to be more than `limit`.

    Deadlock, with the instructions that wait, where it does not come to its end.
    """

    def step(one: Instruction) -> Step:
        return Step(one.unit.name.lower(), duration(one, config), *takes_and_gives(one))

    depths = {unit.name.lower(): config.queue for unit in Unit}
    return Queues(depths, step, config.fetch, limit).run(program)


def simulate(program: Iterable[Instruction], config: Config) -> Timing:
    """The cycles of a stream on an idle machine; Deadlock where it does not come to its end."""
    made = simulate_within(program, config, None)
    assert made is not None
    return made


__all__ = ["STARTUP", "Deadlock", "Timing", "duration", "simulate", "simulate_within"]
