"""The measure of a tuner for kernels of the kind `c` whose processor is that of an emulated board."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_backend_c.boards import BOARDS, Board, problem
from dlc_backend_c.boards.measure import Array, measure_cycles
from dlc_core.diag import UnsupportedError
from dlc_core.runtime.executable import Executable
from dlc_core.target import Target

TIMEOUT = 60.0
"""Seconds for the compiler and the emulator of one measurement."""


class BoardCycles:
    """Cycles on an emulated board, in place of times: one cycle is one executed instruction."""

    name = "c"
    unit = "cycles"
    deterministic = True

    def takes(self, target: Target) -> bool:
        """Whether the processor of a target is that of a board, and the tools to emulate it are here."""
        return _board_of(target) is not None and problem() is None

    def measure(
        self, exe: Executable, inputs: Sequence[Array], repeat: int
    ) -> tuple[Sequence[float], Sequence[Array]]:
        """The cycles of one run, and the outputs. Further runs would take as many cycles."""
        board = _board_of(exe.target)
        if board is None:
            raise UnsupportedError(f"no emulated board has the processor of {exe.target}")
        cycles, outputs = measure_cycles(exe, inputs, board.name, timeout=TIMEOUT)
        return [float(cycles)], outputs


def _board_of(target: Target) -> Board | None:
    return next((board for board in BOARDS.values() if board.cpu == target["mcpu"]), None)


MEASURE = BoardCycles()

__all__ = ["MEASURE", "BoardCycles"]
