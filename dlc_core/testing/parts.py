"""The parts of an executable that run on a device, and the same model on another device."""

from __future__ import annotations

from typing import Any

from dlc_core.runtime.executable import Executable
from dlc_core.target import Artifact, Target
from dlc_core.testing.where import is_same


def part_on(exe: Executable, target: Target) -> Executable | None:
    """The executable whose code runs on a target's device: `exe` itself, or its first region for this target.
    None if there is none.
    """
    parts = (exe, *exe.regions.values())
    return next((part for part in parts if is_same(part.target, target)), None)


def executable_on(exe: Executable, device: Any, artifact: Artifact | None = None) -> Executable:
    """The same model on another device, with its code not yet loaded.

    If `device` wraps one (its `inner`), it replaces that one, in regions too; otherwise it replaces the
    device of `exe`. `artifact`, if given, replaces the code of the first part on that device.
    """
    replaced = getattr(device, "inner", device)
    parts = (exe, *exe.regions.values())
    if all(part.device is not replaced for part in parts):
        replaced = exe.device
    first = next(part for part in parts if part.device is replaced)

    def moved(part: Executable) -> Executable:
        return Executable(
            part.signature,
            artifact if artifact is not None and part is first else part.artifact,
            part.weights,
            part.target,
            device if part.device is replaced else part.device,
            codegen=part.codegen,
            entry=part.entry,
            num_threads=part.num_threads,
            about=part.about,
            program=part.program,
            regions={name: moved(region) for name, region in part.regions.items()},
        )

    return moved(exe)


__all__ = ["executable_on", "part_on"]
