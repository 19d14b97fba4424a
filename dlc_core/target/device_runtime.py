"""The C runtime of a device, for exported models (`dlc_core.backend.deploy`).

    RUNTIME = DeviceRuntime("npu", "npu_device_api", sources=(HERE / "npu_device.c",))
    TargetKind("npu", ..., runtime=RUNTIME)

The runtime implements the interface in C that `dlc_device.h` declares. Exported models contain the code of
their regions, and call the runtime to run it. `dlc_core.backend.deploy.HEADERS` has the path of the header.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dlc_core.support.record import record

if TYPE_CHECKING:
    from pathlib import Path


def _code(artifact: Any) -> bytes:
    code: bytes = artifact.code
    return code


@record(frozen=True)
class DeviceRuntime:
    """The C runtime of a device.

    `name` is the name in its table of functions. `symbol` is the function that returns the table:
    `const dlc_device_api *symbol(void)`.
    """

    name: str
    symbol: str
    sources: tuple[Path, ...] = ()
    """C99 files that are compiled with each exported model. They find `headers` and `dlc_device.h` by name.
    Without them, the program or `libraries` define `symbol`."""
    headers: tuple[Path, ...] = ()
    """Files that `sources` include."""
    libraries: tuple[str, ...] = ()
    """The libraries to link, as names for `-l`."""
    code: Callable[[Any], bytes] = _code
    """A function from the artefact of a region to the code that the runtime loads, by default its `code`.
    The compiling machine runs it, so it may call a compiler. Raises UnsupportedError for code that the
    runtime cannot run."""


__all__ = ["DeviceRuntime"]
