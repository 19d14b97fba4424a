"""The device of a target, and the artefacts that plugins return, checked."""

from __future__ import annotations

from typing import Any

from dlc_core.diag import DlcError, TargetError
from dlc_core.plugin.registry import registry
from dlc_core.plugin.used import provider_text
from dlc_core.runtime.device import device_at
from dlc_core.target import Artifact, Target


def device_of(target: Target) -> Any:
    """The device that runs code for a target; None if its kind names none that is installed.

    Raises TargetError if the device cannot choose by the target's options.
    """
    name = target.device
    try:
        return device_at(registry().devices.get(name), target)
    except DlcError:
        raise
    except Exception as error:
        raise TargetError(
            f"device {name!r} cannot be chosen for {target}",
            why=f"{type(error).__name__}: {error}",
            details=filter(None, [provider_text("devices", name)]),
        ) from error


def checked_artifact(made: Any, target: Target, maker: str) -> Artifact:
    """The artefact that `maker` returned for a target.

    Raises TargetError if it is none, or if the target's device does not run its format.
    """
    if not isinstance(made, Artifact):
        why = f"it returned a {type(made).__name__}"
        raise TargetError(f"{maker} made no code for {target}", why=why, hint="it must return an Artifact")
    device = device_of(target)
    if device is not None and made.format not in device.formats:
        raise TargetError(
            f"{maker} and device {device.name!r} do not fit each other for {target}",
            details=filter(None, [provider_text("devices", target.device)]),
            why=f"the code has the format {made.format!r}, and the device runs {', '.join(device.formats)}",
            hint="add the format to `formats` of the device, or name another device in the target kind",
        )
    return made


__all__ = ["checked_artifact", "device_of"]
