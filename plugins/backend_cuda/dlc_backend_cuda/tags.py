"""Names of usual cards, as targets of the kind `cuda`: architecture, number of multiprocessors, L2 cache.

The numbers are those of the white papers of the architectures and of the data sheets of the cards.  All other
figures are those of a typical card of the architecture (`architectures.py`).
"""

from __future__ import annotations

from dlc_core.target import TargetTag

_CARDS = (
    ("v100", 70, 80, 0), ("jetson-xavier-nx", 72, 6, 512), ("jetson-agx-xavier", 72, 8, 512),
    ("t4", 75, 40, 0), ("geforce-rtx-2080-ti", 75, 68, 5632), ("a100", 80, 108, 0), ("a10", 86, 72, 0),
    ("a40", 86, 84, 0), ("rtx-a6000", 86, 84, 0), ("geforce-rtx-3060", 86, 28, 3072),
    ("geforce-rtx-3070", 86, 46, 4096), ("geforce-rtx-3080", 86, 68, 5120),
    ("geforce-rtx-3090", 86, 82, 0), ("jetson-orin-nano", 87, 8, 0), ("jetson-orin-nx", 87, 8, 0),
    ("jetson-agx-orin", 87, 16, 0), ("l4", 89, 58, 49152), ("l40s", 89, 142, 0),
    ("geforce-rtx-4060", 89, 24, 24576), ("geforce-rtx-4070", 89, 46, 36864),
    ("geforce-rtx-4080", 89, 76, 65536), ("geforce-rtx-4090", 89, 128, 73728), ("h100", 90, 132, 0),
    ("h200", 90, 132, 0), ("b200", 100, 148, 0), ("geforce-rtx-5090", 120, 170, 0),
)  # fmt: skip
"""Names, numbers of architectures, multiprocessors, KiB of L2 cache if not those of the typical card; of
boards of several sizes, those of the largest."""


def _tag(card: str, number: int, units: int, cache: int) -> TargetTag:
    # Units of four warps are only in code for one architecture.
    arch = f"sm_{number}{'a' if number == 90 else ''}"
    return TargetTag(
        f"nvidia/{card}",
        f"cuda -arch={arch} -units={units} -model={card}",
        f"{arch}, {units} multiprocessors",
    )


_LONGER = ("v100", "t4", "a100", "a10", "a40", "h100")
"""Cards that TVM names with the manufacturer's name twice."""

TAGS = (
    *(_tag(*card) for card in _CARDS),
    *(_tag(f"nvidia-{name}", *rest) for name, *rest in _CARDS if name in _LONGER),
)

__all__ = ["TAGS"]
