"""A library for accelerators with scratchpads, copies by DMA, and units with queues.

`rule` schedules kernels, `recording` makes a stream of commands, `tokens` orders the units, `cycles` gives
the time, `streaming` has the code generator and the simulated device that a vendor's package inherits.
"""

from dlc_core.backend.scratchpad.commands import Command, Operand
from dlc_core.backend.scratchpad.cycles import Timing, simulate
from dlc_core.backend.scratchpad.elementwise import ElementwiseRule
from dlc_core.backend.scratchpad.recording import record_commands
from dlc_core.backend.scratchpad.rule import ScratchpadRule
from dlc_core.backend.scratchpad.streaming import StreamCodegen, StreamDevice
from dlc_core.backend.scratchpad.tokens import check_tokens, synchronise

__all__ = [
    "Command",
    "ElementwiseRule",
    "Operand",
    "ScratchpadRule",
    "StreamCodegen",
    "StreamDevice",
    "Timing",
    "check_tokens",
    "record_commands",
    "simulate",
    "synchronise",
]
