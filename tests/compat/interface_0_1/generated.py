"""The declarations of this package: the target kind, the code generator and the device `acme`."""

from dlc_core.backend import SimulatedDevice, SourceCodegen
from dlc_core.hooks import hookimpl
from dlc_core.target import COMPUTED, Description, Option, TargetKind

DLC_API = "0.1"


class Codegen(SourceCodegen):
    """C so far; override `dialect`, `writer` and `flags` for the language of the hardware."""

    name, kinds, format = "acme", ("acme",), "acme-source"


class Device(SimulatedDevice):
    """Simulated so far; override `alloc free write read load launch sync` for the hardware."""

    name, formats = "acme", ("acme-source",)
    memory_bytes = 8 << 30


KIND = TargetKind(
    "acme",
    doc="the accelerator acme",
    codegen="acme",
    device="acme",
    options=(Option("cores", "int", 1, "cores of the device"),),
    describe=lambda options: Description(
        vector_bits=256,  # of a vector register; 0 where there are none
        vector_registers=16,
        fma=True,
        caches=(32 << 10, 512 << 10),
        cores=options["cores"],
        dtypes=COMPUTED,  # those with arithmetic of their own; others are expressed by these
        parallel=False,  # whether `parallel` loops reach the code generator
    ),
)


@hookimpl
def dlc_targets():
    return [KIND]


@hookimpl
def dlc_codegens():
    return [Codegen()]


@hookimpl
def dlc_devices():
    return [Device()]
