"""Facts about the machine from the system: cache sizes and the processor.

cache_sizes() -> (L1d, L2, L3) in bytes
processor_facts() -> str                the processor's name and features
"""

from __future__ import annotations

import os
import re
from pathlib import Path

TYPICAL_CACHES = (32 << 10, 512 << 10, 8 << 20)


def cache_sizes() -> tuple[int, int, int]:
    """(L1d, L2, L3) in bytes of the first core: sysfs, else sysconf, else typical sizes."""
    sizes = _sysfs_caches(Path("/sys/devices/system/cpu/cpu0/cache"))
    names = ("SC_LEVEL1_DCACHE_SIZE", "SC_LEVEL2_CACHE_SIZE", "SC_LEVEL3_CACHE_SIZE")
    for level, name in enumerate(names):
        if not sizes[level] and name in getattr(os, "sysconf_names", {}):
            try:
                sizes[level] = max(0, os.sysconf(name))
            except (OSError, ValueError):
                continue
    if not sizes[0]:
        return TYPICAL_CACHES
    sizes[1] = sizes[1] or TYPICAL_CACHES[1]
    return sizes[0], sizes[1], sizes[2] or sizes[1]


def _sysfs_caches(folder: Path) -> list[int]:
    sizes = [0, 0, 0]
    try:
        for index in sorted(folder.glob("index[0-9]*")):
            level = int((index / "level").read_text())
            kind = (index / "type").read_text().strip()
            found = re.fullmatch(r"(\d+)([KMG]?)", (index / "size").read_text().strip())
            if found and kind in ("Data", "Unified") and 1 <= level <= 3:
                sizes[level - 1] = int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]
    except (OSError, ValueError):
        return [0, 0, 0]
    return sizes


_VARYING = ("processor", "cpu mhz", "bogomips", "apicid", "initial apicid", "core id", "physical id", "hart")


def processor_facts(path: Path = Path("/proc/cpuinfo")) -> str:
    """The name and features of the first processor; empty if the system does not report them."""
    lines = []
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:  # read only the first of possibly hundreds of processors
                if not line.strip():
                    break
                if line.partition(":")[0].strip().lower() not in _VARYING:
                    lines.append(line)
    except OSError:
        return ""
    return "".join(lines)


__all__ = ["TYPICAL_CACHES", "cache_sizes", "processor_facts"]
