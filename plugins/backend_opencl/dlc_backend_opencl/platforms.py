"""The OpenCL devices of this machine, by platform and device as options of the target name them."""

from __future__ import annotations

from functools import cache
from typing import Any

from dlc_backend_opencl.pocl import name_processor
from dlc_core.diag import TargetError, UnsupportedError, problem_of

REMEDY = (
    'pip install "dlc-backend-opencl[device]", and a driver that has OpenCL;'
    " [pocl] instead of [device] makes a device of this machine's processor"
)


@cache
def pyopencl() -> Any:
    """The package by which devices are reached; UnsupportedError where it is not installed."""
    try:
        import pyopencl as found
    except ImportError as error:
        raise UnsupportedError(
            "pyopencl is not installed, by which OpenCL devices are reached", why=str(error), hint=REMEDY
        ) from None
    return found


def devices() -> list[tuple[int, int, Any]]:
    """All devices with the numbers of their platform and of their own; UnsupportedError without pyopencl."""
    cl = pyopencl()
    try:
        return [
            (p, d, device)
            for p, platform in enumerate(cl.get_platforms())
            for d, device in enumerate(_of_platform(cl, platform))
        ]
    except cl.Error:  # that there is no platform is an error of the loader
        return []


def _of_platform(cl: Any, platform: Any) -> list[Any]:
    try:
        found = list(platform.get_devices())
    except cl.Error:
        return []
    for device in found:
        name_processor(device)
    return found


def listed() -> list[str]:
    """A line for each device: its numbers and names."""
    return [f"-platform={p} -device={d}: {v.name}, {v.platform.name}" for p, d, v in devices()]


def find_device(platform: str = "", device: str = "") -> Any:
    """The first device that the options fit: numbers, or parts of names, "" being any.

    Raises UnsupportedError where there is no device at all, TargetError where none fits.
    """
    found = devices()
    if not found:
        raise UnsupportedError("there is no OpenCL device on this machine", hint=REMEDY)
    for p, d, each in found:
        if _fits(platform, p, each.platform.name) and _fits(device, d, each.name):
            return each
    asked = [f"-{name}={text}" for name, text in (("platform", platform), ("device", device)) if text]
    raise TargetError(
        f"no OpenCL device is {' '.join(asked)}",
        details=listed(),
        hint="name one of these, by number or name",
    )


def _fits(wanted: str, number: int, name: str) -> bool:
    if wanted.isdecimal():
        return int(wanted) == number
    return wanted.lower() in name.lower()


def problem() -> str | None:
    """Why no OpenCL device can be used here, in a line; None where one can."""
    return problem_of(find_device)


__all__ = ["REMEDY", "devices", "find_device", "listed", "problem", "pyopencl"]
