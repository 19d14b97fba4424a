"""Right-hand sides in panels as wide as a register tile, so that tiles stream them: [panel][k…][column].

Constant ones are packed at compile time. A computed one can be packed in the kernel:

    for panel, k…, column (parallel): packed[panel, k…, column] = rhs[k…, column of the panel]
    the loop nest of the GEMM reads packed

Rows of a matrix in place are often a power of two apart. Then a panel falls on few sets of the caches, which
lose parts of it between two tiles, and no prefetcher follows it. The copy takes as long as few rows of the
result, so it is made for many rows. A right-hand side with K innermost is copied anyway.
"""

from __future__ import annotations

from dlc_core.diag import bytes_text
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.gemm_decisions import PACKING
from dlc_core.schedule.rules.cpu.heuristics import GEMM
from dlc_core.support.record import record


@record(frozen=True)
class Weights:
    """The extents of a right-hand side that can be packed; columns are those of a part."""

    lead: tuple[int | None, ...]
    inner: tuple[int | None, ...]
    """Reduction axes."""
    columns: int | None
    itemsize: int
    parts: int = 1
    """Parts of the columns that are packed separately."""
    group: int = 1
    """Neighbouring steps of the last reduction axis that are contiguous, for dot products."""

    def packed_shape(self, width: int) -> tuple[int, ...] | None:
        """Return the shape when packed in panels of `width` columns; None if it is symbolic."""
        if self.columns is None:
            return None
        inner = list(self.inner)
        if self.group > 1:
            inner[-1] = None if inner[-1] is None else -(-inner[-1] // self.group)
        shape = (self.parts, *self.lead, -(-self.columns // width), *inner, width * self.group)
        known = [extent for extent in shape if extent is not None]
        return tuple(known) if len(known) == len(shape) else None


@record(frozen=True)
class Packable:
    """A computed right-hand side of known sizes that can be packed in the kernel."""

    weights: Weights
    copied: bool = False
    """Whether it is copied anyway, because K is innermost in memory."""


def packs(packable: Packable, rows: int | None, steps: int, width: int, machine: Machine) -> bool:
    """Whether to pack a computed right-hand side, which all `rows` of the result read.

    `steps` is K, and `width` the number of columns of a panel.
    """
    panel = steps * width * packable.weights.itemsize
    why = _why_in_place(packable, rows, panel, machine)
    copy = "it is copied anyway" if packable.copied else "tiles would lose parts of a panel between two uses"
    reasons = {"in_place": copy, "panels": why}
    return PACKING.choose("in_place" if why else "panels", refused=reasons.__getitem__) == "panels"


def _why_in_place(packable: Packable, rows: int | None, panel: int, machine: Machine) -> str:
    """Why a right-hand side is not packed; empty if it is."""
    caches = machine.description.caches
    if machine.short_code or len(caches) < 2:
        return "memory is small"
    if packable.copied:
        return ""
    if rows is None or rows < GEMM.min_packed_rows:
        return f"the copy costs more than it saves for {rows or 'a symbolic number of'} rows"
    if 2 * panel <= caches[0]:
        return f"L1 holds a panel of {bytes_text(panel)}"
    return ""


__all__ = ["Packable", "Weights", "packs"]
