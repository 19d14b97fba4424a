"""The cores that this process may use.

usable_cores() -> int                   by affinity and cgroup quota
cgroup_quota() -> float | None
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator
from pathlib import Path


def usable_cores(root: Path = Path("/")) -> int:
    """The number of cores that this process may use: the minimum of its affinity mask and the cgroup (v1 or
    v2) CPU quota rounded up, at least 1.

    `root` is the folder that contains `proc` and `sys`.
    """
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:
        count = os.cpu_count() or 1
    if platform.system() == "Linux":
        quota = cgroup_quota(root)
        if quota is not None:
            count = min(count, math.ceil(quota))
    return max(1, count)


def cgroup_quota(root: Path = Path("/")) -> float | None:
    """The smallest CPU quota of this process's cgroups and their ancestors, in cores; None if there is
    none."""
    found = [quota for folder in cgroup_folders("cpu", root) for quota in _quota_of(folder)]
    return min(found, default=None)


def cgroup_folders(controller: str, root: Path = Path("/")) -> Iterator[Path]:
    """The folders of this process's cgroups (v1 or v2) and of their ancestors, which may contain limits."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    base = root / "sys/fs/cgroup"
    combined = [base / "cpu,cpuacct"] if controller == "cpu" else []
    for line in lines:
        fields = line.split(":", 2)
        if len(fields) != 3:
            continue
        _, controllers, path = fields
        if controllers == "":
            mounts = [base, base / "unified"]
        elif controller in controllers.split(","):
            mounts = [base / controllers, base / controller, *combined]
        else:
            continue
        for mount in mounts:
            yield from _upward(mount, path)


def _upward(mount: Path, path: str) -> list[Path]:
    """The folder of a cgroup and its ancestors up to the mount. In a container only the mount may exist."""
    parts = [part for part in path.split("/") if part and part != ".."]
    return [mount.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]


def _quota_of(folder: Path) -> list[float]:
    """The CPU quota of a cgroup in cores; empty if it has none."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        elif (folder / "cpu.cfs_quota_us").exists():
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        else:
            return []
        if quota == "max" or int(quota) <= 0 or int(period) <= 0:
            return []
        return [int(quota) / int(period)]
    except (OSError, ValueError):
        return []


__all__ = ["cgroup_folders", "cgroup_quota", "usable_cores"]
