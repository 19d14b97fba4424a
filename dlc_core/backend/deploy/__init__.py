"""Export of models with regions on devices: host programs in C, which call the C runtimes of the devices.

DeviceRuntime("npu", "npu_device_api", sources=(...,))    a vendor declares its runtime in its target kind
pack_launches(artifact, code)       code for runtimes that read lists of launches by `dlc_launches.h`
simulated_kernels(artifact, spelling)    a library of kernels for this machine, for simulators in C
HostProgram(exe, "net")             a code generator that exports uses it (see `host`)
"""

from typing import TYPE_CHECKING

from dlc_core.support.lazy import names_of

if TYPE_CHECKING:
    from dlc_core.backend.deploy.host import HEADERS, HostProgram
    from dlc_core.backend.deploy.launch_data import pack_launches, simulated_kernels
    from dlc_core.target.device_runtime import DeviceRuntime
else:
    __getattr__, __dir__ = names_of(
        __name__,
        {
            "host": "HEADERS HostProgram",
            "launch_data": "pack_launches simulated_kernels",
            "dlc_core.target.device_runtime": "DeviceRuntime",
        },
    )

__all__ = ["HEADERS", "DeviceRuntime", "HostProgram", "pack_launches", "simulated_kernels"]
