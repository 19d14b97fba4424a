"""Tile registers of x86 (AMX): the tile products of processors, and the permission of this process to use
tile registers.

Source: Linux, Documentation/arch/x86/xstate.rst.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dlc_backend_llvm.cpu import HostCpu
from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    from dlc_core.tir import matrix
else:
    matrix = lazy("dlc_core.tir.matrix")

ARCH_PRCTL, REQUEST, TILE_DATA = 158, 0x1023, 18
"""arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA): a process must request permission before it uses
tiles.
"""

_BYTES = tuple((a, b) for a in ("int8", "uint8") for b in ("int8", "uint8"))


def tiles_allowed() -> bool:
    """Request permission to use tile registers; whether Linux grants it."""
    if not sys.platform.startswith("linux"):
        return False
    asked: int = ctypes.CDLL(None, use_errno=True).syscall(ARCH_PRCTL, REQUEST, TILE_DATA)
    return asked == 0


def units_of(cpu: HostCpu) -> Iterator[matrix.MatrixUnit]:
    """The tile products of a processor. Each starts one row of its first operand per cycle."""
    if "amx-bf16" in cpu.tiles:
        yield matrix.tile_unit("bfloat16", "bfloat16", "float32", (16, 16, 32), products=16 * 32)
    if "amx-int8" in cpu.tiles:
        for a, b in _BYTES:
            yield matrix.tile_unit(a, b, "int32", (16, 16, 64), products=16 * 64)


__all__ = ["ARCH_PRCTL", "REQUEST", "TILE_DATA", "tiles_allowed", "units_of"]
