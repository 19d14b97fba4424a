"""The OpenCL devices of this machine, and how the target options `platform` and `device` select one."""

from __future__ import annotations

from functools import cache
from typing import Any

from dlc_backend_opencl.pocl import name_processor
from dlc_core.diag import TargetError, UnsupportedError, problem_of

REMEDY = (
    'pip install "dlc-backend-opencl[device]", and a driver that has OpenCL;'
    " [pocl] instead of [device] installs PoCL, which makes the CPU a device"
)


@cache
def pyopencl() -> Any:
    """The module pyopencl. Raises UnsupportedError if it is not installed."""
    try:
        import pyopencl as found
    except ImportError as error:
        raise UnsupportedError(
            "pyopencl, which accesses OpenCL devices, is not installed", why=str(error), hint=REMEDY
        ) from None
    return found


def devices() -> list[tuple[int, int, Any]]:
    """All devices, as (number of the platform, number of the device, device). Raises UnsupportedError without
    pyopencl.
    """
    cl = pyopencl()
    try:
        return [
            (p, d, device)
            for p, platform in enumerate(cl.get_platforms())
            for d, device in enumerate(_of_platform(cl, platform))
        ]
    except cl.Error:  # the loader reports an error if there is no platform
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
    """A line for each device, with its numbers and names."""
    return [f"-platform={p} -device={d}: {v.name}, {v.platform.name}" for p, d, v in devices()]


def find_device(platform: str = "", device: str = "") -> Any:
    """The first device that matches. The options are numbers or parts of names; "" matches all.

    Raises UnsupportedError if there is no device, and TargetError if none matches.
    """
    found = devices()
    if not found:
        raise UnsupportedError("there is no OpenCL device on this machine", hint=REMEDY)
    for p, d, each in found:
        if _matches(platform, p, each.platform.name) and _matches(device, d, each.name):
            return each
    options = [f"-{name}={text}" for name, text in (("platform", platform), ("device", device)) if text]
    raise TargetError(
        f"no OpenCL device matches {' '.join(options)}",
        details=listed(),
        hint="choose one of these, by number or name",
    )


def _matches(selector: str, number: int, name: str) -> bool:
    if selector.isdecimal():
        return int(selector) == number
    return selector.lower() in name.lower()


def problem() -> str | None:
    """The reason in one line why no OpenCL device can be used; None if one can."""
    return problem_of(find_device)


__all__ = ["REMEDY", "devices", "find_device", "listed", "problem", "pyopencl"]
